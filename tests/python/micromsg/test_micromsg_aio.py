"""MicroMsg2 for asyncio: the same over real sockets, and the state after a cancelled wait."""

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.micromsg_pair import MANUAL, NOW, TIME, URL

from ackline import LinkClosed, LinkLost, LinkTimeout, PeerFailed, UsageError
from ackline.aio import micromsg

Pair = tuple[micromsg.Connection, micromsg.Connection]


@asynccontextmanager
async def pair(listens: dict[str, Any] | None = None, **connects: Any) -> AsyncIterator[Pair]:
    """The connector's end and the listener's end, each with its options."""
    async with asyncio.timeout(3 * TIME):
        async with micromsg.listen(URL, **(listens or {})) as listener:
            near = await micromsg.connect(listener.url, **connects)
            far = await listener.accept(timeout=TIME)
            await far.wait_connected(timeout=TIME)
        try:
            yield near, far
        finally:
            near.abort()
            far.abort()


async def cancelled(wait: Coroutine[Any, Any, Any]) -> None:
    """Begins a wait, which must not end, and cancels it."""
    task = asyncio.create_task(wait)
    await asyncio.sleep(NOW)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_messages_come_in_order_and_are_acknowledged() -> None:
    async with pair({"name": "server"}, name="client") as (near, far):
        assert (near.identity, far.identity) == ("server", "client")
        assert await near.send(b"1", "d", {"a": 1}) == 1
        assert await near.send_some([b"2", (b"3", "e")]) == 3
        first = await far.receive(timeout=TIME)
        assert first is not None
        assert (first.payload, first.destination, first.properties) == (b"1", "d", {"a": 1})
        rest = await far.receive_some(timeout=TIME)
        assert [(it.payload, it.position) for it in rest] == [(b"2", 2), (b"3", 3)]
        closing = asyncio.create_task(far.close(timeout=TIME))
        await near.wait_acknowledged(timeout=TIME)
        await closing
        assert await near.receive(timeout=TIME) is None
        assert [message async for message in near] == []


async def test_a_cancelled_wait_loses_nothing() -> None:
    extensions = {"optional_extensions": "batch-ack:max-count=1;x-a"}
    async with pair(MANUAL | extensions, **extensions) as (near, far):
        for wait in [
            far.receive(), far.receive_some(), far.receive_command(), far.receive_extension(),
            far.wait_ended(), anext(aiter(far)),
        ]:  # fmt: skip
            await cancelled(wait)
        await near.send(b"1")
        await cancelled(near.send(b"not sent"))
        await cancelled(near.wait_acknowledged())
        await cancelled(near.close())
        await near.command("ping")
        await near.send_extension("x-a", b"frame")
        message = await far.receive(timeout=TIME)
        assert message is not None
        assert message.payload == b"1"
        assert await far.receive_command(timeout=TIME) == micromsg.Command("ping")
        assert await far.receive_extension(timeout=TIME) == ("x-a", b"frame")
        message.ack()
        await near.wait_acknowledged(timeout=TIME)
        assert await near.send(b"2", timeout=TIME) == 2
        message = await far.receive(timeout=TIME)
        assert message is not None
        assert message.payload == b"2"


async def test_waits_end_after_their_timeout() -> None:
    async with pair(MANUAL, window=1) as (near, far):
        await near.send(b"1")
        for wait in [
            near.send(b"2", timeout=NOW), near.send_some([b"2"], timeout=NOW),
            near.wait_acknowledged(timeout=NOW), near.receive(timeout=NOW),
            near.receive_some(timeout=NOW), far.receive_command(timeout=NOW),
            far.receive_extension(timeout=NOW), near.wait_ended(timeout=NOW),
            near.close(timeout=NOW),
        ]:  # fmt: skip
            with pytest.raises(LinkTimeout):
                await wait
        for wait in [near.receive(timeout=-1), near.send(b"2", timeout=float("nan"))]:
            with pytest.raises(UsageError, match="timeout is"):
                await wait


async def test_many_tasks_share_a_connection() -> None:
    async with pair(window=16) as (near, far):
        count, came = 50, []

        async def send() -> None:
            for _ in range(count):
                await near.send(b"x", timeout=TIME)

        async def receive() -> None:
            async for message in far:
                came.append(message.position)
                await asyncio.sleep(0)

        taking = asyncio.create_task(receive())
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(send())
        await near.close(timeout=TIME)
        await taking
        assert came == list(range(1, 10 * count + 1))


async def test_subscriptions_commands_and_frames_are_iterated() -> None:
    options: dict[str, Any] = {"optional_extensions": "pub-sub;x-a"}
    async with pair(options, **options) as (near, far):
        await near.subscribe("t", micromsg.where("a") == 1)
        await near.unsubscribe("t")
        await near.command("ping", {"x": "y"})
        await near.send_extension("x-a", b"1")
        await near.close(timeout=TIME)
        assert [command async for command in far.commands()] == [
            micromsg.Subscribe("t", micromsg.Filter("a=N1")),
            micromsg.Unsubscribe("t"),
            micromsg.Command("ping", {"x": "y"}),
        ]
        assert [frame async for frame in far.extension_frames()] == [("x-a", b"1")]


async def test_blocks_wait_for_acknowledgements_and_end_at_once_for_exceptions() -> None:
    async with pair() as (near, far):

        async def take() -> int:
            async with far:
                return len([message async for message in far])

        taking = asyncio.create_task(take())
        async with near:
            await near.send_some([b"x"] * 2_500, timeout=TIME)
        assert near.stats()["acknowledged"] == 2_500
        assert await taking == 2_500
    async with pair(MANUAL) as (near, far):
        await near.send(b"1")
        with pytest.raises(ZeroDivisionError):
            async with near:
                _ = 1 // 0
        await far.wait_ended(timeout=TIME)
        with pytest.raises(LinkLost):
            await near.wait_acknowledged(timeout=TIME)


async def test_a_cancelled_block_ends_at_once() -> None:
    async with pair(MANUAL) as (near, far):
        inside = asyncio.Event()

        async def run() -> None:
            async with near:
                await near.send(b"1")
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(run())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await far.wait_ended(timeout=TIME)


async def test_errors_and_ends_are_told() -> None:
    async with pair() as (near, far):
        await far.fail("the disk is full")
        with pytest.raises(PeerFailed, match=r"^the disk is full$"):
            await near.receive(timeout=TIME)
        with pytest.raises(PeerFailed):
            await near.send(b"x", timeout=TIME)
        with pytest.raises(LinkClosed):
            await far.send(b"x", timeout=TIME)


async def test_a_connection_is_made_in_time_or_not_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(LinkTimeout, match="the connection was not made within"):
            await micromsg.connect(f"micromsg://127.0.0.1:{port}", timeout=0.05)


async def test_connections_are_accepted_and_iterated() -> None:
    async with micromsg.listen(URL) as listener:
        async with micromsg.connect(listener.url) as near:
            far = await listener.accept(timeout=TIME)
            async with far:
                await near.wait_acknowledged(timeout=TIME)
        await cancelled(listener.accept())
        with pytest.raises(LinkTimeout):
            await listener.accept(timeout=NOW)
