"""The bare machine: its description, its refusals and its types."""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.commands import ROOT

from ackline.exceptions import AcklineError, ProtocolError, UsageError
from ackline.sansio import Machine, decode, describe, encode, protocols

ROLES = [(protocol, role) for protocol in protocols() for role in describe(protocol)["roles"]]
SIZES = {"connector_channel_id_size": 1, "listener_channel_id_size": 1}


PLAIN: dict[str, Any] = {
    "flag": True,
    "bytes": b"x",
    "text": "x",
    "frames": [],
    "signed": -1,
    "fraction": 0.5,
}


def sample(shape: dict[str, Any]) -> Any:
    """A value of a shape."""
    kind, inner = shape["is"], shape.get("of")
    if kind in {"list", "row"}:
        return [sample(one) for one in ([inner] if isinstance(inner, dict) else inner)]
    if kind == "map":
        members = shape["members"].items()
        # Of members that are alternatives, one is given.
        optional = [name for name, one in members if one["optional"]]
        wanted = [*(name for name, one in members if not one["optional"]), *optional[:1]]
        return {name: sample(one) for name, one in members if name in wanted}
    if kind == "tagged":
        return (shape["tags"][0], sample(inner))
    if kind == "either":
        return sample(inner[-1])
    if kind in PLAIN:
        return PLAIN[kind]
    return shape.get("words", [max(shape.get("least", 0), 1)])[0]


def opened(protocol: str, role: str, **options: Any) -> Machine[Any]:
    """A machine that is past its handshake."""
    if protocol == "relink":
        options = {"start": "established"} | SIZES | options
    return Machine(protocol, role, **options)


def refusal(call: Callable[[], object]) -> AcklineError | None:
    """The error that a call raises, if it raises one."""
    try:
        call()
    except AcklineError as error:
        return error
    return None


def test_the_protocols_that_are_built_are_named():
    assert protocols() == ["bpmux", "lumberjack", "micromsg", "reactive", "relink"]


@pytest.mark.parametrize(("protocol", "role"), ROLES)
def test_every_verb_that_is_described_is_understood(protocol, role):
    for verb, described in describe(protocol)["roles"][role]["verbs"].items():
        machine = opened(protocol, role)
        arguments = {name: sample(one) for name, one in described["members"].items()}
        error = refusal(partial(machine.call, 0, verb, **arguments))
        wrong = {"unknown_verb", "unknown_argument", *arguments}
        assert getattr(error, "code", None) not in wrong, error


@pytest.mark.parametrize(("protocol", "role"), ROLES)
def test_every_option_that_is_described_is_taken(protocol, role):
    described = describe(protocol)["roles"][role]["options"]
    for name, option in described.items():
        Machine(protocol, role, **{name: sample(option)})
        if option["nullable"]:
            Machine(protocol, role, **{name: None})
        if option["is"] == "number" and option["most"] < 1 << 64:
            with pytest.raises(UsageError, match=f"{name} is .*; it is a whole number from"):
                Machine(protocol, role, **{name: option["most"] + 1})


@pytest.mark.parametrize("protocol", protocols())
def test_every_frame_that_is_described_can_be_encoded(protocol):
    for name, frame in describe(protocol)["frames"].items():
        members = {one: sample(shape) for one, shape in frame["members"].items()}
        members = {one: value for one, value in members.items() if one != "channel_id_count"}
        assert encode(protocol, [{"type": name} | members]), name


def test_names_that_are_not_known_are_answered_with_those_that_are():
    names = '"bpmux", "lumberjack", "micromsg", "reactive" or "relink"'
    with pytest.raises(UsageError, match=f'protocol is {names}, not "x"'):
        Machine("x", "reader")
    for call in (lambda: decode("x", b""), lambda: encode("x", []), lambda: describe("x")):
        with pytest.raises(UsageError, match='"reactive" or "relink", not "x"'):
            call()
    said = 'no role "x" of lumberjack: it has reader, writer'
    with pytest.raises(UsageError, match=said) as raised:
        Machine("lumberjack", "x")
    assert raised.value.code == "unknown_role"
    reader = Machine("lumberjack", "reader")
    said = 'no verb "send" of reader: it has ack, stop, unacknowledged'
    with pytest.raises(UsageError, match=said) as raised:
        reader.call(0, "send")
    assert raised.value.code == "unknown_verb"
    said = 'ack: there is no argument "windw": it has window'
    with pytest.raises(UsageError, match=said) as raised:
        reader.call(0, "ack", windw=1)
    assert raised.value.code == "unknown_argument"
    with pytest.raises(UsageError, match='there is no option "speed"') as raised:
        Machine("bpmux", "endpoint", speed=1)
    assert raised.value.code == "unknown_option"
    with pytest.raises(UsageError, match='no frame "dance" of bpmux: it has sink, stream, duplex'):
        encode("bpmux", [{"type": "dance"}])
    said = 'ping_req: there is no member "id": it has req'
    with pytest.raises(UsageError, match=said):
        encode("bpmux", [{"type": "ping_req", "req": 1, "id": 1}])


@pytest.mark.parametrize(
    ("verb", "arguments", "said"),
    [
        ("send", {"target": "top"}, "send: payload is missing: it has target, payload"),
        ("send", {"target": "top", "payload": "x"}, "send: payload is x; it is bytes"),
        (
            "ping",
            {"target": ("ours", 1)},
            'ping: target is .*; it is "top", ("own", id) or ("peer", id)',
        ),
        ("ping", {"target": ("own", -1)}, "ping: target is -1; it is a whole number from 0 to"),
        ("ping", {"target": None}, "ping: target is None; it is"),
        (
            "open_sink",
            {"id": 1 << 32},
            "open_sink: id is 4294967296; it is a whole number from 0 to 4294967295",
        ),
        ("open_sink", {"id": True}, "open_sink: id is True; it is a whole number"),
        (
            "grant_credit",
            {"target": "top", "amount": -1},
            "grant_credit: amount is -1; it is a whole number from 0 to 18446744073709551615",
        ),
    ],
)
def test_an_argument_is_named_with_its_verb(verb, arguments, said):
    machine = Machine("bpmux", "endpoint")
    with pytest.raises(UsageError) as raised:
        machine.call(0, verb, **arguments)
    first, _, rest = said.partition(".*")
    assert first in str(raised.value)
    assert rest in str(raised.value)


def test_values_inside_lists_and_maps_are_checked():
    writer = Machine("lumberjack", "writer")
    for records, said in (
        (b"{}", "records is .*; it is a list"),
        ([b"{}"], "records is .*; it is a map: it has payload, pairs"),
        ([{"payload": b"{}", "pairs": []}], "a record has either payload or pairs"),
        ([{}], "a record has either payload or pairs"),
        ([{"text": b"{}"}], 'records has no member "text": it has payload, pairs'),
        ([{"pairs": [[b"key"]]}], "pairs is .*; it is a list of 2"),
        ([{"pairs": [[b"key", 7]]}], "pairs is 7; it is bytes"),
    ):
        with pytest.raises(UsageError, match=f"send_window: {said}"):
            writer.call(0, "send_window", records=records)
    assert writer.poll_transmit(0) == b""


WINDOW = bytes.fromhex("325700000001324a0000000100000002") + b"{}"
SINKS = bytes.fromhex("a00100a00200")
MESSAGE = bytes.fromhex("110161000500000068656c6c6f000000")
OTHER = bytes.fromhex("110162000500000068656c6c6f000000")


@pytest.mark.parametrize(
    ("protocol", "role", "options", "data", "wrong"),
    [
        ("lumberjack", "reader", {"max_window_bytes": 10}, WINDOW, "max_window_bytes"),
        ("bpmux", "endpoint", {"max_entities": 1}, SINKS, "max_entities"),
        ("relink", "listener", {"max_channels": 1}, MESSAGE + OTHER, "max_channels"),
        ("relink", "listener", {"max_message_bytes": 4}, MESSAGE, "max_message_bytes"),
        ("relink", "listener", {"max_part_bytes": 4}, MESSAGE, "max_part_bytes"),
        ("relink", "listener", {"receive_window": 1}, MESSAGE * 2, "receive_window"),
    ],
)
def test_an_option_that_limits_the_peer_ends_it(protocol, role, options, data, wrong):
    assert refusal(partial(opened(protocol, role).receive, 0, data)) is None
    error = refusal(partial(opened(protocol, role, **options).receive, 0, data))
    assert getattr(error, "option", "") == wrong


@pytest.mark.parametrize(
    ("protocol", "role", "options", "data", "due"),
    [
        ("bpmux", "endpoint", {"ping_after_ms": 30}, b"", 30),
        ("bpmux", "endpoint", {"chunk_receive_timeout_ms": 40}, b"\xe0", 40),
        ("lumberjack", "reader", {"first_byte_timeout_ms": 50}, b"", 50),
        ("lumberjack", "reader", {"stall_timeout_ms": 60}, WINDOW[:9], 60),
        ("lumberjack", "reader", {"tail_idle_ms": 70}, WINDOW, None),
        ("relink", "listener", {"ping_after_ms": 80}, b"", 80),
        ("relink", "listener", {"packet_receive_timeout_ms": 90}, MESSAGE[:9], 90),
        ("relink", "listener", {"start": "handshake", "handshake_timeout_ms": 99}, b"", None),
        ("bpmux", "endpoint", {}, b"\xe0", None),
    ],
)
def test_a_timer_is_due_when_its_option_says(protocol, role, options, data, due):
    machine = opened(protocol, role, **options)
    machine.receive(0, data)
    assert machine.poll_timeout() == due


def test_other_options_have_their_effect():
    reader = Machine("lumberjack", "reader", max_unacked_windows=1)
    assert reader.receive(0, WINDOW * 2)[0] == "room"
    end = Machine("bpmux", "endpoint", credit=(16, 16, 0))
    assert end.poll_transmit(0) == encode(
        "bpmux", [{"type": "credit", "stream": "top", "amount": 16}]
    )
    pinged = Machine("bpmux", "endpoint", ping_after_ms=10, pong_timeout_ms=7)
    pinged.handle_timeout(10)
    pinged.poll_transmit(10)
    assert pinged.poll_timeout() == 17
    link = opened("relink", "listener", max_events=1)
    assert link.receive(0, MESSAGE * 2)[0] == "room"
    link = opened("relink", "listener", max_event_bytes=1)
    assert link.receive(0, MESSAGE * 2)[0] == "room"
    for waits in (False, True):
        link = opened("relink", "connector", close_when_consumed=waits)
        link.call(0, "send", channels=[b"a"], payload=[b"hello"])
        link.call(0, "close_channel", channel=b"a")
        frames, _ = decode("relink", link.poll_transmit(0), "connector", **SIZES)
        assert len(frames) == 2 - waits


def test_a_refusal_has_the_machines_code():
    machine = Machine("bpmux", "endpoint")
    with pytest.raises(UsageError) as raised:
        machine.call(0, "close_response", id=7)
    assert raised.value.code == "unknown_id"


def test_an_error_is_raised_again():
    machine = Machine("bpmux", "endpoint")
    assert machine.receive(0, b"") == ("input", 1)
    for _ in range(2):
        with pytest.raises(ProtocolError) as raised:
            machine.receive(0, b"\x8c")
        assert (raised.value.protocol, raised.value.code) == ("bpmux", "bpmux.invalid_chunk")


def test_events_have_the_types_of_their_members():
    one, other = Machine("bpmux", "endpoint"), Machine("bpmux", "endpoint")
    other.call(0, "grant_credit", target="top", amount=9)
    one.receive(0, other.poll_transmit(0))
    one.call(0, "open_duplex", id=7, payload=b"why")
    other.receive(0, one.poll_transmit(0))
    opened = other.poll_event()
    assert opened == {"event": "opened", "kind": "duplex", "id": 7, "payload": b"why"}
    other.call(0, "grant_credit", target=("peer", 7), amount=9)
    one.receive(0, other.poll_transmit(0))
    one.call(0, "send", target=("own", 7), payload=b"hello")
    other.receive(0, one.poll_transmit(0))
    message = {"event": "message", "target": ("peer", 7), "payload": b"hello"}
    assert other.poll_event() == message
    assert other.poll_event() is None


def link_of(*machines: Machine[Any], now: int = 0) -> None:
    """Carries bytes both ways until there are none."""
    moved = True
    while moved:
        moved = False
        for sender, receiver in (machines, reversed(machines)):
            while data := sender.poll_transmit(now):
                receiver.receive(now, data)
                moved = True


def events(machine: Machine[Any]) -> list[str]:
    return [event["event"] for event in iter(machine.poll_event, None)]


def relink_pair() -> tuple[Machine[Any], Machine[Any]]:
    connector = Machine("relink", "connector", endpoint_name="orders", **SIZES)
    endpoints = [{"endpoint_name": "orders"} | SIZES]
    listener = Machine("relink", "listener", epoch=5, endpoints=endpoints)
    for one in (connector, listener):
        one.call(0, "connect")
    link_of(connector, listener)
    assert events(connector) == events(listener) == ["link_established"]
    return connector, listener


def test_a_link_of_relink_survives_its_transports():
    connector, listener = relink_pair()
    connector.call(0, "send", channels=[b"a"], payload=[b"one"])
    for one in (connector, listener):
        one.call(0, "transport_lost")
        one.call(0, "connect", connection=2)
        one.select(2)
    link_of(connector, listener)
    told = list(iter(listener.poll_event, None))
    assert told[0] == {"event": "link_established", "epoch": 5, "link_id": 1, "resumed": True}
    message = {"event": "message", "channel": b"a", "sequence_number": 0, "payload": [b"one"]}
    assert message in told
    unacknowledged = connector.call(0, "unacknowledged")
    assert unacknowledged == [{"channel": b"a", "sequence_number": 0, "payload": [b"one"]}]
    assert connector.call(0, "link") == {"epoch": 5, "link_id": 1, "state": "up"}


def test_a_listener_of_relink_takes_a_link_that_replaces_another():
    connector, listener = relink_pair()
    stranger = Machine("relink", "connector", endpoint_name="orders", **SIZES)
    stranger.call(0, "connect")
    listener.call(0, "connect", connection=2)
    link_of(stranger, listener)
    assert events(stranger) == ["link_established"]
    assert events(listener) == ["link_lost", "link_established"]
    assert listener.call(0, "link")["link_id"] == 2
    listener.select(1)
    assert listener.lifecycle == "closed"
    # The first one comes back: its link is gone, so that it gets a new one.
    for one in (connector, listener):
        one.call(0, "transport_lost") if one is connector else None
        one.call(0, "connect", connection=3)
    link_of(connector, listener)
    assert events(connector) == ["link_lost", "link_established"]
    assert connector.call(0, "link")["link_id"] == 3


def test_two_handshakes_of_a_connector_do_not_resume_a_link_that_was_replaced():
    connector, listener = relink_pair()
    key = connector.call(0, "link")
    connector.call(0, "connect", connection=2)
    connector.call(0, "connect", connection=3)
    version = bytes(8)
    ident = (key["epoch"] + 1).to_bytes(8, "little") + (9).to_bytes(8, "little")
    connector.select(3)
    connector.receive(0, version + ident)
    assert connector.call(0, "link")["link_id"] == 9
    connector.select(2)
    connector.receive(0, version + (5).to_bytes(8, "little") + (1).to_bytes(8, "little"))
    assert connector.lifecycle == "closed"
    assert connector.call(0, "link")["link_id"] == 9
    assert listener.connections == 1


def test_no_link_is_no_crash():
    machine = Machine("relink", "listener")
    for verb in ("transport_lost", "transport_resumed", "ping", "send_room", "link"):
        arguments = {"channel": b"a"} if verb == "send_room" else {}
        error = refusal(partial(machine.call, 0, verb, **arguments))
        assert getattr(error, "code", "not_connected") == "not_connected"
    machine.receive(0, b"\xff" * 100)
    machine.receive_eof(0)
    assert machine.poll_event() is None


@pytest.mark.parametrize(("protocol", "role"), ROLES)
def test_random_bytes_end_a_machine_with_an_error_of_its_protocol(protocol, role):
    for seed in range(200):
        machine = opened(protocol, role)
        data = os.urandom(1 + seed)
        for call in (partial(machine.receive, 0, data), partial(machine.receive_eof, 0)):
            assert getattr(refusal(call), "protocol", protocol) == protocol
        while machine.poll_event() is not None:
            pass
        machine.poll_transmit(0)


def test_the_types_are_those_of_the_descriptions(tmp_path):
    script = ROOT / ".ci/sansio-types"
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=60)
    for file in ("sansio/types.py", "_sansio_core.pyi"):
        ours = (ROOT / "python/ackline" / file).read_text("utf-8")
        assert ours == (tmp_path / file).read_text("utf-8"), f"run {script} and commit {file}"


TYPED = """
from ackline.sansio import Machine

reader = Machine("lumberjack", "reader", max_pairs=7)
event = reader.poll_event()
assert event is not None
reveal_type(event["window"])
end = Machine("bpmux", "endpoint").poll_event()
if end is not None and end["event"] == "message":
    reveal_type(end["payload"])
Machine("lumberjack", "reader", max_pears=7)
Machine("lumberjack", "reeder")
Machine("lumberjack", "reader", keepalive_ms="3s")
"""


def test_a_type_checker_knows_the_events_and_options(tmp_path):
    (tmp_path / "typed.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "typed.py"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert 'Revealed type is "int"' in run.stdout.replace("builtins.", ""), run.stdout
    assert 'Revealed type is "bytes"' in run.stdout.replace("builtins.", ""), run.stdout
    wrong = [line for line in run.stdout.splitlines() if "error:" in line]
    assert {line.split(":")[1] for line in wrong} == {"11", "12", "13"}, run.stdout


def test_arguments_may_call_the_machine_while_they_are_read():
    writer = Machine("lumberjack", "writer")

    def records():
        yield {"payload": b"1"}
        assert writer.poll_timeout() is None
        yield {"payload": b"2"}

    assert writer.call(0, "send_window", records=records()) == 1


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_received_bytes_may_stand_in_any_buffer(kind):
    reader = Machine("lumberjack", "reader")
    reader.receive(0, kind(b"2W\0\0\0\x01"))
    reader.receive(0, kind(b"2J\0\0\0\x01\0\0\0\x02{}"))
    event = reader.poll_event()
    assert event is not None
    assert event["records"][0]["payload"] == b"{}"


@pytest.mark.parametrize(("protocol", "role"), ROLES)
def test_the_range_of_a_described_number_is_taken(protocol, role):
    for name, option in describe(protocol)["roles"][role]["options"].items():
        if option["is"] == "number":
            for number in (option["least"], min(option["most"], 1 << 40)):
                Machine(protocol, role, **{name: number})
            with pytest.raises(UsageError, match=f"{name} is .*; it is a whole number from"):
                Machine(protocol, role, **{name: option["most"] + 1})


@pytest.mark.parametrize(("protocol", "role"), [one for one in ROLES if one[0] != "relink"])
def test_a_machine_with_one_connection_refuses_another_number(protocol, role):
    machine = Machine(protocol, role)
    machine.select(1)
    for number in (0, 2, 9):
        with pytest.raises(UsageError, match=f"connection is {number}"):
            machine.select(number)
