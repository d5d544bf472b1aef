import asyncio

import pytest

from ackline import LinkTimeout, TransportError
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
            # Cancelled at different moments: before it began, while it waits, after it came true.
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
        await lumberjack.connect(url, timeout=5)
