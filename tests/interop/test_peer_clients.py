"""Clients that others wrote send to `ackline receive`; each event is compared byte for byte.

go-lumber, pylogbeat and python-logstash-async have files of their own.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
import pylogbeat
import pytest
from conftest import CORPUS, Tls, until
from logstash_async.transport import BeatsTransport

Receive = Callable[..., Any]
EventsOf = Callable[[Path], list[dict[str, Any]]]


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("level", ["0", "3"])
def test_ferro_lumberjack(
    receive: Receive, spool: Path, events_of: EventsOf, tls: Tls, level: str, *, secure: bool
) -> None:
    receiver = receive("--spool", str(spool), **({"url": tls.listen_url()} if secure else {}))
    authority = [str(tls.ca)] if secure else []
    address = f"{'localhost' if secure else '127.0.0.1'}:{receiver.port}"
    done = subprocess.run(
        [*peers.ferro_command(), "send", address, "40", level, *authority],
        input="".join(f"{line}\n" for line in CORPUS).encode(),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert int(done.stdout) == len(CORPUS)
    events = events_of(spool)
    assert [event["payload"] for event in events] == CORPUS
    # One count for all windows of a client: the ack is the last number, not the number of events.
    assert [event["sequence"] for event in events] == list(range(1, len(CORPUS) + 1))
    assert receiver.stop() == 0


@pytest.mark.parametrize(("events", "window"), [(5000, 100), (1234, 1000), (7, 1000)])
def test_npm_lumberjack_protocol(
    receive: Receive, spool: Path, events_of: EventsOf, tls: Tls, events: int, window: int
) -> None:
    # It announces a window once per connection and never marks the end of a shorter one.
    receiver = receive("--spool", str(spool), "--tail-idle", "0.3", url=tls.listen_url())
    sent = [
        {"line": f"ligne {n} é\t\u0001" + "x" * (n % 500), "host": "h", "n": str(n)}
        for n in range(events)
    ]
    command, environment = peers.node_command(str(receiver.port), str(tls.ca), str(window))
    done = subprocess.run(
        command, env=environment, input="".join(f"{json.dumps(each)}\n" for each in sent).encode(),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.decode()) == (0, "")
    acks = [int(line) for line in done.stdout.split()[:-2]]
    assert acks == sorted(acks)
    assert acks[-1] == events
    landed = events_of(spool)
    assert [pairs_of(event) for event in landed] == sent
    assert [event["sequence"] for event in landed] == list(range(1, events + 1))
    assert {event["attributes"]["lumberjack.version"] for event in landed} == {"1"}
    until(lambda: receiver.newer_stats()["unacked"] == 0, "nothing is left")
    assert not receiver.seen("refused")


def pairs_of(event: dict[str, Any]) -> dict[str, str]:
    parts = event["parts"]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mtls"])
@pytest.mark.parametrize("in_flight", ["0", "2"])
def test_go_lumber_over_tls(
    receive: Receive, spool: Path, events_of: EventsOf, tls: Tls, in_flight: str, *, mutual: bool
) -> None:
    url = tls.listen_url(ca=tls.ca, client_auth="required") if mutual else tls.listen_url()
    receiver = receive("--spool", str(spool), url=url)
    own = ["-cert", str(tls.client_cert), "-key", str(tls.client_key)] if mutual else []
    address = ["-addr", f"localhost:{receiver.port}", "-async", in_flight]
    done = subprocess.run(
        [*peers.golumber_command(), *address, "-batch", "50", "-ca", str(tls.ca), *own],
        input="".join(f"{line}\n" for line in CORPUS).encode(),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert int(done.stdout) == len(CORPUS)
    assert [event["payload"] for event in events_of(spool)] == CORPUS
    assert receiver.stop() == 0


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mtls"])
def test_pylogbeat_over_tls(
    receive: Receive, spool: Path, events_of: EventsOf, tls: Tls, *, mutual: bool
) -> None:
    url = tls.listen_url(ca=tls.ca, client_auth="required") if mutual else tls.listen_url()
    receiver = receive("--spool", str(spool), url=url)
    own = {"certfile": str(tls.client_cert), "keyfile": str(tls.client_key)} if mutual else {}
    with pylogbeat.PyLogBeatClient(
        "127.0.0.1", receiver.port, timeout=20, ssl_enable=True, ca_certs=str(tls.ca), **own
    ) as client:
        for first in range(0, len(CORPUS), 30):
            client.send([line.encode() for line in CORPUS[first : first + 30]])
    assert [event["payload"] for event in events_of(spool)] == CORPUS
    assert receiver.stop() == 0


@pytest.mark.parametrize("mutual", [False, True], ids=["tls", "mtls"])
def test_python_logstash_async_over_tls(
    receive: Receive, spool: Path, events_of: EventsOf, tls: Tls, *, mutual: bool
) -> None:
    url = tls.listen_url(ca=tls.ca, client_auth="required") if mutual else tls.listen_url()
    receiver = receive("--spool", str(spool), url=url)
    transport = BeatsTransport(
        "127.0.0.1", receiver.port, timeout=20, ssl_enable=True, ssl_verify=True,
        ssl_verify_flags=None, ca_certs=str(tls.ca),
        keyfile=str(tls.client_key) if mutual else None,
        certfile=str(tls.client_cert) if mutual else None,
    )  # fmt: skip
    transport.send([line.encode() for line in CORPUS])
    assert [event["payload"] for event in events_of(spool)] == CORPUS
    assert receiver.stop() == 0
