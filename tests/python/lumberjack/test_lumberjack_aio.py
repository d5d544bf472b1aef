import asyncio
import contextlib
import inspect

import pytest

import ackline.lumberjack as threads
from ackline import LinkLost, LinkTimeout, TransportError
from ackline.aio import lumberjack


async def test_events_arrive_and_send_returns_when_acknowledged():
    async with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        events: list[bytes] = []

        async def serve() -> None:
            async for window in listener:
                events.extend(window.events)
                window.ack()

        serving = asyncio.create_task(serve())
        sent = [b'{"n":%d}' % n for n in range(5000)]
        async with lumberjack.connect(listener.url) as writer:
            await writer.send(sent, timeout=20)
        assert events == sent
    await asyncio.wait_for(serving, 20)


async def test_cancelled_receives_lose_no_window():
    async with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        got: list[bytes] = []
        total = 300

        async def send() -> None:
            async with lumberjack.connect(listener.url, batch_events=1, max_in_flight=8) as writer:
                await writer.send([b'{"n":%d}' % n for n in range(total)], timeout=20)

        sending = asyncio.create_task(send())
        cancelled = 0
        while len(got) < total:
            receiving = asyncio.create_task(listener.receive_many(3))
            # Cancelled before its start, during the wait, and after its completion.
            for _ in range(cancelled % 4):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                windows = await receiving
            except asyncio.CancelledError:
                cancelled += 1
                windows = await listener.receive_many(1, timeout=20)
            for window in windows:
                got.extend(window.events)
                window.ack()
        await asyncio.wait_for(sending, 20)
        assert got == [b'{"n":%d}' % n for n in range(total)]
        assert cancelled > 0


async def test_timeouts_and_unreachable_addresses_are_errors():
    async with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        url = listener.url
        with pytest.raises(LinkTimeout):
            await listener.receive(timeout=0.01)
    with pytest.raises(TransportError):
        await lumberjack.connect(url, connect_timeout=5)


async def test_a_cancelled_send_loses_nothing_and_sends_nothing_twice():
    async with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        got: list[int] = []

        async def serve() -> None:
            async for window in listener:
                got.extend(map(int, window.events))
                window.ack()
                await asyncio.sleep(0)

        serving = asyncio.create_task(serve())
        options = {"batch_events": 5, "buffer_events": 10}
        async with lumberjack.connect(listener.url, **options) as writer:
            next_event = 0
            for turn in range(200):
                events = [b"%d" % n for n in range(next_event, next_event + 12)]
                sending = asyncio.create_task(writer.send(events))
                for _ in range(turn % 7):
                    await asyncio.sleep(0)
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sending
                # The accepted events are whole batches, in order; the next one goes on behind them.
                next_event = writer.stats()["accepted"]
            await writer.flush(timeout=20)
            assert got == list(range(next_event))
            assert next_event > 0
            rest = await writer.close(timeout=20)
            assert (len(rest), writer.stats()["possible_repeats"]) == (0, 0)
    await asyncio.wait_for(serving, 20)


async def test_a_flush_that_close_cuts_short_says_so():
    async with (
        lumberjack.listen("lumberjack://127.0.0.1:0") as listener,
        lumberjack.connect(listener.url) as writer,
    ):
        await writer.flush(timeout=20)
        writer.try_send([b"1"] * 3)
        flushing = asyncio.create_task(writer.flush())
        await listener.receive(timeout=20)
        assert len(await writer.close(timeout=0)) == 3
        for flush in (flushing, writer.flush(timeout=20)):
            with pytest.raises(LinkLost) as lost:
                await flush
            assert lost.value.unacknowledged == 3


async def test_close_returns_the_unacknowledged_events():
    async with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        writer = await lumberjack.connect(listener.url, buffer_events=3)
        number = writer.try_send([b"1", b"2", b"3"])
        assert number is not None
        assert writer.try_send([b"4"]) is None
        with pytest.raises(LinkTimeout):
            await writer.wait_acknowledged(number, timeout=0.05)
        with pytest.raises(LinkTimeout):
            await writer.flush(timeout=0.05)
        rest = await writer.close(timeout=0.05)
        assert rest.ranges == [(1, 3)]
        assert rest.events() == [b"1", b"2", b"3"]
        with pytest.raises(LinkLost):
            await writer.wait_acknowledged(number, timeout=20)


@pytest.mark.parametrize("name", ["listen", "connect"])
def test_both_modules_take_the_same_arguments(name):
    assert parameters(getattr(lumberjack, name)) == parameters(getattr(threads, name))


@pytest.mark.parametrize("name", ["Listener", "Writer"])
def test_the_methods_of_both_modules_are_the_same(name):
    own, theirs = methods(getattr(lumberjack, name)), methods(getattr(threads, name))
    assert own == theirs
    assert "close" in own


def parameters(function):
    return list(inspect.signature(function).parameters.values())


def methods(cls):
    found = inspect.getmembers(cls, inspect.isfunction)
    return {name: parameters(function) for name, function in found if not name.startswith("_")}
