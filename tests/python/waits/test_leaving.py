"""The end of a `with` block reports unacknowledged messages; none is lost in silence."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.commands import wait_until

from ackline import LinkLost, LinkTimeout, UsageError, _bpmux, bpmux, lumberjack, relink
from ackline.aio import bpmux as aio_bpmux
from ackline.aio import lumberjack as aio_lumberjack
from ackline.aio import relink as aio_relink
from ackline.exceptions import Unacknowledged

TIME = 20
ORDERS = "relink://127.0.0.1:0/orders"
LEFT = (Unacknowledged(b"\1\0\0\0", 0, (b"x",)),)
CLOSES = [
    lumberjack.Writer.close,
    aio_lumberjack.Writer.close,
    relink.Link.close,
    aio_relink.Link.close,
]


class BodyError(Exception):
    """The exception of a block."""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the wait at the end of blocks."""
    for close in CLOSES:
        assert close.__kwdefaults__ == {"timeout": 5.0}
        monkeypatch.setattr(close, "__kwdefaults__", {"timeout": 0.2})
    for module in (_bpmux, bpmux, aio_bpmux):
        assert module.PATIENCE == 10.0
        monkeypatch.setattr(module, "PATIENCE", 0.2)


@pytest.fixture
def receiver() -> Iterator[lumberjack.Listener]:
    """A receiver that acknowledges only on request."""
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        yield listener


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.message for one in caplog.records if "code=link.unacknowledged" in one.message]


def test_a_writer_that_is_left_with_unacknowledged_events_raises_their_number(receiver):
    with pytest.raises(LinkLost, match=r"^3 events are not acknowledged .*flush\(\)") as lost:  # noqa: SIM117
        with lumberjack.connect(receiver.url) as writer:
            writer.try_send([b"{}", b"{}", b"{}"])
    assert lost.value.unacknowledged == 3


async def test_a_writer_of_asyncio_too(receiver):
    with pytest.raises(LinkLost, match=r"^3 events are not acknowledged") as lost:
        async with aio_lumberjack.connect(receiver.url) as writer:
            writer.try_send([b"{}", b"{}", b"{}"])
    assert lost.value.unacknowledged == 3
    with pytest.raises(LinkLost, match=r"^1 events are not acknowledged"):
        async with await aio_lumberjack.connect(receiver.url) as writer:
            writer.try_send([b"{}"])


def fails(receiver: lumberjack.Listener) -> None:
    with lumberjack.connect(receiver.url) as writer:
        writer.try_send([b"{}"])
        raise BodyError


def fails_too(listener: relink.Listener) -> None:
    with relink.connect(listener.url) as link:
        link.send(1, b"x")
        raise BodyError


def test_the_exception_of_a_block_stands_and_the_loss_is_a_warning(receiver, caplog):
    with pytest.raises(BodyError):
        fails(receiver)
    with relink.listen(ORDERS) as listener, pytest.raises(BodyError):
        fails_too(listener)
    events, messages = warned(caplog)
    assert events.startswith("1 events are not acknowledged")
    assert messages.startswith("1 messages are not acknowledged")
    assert {one.levelno for one in caplog.records} == {logging.WARNING}


async def test_a_cancelled_block_of_asyncio_stays_cancelled(receiver, caplog):
    ready = asyncio.Event()

    async def sends() -> None:
        async with aio_lumberjack.connect(receiver.url) as writer:
            writer.try_send([b"{}"])
            ready.set()
            await asyncio.sleep(TIME)

    task = asyncio.create_task(sends())
    await ready.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(warned(caplog)) == 1


def test_a_close_inside_the_block_silences_its_end(receiver, caplog):
    with lumberjack.connect(receiver.url) as writer:
        writer.try_send([b"{}"])
        assert len(writer.close(timeout=0.1)) == 1
    with relink.listen(ORDERS) as listener, relink.connect(listener.url) as link:
        link.send(1, b"x")
        assert link.close(timeout=0.1) == list(LEFT)
    assert warned(caplog) == []


def test_events_acknowledged_in_the_closing_time_are_no_loss(receiver, caplog):
    with lumberjack.connect(receiver.url) as writer:
        writer.try_send([b"{}"])
        receiver.receive(timeout=TIME).ack()
    with relink.listen(ORDERS) as listener, relink.connect(listener.url) as link:
        link.send(1, b"x")
        peer = listener.accept(timeout=TIME)
        message = peer.receive(timeout=TIME)
        peer.consume(message.channel, message.sequence)
    assert warned(caplog) == []


def test_a_link_whose_peer_does_not_consume_raises_with_its_messages():
    with relink.listen(ORDERS) as listener:
        with pytest.raises(LinkLost, match=r"^1 messages are not .*flush\(\)") as lost:  # noqa: SIM117
            with relink.connect(listener.url) as link:
                link.send(1, b"x")
        assert (lost.value.unacknowledged, lost.value.messages) == (1, LEFT)


async def test_a_link_of_asyncio_too():
    async with aio_relink.listen(ORDERS) as listener:
        for way in ("entered", "awaited"):
            connecting = aio_relink.connect(listener.url)
            with pytest.raises(LinkLost, match=r"^1 messages are not .*flush\(\)") as lost:
                async with connecting if way == "entered" else await connecting as link:
                    await link.send(1, b"x")
            assert lost.value.messages == LEFT


def test_messages_kept_on_the_disk_are_no_loss(tmp_path, caplog):
    with relink.listen(ORDERS) as listener:
        state = tmp_path / "state"
        with relink.connect(listener.url, state=state) as link:
            link.send(1, b"x")
        found: list[relink.Link] = []

        def is_free() -> bool:
            with suppress(UsageError):
                found.append(relink.connect(listener.url, state=state))
            return bool(found)

        wait_until(is_free, "the directory is let go")
        with found[0] as link:
            assert link.unacknowledged == list(LEFT)
    assert warned(caplog) == []


def test_a_connection_of_bpmux_that_has_to_be_cut_off_names_its_open_entities():
    said = r"did not end within 0\.2 s .*: 1 streams and 1 requests of this end's and 0 and 0 of"
    with bpmux.listen("bpmux://127.0.0.1:0") as listener:
        with pytest.raises(LinkTimeout, match=said):  # noqa: SIM117
            with bpmux.connect(listener.url) as connection:
                sink, response = connection.open_sink(b"orders"), connection.request(b"question")
        connection.wait_ended(timeout=TIME)
        del sink, response


async def test_a_connection_of_bpmux_with_asyncio_too():
    async with aio_bpmux.listen("bpmux://127.0.0.1:0") as listener:
        with pytest.raises(LinkTimeout, match="1 streams and 0 requests of this end's"):
            async with aio_bpmux.connect(listener.url) as connection:
                sink = await connection.open_sink(b"orders")
        await connection.wait_ended(timeout=TIME)
        del sink
