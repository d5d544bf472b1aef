import math
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.commands import wait_until

from ackline import LinkClosed, LinkLost, LinkTimeout, TransportError, UsageError, lumberjack
from ackline.lumberjack import Listener


@pytest.fixture
def listener():
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        yield listener


def acknowledge_all(listener: Listener) -> list[bytes]:
    events: list[bytes] = []

    def serve() -> None:
        for window in listener:
            events.extend(window.events)
            window.ack()

    threading.Thread(target=serve, daemon=True).start()
    return events


def port(listener: Listener) -> tuple[str, int]:
    host, number = listener.url.removeprefix("lumberjack://").split(":")
    return host, int(number)


def test_events_arrive_byte_for_byte_and_send_returns_when_acknowledged(listener):
    events = acknowledge_all(listener)
    sent = [f'{{"n":{n},"text":"ä"}}'.encode() for n in range(5000)]
    with lumberjack.connect(listener.url) as writer:
        writer.send(sent, timeout=20)
        assert writer.unacknowledged == 0
        assert events == sent


def test_dicts_text_and_pairs_can_be_sent(listener):
    events = acknowledge_all(listener)
    with lumberjack.connect(listener.url, compression=None) as writer:
        writer.send([{"a": "ä"}, '{"b":1}', [("k", "v"), (b"k", b"w")]], timeout=20)
    assert events == ['{"a":"ä"}'.encode(), b'{"b":1}', {b"k": b"w"}]


def test_a_window_says_where_it_came_from(listener):
    with lumberjack.connect(listener.url) as writer:
        writer.send_window([b"{}", b"[]"])
        window = listener.receive(timeout=20)
        assert len(window) == 2
        assert (window.id, window.sequence, window.version) == (1, 2, 2)
        assert window.peer.startswith("127.0.0.1:")
        assert window.records == [(1, b"{}"), (2, b"[]")]
        assert window.ack()
        with pytest.raises(UsageError) as refused:
            window.ack()
        assert refused.value.code == "unknown_window"


def test_numbers_begin_anew_in_each_window_or_go_on_and_on(listener):
    for cumulative, second in [(False, [1, 2]), (True, [4, 5])]:
        with lumberjack.connect(listener.url, batch_events=3, cumulative=cumulative) as writer:
            writer.try_send([b"{}"] * 5)
            windows = [listener.receive(timeout=20) for _ in range(2)]
            for window in windows:
                window.ack()
            writer.flush(timeout=20)
            assert writer.stats()["possible_repeats"] == 0
        numbers = [[number for number, _ in window.records] for window in windows]
        assert numbers == [[1, 2, 3], second]


def test_an_ack_after_the_sender_went_says_so(listener):
    with socket.create_connection(port(listener)) as sender:
        sender.sendall(bytes.fromhex("325700000001324a0000000100000002") + b"{}")
        window = listener.receive(timeout=20)
    wait_until(lambda: listener.connections == 0, "the connection is over")
    assert window.ack() is False


def test_a_send_that_is_not_acknowledged_times_out_and_the_link_lives_on(listener):
    with lumberjack.connect(listener.url) as writer:
        window = writer.send_window([b"{}"])
        with pytest.raises(LinkTimeout):
            writer.wait_acknowledged(window, timeout=0.05)
        listener.receive(timeout=20).ack()
        writer.wait_acknowledged(window, timeout=20)
        assert writer.is_acknowledged(window)


def test_close_returns_exactly_the_unacknowledged_events(listener):
    writer = lumberjack.connect(listener.url)
    writer.send_window([b'{"n":1}', b'{"n":2}'])
    listener.receive(timeout=20).ack()
    writer.flush(timeout=20)
    number = writer.send_window([b'{"n":3}', [("k", "v")]])
    listener.receive(timeout=20)
    listener.close(timeout=0)
    with pytest.raises(LinkTimeout, match="2 events were not acknowledged in time"):
        writer.wait_acknowledged(number, timeout=0.1)
    rest = writer.close(timeout=0)
    assert (rest.ranges, len(rest), rest.possibly_arrived) == ([(3, 4)], 2, 2)
    assert rest.events() == [b'{"n":3}', [(b"k", b"v")]]
    assert writer.close().ranges == rest.ranges
    with pytest.raises(LinkLost) as lost:
        writer.wait_acknowledged(number, timeout=20)
    assert lost.value.unacknowledged == 2
    with pytest.raises(LinkClosed):
        writer.try_send([b"{}"])


def test_a_writer_comes_back_to_a_receiver_that_was_away(listener):
    url = listener.url
    writer = lumberjack.connect(url, receipts=10, backoff_max=1.0)
    number = writer.send_window([b'{"n":1}'])
    listener.receive(timeout=20)
    listener.close(timeout=0)
    with lumberjack.listen(url) as again:
        window = again.receive(timeout=20)
        assert window.events == [b'{"n":1}']
        window.ack()
        writer.wait_acknowledged(number, timeout=20)
    stats = writer.stats()
    assert (stats["possible_repeats"], stats["reconnects"], stats["unacknowledged"]) == (1, 1, 0)
    lost, kept = writer.receipts()
    assert (lost.acknowledged, lost.repeats, kept.acknowledged, kept.repeats) == (0, False, 1, True)
    assert (kept.first, kept.last, kept.host) == (1, 1, url)
    assert len(writer.close()) == 0


def test_a_flush_that_close_cuts_short_says_so(listener):
    writer = lumberjack.connect(listener.url)
    writer.flush(timeout=20)
    writer.try_send([b"1"] * 3)
    assert listener.receive(timeout=20).events == [b"1"] * 3
    with ThreadPoolExecutor() as pool:
        flushing = pool.submit(writer.flush)
        with pytest.raises(TimeoutError):
            flushing.result(timeout=0.05)
        assert len(writer.close(timeout=0)) == 3
        with pytest.raises(LinkLost, match="3 events are not acknowledged"):
            flushing.result(timeout=20)
    with pytest.raises(LinkLost) as lost:
        writer.flush(timeout=20)
    assert lost.value.unacknowledged == 3


@pytest.mark.parametrize("number", [0, -1, 2, 1 << 70])
def test_a_number_that_was_never_given_out_is_refused(listener, number):
    acknowledge_all(listener)
    with lumberjack.connect(listener.url) as writer:
        given = writer.try_send([b"1"])
        writer.wait_acknowledged(given, timeout=20)
        assert writer.is_acknowledged(given)
        for asked in (writer.is_acknowledged, writer.wait_acknowledged):
            with pytest.raises(UsageError, match=f"no batch has the number {number}"):
                asked(number)
    with pytest.raises(UsageError):
        writer.is_acknowledged(number)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ([("k", "v", "z")], "a pair is"), ([("k",)], "a pair is"), ([["k", "v"]], "a pair is"),
        (["kv"], "a pair is"), ([("k", 1)], "keys and values"), (7, "an event is"),
        ({"n": math.nan}, "not JSON compliant"), ({"n": [math.inf]}, "not JSON compliant"),
        ({"n": object()}, "not JSON serializable"),
    ],
)  # fmt: skip
def test_an_event_that_cannot_be_sent_is_named(listener, event, text):
    with lumberjack.connect(listener.url, batch_events=2) as writer:
        for sent, at in ((writer.try_send, 1), (writer.send_window, 1)):
            with pytest.raises(UsageError, match=f"^event {at}: .*{text}"):
                sent([b"{}", event])
        assert writer.unacknowledged == 0
        with pytest.raises(UsageError, match=f"^event 3: .*{text}"):
            writer.send([b"{}", b"{}", b"{}", event], timeout=20)
        listener.receive(timeout=20).ack()


@pytest.mark.parametrize(
    "events",
    ["abc", b"abc", bytearray(b"abc"), {"a": 1}, "in chunks"],
)
def test_an_argument_that_is_no_sequence_of_events_is_refused(listener, events):
    if events == "in chunks":
        pyarrow = pytest.importorskip("pyarrow")
        events = pyarrow.chunked_array([["1"], ["2"]])
    with lumberjack.connect(listener.url) as writer:
        for send in (writer.send, writer.try_send, writer.send_window):
            with pytest.raises(UsageError, match=r"one event alone goes as a list|chunk by chunk"):
                send(events)
        assert writer.stats()["accepted"] == 0


def test_a_full_buffer_is_none_and_room_comes_with_an_acknowledgement(listener):
    with lumberjack.connect(listener.url, buffer_events=2) as writer:
        number = writer.try_send([b"{}", b"{}"])
        assert number == 1
        assert writer.try_send([b"[]"]) is None
        assert writer.stats()["state"] == "blocked"
        with pytest.raises(LinkTimeout):
            writer.send_window([b"[]"], timeout=0.05)
        listener.receive(timeout=20).ack()
        writer.send_window([b"[]"], timeout=20)
        assert listener.receive(timeout=20).events == [b"[]"]
        with pytest.raises(UsageError, match="buffer_events"):
            writer.try_send([b"{}"] * 3)
        assert len(writer.close(timeout=0)) == 1


def test_events_go_to_whichever_host_takes_them():
    with (
        lumberjack.listen("lumberjack://127.0.0.1:0") as stuck,
        lumberjack.listen("lumberjack://127.0.0.1:0") as other,
    ):
        events = acknowledge_all(other)
        hosts = f"{stuck.url},{other.url.removeprefix('lumberjack://')}"
        urls = f"{stuck.url},{other.url}"
        for url in ([stuck.url, other.url], hosts, urls, [urls]):
            with lumberjack.connect(url, batch_events=1, read_timeout=0.5) as writer:
                writer.send([b"%d" % n for n in range(100)], timeout=20)
            assert {int(event) for event in events} == set(range(100))
            events.clear()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("batch_events", 0), ("batch_bytes", 0), ("buffer_events", 0), ("buffer_bytes", 0),
        ("max_in_flight", 0), ("max_in_flight_events", 0), ("max_in_flight_bytes", 0),
        ("slow_start", 0), ("compression", 10), ("backoff_max", 0.5), ("ttl", 0.0),
        ("read_timeout", 0), ("read_timeout", -1), ("progress_timeout", 0.0),
        ("progress_timeout", -0.1), ("connect_timeout", -1), ("connect_timeout", 0),
        ("connect_timeout", math.nan), ("connect_timeout", math.inf),
        ("backoff_min", -1), ("backoff_min", "soon"), ("compression", -1),
        ("receipts", -1), ("batch_events", 1 << 32), ("buffer_bytes", -1), ("slow_start", 1.5),
        ("max_in_flight", 1 << 70),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_named(option, value):
    with pytest.raises(UsageError, match=option) as refused:
        lumberjack.connect("lumberjack://127.0.0.1:1", **{option: value})
    assert re.search(r"from \d+ to|at least|a number of seconds|a time such as", str(refused.value))


def test_limits_in_flight_hold_for_events_and_bytes(listener):
    options = {"max_in_flight": 9, "batch_events": 2, "receipts": 9, "compression": 0}
    with lumberjack.connect(listener.url, max_in_flight_events=3, **options) as writer:
        writer.try_send([b"%d" % n for n in range(6)])
        first, second = listener.receive(timeout=20), listener.receive(timeout=20)
        assert (len(first), len(second)) == (2, 1)
        with pytest.raises(LinkTimeout):
            listener.receive(timeout=0.05)
        first.ack()
        assert len(listener.receive(timeout=20)) == 2
        assert len(writer.close(timeout=0)) == 4
    with lumberjack.connect(listener.url, max_in_flight_bytes=24, **options) as writer:
        writer.try_send([b"%d" % n for n in range(6)])
        assert len(listener.receive(timeout=20)) == 2
        with pytest.raises(LinkTimeout):
            listener.receive(timeout=0.05)
        assert len(writer.close(timeout=0)) == 6


def test_a_receive_times_out_and_ends_when_closed(listener):
    with pytest.raises(LinkTimeout):
        listener.receive(timeout=0.01)
    listener.close()
    with pytest.raises(LinkClosed):
        listener.receive(timeout=20)
    assert list(listener) == []


def test_bad_input_is_refused_by_name_and_disturbs_nobody(listener):
    events = acknowledge_all(listener)
    with socket.create_connection(port(listener)) as bad:
        bad.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert bad.recv(1) == b""
    wait_until(lambda: bool(listener.refused()), "the refusal is told")
    peer, code, offset, _ = listener.refused()[0]
    assert peer.startswith("127.0.0.1:")
    assert (code, offset) == ("link.http", 0)
    with lumberjack.connect(listener.url) as writer:
        writer.send([b"{}"], timeout=20)
    assert events == [b"{}"]


def test_unix_sockets_work(tmp_path):
    with lumberjack.listen(f"lumberjack+unix://{tmp_path}/x.sock") as listener:
        events = acknowledge_all(listener)
        with lumberjack.connect(listener.url) as writer:
            writer.send([b"{}"], timeout=20)
        assert events == [b"{}"]


def test_wrong_urls_options_and_addresses_are_errors(listener):
    with pytest.raises(UsageError):
        lumberjack.listen("relink://127.0.0.1:0")
    with pytest.raises(UsageError):
        lumberjack.listen("lumberjack+tls://127.0.0.1:0")
    with pytest.raises(UsageError):
        lumberjack.listen("lumberjack://127.0.0.1:0", no_window="perhaps")  # type: ignore[arg-type]
    with pytest.raises(TransportError):
        lumberjack.listen(listener.url)
    url = listener.url
    listener.close()
    with pytest.raises(TransportError):
        lumberjack.connect(url, connect_timeout=5)


@pytest.mark.parametrize("kind", ["binary", "string", "large_string", "binary_view"])
def test_a_column_of_arrow_is_sent_as_it_is(listener, kind):
    pyarrow = pytest.importorskip("pyarrow")
    events = acknowledge_all(listener)
    sent = [b'{"n":%d}' % n for n in range(5000)]
    texts = sent if kind.startswith("binary") else [text.decode() for text in sent]
    column = pyarrow.array(texts, getattr(pyarrow, kind)())
    with lumberjack.connect(listener.url) as writer:
        writer.send(column, timeout=20)
        assert events == sent
        assert writer.try_send(column[10:12]) is not None
        for wrong in (column[:0], pyarrow.array(["{}", None]), pyarrow.array([1, 2])):
            with pytest.raises(UsageError):
                writer.try_send(wrong)
        writer.flush(timeout=20)
    assert events[5000:] == sent[10:12]
