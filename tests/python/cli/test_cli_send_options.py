"""`ackline send` has the options of `ackline.lumberjack.connect`, and obeys them."""

import contextlib
import inspect
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, ackline
from support.lumberjack import ACK, write_events

from ackline import lumberjack
from ackline.cli.send import send
from ackline.exceptions import LinkTimeout


def test_send_takes_several_urls_and_options_of_the_writer(tmp_path, receiver):
    file = tmp_path / "events.jsonl"
    write_events(file, 500)
    one, two = receiver("--discard"), receiver("--discard")
    options = ["--batch-events", "10", "--batch-bytes", "1KiB", "--slow-start", "2", "--ttl", "1m"]
    sent = ackline("send", *options, "--max-in-flight", "1", f"{one.url},{two.url}", str(file))
    assert sent.returncode == 0, sent.stderr
    assert one.stop() == 0
    assert two.stop() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--batch-bytes", "x"], ["--batch-bytes", "0"], ["--ttl", "soon"], ["--ca", "/no"],
        ["--buffer-events", "1"], ["--buffer-bytes", "1MiB"], ["--batch-events", "0"],
        ["--read-timeout", "x"],
        ["--backoff-min", "off"], ["--backoff-max", "1ms"], ["--max-in-flight-bytes", "0"],
    ],
)  # fmt: skip
def test_send_names_a_wrong_option(wrong, tmp_path):
    file = tmp_path / "events.jsonl"
    write_events(file, 1)
    sent = ackline("send", *wrong, "lumberjack+tls://127.0.0.1:1", str(file))
    assert sent.returncode == 2, sent.stderr
    assert wrong[0] in sent.stderr


def test_send_speaks_tls_with_the_options_that_the_url_leaves_open(tmp_path, receiver):
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "DNS:logs.example")
    own_cert, own_key = pki.issue("web", "web", "DNS:web.example")
    running = receiver(
        "--discard", "--ca", pki.ca, "--cert", cert, "--key", key,
        url="lumberjack+tls://127.0.0.1:0",
    )  # fmt: skip
    tls = ["--ca", pki.ca, "--server-name", "logs.example", "--cert", own_cert, "--key", own_key]
    sent = ackline("send", *tls, running.url, "-", given='{"a":1}\n')
    assert sent.returncode == 0, sent.stderr
    sent = ackline("send", *tls[:2], "--timeout", "1", running.url, "-", given='{"a":1}\n')
    assert sent.returncode == 1
    assert "cannot connect to lumberjack+tls://127.0.0.1" in sent.stderr
    sent = ackline("send", *tls[:2], "lumberjack://127.0.0.1:1", "-", given="{}")
    assert sent.returncode == 2
    assert "ca is an option of TLS" in sent.stderr
    assert running.stop() == 0


def test_send_has_every_option_of_connect_by_its_name():
    of_connect = set(inspect.signature(lumberjack.connect).parameters)
    # A command reads no receipts; its url and its timeout for connecting are its own.
    assert of_connect - {"receipts", "connect_timeout"} <= set(inspect.signature(send).parameters)


def test_send_numbers_events_as_it_is_told(tmp_path, receiver):
    write_events(tmp_path / "events.jsonl", 5)
    spool = str(tmp_path / "spool")
    running = receiver("--spool", spool)
    file = str(tmp_path / "events.jsonl")
    for options in (["--version", "1"], ["--cumulative"]):
        sent = ackline("send", "--batch-events", "2", *options, running.url, file)
        assert sent.returncode == 0, sent.stderr
    assert running.stop() == 0
    lines = [json.loads(x) for x in ackline("spool", "cat", spool, "--json").stdout.splitlines()]
    shown = [(line["attributes"]["lumberjack.version"], line["sequence"]) for line in lines]
    assert shown[:5] == [("1", 1), ("1", 2), ("1", 1), ("1", 2), ("1", 1)]
    assert shown[5:] == [("2", 1), ("2", 2), ("2", 3), ("2", 4), ("2", 5)]


@contextlib.contextmanager
def a_host_that(answers: bytes) -> Iterator[tuple[str, list[float]]]:
    """A peer that answers all input with these bytes, and the times of its connections."""
    times: list[float] = []

    def serve(peer: socket.socket) -> None:
        times.append(time.monotonic())
        with peer, contextlib.suppress(OSError):
            while peer.recv(65536):
                peer.sendall(answers)

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"lumberjack://127.0.0.1:{server.getsockname()[1]}", times
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "options", [["--read-timeout", "200ms"], ["--progress-timeout", "200ms"], []], ids=" ".join
)
def test_send_leaves_a_host_that_is_silent_or_makes_no_progress(options):
    waits = ["--backoff-min", "10ms", "--backoff-max", "20ms", "--timeout", "5"]
    keepalive = ACK + b"\0" if "--progress-timeout" in options else b""
    with a_host_that(keepalive) as (url, times):
        sent = ackline("send", *options, *waits, url, "-", given="{}")
    assert sent.returncode == 1
    connections = len(times)
    assert 3 <= connections <= 26 if options else connections == 1, connections


def test_send_waits_longer_between_attempts_as_it_is_told():
    options = ["--read-timeout", "10ms", "--timeout", "2"]
    with a_host_that(b"") as (url, often):
        ackline("send", *options, "--backoff-min", "1ms", "--backoff-max", "1ms", url, "-",
                given="{}")  # fmt: skip
    with a_host_that(b"") as (url, seldom):
        ackline("send", *options, "--backoff-min", "1h", "--backoff-max", "1h", url, "-",
                given="{}")  # fmt: skip
    assert len(often) > 5
    assert len(seldom) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--buffer-events", "2"],
        ["--buffer-bytes", "90", "--batch-bytes", "90"],
        ["--max-in-flight-events", "2"],
        ["--max-in-flight-bytes", "90"],
    ],
    ids=" ".join,
)
def test_send_holds_the_limits_of_its_buffer_and_in_flight(options):
    event = json.dumps({"text": "x" * 20})
    writing = ["send", "--json", "--batch-events", "1", "--compression", "0", "--timeout", "20"]
    with (
        lumberjack.listen("lumberjack://127.0.0.1:0") as listener,
        subprocess.Popen(
            [sys.executable, "-m", "ackline.cli", *writing, "--max-in-flight", "9", *options,
             listener.url, "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(f"{event}\n" * 5)
        process.stdin.flush()
        first, second = (listener.receive(timeout=DEADLINE) for _ in range(2))
        with pytest.raises(LinkTimeout):
            listener.receive(timeout=0.3)
        first.ack()
        second.ack()
        for _ in range(3):
            listener.receive(timeout=20).ack()
        out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert json.loads(out)["acked"] == 5


def test_send_takes_the_number_of_events_for_an_acknowledgement(tmp_path):
    write_events(tmp_path / "events.jsonl", 4)
    options = ["--cumulative", "--batch-events", "2", "--max-in-flight", "1", "--compression", "0"]
    file = str(tmp_path / "events.jsonl")
    with a_host_that(ACK + b"\2") as (url, _):
        sent = ackline("send", *options, "--accept-count-acks", url, file)
        assert sent.returncode == 0, sent.stderr
    with a_host_that(ACK + b"\2") as (url, _):
        sent = ackline("send", *options, "--timeout", "1", url, file)
        assert sent.returncode == 1
