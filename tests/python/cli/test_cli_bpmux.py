"""`ackline call` and `ackline serve --echo`, from the outside."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, ROOT, RunningReceiver, ackline, ackline_bytes, wait_until

from ackline import bpmux
from ackline.exceptions import AcklineError, LinkClosed, LinkTimeout, RequestClosed
from ackline.sansio import Machine, encode

Echo = Callable[..., RunningReceiver]
PAGE = ROOT / "docs" / "operations" / "json.md"


def call(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs `ackline call` to its end, in bytes."""
    return ackline_bytes("call", *arguments, given=given)


@contextmanager
def serving(serve: Callable[[bpmux.Connection], object]) -> Iterator[str]:
    """A listener in this process that serves one connection."""

    def run() -> None:
        try:
            serve(listener.accept(timeout=DEADLINE))
        except LinkClosed:
            return
        except AcklineError as error:
            failed.append(error)

    failed: list[AcklineError] = []
    with bpmux.listen("bpmux://127.0.0.1:0") as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield listener.url
        thread.join(DEADLINE)
    assert not thread.is_alive()
    assert failed == []


def documented(heading: str) -> dict[str, set[str]]:
    """The members of each line that a section of the page on JSON lines names, by the event."""
    text = PAGE.read_text("utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    table = re.findall(r"(?m)^\| `(\w+)` \| [^|]* \| (.*) \|$", text)
    rows = {event: set(re.findall(r"`(\w+)`", members)) for event, members in table}
    return {event: members for event, members in rows.items() if event != "event"}


def members_of(line: dict[str, object]) -> set[str]:
    """A line's members beside its name and its time."""
    return set(line) - {"event", "time"}


# ---- call ----


@pytest.mark.parametrize("payload", [b"hello", b"", b"\xff\x00\n no text", b"x" * 3_000_000])
def test_a_response_is_written_byte_for_byte(payload: bytes, echo: Echo, tmp_path: Path) -> None:
    server = echo()
    run = call(server.url, "-", given=payload)
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout == payload
    file = tmp_path / "asked"
    file.write_bytes(payload)
    assert call(server.url, f"@{file}").stdout == payload


def test_a_payload_stands_on_the_command_line(echo: Echo) -> None:
    assert call(echo().url, "grüße").stdout == "grüße".encode()


def test_json_lines_of_a_call_are_the_documented_ones(echo: Echo) -> None:
    members = documented("Lines of `ackline call --json`")
    server = echo()
    told = json.loads(call(server.url, "hé", "--json").stdout)
    assert (told["event"], told["payload"], told["bytes"]) == ("response", "hé", 3)
    assert members_of(told) == members["response"] - {"payload_hex"}
    told = json.loads(call(server.url, "-", "--json", given=b"\xff\x01").stdout)
    assert told["payload_hex"] == "ff01"
    assert members_of(told) == members["response"] - {"payload"}
    with serving(refuse) as url:
        told = json.loads(call(url, "x", "--json").stdout)
    assert (told["event"], told["payload"]) == ("closed", "not today")
    assert members_of(told) == members["closed"] - {"payload_hex"}
    told = json.loads(call("bpmux://127.0.0.1:1", "x", "--json").stdout)
    assert (told["event"], told["code"]) == ("failed", "unreached")
    assert members_of(told) == members["failed"]
    assert set(members) == {"response", "closed", "failed"}


def refuse(connection: bpmux.Connection) -> None:
    request = connection.accept(timeout=DEADLINE)
    assert isinstance(request, bpmux.Request)
    request.close(b"not today")
    connection.wait_ended(timeout=DEADLINE)


def test_a_request_that_is_closed_tells_its_payload_and_ends_with_3() -> None:
    with serving(refuse) as url:
        run = call(url, "x")
    assert (run.returncode, run.stdout) == (3, b"")
    assert run.stderr == b"ackline: the peer has closed the request: not today\n"


def test_control_characters_of_a_peer_are_escaped() -> None:
    payload = "grüße \\ \x1b[31m\r\n\x07\x7f\x9b2J\u2028\u202e\U000e0001".encode() + b"\xff"

    def serve(connection: bpmux.Connection) -> None:
        request = connection.accept(timeout=DEADLINE)
        assert isinstance(request, bpmux.Request)
        request.close(payload)
        connection.wait_ended(timeout=DEADLINE)

    with serving(serve) as url:
        run = call(url, "x")
    assert run.returncode == 3
    assert run.stderr.decode() == (
        "ackline: the peer has closed the request: grüße \\ "
        r"\u001b[31m\r\n\u0007\u007f\u009b2J\u2028\u202e\udb40\udc01\xff" + "\n"
    )


def test_a_peer_that_wants_no_requests_ends_with_3() -> None:
    def serve(connection: bpmux.Connection) -> None:
        connection.cancel(b"only streams here")
        # An earlier one is closed too.
        for incoming in connection:
            assert isinstance(incoming, bpmux.Request)
            incoming.close(b"only streams here")

    with serving(serve) as url:
        run = call(url, "x")
    assert (run.returncode, run.stdout) == (3, b"")
    assert run.stderr.startswith(b"ackline: the peer has closed the request: ")


def test_a_limit_is_named_as_the_option_that_it_is() -> None:
    def serve(connection: bpmux.Connection) -> None:
        connection.serve(on_request=lambda _: bytes(2000))

    with serving(serve) as url:
        run = call(url, "x", "--max-payload-bytes", "1000")
    assert run.returncode == 1
    assert run.stderr == b"ackline: 2000 is above 1000 (--max-payload-bytes)\n"


def test_a_violation_says_how_far_into_the_bytes_of_the_peer_it_is() -> None:
    good = encode("bpmux", [{"type": "credit", "stream": "top", "amount": 1000}])
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(good + b"\x8c")
                while peer.recv(65_536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        run = call("bpmux://{}:{}".format(*server.getsockname()), "x", "--json")
        thread.join(DEADLINE)
    told = json.loads(run.stdout)
    assert (run.returncode, told["code"]) == (1, "bpmux.invalid_chunk")
    assert told["message"].endswith(f" (at byte {len(good)} of the peer's bytes)")
    assert run.stderr.decode() == f"ackline: {told['message']}\n"


def test_no_response_in_time_ends_with_124_and_gives_the_request_up() -> None:
    given_up: list[bytes | None] = []

    def serve(connection: bpmux.Connection) -> None:
        request = connection.accept(timeout=DEADLINE)
        assert isinstance(request, bpmux.Request)
        given_up.append(request.wait_cancelled(timeout=DEADLINE))
        connection.wait_ended(timeout=DEADLINE)

    with serving(serve) as url:
        run = call(url, "x", "--timeout", "3")
    assert (run.returncode, run.stdout) == (124, b"")
    assert run.stderr == b"ackline: no response within 3 s\n"
    assert given_up == [b""]


def test_nobody_there_ends_with_69() -> None:
    run = call("bpmux://127.0.0.1:1", "x")
    assert (run.returncode, run.stdout) == (69, b"")
    assert b"127.0.0.1:1: " in run.stderr
    assert run.stderr.count(b"\n") == 1


def test_a_connection_that_breaks_ends_with_1() -> None:
    def serve(connection: bpmux.Connection) -> None:
        request = connection.accept(timeout=DEADLINE)
        connection.abort()
        assert isinstance(request, bpmux.Request)

    with serving(serve) as url:
        run = call(url, "x")
    assert (run.returncode, run.stdout) == (1, b"")
    assert run.stderr.startswith(b"ackline: the connection is over")


def test_a_response_above_the_limit_is_refused_by_its_code(echo: Echo) -> None:
    arguments = (echo().url, "-", "--max-payload-bytes", "1KiB", "--json")
    run = call(*arguments, given=b"x" * 1_025)
    assert run.returncode == 1
    assert json.loads(run.stdout)["code"] == "bpmux.limit_exceeded"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lumberjack://127.0.0.1:1", "x"], "is of lumberjack, not of bpmux"),
        (["bpmux://127.0.0.1", "x"], "port"),
        (["bpmux://127.0.0.1:1", "@/no/such/file"], "/no/such/file: No such file"),
        (
            ["bpmux://127.0.0.1:1", "x", "--max-payload-bytes", "much"],
            "bytes is much; it is a size such as",
        ),
        (["bpmux://127.0.0.1:1", "x", "--ca", "x.pem"], "ca"),
    ],
)
def test_wrong_usage_of_call_ends_with_2(arguments: list[str], says: str) -> None:
    run = ackline("call", *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert says in run.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_the_request_up_in_order(number: signal.Signals, code: int) -> None:
    asked, given_up = threading.Event(), threading.Event()

    def serve(connection: bpmux.Connection) -> None:
        request = connection.accept(timeout=DEADLINE)
        assert isinstance(request, bpmux.Request)
        asked.set()
        request.wait_cancelled(timeout=DEADLINE)
        connection.shutdown(timeout=DEADLINE)
        given_up.set()

    with serving(serve) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "ackline.cli", "call", url, "x"], stderr=subprocess.PIPE
        )
        assert asked.wait(DEADLINE)
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE)
    assert given_up.is_set()
    assert process.returncode == code
    assert said == f"ackline: stopped by {number.name}\n".encode()


# ---- serve ----


def test_everything_that_is_sent_comes_back(echo: Echo) -> None:
    server = echo()
    with bpmux.connect(server.url) as connection:
        assert connection.call(b"asked", timeout=DEADLINE) == b"asked"
        connection.sink.send_many([b"top", b"", b"level"], timeout=DEADLINE)
        top = [connection.stream.receive(timeout=DEADLINE) for _ in range(3)]
        assert top == [b"top", b"", b"level"]
        with connection.open_stream(b"say this", timeout=DEADLINE) as stream:
            assert (list(stream), stream.closed) == ([b"say this"], b"")
        duplex = connection.open_duplex(b"opening", timeout=DEADLINE)
        duplex.send_many([b"%d" % number for number in range(5_000)], timeout=DEADLINE)
        duplex.close(timeout=DEADLINE)
        assert list(duplex) == [b"%d" % number for number in range(5_000)]
        assert duplex.closed == b""
        sink = connection.open_sink(b"log", timeout=DEADLINE)
        sink.send_many([b"x" * 10_000] * 1_000, timeout=DEADLINE)
        sink.close(b"1000", timeout=DEADLINE)
    while (told := server.next("stats"))["served"] == 0 or told["connections"]:
        """The connection has not ended."""
    begun = {name: told[name] for name in ("requests", "sinks", "streams", "duplexes")}
    assert begun == dict.fromkeys(begun, 1)
    assert (told["served"], told["messages"], told["refused"]) == (1, 6_003, 0)
    assert told["bytes"] == 5 + 8 + sum(len(b"%d" % n) for n in range(5_000)) + 10_000_000
    assert server.stop() == 0


def test_thousands_of_duplexes_are_echoed_at_once(echo: Echo) -> None:
    with bpmux.connect(echo().url) as connection:
        opened = [connection.open_duplex(b"", timeout=DEADLINE) for _ in range(2_000)]
        for number, duplex in enumerate(opened):
            duplex.send(b"%d" % number, timeout=DEADLINE)
        for number, duplex in enumerate(opened):
            assert duplex.receive(timeout=DEADLINE) == b"%d" % number
        for duplex in opened:
            duplex.close(timeout=DEADLINE)
            assert duplex.receive(timeout=DEADLINE) is None


def stuck_at(connection: bpmux.Connection, send: Callable[[], object]) -> int:
    """Sends until there is no room: the bytes of payload that have left by then."""
    kept = []  # a request that nobody waits for is given up
    with suppress(LinkTimeout):
        while connection.stats()["bytes_sent"] < 150 << 20:
            kept.append(send())
    return connection.stats()["bytes_sent"]


def test_a_client_that_does_not_read_its_echo_is_not_read_and_holds_nobody_up(echo: Echo) -> None:
    server = echo()
    slow, asking = (bpmux.connect(server.url, credit="manual") for _ in range(2))
    with bpmux.connect(server.url) as other:
        duplex = slow.open_duplex(b"", timeout=DEADLINE)
        piece = b"x" * 65_536
        assert stuck_at(slow, partial(duplex.send, piece, timeout=1)) < 24 << 20
        # Requests that wait for an answer are bounded too.
        assert stuck_at(asking, partial(asking.request, piece, timeout=1)) < 80 << 20
        assert other.call(b"quick", timeout=DEADLINE) == b"quick"
        duplex.grant_credit(1 << 20)
        assert duplex.receive(timeout=DEADLINE) == piece
    slow.abort()
    asking.abort()
    wait_until(lambda: server.next("stats")["connections"] == 0, "all have ended")
    assert server.stop() == 0


def test_mutual_tls_and_unix_sockets(echo: Echo, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "IP:127.0.0.1")
    own, own_key = pki.issue("client", "client", "DNS:client")
    path = tmp_path / "x.sock"
    files = ("--cert", cert, "--key", key, "--ca", pki.ca)
    server = echo(f"bpmux+unix://{path}", *files, url="bpmux+tls://127.0.0.1:0")
    urls = server.lines[0]["urls"]
    assert urls[1] == f"bpmux+unix://{path}"
    known = ("--ca", pki.ca, "--cert", own, "--key", own_key)
    assert call(urls[0], "secret", *known).stdout == b"secret"
    assert call(urls[1], "beside").stdout == b"beside"
    run = call(urls[0], "x", "--ca", pki.ca)
    assert run.returncode in {1, 69}, "the server wants a certificate, and says so late in TLS 1.3"
    run = call(urls[0], "x", "--ca", own)
    assert (run.returncode, run.stdout) == (69, b"")
    assert b"certificate" in run.stderr
    refused = server.next("refused")
    assert (refused["code"], refused["peer"]) == ("tls.certificate", None)
    assert server.stop() == 0


def test_input_that_is_no_bpmux_is_refused_by_peer_code_and_offset(echo: Echo) -> None:
    server = echo()
    host, port = server.url.removeprefix("bpmux://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as raw:
        raw.sendall(b"\xff" * 64)
        line = server.next("refused")
        assert line["peer"] == "{}:{}".format(*raw.getsockname())
    assert (line["protocol"], line["offset"], line["code"][:6]) == ("bpmux", 0, "bpmux.")
    assert "at byte" not in line["message"], "it has the offset beside it"
    wait_until(lambda: server.next("stats")["refused"] == 1, "it is counted")
    assert members_of(line) | {"times"} == documented("Lines of `ackline serve --json`")["refused"]
    assert server.stop() == 0


def raw(server: RunningReceiver) -> socket.socket:
    """A connection without a protocol."""
    host, port = server.url.removeprefix("bpmux://").split(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE)


def test_refused_connections_are_counted_at_the_end_too(echo: Echo) -> None:
    server = echo("--allow", "10.0.0.0/8")
    for _ in range(3):
        with raw(server) as peer, suppress(ConnectionError):
            assert peer.recv(1) == b""
    assert server.stop() == 0
    last = server.lines[-2]
    assert (last["event"], last["refused"]) == ("stats", 3)
    assert last["turned_away"] == {"link.not_allowed": 3}
    refused = [line for line in server.lines if line["event"] == "refused"]
    assert sum(line["times"] for line in refused) == 3


@pytest.mark.parametrize(
    ("option", "begins"), [("--pong-timeout", b""), ("--chunk-receive-timeout", b"\x80")]
)
def test_a_silent_client_is_refused_by_the_option(echo: Echo, option: str, begins: bytes) -> None:
    server = echo("--ping-after", "10ms", option, "50ms")
    with raw(server) as peer:
        peer.sendall(begins)
        line = server.next("refused")
        assert line["code"] == "bpmux.timeout"
        assert line["message"] == f"the peer was silent too long ({option})"
    assert server.stop() == 0
    server = echo("--ping-after", "off", "--chunk-receive-timeout", "off")
    with raw(server) as peer:
        peer.sendall(begins)
        wait_until(lambda: server.next("stats")["connections"] == 1, "it is there")
        assert server.next("stats")["connections"] == 1
    assert server.stop() == 0
    run = ackline("serve", "bpmux://127.0.0.1:0", "--echo", option, "0")
    assert run.returncode == 2
    assert f"{option} is 0; it is a time such as 10s" in run.stderr


def test_a_violation_behind_the_end_of_the_top_level_is_told_too(echo: Echo) -> None:
    server = echo()
    with raw(server) as peer:
        chunks: list[dict[str, object]] = [
            {"type": "credit", "stream": "top", "amount": 1000},
            {"type": "duplex", "id": 5, "payload": b""},
            {"type": "close_sink", "sink": "top", "payload": b""},
        ]
        good = encode("bpmux", chunks)
        peer.sendall(good + encode("bpmux", [chunks[-1]]))
        line = server.next("refused")
        assert (line["code"], line["offset"]) == ("bpmux.already_ended", len(good))
        assert line["peer"] == "{}:{}".format(*peer.getsockname())
    wait_until(lambda: server.next("stats")["connections"] == 0, "it has ended")
    assert server.stop() == 0
    assert server.lines[-2]["refused"] == 1
    assert [line["event"] for line in server.lines].count("refused") == 1


OPENED = 60_000
"""Sinks of a flood; each once leaked 1.3 KiB while the loop did nothing else."""


@pytest.mark.alone
def test_a_client_that_opens_and_closes_without_end_takes_no_memory_and_holds_nobody_up(
    echo: Echo,
) -> None:
    server = echo("--max-entities", "100")
    with bpmux.connect(server.url) as other, raw(server) as peer:
        other.call(b"warm", timeout=DEADLINE)
        before = peak(server.process.pid)
        flood = threading.Thread(target=peer.sendall, args=[open_and_close(OPENED)])
        flood.start()
        while (line := server.next("stats"))["sinks"] < OPENED:
            # It gets its turn meanwhile.
            assert other.call(b"quick", timeout=5) == b"quick"
        flood.join(DEADLINE)
        assert line["connections"] == 2, server.lines[-3:]
        assert peak(server.process.pid) - before < 40 << 20
    assert server.stop() == 0


@pytest.mark.alone
def test_empty_messages_whose_echo_is_not_read_take_no_memory(echo: Echo) -> None:
    server = echo()
    opened: list[dict[str, object]] = [
        {"type": "credit", "stream": "top", "amount": 1 << 60},
        {"type": "duplex", "id": 1, "payload": b""},
    ]
    kinds = [("msg", "sink", 1), ("msg", "sink", "top"), ("req", "id", 2)]
    for kind, name, value in kinds:
        empty: dict[str, object] = {"type": kind, name: value, "payload": b""}
        flood = encode("bpmux", [empty]) * 100_000
        before = peak(server.process.pid)
        with raw(server) as peer, suppress(TimeoutError):
            peer.sendall(encode("bpmux", opened))
            peer.settimeout(2)
            for _ in range(150):
                peer.sendall(flood)
        assert peak(server.process.pid) - before < 100 << 20, kind
    assert server.stop() == 0


def open_and_close(count: int) -> bytes:
    """Chunks that open a sink and close it."""
    kinds: list[tuple[str, str]] = [("sink", "id"), ("close_sink", "sink")]
    return encode(
        "bpmux",
        [
            {"type": kind, name: number, "payload": b""}
            for number in range(count)
            for kind, name in kinds
        ],
    )


def peak(pid: int) -> int:
    """The most bytes that a process has had in memory."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def test_json_lines_of_serve_are_the_documented_ones(echo: Echo) -> None:
    members = documented("Lines of `ackline serve --json`")
    server = echo()
    server.next("stats")
    assert server.stop() == 0
    seen = {line["event"]: members_of(line) for line in server.lines}
    assert seen["listening"] == members["listening"]
    assert seen["stats"] == members["stats"] - {"missed_lines"}
    assert seen["stopped"] == members["stopped"]
    assert [line["event"] for line in server.lines if "time" not in line] == ["listening"]
    assert set(members) == {"listening", "stats", "refused", "failed", "stopped"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_open_entities_in_order(number: signal.Signals, echo: Echo) -> None:
    server = echo()
    with bpmux.connect(server.url) as connection:
        duplex = connection.open_duplex(b"", timeout=DEADLINE)
        duplex.send(b"there", timeout=DEADLINE)
        assert duplex.receive(timeout=DEADLINE) == b"there"
        sink = connection.open_sink(b"", timeout=DEADLINE)
        sink.send(b"there", timeout=DEADLINE)
        assert connection.call(b"", timeout=DEADLINE) == b""
        assert server.stop(number) == 0
        assert sink.wait_cancelled(timeout=DEADLINE) == b"the server stops"
        assert duplex.wait_cancelled(timeout=DEADLINE) == b"the server stops"
        assert (duplex.receive(timeout=DEADLINE), duplex.closed) == (None, b"the server stops")
        connection.wait_ended(timeout=DEADLINE)
        with pytest.raises(AcklineError) as told:
            connection.call(b"late", timeout=DEADLINE)
        assert not isinstance(told.value, (LinkTimeout, RequestClosed))
    assert server.lines[-1]["event"] == "stopped"
    assert server.lines[-1]["cut"] == 0


def test_a_connection_that_does_not_end_is_cut_and_counted(echo: Echo) -> None:
    server = echo("--drain-timeout", "200ms")
    host, port = server.url.removeprefix("bpmux://").split(":")
    machine = Machine("bpmux", "endpoint")
    machine.call(0, "grant_credit", target="top", amount=1 << 20)
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as raw:
        machine.call(0, "open_duplex", id=1)
        raw.sendall(machine.poll_transmit(0))
        wait_until(lambda: server.next("stats")["duplexes"] == 1, "it is open")
        # Nobody acknowledges its end.
        assert server.stop() == 4
    assert server.lines[-1]["cut"] == 1


def test_a_mode_is_required_and_options_are_named() -> None:
    run = ackline("serve", "bpmux://127.0.0.1:0")
    assert run.returncode == 2
    assert run.stderr == "ackline: choose a service: --echo sends every message back\n"
    run = ackline("serve", "bpmux://127.0.0.1:0", "--echo", "--client-auth", "maybe")
    assert (run.returncode, run.stdout) == (2, "")
    assert "--client-auth is maybe; it is" in run.stderr
    run = ackline("serve", "lumberjack://127.0.0.1:0", "--echo")
    assert run.returncode == 2
    assert "Lumberjack is no protocol of this command" in run.stderr
    run = ackline("serve", "bpmux://127.0.0.1:0", "--echo", "--ca", "x.pem")
    assert run.returncode == 2
    assert run.stderr.startswith("ackline: --ca is an option of TLS, and no URL is +tls"), (
        run.stderr
    )
    run = ackline("serve", "bpmux://127.0.0.1:0", "--echo", "--memory", "1KiB")
    assert run.returncode == 2
    assert run.stderr.startswith("ackline: --memory is 1KiB; it is at least"), run.stderr
