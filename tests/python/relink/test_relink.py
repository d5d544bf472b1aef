"""Messages, receipts, transactions and channels of Relink's links for threads."""

import gc
import threading
import time

import pyarrow as pa
import pytest
from support.commands import wait_until
from support.relink import TIME, drain, pair, wait_event

from ackline import LinkTimeout, UsageError, relink


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
