"""Waits with an invalid timeout are refused before any other effect."""

import inspect
import math
import socket

import pytest

import ackline.aio.lumberjack
from ackline import LinkTimeout, Receiver, Spool, UsageError, lumberjack

NO_TIMES = [-1.0, -1e-9, math.nan, math.inf, -math.inf]
EVENT = [b"{}"]
WAITS = {
    "Writer": {
        "send": (EVENT,),
        "send_window": (EVENT,),
        "wait_acknowledged": (1,),
        "flush": (),
        "close": (),
    },
    "Listener": {"receive": (), "receive_many": (1,), "close": ()},
}
ALL = [(link, name) for link, names in WAITS.items() for name in names]


def refused(error: pytest.ExceptionInfo[UsageError], name: str, value: float) -> None:
    shown = {math.nan: "NaN"}.get(value, f"{value:g}" if abs(value) >= 1 else "-0.000000001")
    assert str(error.value) == f"{name} is {shown}; it is in seconds, at least 0 and finite"
    assert error.value.code == name


@pytest.fixture
def listener():
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        yield listener


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize(("link", "name"), ALL)
def test_a_wait_for_threads_names_a_timeout_that_is_none(listener, link, name, value):
    with lumberjack.connect(listener.url) as writer:
        one = {"Writer": writer, "Listener": listener}[link]
        with pytest.raises(UsageError) as error:
            getattr(one, name)(*WAITS[link][name], timeout=value)
        refused(error, "timeout", value)
        assert writer.try_send(EVENT) == 1, "nothing was accepted, and both are open"
        listener.receive(timeout=20).ack()
        writer.flush(timeout=20)


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize(("link", "name"), ALL)
async def test_a_wait_of_asyncio_names_a_timeout_that_is_none(link, name, value):
    async with (
        ackline.aio.lumberjack.listen("lumberjack://127.0.0.1:0") as listener,
        ackline.aio.lumberjack.connect(listener.url) as writer,
    ):
        one = {"Writer": writer, "Listener": listener}[link]
        with pytest.raises(UsageError) as error:
            await getattr(one, name)(*WAITS[link][name], timeout=value)
        refused(error, "timeout", value)
        assert writer.try_send(EVENT) == 1, "nothing was accepted, and both are open"
        (await listener.receive(timeout=20)).ack()
        await writer.flush(timeout=20)


def test_every_wait_with_a_timeout_is_tried_here():
    for module in (lumberjack, ackline.aio.lumberjack):
        for link, names in WAITS.items():
            members = inspect.getmembers(getattr(module, link), inspect.isfunction)
            waits = {
                name
                for name, member in members
                if not name.startswith("_") and "timeout" in inspect.signature(member).parameters
            }
            assert waits == set(names)


@pytest.mark.parametrize("value", NO_TIMES)
def test_receivers_and_spools_name_a_time_that_is_none(tmp_path, value):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:
        spool = Spool(tmp_path / "spool")
        waits = [
            ("timeout", lambda: receiver.next_line(timeout=value)),
            ("timeout", lambda: next(receiver.events(timeout=value))),
            ("drain", lambda: receiver.stop(drain=value)),
            ("timeout", lambda: spool.wait_durable(1, timeout=value)),
            ("wait", lambda: spool.lease("a", holder="me", wait=value)),
        ]
        for name, wait in waits:
            with pytest.raises(UsageError) as error:
                wait()
            refused(error, name, value)
        assert receiver.next_line(timeout=20), "it was not stopped"
    # The receiver was stopped after all that, so the spool is free.
    Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool").stop()


@pytest.mark.parametrize("value", NO_TIMES)
@pytest.mark.parametrize(
    "name", ["keepalive", "stall_timeout", "idle_timeout", "handshake_timeout"]
)
def test_a_listener_names_an_option_that_is_no_time(name, value):
    with pytest.raises(UsageError) as error:
        lumberjack.listen("lumberjack://127.0.0.1:0", **{name: value})
    assert str(error.value).startswith(f"{name} is ")
    assert "; it is a number of seconds, at least 1ms" in str(error.value)
    assert (error.value.code, error.value.option) == (name, name)


def test_no_time_at_all_is_a_look(listener):
    with pytest.raises(LinkTimeout):
        listener.receive(timeout=0)
    with lumberjack.connect(listener.url) as writer:
        with pytest.raises(LinkTimeout):
            writer.send(EVENT, timeout=0)
        listener.receive(timeout=20).ack()


def test_a_sender_that_only_reads_any_more_gets_the_ack_of_its_whole_window(listener):
    host, port = listener.url.removeprefix("lumberjack://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as peer:
        frame = b"2J\0\0\0\x01\0\0\0\x02{}"
        peer.sendall(b"2W\0\0\0\x01" + frame + b"2W\0\0\0\x02" + frame)
        peer.shutdown(socket.SHUT_WR)
        window = listener.receive(timeout=20)
        assert window.events == [b"{}"]
        window.ack()
        assert peer.recv(6, socket.MSG_WAITALL) == b"2A\0\0\0\x01"
        assert peer.recv(1) == b""
