"""MicroMsg2 for threads: messages, windows and acknowledgements between both ends."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from support.commands import wait_until
from support.micromsg_pair import MANUAL, NOW, TIME, UNACKNOWLEDGED, URL, Pair, fill, pair

from ackline import LinkClosed, LinkLost, LinkTimeout, UsageError, micromsg

MOST_BYTES = 16 << 20


@pytest.fixture
def ends() -> Iterator[Pair]:
    with pair() as both:
        yield both


def payloads(messages: list[micromsg.Message]) -> list[bytes]:
    return [message.payload for message in messages]


def refused(call: Any, *arguments: Any, **named: Any) -> str:
    """The code of a call's refusal."""
    with pytest.raises(UsageError) as error:
        call(*arguments, **named)
    return error.value.code


def test_messages_come_in_order_in_both_directions(ends: Pair) -> None:
    for one, other in [ends, ends[::-1]]:
        assert [one.send(b"%d" % number, f"to/{number}") for number in range(1, 4)] == [1, 2, 3]
        came = [other.receive(timeout=TIME) for _ in range(3)]
        assert [(it.position, it.payload, it.destination) for it in came if it] == [
            (1, b"1", "to/1"),
            (2, b"2", "to/2"),
            (3, b"3", "to/3"),
        ]


def test_a_message_without_anything_is_empty(ends: Pair) -> None:
    near, far = ends
    near.send(b"")
    message = far.receive(timeout=TIME)
    assert message is not None
    assert (message.payload, message.destination) == (b"", "")
    assert (message.raw_properties, message.properties, message.dotnet_type) == ("", {}, None)


@pytest.mark.parametrize(
    "value",
    [
        0,
        -(1 << 63),
        (1 << 63) - 1,
        1.5,
        1e300,
        -0.25,
        "",
        "eu",
        "N5",
        "ü ;:%\n\0😀",
        datetime(2014, 10, 13, 11, 0, 0, 123456, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 500000, UTC),
        datetime.min.replace(tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    ],
)
def test_a_property_of_every_type_comes_as_it_was_sent(ends: Pair, value: micromsg.Value) -> None:
    near, far = ends
    near.send(b"", properties={"a-1": value, "b": 1})
    message = far.receive(timeout=TIME)
    assert message is not None
    assert message.properties == {"a-1": value, "b": 1}
    assert type(message.properties["a-1"]) is type(value)
    assert message.properties is message.properties
    if isinstance(value, datetime):
        came = message.properties["a-1"]
        assert isinstance(came, datetime)
        assert came.tzinfo is UTC


def test_the_last_moment_of_a_date_is_read_again() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    came = micromsg.read_properties(micromsg.write_properties({"a": last}))["a"]
    assert isinstance(came, datetime)
    # A number of seconds has this precision there.
    assert last - came < timedelta(microseconds=50)
    behind = datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))
    assert refused(micromsg.write_properties, {"a": behind}) == "invalid_value"


def test_arguments_outside_their_ranges_are_refused(ends: Pair) -> None:
    near, far = ends
    assert refused(near.wait_acknowledged, -1) == "position"
    assert refused(near.wait_acknowledged, 1) == "out_of_range"
    for most in (0, -1):
        assert refused(far.receive_some, most) == "max_messages"
    half = "\ud800"
    for call in (
        lambda: near.send(b"", half),
        lambda: near.send(b"", "t", {"a": half}),
        lambda: near.send(b"", "t", {half: 1}),
        lambda: near.send_some([(b"", half)]),
        lambda: near.subscribe(half),
        lambda: near.subscribe("t", half),
        lambda: near.unsubscribe(half),
        lambda: near.command(half),
        lambda: near.command("a", {"b": half}),
        lambda: near.fail(half),
        lambda: micromsg.where(half) == 1,
        lambda: micromsg.where("a") == half,
        lambda: micromsg.connect(f"micromsg://{half}:1"),
        lambda: micromsg.listen(f"micromsg://{half}:1"),
    ):
        assert refused(call) == "not_unicode"


def test_an_end_by_abort_is_this_ends(ends: Pair) -> None:
    near, _ = ends
    near.abort()
    with pytest.raises(LinkClosed, match="the link was aborted"):
        near.receive()


def test_properties_that_nobody_can_carry_are_refused(ends: Pair) -> None:
    near, far = ends
    for properties, code in [
        ({"a": 1 << 63}, "out_of_range"),
        ({"a": float("nan")}, "not_finite"),
        ({"a": float("inf")}, "not_finite"),
        ({"a": True}, "invalid_value"),
        ({"a": None}, "invalid_value"),
        ({"a": b"bytes"}, "invalid_value"),
        ({"a": datetime(2026, 1, 1)}, "invalid_value"),  # noqa: DTZ001 (it has no time zone)
        ({"a b": 1}, "invalid_name"),
        ({"": 1}, "invalid_name"),
        ({1: 1}, "invalid_name"),
        ({"a": "x" * 65_535}, "out_of_range"),
        ([("a", 1)], "properties"),
    ]:
        assert refused(near.send, b"", "t", properties) == code, properties
        with pytest.raises(UsageError):
            near.send_some([(b"", "t", properties)])  # type: ignore[list-item]
    near.send(b"next")
    message = far.receive(timeout=TIME)
    assert message is not None
    assert message.position == 1, "nothing was sent before"


def test_a_list_of_properties_that_cannot_be_read_is_an_error_when_it_is_asked_for() -> None:
    for raw, code in [
        ("novalue", "invalid_properties"),
        ("a:T%4", "invalid_percent_encoding"),
        ("a:N1;;", "invalid_properties"),
        ("é:N1", "not_ascii"),
        ("a:D1e999", None),
        ("a:D99999999999999.0", "invalid_properties"),
    ]:
        if code is None:
            # A value in another form than that of its type is a text.
            assert micromsg.read_properties(raw) == {"a": "D1e999"}
        else:
            assert refused(micromsg.read_properties, raw) == code, raw
    assert micromsg.read_properties("a:N1;first_name:x;a:N2") == {"a": 1, "first_name": "x"}
    assert micromsg.write_properties({"a": 1, "b": "x y"}) == "a:N1;b:Tx%20y;"


def test_what_a_message_cannot_be_is_refused_and_not_sent(ends: Pair) -> None:
    near, far = ends
    assert refused(near.send, bytes(MOST_BYTES + 1)) == "message_too_large"
    assert refused(near.send, b"", "ü") == "not_ascii"
    assert refused(near.send, b"", "x" * 256) == "out_of_range"
    assert refused(near.send, b"", dotnet_type="A.B") == "extension_not_negotiated"
    with pytest.raises(UsageError):
        near.send("text")  # type: ignore[arg-type]
    near.send(b"next", "x" * 255)
    message = far.receive(timeout=TIME)
    assert message is not None
    assert (message.position, len(message.destination)) == (1, 255)


def test_many_messages_are_sent_by_one_call(ends: Pair) -> None:
    near, far = ends
    given: list[micromsg.Sendable] = [
        b"1",
        bytearray(b"2"),
        memoryview(b"3"),
        (b"4",),
        (b"5", "t"),
        (b"6", "t", {"a": 1}),
        (b"7", "t", None, None),
        micromsg.Outgoing(b"8", properties={"b": "x"}),
        micromsg.Outgoing(bytes(5_000)),
    ]
    assert near.send_some(given, timeout=TIME) == 9
    assert near.send_some([]) == 0
    came: list[micromsg.Message] = []
    while len(came) < 9:
        came += far.receive_some(timeout=TIME)
    assert payloads(came) == [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", bytes(5_000)]
    assert [it.destination for it in came] == ["", "", "", "", "t", "t", "t", "", ""]
    assert [it.raw_properties for it in came[5:8]] == ["a:N1;", "", "b:Tx;"]


def test_many_messages_of_a_wrong_form_are_not_sent(ends: Pair) -> None:
    near, _ = ends
    wrong: list[Any] = [
        b"payload",
        "text",
        [b"1", "text"],
        [b"1", ()],
        [b"1", (None,)],
        [b"1", (b"2", 3)],
        [b"1", (b"2", "t", {"a b": 1})],
        [b"1", (b"2", "t", None, None, None)],
        7,
    ]
    for messages in wrong:
        with pytest.raises(UsageError):
            near.send_some(messages)
    assert near.stats()["sent"] == 0


def test_a_large_message_comes_whole(ends: Pair) -> None:
    near, far = ends
    payload = bytes(range(256)) * (MOST_BYTES >> 8)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(far.receive, timeout=TIME)
        near.send(payload, "large", {"a": 1}, timeout=TIME)
        message = coming.result(TIME)
    assert message is not None
    assert message.payload == payload
    assert message.properties == {"a": 1}


def test_the_window_holds_the_sender_back() -> None:
    with pair(MANUAL, window=2) as (near, far):
        assert near.window == far.window == 2
        near.send(b"1")
        near.send(b"2")
        with pytest.raises(LinkTimeout, match="there was no room for a message within"):
            near.send(b"3", timeout=NOW)
        assert near.stats()["pending"] == 2
        first = far.receive(timeout=TIME)
        assert first is not None
        first.ack()
        assert near.send(b"3", timeout=TIME) == 3
        with pytest.raises(LinkTimeout):
            near.send_some([b"4"], timeout=NOW)
        near.command("still-free")
        assert far.receive_command(timeout=TIME) == micromsg.Command("still-free")


def test_a_batch_larger_than_the_window_goes_out_as_acknowledgements_come() -> None:
    with pair(window=10) as (near, far), ThreadPoolExecutor(1) as pool:
        sending = pool.submit(near.send_some, [b"%d" % it for it in range(95)], timeout=TIME)
        came = [far.receive(timeout=TIME) for _ in range(95)]
        assert sending.result(TIME) == 95
        assert [it.payload for it in came if it] == [b"%d" % it for it in range(95)]


def test_acknowledgements_are_waited_for() -> None:
    with pair(MANUAL) as (near, far):
        near.wait_acknowledged(timeout=TIME)
        near.send_some([b"1", b"2", b"3"])
        with pytest.raises(LinkTimeout, match="not all messages were acknowledged within"):
            near.wait_acknowledged(timeout=NOW)
        came = far.receive_some(timeout=TIME)
        far.ack(came[1])
        near.wait_acknowledged(2, timeout=TIME)
        with pytest.raises(LinkTimeout):
            near.wait_acknowledged(3, timeout=NOW)
        far.ack(3)
        near.wait_acknowledged(timeout=TIME)
        assert refused(near.wait_acknowledged, 4) == "out_of_range"
        assert (near.stats()["acknowledged"], near.stats()["pending"]) == (3, 0)
        assert refused(far.ack, 3) == "out_of_range"
        assert refused(far.ack, 9) == "out_of_range"
        for wrong in [0, -1, "1", True]:
            assert refused(far.ack, wrong) == "position"


def test_a_message_of_another_connection_is_not_acknowledged_by_mistake() -> None:
    with pair(MANUAL) as (near, far), pair(MANUAL) as (other, there):
        near.send(b"1")
        other.send(b"1")
        assert far.receive(timeout=TIME) is not None
        message = there.receive(timeout=TIME)
        assert message is not None
        assert refused(far.ack, message) == "other_connection"


def test_a_message_is_acknowledged_when_the_next_one_is_asked_for() -> None:
    with pair({"ack_timer": "10ms"}) as (near, far):
        near.send_some([b"1", b"2"])
        messages = iter(far)
        next(messages)
        with pytest.raises(LinkTimeout):
            near.wait_acknowledged(1, timeout=0.1)
        next(messages)
        # Messages that were taken ahead are told apart after a while.
        with pytest.raises(LinkTimeout):
            far.receive(timeout=NOW)
        near.wait_acknowledged(timeout=TIME)


def test_a_message_that_nobody_asked_for_is_not_acknowledged_at_the_end() -> None:
    with pair() as (near, far):
        near.send_some([b"1", b"2", b"3"])
        for message in far:
            if message.payload == b"2":
                break
        far.close(timeout=TIME)
        with pytest.raises(LinkLost, match="1 messages are not acknowledged") as lost:
            near.wait_acknowledged(timeout=TIME)
        assert lost.value.unacknowledged == 1
        assert near.stats()["acknowledged"] == 2


def test_an_iteration_that_was_left_is_gone_on_with(ends: Pair) -> None:
    near, far = ends
    near.send_some([b"1", b"2", b"3", b"4", b"5"])
    assert next(iter(far)).payload == b"1"
    second = far.receive(timeout=TIME)
    assert second is not None
    assert second.payload == b"2"
    assert payloads(far.receive_some(2, timeout=TIME)) == [b"3", b"4"]
    assert next(iter(far)).payload == b"5"
    near.wait_acknowledged(4, timeout=TIME)


def test_a_slow_reader_acknowledges_before_its_messages_are_all_read() -> None:
    with pair({"ack_timer": "10ms"}) as (near, far):
        near.send_some([b"%d" % number for number in range(100)])
        messages = iter(far)
        next(messages)

        def reads_on() -> bool:
            next(messages)
            return near.stats()["acknowledged"] > 0

        wait_until(reads_on, "the first ones are acknowledged")
        assert near.stats()["pending"] > 0


def test_without_acknowledgements_nothing_is_held_back() -> None:
    with pair(UNACKNOWLEDGED, **UNACKNOWLEDGED) as (near, far):
        assert (near.window, near.extensions) == (0, ["pub-sub"])
        near.send_some([b"x"] * 5_000, timeout=TIME)
        came = 0
        while came < 5_000:
            messages = far.receive_some(timeout=TIME)
            came += len(messages)
        assert refused(near.wait_acknowledged) == "extension_not_negotiated"
        assert refused(messages[-1].ack) == "extension_not_negotiated"


def test_room_for_the_transport_holds_the_sender_back_too() -> None:
    options = UNACKNOWLEDGED | {"send_bytes": 1_000}
    with pair(UNACKNOWLEDGED, **options) as (near, far):
        payload = bytes(300_000)
        sent = fill(near, payload)
        with pytest.raises(LinkTimeout, match="there was no room to send it"):
            near.command("ping", timeout=NOW)
        assert near.stats()["waiting_bytes"] > 0
        with ThreadPoolExecutor(4) as pool:
            more = [pool.submit(near.send, payload, timeout=TIME) for _ in range(8)]
            commands = [pool.submit(near.command, "ping", timeout=TIME) for _ in range(8)]
            for _ in range(sent + 8):
                message = far.receive(timeout=TIME)
                assert message is not None
                assert message.payload == payload
            assert sorted(one.result(TIME) for one in more) == list(range(sent + 1, sent + 9))
            for command in commands:
                command.result(TIME)
        assert far.receive_command(timeout=TIME) == micromsg.Command("ping")


def test_many_threads_share_a_connection(ends: Pair) -> None:
    near, far = ends
    each, came, lock = 500, [], threading.Lock()

    def send(name: int) -> list[int]:
        return [near.send(b"%d" % name, timeout=TIME) for _ in range(each)]

    def receive() -> None:
        for message in far:
            with lock:
                came.append(message.position)

    with ThreadPoolExecutor(8) as pool:
        taking = [pool.submit(receive) for _ in range(4)]
        sent = [pool.submit(send, name) for name in range(4)]
        positions = [position for one in sent for position in one.result(TIME)]
        wait_until(lambda: len(came) == 4 * each, "all have come")
        near.close(timeout=TIME)
        for one in taking:
            one.result(TIME)
    assert sorted(positions) == sorted(came) == list(range(1, 4 * each + 1))


def test_types_of_net_come_with_their_messages() -> None:
    dotnet: dict[str, Any] = {"optional_extensions": "batch-ack;dotnet"}
    with pair(dotnet, **dotnet) as (near, far):
        assert "dotnet" in near.extensions
        near.send(b"1")
        near.send(b"2", dotnet_type="A.B, C")
        near.send_some([(b"3", "", None, "A.B, C"), (b"4", "", None, "D"), b"5"])
        came = [far.receive(timeout=TIME) for _ in range(5)]
        # A message without a type has the one that was named last.
        assert [it.dotnet_type for it in came if it] == [None, "A.B, C", "A.B, C", "D", "D"]
        assert refused(near.send, b"", dotnet_type="ü") == "not_ascii"


def test_a_message_does_not_keep_its_connection() -> None:
    with micromsg.listen(URL, **MANUAL) as listener:
        near = micromsg.connect(listener.url)
        far = listener.accept(timeout=TIME)
        near.send(b"1")
        message = far.receive(timeout=TIME)
        assert message is not None
        del far
        gc.collect()
        near.wait_ended(timeout=TIME)
        with pytest.raises(LinkLost):
            near.wait_acknowledged(timeout=TIME)
        with pytest.raises(LinkClosed, match="the connection was dropped"):
            message.ack()
        assert message.payload == b"1"


def test_the_numbers_of_many_messages_go_on_behind_65535() -> None:
    with pair(window=65_534) as (near, far), ThreadPoolExecutor(1) as pool:
        count = 140_000

        def send() -> None:
            for _ in range(0, count, 1_000):
                near.send_some([b"x"] * 1_000, timeout=TIME)
            near.wait_acknowledged(timeout=TIME)

        sending, came = pool.submit(send), 0
        while came < count:
            messages = far.receive_some(timeout=TIME)
            came += len(messages)
            assert messages[-1].position == came
        with pytest.raises(LinkTimeout):
            far.receive(timeout=1)
        sending.result(TIME)
