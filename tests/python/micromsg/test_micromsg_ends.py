"""The beginning and the end of connections of MicroMsg2: handshakes, blocks, errors, transports."""

import gc
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Pki
from support.micromsg_pair import (
    MANUAL,
    NOW,
    TIME,
    UNACKNOWLEDGED,
    URL,
    Pair,
    fill,
    handshake,
    pair,
    raw_peer,
)

from ackline import (
    LinkClosed,
    LinkLost,
    LinkTimeout,
    PeerFailed,
    ProtocolError,
    TransportError,
    UsageError,
    _micromsg,
    micromsg,
)


@pytest.fixture
def ends() -> Iterator[Pair]:
    with pair() as both:
        yield both


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a block waits for a moment only."""
    monkeypatch.setattr(micromsg, "PATIENCE", 0.05)
    monkeypatch.setattr(_micromsg, "PATIENCE", 0.05)


def test_both_ends_know_each_other_after_the_handshake() -> None:
    with pair({"name": "server"}, name="client") as (near, far):
        assert (near.identity, far.identity) == ("server", "client")
        assert near.version == far.version == (1, 0)
        assert near.extensions == far.extensions == ["batch-ack", "pub-sub"]
        assert near.window == far.window == 1_000
        assert near.peer is None
        assert far.peer is not None
        assert far.peer.name.startswith("127.0.0.1")


def test_the_smaller_window_of_both_ends_holds() -> None:
    with pair({"window": 7}, window=9) as (near, far):
        assert near.window == far.window == 7
    with pair(required_extensions="ack") as (near, far):
        assert near.window == far.window == 1


def test_before_the_handshake_an_end_that_listens_waits() -> None:
    with micromsg.listen(URL) as listener, raw_peer(listener.url) as raw:
        raw.sendall(handshake()[:3])
        far = listener.accept(timeout=TIME)
        for read in [lambda: far.identity, lambda: far.version, lambda: far.extensions]:
            with pytest.raises(UsageError, match="call wait_connected first") as early:
                read()
            assert early.value.code == "handshake_incomplete"
        assert far.window == 0
        with pytest.raises(LinkTimeout, match="the handshake did not end within"):
            far.wait_connected(timeout=NOW)
        with pytest.raises(LinkTimeout):
            far.send(b"x", timeout=NOW)
        with pytest.raises(LinkTimeout):
            far.command("a", timeout=NOW)
        raw.sendall(handshake()[3:])
        answer = raw.recv(1 << 16)
        assert answer[:2] == b"\x01\x00"
        raw.sendall(handshake())
        far.wait_connected(timeout=TIME)
        assert far.send(b"x", "d", timeout=TIME) == 1
        assert raw.recv(1 << 16) == b"\x00\x00\x01\x01d\x00\x00\x01x"
        far.abort()


def test_extensions_that_a_peer_lacks_end_the_handshake() -> None:
    with (
        micromsg.listen(URL, required_extensions="x-secret") as listener,
        pytest.raises(ProtocolError, match=r"x-secret.* the client does not have it"),
    ):
        micromsg.connect(listener.url)
    with micromsg.listen(URL) as listener:
        with pytest.raises(PeerFailed, match='"x-trace" is required, and the server does'):
            micromsg.connect(listener.url, required_extensions="x-trace")
        far = listener.accept(timeout=TIME)
        with pytest.raises(ProtocolError, match="x-trace") as missing:
            far.wait_connected(timeout=TIME)
        assert missing.value.code == "micromsg.missing_extension"
        with pytest.raises(ProtocolError):
            far.receive(timeout=TIME)


def test_wrong_options_and_urls_are_named() -> None:
    with pytest.raises(UsageError, match=r"did you mean window\?"):
        micromsg.connect("micromsg://127.0.0.1:1", windw=5)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="window is 0"):
        micromsg.listen(URL, window=0)
    for name, value in [
        ("name", "ü"),
        ("name", "x" * 256),
        ("required_extensions", "a;;b"),
        ("optional_extensions", "batch-ack:max-count=0"),
        ("optional_extensions", ["batch-ack"]),
    ]:
        options: dict[str, Any] = {name: value}
        with pytest.raises(UsageError) as wrong:
            micromsg.listen(URL, **options)
        assert wrong.value.option == name
    with pytest.raises(TransportError):
        micromsg.connect("micromsg://127.0.0.1:1")
    with pytest.raises(UsageError, match="of bpmux, not of micromsg"):
        micromsg.connect("bpmux://127.0.0.1:1")
    with pytest.raises(UsageError, match="it is a text with a list of extensions, such as"):
        micromsg.listen(URL, optional_extensions=["batch-ack"])  # type: ignore[arg-type]
    for call in (micromsg.connect, micromsg.listen, micromsg.serve):
        with pytest.raises(UsageError, match='the URL names the topic "a/b"; leave it out'):
            call("micromsg://127.0.0.1:1/a/b")
    with pytest.raises(UsageError, match="timeout is -1"):
        micromsg.connect("micromsg://127.0.0.1:1", timeout=-1)


def test_a_connection_is_made_in_time_or_not_at_all() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"micromsg://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LinkTimeout, match=r"the connection was not made within 0\.05 s"):
            micromsg.connect(url, timeout=0.05)
        with pytest.raises(ProtocolError, match="handshake_timeout") as late:
            micromsg.connect(url, handshake_timeout=0.05)
        assert late.value.option == "handshake_timeout"


def test_the_end_of_a_block_waits_for_acknowledgements() -> None:
    with pair() as (near, far), ThreadPoolExecutor(1) as pool:

        def take() -> int:
            with far:
                return sum(1 for _ in far)

        taking = pool.submit(take)
        with near:
            near.send_some([bytes(100)] * 3_000, timeout=TIME)
        assert near.stats()["acknowledged"] == 3_000
        assert taking.result(TIME) == 3_000
        assert (near.is_ended, far.is_ended) == (True, True)


@pytest.mark.usefixtures("hasty")
def test_the_end_of_a_block_tells_the_messages_that_are_not_acknowledged() -> None:
    with pair(MANUAL) as (near, _):
        near.send_some([b"1", b"2"])
        with pytest.raises(LinkLost, match="2 messages are not acknowledged") as lost, near:
            pass
        assert lost.value.unacknowledged == 2
        near.wait_ended(timeout=TIME)
    with pair(MANUAL) as (near, far):
        near.send(b"1")
        far.abort()
        near.wait_ended(timeout=TIME)
        with pytest.raises(LinkLost, match="1 messages") as lost, near:
            pass
        assert lost.value.unacknowledged == 1


@pytest.mark.usefixtures("hasty")
def test_the_end_of_a_block_without_acknowledgements_tells_bytes_that_were_not_sent() -> None:
    with pair(UNACKNOWLEDGED, **UNACKNOWLEDGED) as (near, _):
        # More than the system takes for the peer, which does not read.
        fill(near, bytes(1 << 20))
        with pytest.raises(LinkClosed, match="bytes of messages were not sent"), near:
            pass


def test_an_exception_ends_a_block_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with pair(MANUAL) as (near, far):
        begun = time.monotonic()
        near.send(b"1")
        with (
            caplog.at_level(logging.WARNING, "ackline.link"),
            pytest.raises(ZeroDivisionError),
            near,
        ):
            _ = 1 // 0
        assert time.monotonic() - begun < _micromsg.PATIENCE / 2
        assert "1 messages are not acknowledged" in caplog.text
        near.wait_ended(timeout=TIME)
        far.wait_ended(timeout=TIME)


def test_a_block_whose_messages_are_acknowledged_ends_well_after_the_peer_has(ends: Pair) -> None:
    near, far = ends
    with near:
        near.send(b"1")
        assert far.receive(timeout=TIME) is not None
        far.close(timeout=TIME)
        assert near.receive(timeout=TIME) is None
        near.wait_acknowledged(timeout=TIME)
        near.wait_ended(timeout=TIME)
    with pair() as (near, far), near:
        near.send(b"1")
        assert far.receive(timeout=TIME) is not None
        with pytest.raises(LinkTimeout):
            far.receive(timeout=1)
        near.wait_acknowledged(timeout=TIME)
        far.abort()


def test_closing_waits_and_goes_on_after_its_timeout() -> None:
    with pair(MANUAL) as (near, far):
        near.send(b"1")
        with pytest.raises(LinkTimeout, match="not everything was acknowledged or sent within"):
            near.close(timeout=NOW)
        message = far.receive(timeout=TIME)
        assert message is not None
        message.ack()
        near.close(timeout=TIME)
        near.close(timeout=TIME)
        assert far.receive(timeout=TIME) is None
        assert list(far) == []
        assert far.receive_some(timeout=TIME) == []
        assert far.receive_command(timeout=TIME) is None
        assert far.receive_extension(timeout=TIME) is None
        with pytest.raises(LinkClosed):
            near.send(b"2", timeout=TIME)


def test_an_error_frame_is_told_to_every_call_of_the_peer(ends: Pair) -> None:
    near, far = ends
    near.send(b"before")
    near.fail("the disk is full")
    message = far.receive(timeout=TIME)
    assert message is not None
    assert message.payload == b"before"
    for call in [
        lambda: far.receive(timeout=TIME),
        lambda: far.receive_some(timeout=TIME),
        lambda: far.receive_command(timeout=TIME),
        lambda: far.receive_extension(timeout=TIME),
        lambda: far.send(b"x", timeout=TIME),
        lambda: list(far),
    ]:
        with pytest.raises(PeerFailed, match=r"^the disk is full$"):
            call()
    assert far.identity == ""
    assert near.is_ended
    with pytest.raises(LinkClosed):
        near.fail("again")


def test_unacknowledged_messages_of_a_failed_peer_are_an_error() -> None:
    with pair(MANUAL) as (near, far):
        near.send(b"1")
        far.fail("no more")
        with pytest.raises(PeerFailed, match="no more"):
            near.wait_acknowledged(timeout=TIME)
        with pytest.raises(LinkLost) as lost, near:
            near.wait_ended(timeout=TIME)
        assert lost.value.unacknowledged == 1


def test_a_peer_that_breaks_a_rule_is_named() -> None:
    with micromsg.listen(URL) as listener, raw_peer(listener.url) as raw:
        raw.sendall(handshake())
        raw.recv(1 << 16)
        raw.sendall(handshake() + b"\x80")
        far = listener.accept(timeout=TIME)
        with pytest.raises(ProtocolError, match="bits without a meaning") as wrong:
            far.receive(timeout=TIME)
        assert (wrong.value.protocol, wrong.value.code) == ("micromsg", "micromsg.reserved_flags")
        assert raw.recv(1 << 16).startswith(b"\x04"), "it is told why"


def test_a_message_above_the_limit_of_the_receiver_is_named() -> None:
    with pair({"max_message_bytes": "1KiB"}) as (near, far):
        near.send(bytes(2_000))
        with pytest.raises(ProtocolError, match="max_message_bytes") as wrong:
            far.receive(timeout=TIME)
        assert (wrong.value.code, wrong.value.option) == (
            "micromsg.limit_exceeded",
            "max_message_bytes",
        )
        with pytest.raises(PeerFailed):
            near.wait_acknowledged(timeout=TIME)


def test_dropped_handles_end_their_connections() -> None:
    with micromsg.listen(URL) as listener:
        near = micromsg.connect(listener.url)
        far = listener.accept(timeout=TIME)
        del near
        gc.collect()
        far.wait_ended(timeout=TIME)
        waiting = micromsg.connect(listener.url)
    waiting.wait_ended(timeout=TIME)
    with pytest.raises(LinkClosed):
        listener.accept(timeout=TIME)


def test_a_listener_hands_out_connections_until_it_is_closed() -> None:
    with micromsg.listen(URL) as listener, ThreadPoolExecutor(1) as pool:
        accepting = pool.submit(lambda: sum(1 for _ in listener))
        ends = [micromsg.connect(listener.url) for _ in range(3)]
        for end in ends:
            end.abort()
        listener.close()
        assert accepting.result(TIME) <= 3
        assert listener.stats() == {"health_checks": 0, "turned_away": {}}
    with micromsg.listen(URL) as listener, pytest.raises(LinkTimeout, match="no connection came"):
        listener.accept(timeout=NOW)


def test_unix_sockets_carry_messages(tmp_path: Path) -> None:
    with pair(url=f"micromsg+unix://{tmp_path}/s") as (near, far):
        near.send(b"1", "d", {"a": 1})
        message = far.receive(timeout=TIME)
        assert message is not None
        assert message.properties == {"a": 1}


def test_tls_carries_messages_and_proves_identities(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "DNS:localhost,IP:127.0.0.1")
    own = pki.issue("client", "client-1", "DNS:client-1.example")
    listens = {"cert": cert, "key": key, "ca": pki.ca, "client_auth": "required"}
    url = "micromsg+tls://127.0.0.1:0"
    client = {"ca": pki.ca, "cert": own[0], "key": own[1]}
    with pair(listens, url, **client) as (near, far):
        near.send(b"1")
        assert far.receive(timeout=TIME) is not None
        assert far.peer is not None
        assert far.peer.sender.startswith("tls:")
    with micromsg.listen(url, cert=cert, key=key) as listener, pytest.raises(TransportError):
        micromsg.connect(listener.url)
