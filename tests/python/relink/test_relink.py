"""Relink's links for threads, both ends in one process."""

import gc
import pickle
import socket
import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from support.certificates import Pki
from support.commands import wait_until
from support.proxy import Proxy

from ackline import (
    LinkClosed,
    LinkLost,
    LinkTimeout,
    ProtocolError,
    Receiver,
    TransportError,
    UsageError,
    relink,
)
from ackline.exceptions import Unacknowledged
from ackline.sansio import Machine

TIME = 20


@pytest.fixture
def listener() -> Iterator[relink.Listener]:
    with relink.listen("relink://127.0.0.1:0/orders") as listening:
        yield listening


def pair(listener: relink.Listener, **options) -> tuple[relink.Link, relink.Link]:
    link = relink.connect(listener.url, **options)
    return link, listener.accept(timeout=TIME)


def port(url: str) -> int:
    return int(url.rsplit(":", 1)[1].split("/", maxsplit=1)[0])


def drain(link: relink.Link, count: int) -> list[relink.Message]:
    messages: list[relink.Message] = []
    while len(messages) < count:
        messages += link.receive_many(timeout=TIME)
    return messages


def test_messages_arrive_in_order_and_receipts_are_consumed(listener):
    link, peer = pair(listener)
    first = link.send(7, b"one")
    last = link.send_many(b"\x07\0\0\0", [b"two", [b"thr", b"ee"], b""])
    messages = drain(peer, 4)
    assert [message.payload for message in messages] == [b"one", b"two", b"three", b""]
    assert [message.sequence for message in messages] == [0, 1, 2, 3]
    assert {message.channel for message in messages} == {b"\x07\0\0\0"}
    assert messages[2].parts == [b"thr", b"ee"]
    assert len(messages[2]) == 5
    assert (first.sequence, last.sequence) == (0, 3)
    assert not first.is_consumed
    with pytest.raises(LinkTimeout, match=r"message 3 was not consumed within 0\.05 s"):
        last.consumed(timeout=0.05)
    peer.consume(7, 0)
    first.consumed(timeout=TIME)
    assert first.is_received
    peer.consume_many(messages)
    last.consumed(timeout=TIME)
    assert link.unacknowledged == []
    assert link.state == peer.state == "up"
    assert link.key == peer.key
    assert link.stats()["messages_sent"] == peer.stats()["messages_received"] == 4


def test_both_ends_send_and_a_message_goes_to_many_channels(listener):
    link, peer = pair(listener)
    receipts = peer.send_to([1, 2, 1], [b"a", b"b"])
    assert [receipt.sequence for receipt in receipts] == [0, 0, 1]
    messages = drain(link, 3)
    assert sorted((one.channel[0], one.sequence) for one in messages) == [(1, 0), (1, 1), (2, 0)]
    link.consume_many(messages)
    for receipt in receipts:
        receipt.consumed(timeout=TIME)


@pytest.mark.parametrize("size", [0, 1, 1000, 5000, 300_000])
def test_parts_are_bytes_or_views_of_the_received_buffer(listener, size):
    link, peer = pair(listener)
    data = bytes(range(256)) * (size // 256 + 1)
    link.send(1, [data[:size], bytearray(b"x"), memoryview(b"yz")])
    message = peer.receive(timeout=TIME)
    views = message.buffers
    assert views[0] == data[:size]
    assert all(view.readonly for view in views)
    del message
    peer.consume(1, 0)
    assert [bytes(view) for view in views] == [data[:size], b"x", b"yz"]


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 300_000])
def test_a_message_of_one_part_is_bytes_and_a_view_of_them(listener, size):
    link, peer = pair(listener)
    data = (bytes(range(256)) * (size // 256 + 1))[:size]
    link.send(1, data)
    message = peer.receive(timeout=TIME)
    (view,) = message.buffers
    assert (message.payload, message.parts, bytes(view)) == (data, [data], data)
    assert view.readonly
    assert len(message) == size
    assert f"1 parts, {size} bytes" in repr(message)
    assert (message.payload is message.payload) == (size <= 1024), "the short ones are made once"
    peer.consume_many([message])
    del message
    assert bytes(view) == data


def test_a_batch_of_messages_is_no_work_for_the_collector(listener):
    link, peer = pair(listener)
    link.send_many(1, [b"short", b"l" * 5000, [b"two", b"parts"]])
    messages = drain(peer, 3)
    assert not any(gc.is_tracked(message) for message in messages)
    gc.collect()
    assert [message.payload for message in messages] == [b"short", b"l" * 5000, b"twoparts"]
    peer.consume_many(messages)
    link.flush(timeout=TIME)


def test_each_channel_of_a_batch_is_consumed_through_its_last_message(listener):
    link, peer = pair(listener)
    sent = [link.send(channel, b"x") for channel in (1, 2, 2, 1, 3, 1, 2)]
    messages = drain(peer, len(sent))
    peer.consume_many(messages[:5])
    for receipt in sent[:5]:
        receipt.consumed(timeout=TIME)
    assert [receipt.is_consumed for receipt in sent[5:]] == [False, False]
    peer.consume_many(messages[5:])
    link.flush(timeout=TIME)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string()])
def test_an_arrow_array_is_a_batch_of_messages(listener, kind):
    link, peer = pair(listener)
    texts = [b"a", b"", b"ccc"]
    array = pa.array([one.decode() if kind == pa.string() else one for one in texts], kind)
    link.send_many(1, array)
    assert [message.payload for message in drain(peer, 3)] == texts
    with pytest.raises(UsageError, match="not null"):
        link.send_many(1, pa.array([b"a", None]))
    with pytest.raises(UsageError, match="an array of Int64"):
        link.send_many(1, pa.array([1]))


def test_a_full_window_is_waited_for_and_nothing_is_sent_twice(listener):
    link, peer = pair(listener, send_window=4)
    assert link.try_send_many(1, [b"%d" % at for at in range(6)])[0] == 4
    assert link.try_send(1, b"x") is None
    assert link.try_send(2, b"other") is not None
    with pytest.raises(LinkTimeout, match=r"no room within 0\.05 s; 0 messages"):
        link.send(1, b"x", timeout=0.05)
    got: list[bytes] = []

    def consumer() -> None:
        while len(got) < 104:
            messages = peer.receive_many(timeout=TIME)
            got.extend(one.payload for one in messages if one.channel[0] == 1)
            peer.consume_many(messages)

    thread = threading.Thread(target=consumer)
    thread.start()
    last = link.send_many(1, [b"%d" % at for at in range(4, 104)], timeout=TIME)
    last.consumed(timeout=TIME)
    thread.join()
    assert got == [b"%d" % at for at in range(104)]


def test_room_is_waited_for_by_bytes_too(listener):
    link, peer = pair(listener, send_bytes=1000)
    link.send(1, bytes(5000))  # a single larger message goes when nothing waits
    with pytest.raises(LinkTimeout):
        link.send(1, bytes(10), timeout=0.05)
    peer.consume_many(drain(peer, 1))
    link.send(1, bytes(600), timeout=TIME)
    with pytest.raises(LinkTimeout):
        link.send(1, bytes(600), timeout=0.05)
    peer.consume_many(drain(peer, 1))
    link.send(1, bytes(600), timeout=TIME)


@pytest.mark.alone
def test_a_wait_for_bytes_does_not_spin(listener):
    link, _ = pair(listener, send_bytes=1000)
    link.send(1, bytes(600))
    before = time.process_time()
    with pytest.raises(LinkTimeout):
        link.send_many(1, [bytes(600)], timeout=0.5)
    assert time.process_time() - before < 0.3


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


def test_a_url_and_a_keyword_that_disagree_are_refused():
    said = "connector_channel_id_size is 4 in the URL and 5 among the options"
    url = "relink://127.0.0.1:1/x?connector_channel_id_size=4"
    for make in (relink.connect, relink.listen):
        with pytest.raises(UsageError, match=said):
            make(url, connector_channel_id_size=5)


def test_a_refusal_names_the_value_and_the_accepted_ones(listener):
    link, peer = pair(listener)
    for call, said in (
        (
            lambda: link.send(1, [b"x"] * 1025),
            "the message has 1025 parts; max_message_parts is 1024",
        ),
        (lambda: peer.consume(99, 0), "no channel 63000000 of the peer's is open"),
        (
            lambda: relink.listen("relink://127.0.0.1:0/n", endpoints={"n": {}}),
            'endpoint "n" is given twice',
        ),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert str(refused.value) == said
    link.send_many(7, [b"x"] * 3)
    drain(peer, 2)
    with pytest.raises(UsageError) as refused:
        peer.consume(7, 10**6)
    assert str(refused.value).startswith("message 1000000 of channel 07000000 cannot be named now")


def test_a_message_of_a_channel_that_was_closed_is_not_consumed_on_the_next(listener):
    link, peer = pair(listener)
    first = link.send(1, b"a")
    link.close_channel(1)
    old = peer.receive(timeout=TIME)
    peer.consume_many([old])
    first.consumed(timeout=TIME)
    while link.event(timeout=TIME).name != "closed":
        pass
    second = link.send(1, b"b")
    new = peer.receive(timeout=TIME)
    assert (old.sequence, new.sequence) == (0, 0)
    for messages in ([old], [old, new], [new, old]):
        with pytest.raises(UsageError, match="of an earlier channel 01000000"):
            peer.consume_many(messages)
    assert not second.is_consumed
    peer.consume_many([new])
    second.consumed(timeout=TIME)


def test_a_message_of_another_link_is_not_consumed_on_this_one(listener):
    link, peer = pair(listener)
    other, other_peer = pair(listener)
    mine, theirs = link.send(7, b"mine"), other.send(7, b"theirs")
    own, foreign = peer.receive(timeout=TIME), other_peer.receive(timeout=TIME)
    assert (own.channel, own.sequence) == (foreign.channel, foreign.sequence)
    for messages in ([foreign], [own, foreign], [foreign, own]):
        with pytest.raises(UsageError) as refused:
            peer.consume_many(messages)
        assert str(refused.value) == "message 0 of channel 07000000 came over another link"
        assert refused.value.code == "other_link"
    assert not mine.is_consumed
    peer.consume_many([own])
    other_peer.consume_many([foreign])
    mine.consumed(timeout=TIME)
    theirs.consumed(timeout=TIME)


def test_errors_name_options_as_python_does():
    with relink.listen("relink://127.0.0.1:0/n", memory=65_536) as listener:
        link, _peer = pair(listener, stuck_after=1)
        with pytest.raises(LinkLost) as lost:
            link.send(7, bytes(200_000)).consumed(timeout=TIME)
    text = str(lost.value)
    assert "its max_part_bytes, its max_message_bytes or a quarter of its memory" in text
    assert "--" not in text
    sizes = {"connector_channel_id_size": 1, "listener_channel_id_size": 1}
    bare = Machine("relink", "connector", start="established", max_channels=1, **sizes)
    hello = "110161000500000068656c6c6f000000"
    said = r"^2 channels are above 1 \(max_channels\) \(at byte 16 "
    with pytest.raises(ProtocolError, match=said):
        bare.receive(0, bytes.fromhex(hello + hello.replace("110161", "110162")))


def test_a_transaction_is_committed_refused_or_rolled_back():
    with relink.listen("relink://127.0.0.1:0/t", connector_transactions=True) as listener:
        link = relink.connect(listener.url, connector_transactions=True)
        peer = listener.accept(timeout=TIME)
        receipts = [link.send(1, b"%d" % at) for at in range(4)]
        drain(peer, 4)
        assert link.commit(1) == 0
        assert link.rollback(1) == 1
        assert link.commit(1, 3) == 3
        assert receipts[1].outcome == "rolled_back"
        assert peer.decision(timeout=TIME) == relink.Decision(b"\1\0\0\0", "commit", 0)
        assert peer.decision(timeout=TIME) == relink.Decision(b"\1\0\0\0", "rollback", 1)
        assert peer.decision(timeout=TIME).through == 3
        assert peer.try_decision() is None
        with pytest.raises(LinkTimeout):
            receipts[0].committed(timeout=0.05)
        assert peer.committed(1) == 0
        assert peer.uncommitted(1, 3) == 3
        outcomes = [receipt.committed(timeout=TIME) for receipt in receipts]
        assert outcomes == ["committed", "rolled_back", "uncommitted", "uncommitted"]
        with pytest.raises(UsageError) as refused:
            peer.commit(1)
        assert refused.value.code == "transactions_disabled"


def test_each_direction_has_ids_of_its_own_size():
    options = {
        "connector_channel_id_size": 1,
        "listener_channel_id_size": 3,
        "connector_transactions": True,
        "listener_transactions": True,
    }
    with relink.listen("relink://127.0.0.1:0/t", **options) as listener:
        link, peer = pair(listener, **options)
        for one, other, size in ((link, peer, 1), (peer, link, 3)):
            receipt = one.send(9, b"x")
            message = other.receive(timeout=TIME)
            assert message.channel == b"\x09".ljust(size, b"\0")
            other.notify_received(9)
            receipt.received(timeout=TIME)
            assert not receipt.is_consumed
            other.consume(9, 0)
            assert one.commit(9) == 0
            assert other.decision(timeout=TIME).channel == message.channel
            assert other.committed(9) == 0
            assert receipt.committed(timeout=TIME) == "committed"
            assert one.send(9, b"y").sequence == 1
            assert one.rollback(9) == 1
            assert other.decision(timeout=TIME).operation == "rollback"
            with pytest.raises(UsageError) as refused:
                other.uncommitted(9)
            assert refused.value.code == "out_of_range"
            other.consume_many(drain(other, 1))
            one.close_channel(9)
            assert wait_event(one, "closed").channel == message.channel


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


def test_a_channel_is_closed_and_opened_again(listener):
    link, peer = pair(listener)
    link.send(1, b"a")
    link.close_channel(1)
    with pytest.raises(UsageError) as refused:
        link.send(1, b"b")
    assert refused.value.code == "channel_closing"
    peer.consume_many(drain(peer, 1))
    assert wait_event(peer, "closing").channel == b"\1\0\0\0"
    closed = wait_event(link, "closed")
    assert (closed.channel, closed.unacknowledged) == (b"\1\0\0\0", 0)
    assert link.send(1, b"b").sequence == 0
    assert peer.receive(timeout=TIME).payload == b"b"


def wait_event(link: relink.Link, name: str) -> relink.Event:
    while (event := link.event(timeout=TIME)).name != name:
        pass
    return event


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


def test_an_iteration_that_is_left_has_taken_nothing_away(listener):
    link, peer = pair(listener)
    link.send_many(1, [b"%d" % at for at in range(5)])
    wait_until(lambda: peer.stats()["waiting"] == 5, "all arrived")
    for message in peer:
        assert message.payload == b"0"
        break
    assert [one.payload for one in peer.receive_many(2)] == [b"1", b"2"]
    assert [one.payload for one in peer.receive_many(9)] == [b"3", b"4"]


def test_a_ping_is_answered(listener):
    link, peer = pair(listener)
    assert 0 < link.ping(timeout=TIME) < TIME
    assert 0 < peer.ping(timeout=TIME) < TIME


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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"send_window": 0}, "send_window is 0; it is a whole number from 1 to 2147483647"),
        ({"connector_channel_id_size": 256}, "connector_channel_id_size is 256"),
        ({"connector_transactions": "yes"}, "connector_transactions is yes; it is true or false"),
        ({"ack_delay": -1.0}, "ack_delay is -1"),
        ({"handshake_timeout": None}, "handshake_timeout is off; it is a number of seconds"),
        ({"timeout": float("nan")}, "timeout is"),
        ({"connect_timeout": -1}, "connect_timeout is"),
        ({"lost_after": "soon"}, "lost_after is soon"),
        ({"stuck_after": 0}, "stuck_after is 0; it is a whole number from 1 to 4294967295"),
        ({"memory": 0}, "memory is 0"),
        ({"memory": 1}, "memory is 1; it is at least 65536 bytes"),
        ({"ca": "/none.pem"}, "ca"),
        ({"connector_channel_id_size": True}, "connector_channel_id_size is true"),
        ({"max_part_bytes": 0}, "max_part_bytes is 0; it is a whole number from 1"),
        ({"max_multicast_bytes": 0}, "max_multicast_bytes is 0; it is a whole number from 1"),
        ({"ping_after": 0}, "ping_after is 0; it is a number of seconds, at least 1ms"),
        ({"pong_timeout": 0}, "pong_timeout is 0; it is a number of seconds, at least 1ms"),
        (
            {"handshake_timeout": 0},
            "handshake_timeout is 0; it is a number of seconds",
        ),
        ({"reconnect_max": 0}, "reconnect_max is 0; it is a number of seconds, at least 1ms"),
    ],
)
def test_a_wrong_option_is_named(options, said):
    with pytest.raises(UsageError, match=said):
        relink.connect("relink://127.0.0.1:1/x", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoints": []}, "endpoints is a dict"),
        ({"endpoints": {"x": {"speed": 1}}}, "speed"),
        ({"endpoints": {"orders": {}}}, "given twice"),
        ({"max_links": 0}, "max_links is 0"),
        ({"orphan_after": None}, "orphan_after is off; it is a number of seconds"),
        ({"bind_identity": 3}, "bind_identity is 3"),
    ],
)
def test_a_wrong_option_of_a_listener_is_named(options, said):
    with pytest.raises(UsageError, match=said):
        relink.listen("relink://127.0.0.1:0/orders", **options)


def test_misuse_is_named_and_changes_nothing(listener):
    link, peer = pair(listener)
    for call, code in (
        (lambda: link.send(b"abc", b"x"), "invalid_channel_id"),
        (lambda: link.send(1 << 32, b"x"), "invalid_channel_id"),
        (lambda: link.send("a", b"x"), "invalid_channel_id"),
        (lambda: link.send(1, "text"), "payload"),
        (lambda: link.send(1, [b"x", "text"]), "payload"),
        (lambda: link.send(1, 3), "payload"),
        (lambda: link.send(1, {b"x"}), "payload"),
        (lambda: link.send(1, {b"x": 1}), "payload"),
        (lambda: link.send(1, (part for part in [b"x"])), "payload"),
        (lambda: link.send(True, b"x"), "invalid_channel_id"),
        (lambda: link.consume(1, True), "out_of_range"),
        (lambda: link.send(1, [b"x"] * 1025), "message_too_large"),
        (lambda: link.send_many(1, b"text"), "payloads"),
        (lambda: link.consume(1, 0), "unknown_channel"),
        (lambda: link.close_channel(1), "unknown_channel"),
        (lambda: link.commit(1), "transactions_disabled"),
        (lambda: peer.committed(1), "transactions_disabled"),
        (lambda: peer.notify_received(1), "unknown_channel"),
        (lambda: link.receive_many(0), "max_messages"),
        (lambda: link.receive_many("1"), "max_messages"),
        (lambda: link.consume(1, -1), "out_of_range"),
        (lambda: link.consume(1, 1 << 32), "out_of_range"),
        (lambda: link.consume(1, "1"), "out_of_range"),
        (lambda: link.commit(1, -1), "out_of_range"),
        (lambda: peer.committed(1, 1 << 64), "out_of_range"),
        (lambda: link.consume(b"abc", 0), "invalid_channel_id"),
        (lambda: link.receive(timeout=-1), "timeout"),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert refused.value.code == code, call
    assert link.stats()["messages_sent"] == 0
    with pytest.raises(LinkTimeout, match=r"no message arrived within 0\.01 s"):
        peer.receive(timeout=0.01)
    with pytest.raises(LinkTimeout, match="no event"):
        drain_events(peer)
    link.send(1, b"x")
    drain(peer, 1)
    with pytest.raises(UsageError) as refused:
        peer.consume(1, 5)
    assert refused.value.code == "out_of_range"


def test_a_wrong_number_or_id_is_refused_with_the_accepted_range(listener):
    link, _ = pair(listener)
    for call, said in (
        (
            lambda: link.consume(1, -1),
            "through is -1; a message's number is a whole number from 0 to 4294967295",
        ),
        (
            lambda: link.send(b"abc", b"x"),
            "channel 616263 has 3 bytes; the ids of these channels have 4",
        ),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert str(refused.value) == said
    link.send(1, b"x")
    with pytest.raises(LinkTimeout):
        link.receive_many(1 << 80, timeout=0)


def test_a_timeout_is_the_time_for_the_first_connection(tmp_path):
    url = f"relink+unix://{tmp_path / 'x.sock'}?endpoint=n"
    with pytest.raises(TransportError, match="No such file"):
        relink.connect(url)
    with pytest.raises(TransportError, match=r"not connected within 50ms \(timeout\): .*No such"):
        relink.connect(url, timeout=0.05)


def drain_events(link: relink.Link) -> None:
    while True:
        link.event(timeout=0.05)


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
