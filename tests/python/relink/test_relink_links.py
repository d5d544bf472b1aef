"""Relink's links from their first connection to their end: transports, cuts, losses, shutdowns."""

import pickle
import socket
import threading

import pytest
from support.certificates import Pki
from support.commands import wait_until
from support.proxy import Proxy
from support.relink import TIME, drain, pair, port, wait_event

from ackline import LinkClosed, LinkLost, LinkTimeout, Receiver, TransportError, UsageError, relink
from ackline.exceptions import Unacknowledged


def test_closing_at_both_ends_is_a_shutdown(listener):
    def serve() -> None:
        with listener.accept(timeout=TIME) as peer:
            for message in peer:
                peer.consume(message.channel, message.sequence)

    serving = threading.Thread(target=serve)
    serving.start()
    with relink.connect(listener.url) as link:
        receipt = link.send(1, b"x")
    receipt.consumed(timeout=0)
    assert link.close() == []
    serving.join(TIME)
    assert not serving.is_alive()


def test_a_link_that_cannot_connect_again_is_given_up_in_time(listener):
    link, _ = pair(listener, lost_after=0.1, reconnect_max=0.05)
    link.send(1, b"x")
    with Proxy("127.0.0.1", port(listener.url)) as proxy:
        second = relink.connect(f"relink://127.0.0.1:{proxy.port}/orders", lost_after=0.1)
        proxy.closed = True
        proxy.cut()
        with pytest.raises(LinkLost, match="lost_after"):
            second.receive(timeout=TIME)
    assert link.state == "up"


def test_a_link_is_shut_down_by_both_ends(listener):
    link, peer = pair(listener)
    last = link.send_many(1, [b"a", b"b"])
    with pytest.raises(LinkTimeout, match="the peer has not shut down"):
        link.shutdown(timeout=0.05)
    seen = []
    for message in peer:
        seen.append(message.payload)
        peer.consume(message.channel, message.sequence)
    assert seen == [b"a", b"b"]
    peer.shutdown(timeout=TIME)
    link.shutdown(timeout=TIME)
    last.consumed(timeout=TIME)
    assert link.state == "closed"
    with pytest.raises(LinkClosed):
        link.send(1, b"c")
    with pytest.raises(LinkClosed) as closed:
        peer.receive()
    assert not isinstance(closed.value, LinkLost)
    assert link.close() == []
    wait_until(lambda: listener.links == 0, "the listener has forgotten the link")


def test_a_cut_link_goes_on_and_nothing_is_lost_or_doubled(listener):
    with Proxy("127.0.0.1", port(listener.url)) as proxy:
        link = relink.connect(f"relink://127.0.0.1:{proxy.port}/orders", reconnect_max=0.2)
        peer = listener.accept(timeout=TIME)
        total, got = 20_000, []

        def consumer() -> None:
            while len(got) < total:
                messages = peer.receive_many(timeout=TIME)
                got.extend(int(one.payload) for one in messages)
                peer.consume_many(messages)

        thread = threading.Thread(target=consumer)
        thread.start()
        for start in range(0, total, 1000):
            last = link.send_many(1, [b"%d" % at for at in range(start, start + 1000)])
            if start % 5000 == 0:
                proxy.cut()
        last.consumed(timeout=TIME)
        thread.join()
        assert got == list(range(total))
        assert link.stats()["transports"] > 1
        assert wait_event(link, "disconnected")
        assert wait_event(link, "reconnected")
        assert listener.try_accept() is None
        proxy.closed = True
        proxy.cut()
        wait_until(lambda: not link.is_connected, "it is cut")
        with pytest.raises(UsageError) as refused:
            link.ping()
        assert refused.value.code == "not_connected"
        with pytest.raises(LinkTimeout):
            link.wait_connected(timeout=0.05)
        link.send(1, b"queued")  # works without a connection
        proxy.closed = False
        link.wait_connected(timeout=TIME)
        assert peer.receive(timeout=TIME).payload == b"queued"


def test_a_lost_link_returns_the_messages_that_may_be_sent_again(listener):
    link, peer = pair(listener, reconnect_max=0.05)
    link.send(2, b"consumed")
    peer.consume_many(drain(peer, 1))
    wait_until(lambda: link.unacknowledged == [], "it is consumed")
    receipts = [link.send(2, b"a"), link.send(1, [b"b", b"c"])]
    peer.discard()
    left = (Unacknowledged(b"\1\0\0\0", 0, (b"b", b"c")), Unacknowledged(b"\2\0\0\0", 1, (b"a",)))
    for call in (
        lambda: drain(link, 1),
        lambda: receipts[0].consumed(timeout=TIME),
        lambda: link.send(1, b"d"),
        lambda: list(link),
        lambda: link.flush(timeout=TIME),
        lambda: link.shutdown(timeout=TIME),
    ):
        with pytest.raises(LinkLost) as lost:
            call()
        assert lost.value.messages == left
        assert lost.value.unacknowledged == 2
        copied = pickle.loads(pickle.dumps(lost.value))
        assert (copied.messages, str(copied)) == (left, str(lost.value))
    assert link.state == "lost"
    assert tuple(link.unacknowledged) == left
    assert tuple(link.close()) == left


def test_unix_sockets_carry_links(tmp_path):
    url = f"relink+unix://{tmp_path}/s.sock"
    options = "?endpoint=a%20b&connector_channel_id_size=0"
    with relink.listen(url + options) as listener:
        link = relink.connect(url + options)
        peer = listener.accept(timeout=TIME)
        link.send(b"", b"implicit")
        message = peer.receive(timeout=TIME)
        assert (message.channel, message.payload) == (b"", b"implicit")
        assert peer.peer.endpoint == "a b"
        assert link.peer is None
        with pytest.raises(UsageError, match="a number that fits 0 bytes"):
            link.send(1, b"x")


def test_tls_proves_the_owner_of_the_link(tmp_path):
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "IP:127.0.0.1")
    own, own_key = pki.issue("client", "client", "DNS:client")
    other, other_key = pki.issue("other", "other", "DNS:other")
    with relink.listen("relink+tls://127.0.0.1:0/t", ca=pki.ca, cert=cert, key=key) as listener:
        link = relink.connect(listener.url, ca=pki.ca, cert=own, key=own_key)
        peer = listener.accept(timeout=TIME)
        assert peer.peer.sender.startswith("tls:")
        assert "CN=client" in peer.peer.sender
        assert peer.peer.attributes["tls.fingerprint"]
        link.send(1, b"x")
        assert peer.receive(timeout=TIME).payload == b"x"
        second = relink.connect(listener.url, ca=pki.ca, cert=other, key=other_key)
        assert "CN=other" in listener.accept(timeout=TIME).peer.sender
        assert second.key != link.key
        with pytest.raises(TransportError):
            relink.connect(listener.url, ca=pki.ca)  # the listener wants a certificate
    with pytest.raises(UsageError):
        relink.connect(listener.url, ca=str(tmp_path / "none.pem"))


def test_several_endpoints_at_one_address():
    more = {"small": {"connector_channel_id_size": 1}}
    with relink.listen("relink://127.0.0.1:0/big", endpoints=more) as listener:
        base = listener.url.rsplit("/", 1)[0]
        small = relink.connect(f"{base}/small", connector_channel_id_size=1)
        small.send(b"c", b"x")
        peer = listener.accept(timeout=TIME)
        assert peer.peer.endpoint == "small"
        assert peer.receive(timeout=TIME).channel == b"c"
        with pytest.raises(TransportError, match="no endpoint"):
            relink.connect(f"{base}/none")
        with pytest.raises(TransportError, match="channel id sizes"):
            relink.connect(f"{base}/small")


def test_a_timeout_is_the_time_for_the_first_connection(tmp_path):
    url = f"relink+unix://{tmp_path / 'x.sock'}?endpoint=n"
    with pytest.raises(TransportError, match="No such file"):
        relink.connect(url)
    with pytest.raises(TransportError, match=r"not connected within 50ms \(timeout\): .*No such"):
        relink.connect(url, timeout=0.05)


def test_nobody_there_and_an_address_in_use_are_errors_of_the_transport(listener):
    with pytest.raises(TransportError):
        relink.listen(listener.url)
    listener.close()
    with pytest.raises(TransportError):
        relink.connect(listener.url, timeout=5)
    with pytest.raises(LinkClosed):
        listener.accept()
    assert list(listener) == []
    with pytest.raises(LinkTimeout, match="no link came"), relink.listen(listener.url) as again:
        again.accept(timeout=0.01)


def test_a_listener_that_was_closed_has_left_its_address():
    for _ in range(100):
        listener = relink.listen("relink://127.0.0.1:0/orders")
        port = int(listener.url.rsplit(":", 1)[1].split("/")[0])
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_link_that_was_closed_here_says_so(listener):
    link, peer = pair(listener)
    link.send(1, b"x")

    def wait() -> None:
        with pytest.raises(LinkClosed):
            link.receive()

    waiting = threading.Thread(target=wait)
    waiting.start()
    left = link.close(timeout=0.05)
    assert left == [Unacknowledged(b"\1\0\0\0", 0, (b"x",))]
    waiting.join(TIME)
    assert not waiting.is_alive()
    assert link.state == "closed"
    assert not link.is_connected
    with pytest.raises(LinkClosed, match="closed here"):
        link.send(1, b"y")
    assert link.close() == []
    peer.close(timeout=0)


def test_a_link_goes_on_where_it_was_handed_over() -> None:
    with relink.listen("relink://127.0.0.1:0/x", connector_transactions=True) as listener:
        link = relink.connect(listener.url, connector_transactions=True)
        link.send_many(7, [b"one", b"two"])
        there = listener.accept(timeout=30)
        state = link.hand_over(timeout=30)
        with pytest.raises(LinkClosed, match="handed over"):
            link.send(7, b"three")
        with pytest.raises(UsageError) as refused:
            relink.adopt(listener.url, state[:-1])
        with pytest.raises(TypeError, match="NoneType"):
            relink.adopt(listener.url, None)
        assert refused.value.code == "wrong_state"
        link = relink.adopt(listener.url, state, timeout=30)
        assert link.key == there.key
        receipt = link.last_receipt(7)
        assert receipt is not None
        assert link.last_receipt(8) is None
        link.commit(7, receipt.sequence)
        assert there.decision(timeout=30).through == 1
        assert [message.payload for message in there.receive_many(timeout=30)] == [
            b"one",
            b"two",
        ]
        there.consume(b"\7\0\0\0", 1)
        there.committed(b"\7\0\0\0", 1)
        assert receipt.committed(timeout=30) == "committed"
        with pytest.raises(UsageError) as refused:
            there.hand_over()
        assert refused.value.code == "not_connector"
        link.discard()


def test_a_listener_that_is_asked_tells_its_limits_and_why_it_refuses(tmp_path):
    url = "relink://127.0.0.1:0/n?connector_transactions=true"
    options = {"memory": 1 << 20}
    with Receiver([url], spool=tmp_path / "spool", options=options) as receiver:
        to = f"{receiver.urls[0]}?connector_transactions=true"
        with relink.connect(to) as link:
            link.ping(timeout=TIME)
            assert link.told == relink.Told(None, None, None, None)
        with relink.connect(to, wants_hints=True) as link:
            link.ping(timeout=TIME)
            limits = (147_456, 1 << 20, (1 << 18) + (32 << 10) - 512)
            assert link.told == relink.Told(*limits, None)
            for _ in range(20):
                receipt = link.send(1, bytes(10_000))
            # A ping may overtake messages that are not on the wire yet.
            wait_until(lambda: link.told.refused is not None, "it is told")
            assert "147456 bytes there, with 64 for each" in (link.told.refused or "")
            link.rollback(1, receipt.sequence)
