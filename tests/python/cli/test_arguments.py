"""An argument that is no valid number is refused with its name, its value and the limits."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from support.commands import RunningReceiver

from ackline import Receiver, Spool, UsageError, _core, lumberjack, relink
from ackline.aio import lumberjack as aio
from ackline.cli.options import receiver_options
from ackline.cli.receive import receive
from ackline.receiver import OPTION_NAMES
from ackline.sansio import Machine, encode

WRONG = (-1, 1 << 70, 1.5, "x", b"7")
NOWHERE = "lumberjack://127.0.0.1:1"


def refused(call: Callable[..., object], name: str, value: Any, *rest: Any, **more: Any) -> None:
    said = f"{name} is .*; it is a (whole number from|size such as)|{name} is {value!r};"
    with pytest.raises(UsageError, match=said) as raised:
        call(*rest, **more, **{name: value})
    assert isinstance(raised.value, ValueError)


@pytest.fixture(scope="module")
def spool(tmp_path_factory):
    directory = tmp_path_factory.mktemp("arguments") / "spool"
    receiver = RunningReceiver("lumberjack://127.0.0.1:0", "--spool", str(directory))
    with lumberjack.connect(receiver.url) as writer:
        writer.send([b"{}"] * 3)
    assert receiver.stop() == 0
    return Spool(directory)


@pytest.mark.parametrize("value", WRONG)
def test_numbers_of_a_spool_are_named(spool, value):
    part = spool.slices(0, 3, max_slices=1)[0]
    range_ = {"start": 0, "end": 3}
    for name in ("start", "end"):
        for call in (spool.read, spool.blocks, spool.infer_schema):
            refused(call, name, value)
        others = {key: at for key, at in range_.items() if key != name}
        refused(spool.slices, name, value, max_slices=1, **others)
    for name in ("threads", "batch_rows"):
        refused(spool.read, name, value)
        refused(spool.read_slice, name, value, part)
    refused(spool.infer_schema, "sample", value)
    refused(spool.slices, "max_slices", value, 0, 3)
    refused(spool.slices, "min_bytes", value, 0, 3, max_slices=1)
    refused(spool.end_for, "start", value)
    for name in ("max_rows", "max_bytes"):
        refused(spool.end_for, name, value, 0)
    refused(spool.wait_durable, "position", value, timeout=0)
    refused(spool.lag, "position", value)
    for call in (spool.add_consumer, spool.commit_mark, spool.seek_consumer):
        refused(call, "position", value, "nobody")
    refused(spool.lease, "create_at", value, "nobody")
    refused(spool.fsync_probe, "rounds", value)
    assert "nobody" not in {one.name for one in spool.consumers()}
    with spool.lease("lake", create_at=0) as lease:
        with pytest.raises(UsageError, match=r"position is .*; it is a whole number from 0 to"):
            lease.commit(value)
        assert lease.committed() == 0


def test_the_least_is_named_where_nothing_works_with_0(spool):
    for call, name, rest in (
        (spool.read, "threads", ()),
        (spool.read, "batch_rows", ()),
        (spool.slices, "max_slices", (0, 3)),
        (spool.fsync_probe, "rounds", ()),
        (spool.infer_schema, "sample", ()),
    ):
        with pytest.raises(UsageError, match=f"{name} is 0; it is a whole number from 1 to "):
            call(*rest, **{name: 0})


def envelope(level):
    frame = {"type": "compressed", "version": 2, "frames": [], "level": level}
    return encode("lumberjack", [frame])


def test_the_most_is_named_where_there_is_one():
    for call, name, value in (
        (envelope, "level", 10),
        (lambda **more: lumberjack.connect(NOWHERE, **more), "version", 3),
        (lambda **more: lumberjack.connect(NOWHERE, **more), "compression", 10),
    ):
        with pytest.raises(
            UsageError, match=rf"{name} is {value}; it is .* to {value - 1}(, or off)?(\n|$)"
        ):
            call(**{name: value})


READER = (
    "max_window_events",
    "max_json_bytes",
    "max_data_bytes",
    "max_compressed_bytes",
    "max_inflated_bytes",
    "max_pairs",
    "max_field_bytes",
    "max_window_bytes",
    "max_unacked_windows",
)
LISTENER = ("memory", "max_connections", "max_connections_per_address", "accept_rate")
WRITER = (
    "version",
    "max_in_flight",
    "max_in_flight_events",
    "max_in_flight_bytes",
    "slow_start",
    "compression",
)
SENDER = ("batch_events", "batch_bytes", "buffer_events", "buffer_bytes", "receipts")


@pytest.mark.parametrize("value", WRONG)
def test_numbers_of_lumberjack_are_named(value):
    for name in READER:
        refused(lambda **given: Machine("lumberjack", "reader", **given), name, value)
    for name in (*READER, *LISTENER, "max_bytes_per_second"):
        refused(lumberjack.listen, name, value, "lumberjack://127.0.0.1:0")
    for name in WRITER:
        refused(lambda **given: Machine("lumberjack", "writer", **given), name, value)
    for name in (*WRITER, *SENDER):
        refused(lumberjack.connect, name, value, NOWHERE)
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        for number in (value, 0):
            refused(listener.receive_many, "max_windows", number, timeout=0)


async def test_numbers_of_asyncio_are_named():
    async with aio.listen("lumberjack://127.0.0.1:0") as listener:
        with pytest.raises(UsageError, match="max_windows is -1; it is a whole number from 1 to"):
            await listener.receive_many(-1)


@pytest.mark.parametrize("value", WRONG)
def test_numbers_of_the_machines_are_named(value):
    reader, writer = Machine("lumberjack", "reader"), Machine("lumberjack", "writer")
    said = "now is .*; it is a whole number from 0 to 18446744073709551615"
    for call in (
        lambda: reader.receive(value, b""),
        lambda: reader.handle_timeout(value),
        lambda: reader.poll_transmit(value),
        lambda: writer.call(value, "send_window", records=[{"payload": b"{}"}]),
        lambda: Machine("relink", "listener", now=value),
    ):
        with pytest.raises(UsageError, match=said):
            call()
    with pytest.raises(UsageError, match=r"window is .*; it is a whole number from 0"):
        reader.call(0, "ack", window=value)
    refused(envelope, "level", value)
    frame = {"type": "window", "version": 2, "window_size": value}
    with pytest.raises(UsageError, match=r"window_size is .*; it is a whole number from 0 to"):
        encode("lumberjack", [frame])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"no_window": 3}, 'no_window is 3; it is "accept" or "refuse"'),
        ({"no_window": "maybe"}, 'no_window is maybe; it is "accept" or "refuse"'),
        ({"allow": 7}, "allow is 7; it is a text of networks"),
        ({"keepalive": "soon"}, "keepalive is soon; it is a time such as"),
    ],
)
def test_other_options_of_a_listener_are_named(options, says):
    with pytest.raises(UsageError, match=says):
        lumberjack.listen("lumberjack://127.0.0.1:0", **options)


@pytest.mark.parametrize("name", ["cumulative", "accept_count_acks"])
def test_flags_of_a_writer_are_named(name):
    with pytest.raises(UsageError, match=f"{name} is 7; it is true or false"):
        lumberjack.connect(NOWHERE, **{name: 7})
    with pytest.raises(UsageError, match="bind_identity is 7; it is true or false"):
        relink.listen("relink://127.0.0.1:0/n", bind_identity=7)


def test_a_misspelt_option_of_a_receiver_is_answered_with_the_nearest():
    says = r"there is no option max_connection of a receiver \(did you mean max_connections\?\)"
    with pytest.raises(UsageError, match=says):
        Receiver(["lumberjack://127.0.0.1:0"], discard=True, options={"max_connection": 1})


def test_the_names_of_a_receivers_options_are_those_of_the_core_and_of_the_command_line():

    def said(name: str) -> str:
        try:
            started = _core.Receiver(["lumberjack://127.0.0.1:0"], None, True, {name: "? ?"}, [])
        except UsageError as error:
            return str(error)
        started.abort()
        return ""

    unknown = [name for name in OPTION_NAMES if "is no option" in said(name)]
    assert unknown == []
    named = {option.name for option in receiver_options()}
    assert len(named) > 60
    assert named <= set(OPTION_NAMES)
    assert named <= set(inspect.signature(receive).parameters)
