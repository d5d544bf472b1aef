"""One host that would hold all connections, or come faster than all others together."""

import contextlib
import os
import socket
import time
from pathlib import Path

import harness
import pytest
import wire

URLS = {"lumberjack": b"2", "relink": b"R", "bpmux": b"\0"}


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
        # The same address gets no more, and another one what it needs.
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
def test_who_may_not_connect_takes_nothing_of_the_rate(tmp_path: Path) -> None:
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

        def served(peer: socket.socket) -> float:
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
            assert served(other) < 1.5
            for peer in many:
                served(peer)
            assert 1.5 < time.monotonic() - begun < 10
