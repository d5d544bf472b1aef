"""The receiver's acceptor from the outside: proxies, limits, health checks, restarts, stops."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline, wait_until

from ackline import Receiver, lumberjack
from ackline.aio import lumberjack as aio
from ackline.exceptions import UsageError

V1 = b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 5044\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack(
    ">H4s4sHH", 12, b"\xc0\0\2\7", bytes(4), 40000, 1
)
WINDOW = b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x02{}"
ACK = b"2A\0\0\0\x01"


def connect(url: str) -> socket.socket:
    host, port = url.rpartition("//")[2].rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=DEADLINE)


def read_ack(link: socket.socket) -> bytes:
    """The next acknowledgement that is no keepalive, or the bytes before the end."""
    while True:
        ack = b""
        while len(ack) < 6 and (more := link.recv(6 - len(ack))):
            ack += more
        if ack != b"2A\0\0\0\0":
            return ack


@contextmanager
def listening(**options: Any) -> Iterator[lumberjack.Listener]:
    with lumberjack.listen("lumberjack://127.0.0.1:0", **options) as listener:
        yield listener


@pytest.mark.parametrize("header", [V1, V2], ids=["v1", "v2"])
def test_a_window_names_its_sender_behind_a_proxy(header: bytes) -> None:
    with listening(proxy_from="127.0.0.0/8,::1") as listener, connect(listener.url) as link:
        link.sendall(header + WINDOW)
        window = listener.receive(timeout=DEADLINE)
        assert (window.peer, window.sender) == ("192.0.2.7:40000", "192.0.2.7")
        assert window.attributes["proxy"].startswith("127.0.0.1:")
        window.ack()
        assert read_ack(link) == ACK


@pytest.mark.parametrize(
    ("options", "bytes_", "code"),
    [
        ({}, V1, "proxy.untrusted"),
        ({"proxy_from": "10.0.0.0/8"}, V2, "proxy.untrusted"),
        ({"proxy_from": "127.0.0.1"}, WINDOW, "proxy.missing"),
        ({"proxy_from": "127.0.0.1"}, V1 + V2, "proxy.twice"),
        ({"proxy_from": "127.0.0.1"}, V2[:11] + b"!", "proxy.malformed"),
        ({"allow": "10.0.0.0/8,::1"}, WINDOW, "link.not_allowed"),
        ({}, b"\x16\x03\x01\x00\x05hello", "tls.unexpected"),
        ({}, b"POST /bulk HTTP/1.1\r\n", "link.http"),
        ({"proxy_from": "127.0.0.1", "handshake_timeout": 1}, V1[:-1], "link.timeout"),
        ({"proxy_from": "127.0.0.1", "first_byte_timeout": 1}, V2, "link.timeout"),
    ],
)
def test_a_refused_peer_is_named_and_ended_with_a_fin(
    options: dict[str, Any], bytes_: bytes, code: str
) -> None:
    with listening(**options) as listener:
        with connect(listener.url) as link:
            link.sendall(bytes_)
            while link.recv(100):  # a reset would raise
                pass
        wait_until(lambda: bool(listener.refused()), "it is told")
        assert listener.refused()[0][1] == code
        assert listener.turned_away == {code: 1}


def test_a_header_comes_byte_by_byte_and_a_long_one_is_skipped() -> None:
    tlvs = b"\x04" * (65_535 - 12)
    long = V2[:14] + b"\xff\xff" + V2[16:] + tlvs
    with listening(proxy_from="127.0.0.1") as listener:
        for header in (V1, V2, long):
            with connect(listener.url) as link:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                head, rest = header[:100], header[100:] + WINDOW
                for byte in head:
                    link.sendall(bytes([byte]))
                link.sendall(rest)
                window = listener.receive(timeout=DEADLINE)
                assert window.sender == "192.0.2.7"


def test_limits_turn_away_and_wrong_options_are_named() -> None:
    with listening(max_connections=1) as listener, connect(listener.url) as first:
        first.sendall(WINDOW)
        listener.receive(timeout=DEADLINE)
        for _ in range(30):
            with connect(listener.url) as more:
                assert more.recv(1) == b""
        wait_until(lambda: sum(listener.turned_away.values()) == 30, "all were counted")
    with listening(max_connections_per_address=1) as listener, connect(listener.url) as first:
        first.sendall(WINDOW)
        listener.receive(timeout=DEADLINE)
        with connect(listener.url) as more:
            assert more.recv(1) == b""
    for options in (
        {"proxy_from": "10.0.0.0/40"},
        {"allow": "home"},
        {"max_connections": 0},
        {"handshake_timeout": 0},
    ):
        with pytest.raises(UsageError, match=next(iter(options))):
            lumberjack.listen("lumberjack://127.0.0.1:0", **options)
    with pytest.raises(UsageError, match="allow"):
        aio.listen("lumberjack://127.0.0.1:0", allow="home")


def test_an_old_connection_ends_in_good_order() -> None:
    with listening(max_connection_age=0.2) as listener, connect(listener.url) as link:
        link.sendall(WINDOW + WINDOW[:9])
        listener.receive(timeout=DEADLINE).ack()
        assert read_ack(link) == ACK
        time.sleep(0.3)  # past its maximum age
        link.sendall(WINDOW[9:])
        listener.receive(timeout=DEADLINE).ack()
        assert (read_ack(link), link.recv(1)) == (ACK, b"")


def test_a_sender_above_its_rate_waits(tmp_path: Path) -> None:
    options = {"max_bytes_per_second": 50_000}
    event = b"2J\0\0\0\x01" + struct.pack(">I", 10_000) + b"x" * 10_000
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "s", options=options) as receiver:
        begin = time.monotonic()
        with connect(receiver.urls[0]) as link:
            link.sendall((b"2W\0\0\0\x01" + event) * 10)
            assert [read_ack(link) for _ in range(10)] == [ACK] * 10
        assert time.monotonic() - begin >= 0.7
        assert receiver.stats()["refused"] == 0


def test_health_checks_leave_no_trace_but_their_count(receiver, tmp_path) -> None:
    running = receiver("--spool", str(tmp_path / "spool"))
    for number in range(20):
        link = connect(running.url)
        if number % 2:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()
    while (stats := running.next("stats"))["health_checks"] < 20 or stats["connections"]:
        assert stats["health_checks"] <= 20
    assert (stats["refused"], stats["turned_away"], stats["connections"]) == (0, {}, 0)
    assert running.stop() == 0
    assert not [line for line in running.lines if line["event"] == "refused"]
    assert running.process.stderr is not None


def test_a_refusal_stands_in_a_line_and_in_the_log(receiver, tmp_path) -> None:
    running = receiver("--spool", str(tmp_path / "spool"), "--allow", "10.0.0.0/8")
    for _ in range(100):
        with connect(running.url) as link:
            link.sendall(WINDOW)
            assert link.recv(1) == b""
    told = running.next("refused")
    assert (told["code"], told["option"]) == ("link.not_allowed", "--allow")
    assert told["peer"].startswith("127.0.0.1:")
    while running.next("stats")["refused"] < 100:
        pass
    assert running.stop() == 0
    lines = [line for line in running.lines if line["event"] == "refused"]
    assert 5 <= len(lines) < 20
    assert running.lines[-1]["event"] == "stopped"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--proxy-from", "10.0.0.0/40"], "--proxy-from"),
        (["--allow", ""], "--allow"),
        (["--max-connections", "0"], "--max-connections"),
        (["--handshake-timeout", "off"], "--handshake-timeout"),
        (["--max-connection-age", "soon"], "--max-connection-age"),
        (["--max-bytes-per-second", "fast"], "--max-bytes-per-second"),
        (["--drain-timeout", "late"], "--drain-timeout"),
        (["--accept-rate", "-1"], "--accept-rate"),
    ],
)
def test_a_wrong_option_ends_with_2_and_its_name(arguments: list[str], named: str) -> None:
    done = ackline("receive", "lumberjack://127.0.0.1:0", "--discard", *arguments)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr


@pytest.mark.parametrize("share", [0.0001, 1, 1.0, "0.5"])
def test_a_senders_share_is_a_part(share: float | str) -> None:
    with Receiver(
        ["lumberjack://127.0.0.1:0"], discard=True, options={"max_sender_share": share}
    ) as receiver:
        assert receiver.stop() == 0


def test_the_limit_of_open_files_is_raised_for_the_connections() -> None:
    command = [
        "bash", "-c", 'ulimit -Sn 100; exec "$@"', "-", sys.executable, "-m", "ackline.cli",
        "receive", "--json", "--discard", "lumberjack://127.0.0.1:0",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    url = listening_line(process)["urls"][0]
    links = [connect(url) for _ in range(200)]
    links[-1].sendall(WINDOW)
    assert read_ack(links[-1]) == ACK
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    for link in links:
        link.close()


def inheriting(
    listener: socket.socket, spool: Path, stderr: int | None = None
) -> subprocess.Popen[str]:
    """A receiver that is handed a socket as systemd does it."""
    port = listener.getsockname()[1]
    shell = 'exec 3<&$0; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
    command = [
        "bash", "-c", shell, str(listener.fileno()), sys.executable, "-m", "ackline.cli", "receive",
        "--json", "--spool", str(spool), f"lumberjack://127.0.0.1:{port}",
    ]  # fmt: skip
    return subprocess.Popen(
        command, pass_fds=[listener.fileno()], stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def listening_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    assert line["event"] == "listening"
    return line


def test_a_peer_that_connects_during_a_restart_is_served(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"lumberjack://127.0.0.1:{listener.getsockname()[1]}"
        first = inheriting(listener, tmp_path / "spool")
        assert listening_line(first)["urls"] == [url]
        with connect(url) as link:
            link.sendall(WINDOW)
            assert read_ack(link) == ACK
        for number in (signal.SIGKILL, signal.SIGTERM):
            first.send_signal(number)
            first.communicate(timeout=DEADLINE)
            # No receiver runs, and no peer is refused.
            between = connect(url)
            between.sendall(WINDOW)
            first = inheriting(listener, tmp_path / "spool")
            listening_line(first)
            assert read_ack(between) == ACK
            between.close()
        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=DEADLINE)
        assert first.returncode == 0


def test_a_receiver_whose_last_socket_is_broken_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = inheriting(listener, tmp_path / "spool")
        url = listening_line(process)["urls"][0]
        with connect(url) as link:
            link.sendall(WINDOW)
            assert read_ack(link) == ACK
            # All copies of the socket stop listening, also the receiver's.
            listener.shutdown(socket.SHUT_RDWR)
            out, _ = process.communicate(timeout=DEADLINE)
    told = [json.loads(line) for line in out.splitlines()]
    (failed,) = [line for line in told if line["event"] == "failed"]
    assert failed["code"] == "receiver.accept"
    assert "no socket listens any more" in failed["message"]
    assert told[-1]["event"] == "stopped"
    assert process.returncode == 1


def test_an_inherited_socket_that_does_not_listen_is_passed_over(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        process = inheriting(bound, tmp_path / "spool", stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=DEADLINE)
    assert "link.inherited_unusable" in err
    assert "not listening" in err
    # Its address belongs to a socket that accepts no connections.
    assert process.returncode == 1
    assert not (tmp_path / "spool").exists()


def test_an_inherited_unix_socket_outlives_the_receiver(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()
        shell = 'exec 3<&$0; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@"'
        command = [
            "bash", "-c", shell, str(listener.fileno()), sys.executable, "-m", "ackline.cli",
            "receive", "--json", "--discard", f"lumberjack+unix://{path}",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        listening_line(process)
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(DEADLINE)
            link.connect(os.fspath(path))
            link.sendall(WINDOW)
            assert read_ack(link) == ACK
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
        assert path.is_socket()


@pytest.mark.alone
def test_sigterm_acknowledges_whole_windows_and_spreads_the_ends(receiver, tmp_path) -> None:
    running: RunningReceiver = receiver(
        "--spool", str(tmp_path / "spool"), "--drain-timeout", "4s", "--accept-rate", "0"
    )
    links = [connect(running.url) for _ in range(500)]
    for link in links:
        link.sendall(WINDOW + WINDOW[:9])
    while running.next("stats")["windows"] < 500:
        pass
    begin = time.monotonic()
    running.process.send_signal(signal.SIGTERM)
    ends = []
    for link in links:
        assert read_ack(link) == ACK
        link.setblocking(False)
    waiting = set(links)
    while waiting:
        for link in list(waiting):
            try:
                assert link.recv(6) in {b"", b"2A\0\0\0\0"}
            except BlockingIOError:
                continue
            ends.append(time.monotonic() - begin)
            waiting.discard(link)
            link.close()
        assert time.monotonic() - begin < DEADLINE
    running.process.communicate(timeout=DEADLINE)
    assert running.process.returncode == 0
    assert ends[-1] < 10
    # About 83 in each half second of the first three; this process may look late.
    for half in range(6):
        count = sum(half / 2 <= end < (half + 1) / 2 for end in ends)
        assert count < 400, (half, count)
    assert sum(end > 1.5 for end in ends) > 100
