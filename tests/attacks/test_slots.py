"""One host that tries to take all connections, or the whole accept rate."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import pytest
import wire

URLS = {"lumberjack": b"2", "relink": b"R", "bpmux": b"\0"}
PROXY = "127.0.0.9"
LOCAL = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"


def client(last: int) -> bytes:
    """The header of a proxy for one of its clients."""
    return f"PROXY TCP4 192.0.2.{last} 10.0.0.1 40000 5044\r\n".encode()


def served(peer: socket.socket) -> None:
    """Sends a window and awaits its acknowledgement."""
    peer.settimeout(20)
    peer.sendall(wire.window([b"{}"]))
    assert wire.received(peer, 6) == b"2A\0\0\0\1"


def refusals(receiver: harness.Receiver, count: int) -> list[dict[str, Any]]:
    """Its lines of refused connections, once there are so many."""
    until = time.monotonic() + 10
    while len(receiver.told("refused")) < count and time.monotonic() < until:
        time.sleep(0.05)
    return receiver.told("refused")


def local(path: Path, timeout: float = 10.0) -> socket.socket:
    """Connects to a Unix socket; where too many wait for that, it tries again."""
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(timeout)
    deadline = time.monotonic() + timeout
    while True:
        try:
            peer.connect(str(path))
        except BlockingIOError:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        else:
            return peer


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scheme", sorted(URLS))
def test_another_address_gets_a_place_where_one_holds_all(scheme: str, tmp_path: Path) -> None:
    options = ("--max-connections", "40", "--max-connections-per-address", "0")
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        port = receiver.port(scheme)
        for _ in range(40):
            peer = stack.enter_context(wire.connected(port))
            peer.sendall(URLS[scheme])
        time.sleep(1)
        # The same address gets no more; another one gets the slots that it needs.
        with wire.connected(port) as more:
            assert more.recv(1) == b""
        with wire.connected(receiver.port("lumberjack"), "127.0.0.3") as good:
            good.settimeout(20)
            for _ in range(3):
                good.sendall(wire.window([b"{}"]))
                assert wire.received(good, 6) == b"2A\0\0\0\1"
                time.sleep(0.1)
        refused = [line["code"] for line in receiver.told("refused")]
        assert sorted(refused) == ["link.displaced", "link.too_many_connections"]
        assert receiver.stop() == os.EX_OK


@pytest.mark.timeout(60)
def test_by_default_one_address_leaves_an_eighth(tmp_path: Path) -> None:
    options = ("--max-connections", "40")
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        port = receiver.port("lumberjack")
        for _ in range(35):
            stack.enter_context(wire.connected(port)).sendall(b"2")
        with wire.connected(port) as more:
            assert more.recv(1) == b""
        good = [stack.enter_context(wire.connected(port, "127.0.0.3")) for _ in range(5)]
        for peer in good:
            peer.settimeout(20)
            peer.sendall(wire.window([b"{}"]))
            assert wire.received(peer, 6) == b"2A\0\0\0\1"
        (refused,) = receiver.told("refused")
        assert refused["option"] == "--max-connections-per-address"
        assert (refused["value"], refused["limit"]) == (36, 35)


@pytest.mark.timeout(60)
def test_a_peer_that_may_not_connect_takes_nothing_of_the_rate(tmp_path: Path) -> None:
    options = ("--accept-rate", "20", "--allow", "127.0.0.3")
    with harness.Receiver(tmp_path, *options) as receiver:
        port = receiver.port("lumberjack")
        for _ in range(400):
            with wire.connected(port, "127.0.0.2") as stranger:
                assert stranger.recv(1) == b""
        begun = time.monotonic()
        with wire.connected(port, "127.0.0.3") as good:
            good.sendall(wire.window([b"{}"]))
            assert wire.received(good, 6) == b"2A\0\0\0\1"
        assert time.monotonic() - begun < 5


@pytest.mark.timeout(60)
def test_one_address_has_half_of_the_rate(tmp_path: Path) -> None:
    with harness.Receiver(tmp_path, "--accept-rate", "40") as receiver:
        port = receiver.port("lumberjack")

        def took(peer: socket.socket) -> float:
            peer.settimeout(30)
            begun = time.monotonic()
            peer.sendall(wire.window([b"{}"]))
            assert wire.received(peer, 6) == b"2A\0\0\0\1"
            return time.monotonic() - begun

        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            # 20 of them at once, and then 20 in a second.
            many = [stack.enter_context(wire.connected(port)) for _ in range(60)]
            other = stack.enter_context(wire.connected(port, "127.0.0.3"))
            assert took(other) < 1.5
            for peer in many:
                took(peer)
            assert 1.5 < time.monotonic() - begun < 10


@pytest.mark.alone
@pytest.mark.timeout(60)
@pytest.mark.parametrize("program", ["resets", "resets_of_many"])
def test_addresses_that_connect_all_the_time_make_no_other_wait(
    program: str, tmp_path: Path
) -> None:
    with harness.Receiver(tmp_path) as receiver:
        port = receiver.port("lumberjack")
        command = ["nice", "-n", "19", sys.executable, str(harness.HERE / "programs.py")]
        storm = subprocess.Popen([*command, program, str(port), "10", "1"])
        time.sleep(2)
        took = []
        try:
            for _ in range(20):
                begun = time.monotonic()
                with wire.connected(port, "127.0.0.3") as good:
                    served(good)
                took.append(time.monotonic() - begun)
                time.sleep(0.2)
        finally:
            storm.kill()
            storm.wait()
        assert max(took) < 0.6, max(took)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("per_address", ["0", "35"])
def test_a_client_behind_a_proxy_gets_a_place_where_others_hold_all(
    per_address: str, tmp_path: Path
) -> None:
    options = ("--proxy-from", PROXY, "--max-connections", "40")
    options += ("--max-connections-per-address", per_address)
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        port = receiver.port("lumberjack")
        held = [stack.enter_context(wire.connected(port, PROXY)) for _ in range(40)]
        for number, peer in enumerate(held):
            peer.sendall(client(1 + number % 2) + b"2")
        time.sleep(1)
        # Clients with as many as the others get no more; another one gets the slots that it needs.
        for _ in range(2):
            with wire.connected(port, PROXY) as more:
                more.sendall(client(1) + b"2")
                assert more.recv(1) == b""
        third = stack.enter_context(wire.connected(port, PROXY))
        third.sendall(client(3))
        for _ in range(3):
            served(third)
        served(stack.enter_context(wire.connected(port, "127.0.0.3")))
        refused = [line["code"] for line in refusals(receiver, 4)]
        assert sorted(refused) == ["link.displaced"] * 2 + ["link.too_many_connections"] * 2
        assert receiver.stop() == os.EX_OK


@pytest.mark.timeout(60)
def test_silent_connections_of_a_proxy_keep_no_client_out_and_are_few(tmp_path: Path) -> None:
    options = ("--proxy-from", PROXY, "--max-connections", "40", "--handshake-timeout", "5s")
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        port = receiver.port("lumberjack")
        silent = [stack.enter_context(wire.connected(port, PROXY)) for _ in range(104)]
        begun = time.monotonic()
        with wire.connected(port, PROXY) as more:
            assert more.recv(1) == b""
        good = [stack.enter_context(wire.connected(port, f"127.0.1.{n}")) for n in range(1, 41)]
        for peer in good:
            served(peer)
        assert time.monotonic() - begun < 4
        (refused,) = refusals(receiver, 1)
        assert refused["code"] == "link.too_many_connections"
        assert (refused["value"], refused["limit"]) == (105, 104)
        for peer in silent:
            assert peer.recv(1) == b""
        assert 4 < time.monotonic() - begun < 15
        for peer in good:
            served(peer)
        codes = {line["code"] for line in refusals(receiver, 2)}
        assert codes == {"link.too_many_connections", "link.timeout"}


@pytest.mark.timeout(60)
def test_health_checks_of_a_proxy_end_nobody_where_all_slots_are_taken(tmp_path: Path) -> None:
    options = ("--proxy-from", PROXY, "--max-connections", "40")
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        port = receiver.port("lumberjack")
        held = [stack.enter_context(wire.connected(port, PROXY)) for _ in range(40)]
        for number, peer in enumerate(held):
            peer.sendall(client(1 + number % 2))
            served(peer)
        for _ in range(10):
            with wire.connected(port, PROXY) as check:
                check.sendall(LOCAL)
                time.sleep(0.05)
        for peer in held:
            served(peer)
        assert receiver.told("refused") == []
        # A connection of the proxy itself has a slot like that of any other client.
        with wire.connected(port, PROXY) as own:
            own.sendall(LOCAL)
            served(own)
        assert [line["code"] for line in refusals(receiver, 1)] == ["link.displaced"]


@pytest.mark.timeout(60)
def test_one_local_user_leaves_an_eighth(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    options = ("--max-connections", "40", f"lumberjack+unix://{path}")
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        held = [stack.enter_context(local(path)) for _ in range(35)]
        for peer in held:
            served(peer)
        with local(path) as more:
            assert more.recv(1) == b""
        port = receiver.port("lumberjack")
        for number in range(3, 8):
            served(stack.enter_context(wire.connected(port, f"127.0.0.{number}")))
        (refused,) = refusals(receiver, 1)
        assert refused["option"] == "--max-connections-per-address"
        assert (refused["value"], refused["limit"]) == (36, 35)


@pytest.mark.timeout(60)
def test_an_address_gets_a_place_where_a_local_user_holds_all(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    options = ("--max-connections", "40", "--max-connections-per-address", "0")
    options += (f"lumberjack+unix://{path}",)
    with harness.Receiver(tmp_path, *options) as receiver, contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(local(path)).sendall(b"2")
        time.sleep(1)
        with local(path) as more:
            assert more.recv(1) == b""
        served(stack.enter_context(wire.connected(receiver.port("lumberjack"))))
        refused = [line["code"] for line in refusals(receiver, 2)]
        assert sorted(refused) == ["link.displaced", "link.too_many_connections"]


def for_all_users(stack: contextlib.ExitStack) -> Path:
    """A path for a socket in a directory that every user may enter."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    directory.chmod(0o755)
    return directory / "socket"


def local_of_another(path: Path) -> socket.socket:
    """Connects as another user."""
    os.seteuid(65_534)
    try:
        return local(path)
    finally:
        os.seteuid(0)


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_local_user_gets_a_place_where_another_holds_all(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        path = for_all_users(stack)
        options = ("--max-connections", "40", "--max-connections-per-address", "0")
        options += (f"lumberjack+unix://{path}",)
        receiver = stack.enter_context(harness.Receiver(tmp_path, *options))
        path.chmod(0o777)
        for _ in range(40):
            stack.enter_context(local(path)).sendall(b"2")
        time.sleep(1)
        served(stack.enter_context(local_of_another(path)))
        refused = [line["code"] for line in refusals(receiver, 1)]
        assert refused == ["link.displaced"]


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_local_user_does_not_wait_for_the_windows_of_another(tmp_path: Path) -> None:
    """One connects, sends a window and goes, thousands of times; recognising repeats takes long."""
    with contextlib.ExitStack() as stack:
        path = for_all_users(stack)
        receiver = stack.enter_context(harness.Receiver(tmp_path, f"lumberjack+unix://{path}"))
        path.chmod(0o777)
        for _ in range(5_000):
            with local(path) as peer:
                peer.sendall(wire.window([b"{}"]))
        begun = time.monotonic()
        served(stack.enter_context(local_of_another(path)))
        assert time.monotonic() - begun < 1
        assert receiver.stop() == os.EX_OK


@pytest.mark.timeout(60)
def test_a_handshake_of_relink_that_does_not_come_counts_as_not_admitted(tmp_path: Path) -> None:
    with harness.Receiver(tmp_path, "--max-connections", "600") as receiver:
        port = receiver.port("relink")
        with contextlib.ExitStack() as stack:
            # Those that have a link do not count.
            for _ in range(5):
                wire.relink_shake(stack.enter_context(wire.connected(port)))
            for first in [b""] * 32 + [b"\0"] * 32:
                stack.enter_context(wire.connected(port)).sendall(first)
            time.sleep(1)
            with wire.connected(port) as more:
                assert more.recv(1) == b""
            (refused,) = refusals(receiver, 1)
            assert refused["code"] == "link.too_many_connections"
            assert (refused["value"], refused["limit"]) == (65, 64)
            wire.relink_shake(stack.enter_context(wire.connected(port, "127.0.0.3")))
