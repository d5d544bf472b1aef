"""Relink's links for asyncio."""

import asyncio
import inspect

import pytest
from support.proxy import Proxy

from ackline import LinkClosed, LinkLost, LinkTimeout, TransportError, UsageError
from ackline import relink as threads
from ackline.aio import relink

TIME = 20
URL = "relink://127.0.0.1:0/orders"


async def test_messages_receipts_and_the_end():
    async with relink.listen(URL) as listener, relink.connect(listener.url) as link:
        peer = await listener.accept(timeout=TIME)
        first = await link.send(1, b"a")
        last = await link.send_many(1, [b"b", b"c"])
        both = await link.send_to([2, 3], [b"d", b"e"])
        link.try_send(1, b"f")

        async def answer() -> list[bytes]:
            seen = []
            async for message in peer:
                seen.append(message.payload)
                peer.consume(message.channel, message.sequence)
            await peer.close()
            return seen

        answering = asyncio.create_task(answer())
        await first.consumed(timeout=TIME)
        await last.consumed(timeout=TIME)
        await both[1].received(timeout=TIME)
        await link.flush(timeout=TIME)
        assert await link.ping(timeout=TIME) > 0
        await link.shutdown(timeout=TIME)
        assert sorted(await answering) == [b"a", b"b", b"c", b"de", b"de", b"f"]
        with pytest.raises(LinkClosed):
            await link.receive()


async def test_transactions_and_events():
    async with relink.listen(URL, listener_transactions=True) as listener:
        link = await relink.connect(listener.url, listener_transactions=True)
        peer = await listener.accept(timeout=TIME)
        receipt = await peer.send(1, b"x")
        message = await link.receive(timeout=TIME)
        peer.commit(1)
        decision = await link.decision(timeout=TIME)
        assert (decision.operation, decision.through) == ("commit", message.sequence)
        with pytest.raises(LinkTimeout):
            await receipt.committed(timeout=0.05)
        link.committed(1)
        assert await receipt.committed(timeout=TIME) == "committed"
        assert (await link.event(timeout=TIME)).name == "connected"
        await link.wait_connected(timeout=TIME)
        with pytest.raises(LinkTimeout):
            await link.event(timeout=0.05)
        assert await link.close(timeout=0) == []
        await peer.close(timeout=0)


async def test_a_cancelled_receive_loses_no_message():
    async with relink.listen(URL) as listener:
        link = await relink.connect(listener.url)
        peer = await listener.accept(timeout=TIME)
        got: list[int] = []

        async def receive() -> None:
            messages = await peer.receive_many(7)
            got.extend(int(message.payload) for message in messages)
            peer.consume_many(messages)

        sending = asyncio.create_task(send_slowly(link, 500))
        while len(got) < 500:
            task = asyncio.create_task(receive())
            await asyncio.sleep(0)
            if len(got) % 3:
                await asyncio.sleep(0.0005)
            task.cancel()
            with_result = await asyncio.gather(task, return_exceptions=True)
            assert isinstance(with_result[0], asyncio.CancelledError | None)
        await sending
        assert got == list(range(500))
        await link.close(timeout=0)


async def send_slowly(link: relink.Link, count: int) -> None:
    for number in range(count):
        await link.send(1, b"%d" % number)
        await asyncio.sleep(0)


async def test_a_cancelled_send_sends_nothing_or_all_of_a_message():
    async with relink.listen(URL) as listener:
        link = await relink.connect(listener.url, send_window=2)
        peer = await listener.accept(timeout=TIME)
        assert link.try_send_many(1, [b"0", b"1", b"x"])[0] == 2
        for _ in range(20):
            task = asyncio.create_task(link.send(1, b"never"))
            await asyncio.sleep(0.001)
            task.cancel()
            assert isinstance(
                (await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError
            )
        with pytest.raises(LinkTimeout):
            await link.send_many(1, [b"never"], timeout=0.05)
        waiting = asyncio.create_task(link.send(1, b"2"))
        peer.consume_many(await peer.receive_many(timeout=TIME))
        await asyncio.wait_for(waiting, TIME)
        assert (await peer.receive(timeout=TIME)).payload == b"2"
        await link.close(timeout=0)


async def test_a_batch_above_the_window_is_sent_once_and_leaving_closes():
    async with relink.listen(URL) as listener:
        async with relink.connect(listener.url, send_window=4) as link:
            peer = await listener.accept(timeout=TIME)
            payloads = [b"%d" % number for number in range(30)]
            sending = asyncio.create_task(link.send_many(1, payloads, timeout=TIME))
            got: list[bytes] = []
            while len(got) < 30:
                messages = await peer.receive_many(3, timeout=TIME)
                got += [message.payload for message in messages]
                peer.consume_many(messages)
            last = await sending
            assert last is not None
            assert (got, last.sequence) == (payloads, 29)
            closing = asyncio.create_task(peer.close())
        assert link.state == "closed"
        with pytest.raises(LinkClosed, match="closed here"):
            link.try_send(1, b"x")
        assert await closing == []


async def test_many_tasks_wait_on_one_link():
    async with relink.listen(URL) as listener:
        link = await relink.connect(listener.url)
        peer = await listener.accept(timeout=TIME)
        receipts = [await link.send(number, b"x") for number in range(64)]
        waits = [asyncio.create_task(receipt.consumed()) for receipt in receipts]
        receivers = [asyncio.create_task(peer.receive()) for _ in range(64)]
        for message in await asyncio.wait_for(asyncio.gather(*receivers), TIME):
            peer.consume(message.channel, message.sequence)
        await asyncio.wait_for(asyncio.gather(*waits), TIME)
        await link.close(timeout=0)


async def test_a_cut_link_goes_on_and_a_lost_one_returns_its_messages():
    async with relink.listen(URL) as listener:
        port = int(listener.url.rsplit(":", 1)[1].split("/")[0])
        with Proxy("127.0.0.1", port) as proxy:
            link = await relink.connect(f"relink://127.0.0.1:{proxy.port}/orders")
            peer = await listener.accept(timeout=TIME)
            first = await link.send(1, b"a")
            proxy.cut()
            await link.send(1, b"b")
            got = [(await peer.receive(timeout=TIME)).payload for _ in range(2)]
            assert got == [b"a", b"b"]
            peer.consume(1, 0)
            waiting = asyncio.create_task(link.receive())
            await asyncio.sleep(0)
            wanted = [(b"\1\0\0\0", 1, (b"b",))]
            await first.consumed(timeout=TIME)
            peer.discard()
            proxy.cut()
            with pytest.raises(LinkLost) as lost:
                await asyncio.wait_for(waiting, TIME)
            left = [(one.channel, one.sequence, one.parts) for one in lost.value.messages]
            assert left == wanted


async def test_errors_and_timeouts():
    with pytest.raises(UsageError, match="send_window is 0"):
        await relink.connect("relink://127.0.0.1:1/x", send_window=0)
    async with relink.listen(URL) as listener:
        assert listener.try_accept() is None
        with pytest.raises(LinkTimeout, match="no link came"):
            await listener.accept(timeout=0.01)
        async with relink.connect(listener.url) as link:
            peer = await listener.accept(timeout=TIME)
            with pytest.raises(LinkTimeout, match="no message"):
                await link.receive(timeout=0.01)
            link.try_send(1, b"x")
            with pytest.raises(LinkTimeout, match="not all messages"):
                await link.flush(timeout=0.01)
            with pytest.raises(LinkTimeout, match="the peer has not shut down"):
                await link.shutdown(timeout=0.01)
            assert len(await link.close(timeout=0)) == 1
        await peer.close(timeout=0)
    async for _ in listener:
        raise AssertionError
    with pytest.raises(TransportError):
        await relink.connect(listener.url, timeout=5)


async def test_a_link_goes_on_where_it_was_handed_over():
    url = f"{URL}?connector_transactions=true"
    async with (
        relink.listen(url) as listener,
        relink.connect(listener.url, connector_transactions=True) as link,
    ):
        there = await listener.accept(timeout=TIME)
        await link.send(7, b"one")
        handing = asyncio.create_task(link.hand_over())
        await asyncio.sleep(0)
        handing.cancel()
        await asyncio.gather(handing, return_exceptions=True)
        state = await link.hand_over(timeout=TIME)
        assert await link.hand_over(timeout=TIME) == state
        with pytest.raises(LinkClosed, match="handed over"):
            await link.send(7, b"two")
        with pytest.raises(TypeError, match="NoneType"):
            await relink.adopt(listener.url, None)
        async with relink.adopt(listener.url, state, timeout=TIME) as again:
            receipt = again.last_receipt(7)
            again.commit(7, receipt.sequence)
            assert (await there.decision(timeout=TIME)).through == 0
            there.consume(b"\7\0\0\0", 0)
            there.committed(b"\7\0\0\0", 0)
            assert await receipt.committed(timeout=TIME) == "committed"
            again.discard()
        with pytest.raises(UsageError) as refused:
            await there.hand_over(timeout=TIME)
        assert refused.value.code == "not_connector"


@pytest.mark.parametrize("name", ["listen", "connect", "adopt"])
def test_both_modules_take_the_same_arguments(name):
    assert parameters(getattr(relink, name)) == parameters(getattr(threads, name))


@pytest.mark.parametrize("name", ["Link", "Listener", "Receipt"])
def test_the_methods_of_both_modules_are_the_same(name):
    own, theirs = methods(getattr(relink, name)), methods(getattr(threads, name))
    assert own == theirs
    assert own


def parameters(function):
    return list(inspect.signature(function).parameters.values())


def methods(cls):
    found = inspect.getmembers(cls, inspect.isfunction)
    return {name: parameters(function) for name, function in found if not name.startswith("_")}
