"""bpmux for asyncio: the same over real sockets, and the state after a cancelled wait."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ackline import (
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    RequestClosed,
    TransportError,
    UsageError,
)
from ackline.aio import bpmux

TIME = 20
NOW = 0.01
URL = "bpmux://127.0.0.1:0"
Pair = tuple[bpmux.Connection, bpmux.Connection]


@asynccontextmanager
async def paired(**options: Any) -> AsyncIterator[Pair]:
    """The connector's end, and the listener's end, which has the options."""
    async with bpmux.listen(URL, **options) as listener:
        near = await bpmux.connect(listener.url, send_bytes=1000)
        far = await listener.accept(timeout=TIME)
    try:
        yield near, far
    finally:
        near.abort()
        far.abort()


def with_pair(test: Callable[[Pair], Coroutine[Any, Any, None]], **options: Any) -> None:
    """Runs a test on a pair."""

    async def run() -> None:
        async with asyncio.timeout(2 * TIME), paired(**options) as pair:
            await test(pair)

    asyncio.run(run())


@asynccontextmanager
async def served(**handlers: Any) -> AsyncIterator[bpmux.Connection]:
    """A connection to a peer that serves."""
    async with bpmux.listen(URL) as listener, bpmux.connect(listener.url) as near:
        far = await listener.accept(timeout=TIME)
        serving = asyncio.create_task(far.serve(**handlers))
        yield near
        await near.shutdown(timeout=TIME)
        await asyncio.wait_for(serving, TIME)


def test_a_request_is_answered_or_closed() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        first, request = await near.request(b"1"), await far.accept(timeout=TIME)
        assert isinstance(request, bpmux.Request)
        request.respond(request.payload * 2)
        assert await first.response(timeout=TIME) == b"11"
        second, request = await near.request(b"2"), await far.accept(timeout=TIME)
        assert isinstance(request, bpmux.Request)
        request.close(request.payload * 2)
        with pytest.raises(RequestClosed) as closed:
            await second.response(timeout=TIME)
        assert closed.value.payload == b"22"

    with_pair(test)


def test_a_cancelled_await_takes_nothing() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        response, request = await near.request(b"x"), await far.accept(timeout=TIME)
        stream, opened = await near.open_stream(), await far.accept(timeout=TIME)
        waits = [asyncio.create_task(response.response()), asyncio.create_task(stream.receive())]
        await asyncio.sleep(0)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)
        assert isinstance(request, bpmux.Request)
        assert isinstance(opened, bpmux.OpenedStream)
        request.respond(b"answer")
        await opened.sink.send(b"message")
        assert await response.response(timeout=TIME) == b"answer"
        assert await stream.receive(timeout=TIME) == b"message"

    with_pair(test)


def test_a_call_out_of_time_cancels() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        request = None
        # A request that had no time to leave never arrives.
        while request is None:
            with pytest.raises(LinkTimeout, match=r"no response came within 0\.01 s"):
                await near.call(b"question", timeout=NOW)
            with contextlib.suppress(LinkTimeout):
                request = await far.accept(timeout=NOW)
        assert isinstance(request, bpmux.Request)
        assert await request.wait_cancelled(timeout=TIME) == b""
        with pytest.raises(PeerCancelled):
            request.respond(b"late")

    with_pair(test)


def test_a_sink_is_read_to_its_end() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        messages = [b"%d" % number * 50 for number in range(1000)]

        async def write() -> None:
            async with await near.open_sink(b"log") as sink:
                await sink.send_many(messages[:500], timeout=TIME)
                for message in messages[500:]:
                    await sink.send(message, timeout=TIME)
                await sink.close(b"1000", timeout=TIME)

        writing = asyncio.create_task(write())
        opened = await far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        assert [message async for message in opened.stream] == messages
        assert opened.stream.closed == b"1000"
        await writing

    with_pair(test)


def test_a_stream_is_cancelled_with_a_payload() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        stream = await near.open_stream(b"prices")
        opened = await far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedStream)
        await stream.cancel(b"enough", timeout=TIME)
        assert await opened.sink.wait_cancelled(timeout=TIME) == b"enough"
        with pytest.raises(PeerCancelled):
            await opened.sink.send(b"x")
        with pytest.raises(PeerCancelled):
            await opened.sink.flush(timeout=TIME)

    with_pair(test)


def test_a_duplex_and_its_pings() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        async with await near.open_duplex(b"d") as duplex:
            opened = await far.accept(timeout=TIME)
            assert isinstance(opened, bpmux.OpenedDuplex)
            await duplex.send(bytes(1_000_000))
            assert await opened.duplex.receive(timeout=TIME) == bytes(1_000_000)
            assert await duplex.ping(timeout=TIME) > 0
            assert await far.ping(timeout=TIME) > 0
        assert await opened.duplex.receive(timeout=TIME) is None
        assert await opened.duplex.wait_cancelled(timeout=TIME) == b""

    with_pair(test)


def test_a_sender_without_credit_waits() -> None:
    async def test(pair: Pair) -> None:
        near, far = pair
        await near.sink.send(bytes(1000))
        waiting = await near.request(bytes(1000))
        waits: list[tuple[Awaitable[object], str]] = [
            (near.sink.send(b"x", timeout=NOW), "no room"),
            (near.request(b"x", timeout=NOW), "no room"),
            (near.sink.flush(timeout=NOW), "did not go"),
            (near.open_sink(b"x", timeout=NOW), "opening was not sent"),
            (near.accept(timeout=NOW), "nothing was begun"),
            (near.wait_ended(timeout=NOW), "did not end"),
        ]
        for wait, text in waits:
            with pytest.raises(LinkTimeout, match=text):
                await wait
        waiting.cancel()
        far.stream.grant_credit(1500)
        await near.sink.send(b"x", timeout=TIME)
        await near.sink.flush(timeout=TIME)
        assert await far.stream.receive_many(1, timeout=TIME) == [bytes(1000)]
        assert await far.stream.receive(timeout=TIME) == b"x"

    with_pair(test, credit="manual")


def test_handlers_serve_until_the_peer_closes() -> None:
    read: list[bytes] = []

    async def answer(payload: bytes) -> bytes:
        return payload.upper()

    async def drain(stream: bpmux.Stream, payload: bytes) -> None:
        read.append(payload)
        read.extend([message async for message in stream])

    async def repeat(sink: bpmux.Sink, payload: bytes) -> None:
        await sink.send_many([payload] * 3)

    async def echo(duplex: bpmux.Duplex, _: bytes) -> None:
        async for message in duplex:
            await duplex.send(message)

    async def run() -> None:
        handlers = {"on_request": answer, "on_sink": drain, "on_stream": repeat, "on_duplex": echo}
        async with served(**handlers) as near:
            assert await near.call(b"question", timeout=TIME) == b"QUESTION"
            async with await near.open_sink(b"log") as sink:
                await sink.send(b"one")
            stream = await near.open_stream(b"again")
            assert [message async for message in stream] == [b"again"] * 3
            duplex = await near.open_duplex()
            await duplex.send(b"echo")
            assert await duplex.receive(timeout=TIME) == b"echo"
            await duplex.close(timeout=TIME)
            assert await duplex.receive(timeout=TIME) is None
        assert read == [b"log", b"one"]

    asyncio.run(run())


def test_an_exception_of_a_handler_reaches_the_caller() -> None:
    told: list[Exception] = []

    async def fail(*_: object) -> None:
        raise ValueError("wrong")

    async def run() -> None:
        handlers = {"on_request": fail, "on_sink": fail, "on_stream": fail}
        async with served(**handlers, on_error=told.append) as near:
            with pytest.raises(RequestClosed) as closed:
                await near.call(b"question", timeout=TIME)
            assert closed.value.payload == b"wrong"
            sink = await near.open_sink()
            assert await sink.wait_cancelled(timeout=TIME) == b"wrong"
            stream, duplex = await near.open_stream(), await near.open_duplex()
            assert await stream.receive(timeout=TIME) is None
            assert await duplex.receive(timeout=TIME) is None
            assert (stream.closed, duplex.closed) == (b"wrong", b"no handler")
        assert [str(error) for error in told] == ["wrong"] * 3

    asyncio.run(run())


def test_handlers_at_once_are_bounded() -> None:
    async def run() -> None:
        go, two, running, most = asyncio.Event(), asyncio.Event(), 0, 0

        async def handler(payload: bytes) -> bytes:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 2:
                two.set()
            await go.wait()
            running -= 1
            return payload

        async with served(on_request=handler, concurrency=2) as near:
            responses = [await near.request(b"%d" % number) for number in range(6)]
            await asyncio.wait_for(two.wait(), TIME)
            go.set()
            answers = [await response.response(timeout=TIME) for response in responses]
        assert answers == [b"%d" % number for number in range(6)]
        assert most == 2

    asyncio.run(run())


def test_a_listener_serves_every_connection_until_it_is_closed() -> None:
    told: list[Exception] = []
    broken = asyncio.Event()

    async def answer(payload: bytes) -> bytes:
        return payload.upper()

    def tell(error: Exception) -> None:
        told.append(error)
        broken.set()

    async def run() -> None:
        async with bpmux.listen(URL) as listener:
            serving = asyncio.create_task(listener.serve(on_request=answer, on_error=tell))
            async with bpmux.connect(listener.url) as first, bpmux.connect(listener.url) as second:
                assert await first.call(b"one", timeout=TIME) == b"ONE"
                assert await second.call(b"two", timeout=TIME) == b"TWO"
                host, port = listener.url.removeprefix("bpmux://").rsplit(":", 1)
                _, rude = await asyncio.open_connection(host, int(port))
                rude.write(b"\xff" * 20)
                await asyncio.wait_for(broken.wait(), TIME)
                rude.close()
                assert isinstance(told[0], ProtocolError)
                await listener.close()
                assert await first.call(b"three", timeout=TIME) == b"THREE"
                assert not serving.done()
            await asyncio.wait_for(serving, TIME)
        assert len(told) == 1

    asyncio.run(run())


def test_a_broken_rule_ends_serving_and_cancels_handlers() -> None:
    async def run() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def never(_: bytes) -> bytes:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

        async with bpmux.listen(URL) as listener:
            host, port = listener.url.removeprefix("bpmux://").rsplit(":", 1)
            _, rude = await asyncio.open_connection(host, int(port))
            far = await listener.accept(timeout=TIME)
            serving = asyncio.create_task(far.serve(on_request=never))
            rude.write(b"\x80\x01\x00")
            await asyncio.wait_for(begun.wait(), TIME)
            rude.write(b"\xff" * 20)
            with pytest.raises(ProtocolError):
                await asyncio.wait_for(serving, TIME)
            assert ended.is_set()
            rude.close()
            with pytest.raises(UsageError, match="concurrency is 0"):
                await listener.serve(concurrency=0)

    asyncio.run(run())


def test_a_block_may_end_with_an_abort() -> None:
    async def run() -> None:
        async with bpmux.listen(URL) as listener:
            for _ in range(50):
                async with bpmux.connect(listener.url) as near:
                    await near.request(b"never answered")
                    near.abort()

    asyncio.run(run())


def test_a_shutdown_and_an_abort_end_both_ends() -> None:
    async def shut(pair: Pair) -> None:
        near, far = pair
        await near.shutdown(timeout=TIME)
        await far.wait_ended(timeout=TIME)
        with pytest.raises(LinkClosed):
            await near.request(b"x")

    async def abort(pair: Pair) -> None:
        near, far = pair
        response = await near.request(b"x")
        far.abort()
        with pytest.raises((LinkClosed, ProtocolError, TransportError)):
            await response.response(timeout=TIME)

    with_pair(shut)
    with_pair(abort)


def test_invalid_arguments_are_refused() -> None:
    async def run() -> None:
        with pytest.raises(UsageError, match="credit is x"):
            bpmux.connect(URL, credit="x")  # type: ignore[arg-type]
        async with bpmux.listen(URL) as listener:
            with pytest.raises(LinkTimeout, match="no connection came"):
                await listener.accept(timeout=NOW)
        with pytest.raises(LinkClosed):
            await listener.accept()
        with pytest.raises(TransportError):
            await bpmux.connect(listener.url)

    asyncio.run(run())


def test_the_end_of_a_block_ends_its_object() -> None:
    async def run() -> None:
        async with bpmux.listen(URL) as listener:
            async with bpmux.connect(listener.url) as near:
                far = await listener.accept(timeout=TIME)
                async with await near.request(b"question") as response:
                    request = await far.accept(timeout=TIME)
                with pytest.raises(LinkClosed):
                    await response.response(timeout=TIME)
                assert isinstance(request, bpmux.Request)
                assert await request.wait_cancelled(timeout=TIME) == b""
                await near.sink.send(b"last")
            assert near.is_ended
            assert [message async for message in far.stream] == [b"last"]
            assert far.stream.closed == b""

    asyncio.run(run())


def test_a_message_above_the_memory_is_received_in_parts() -> None:
    size = 50 << 20

    async def test(pair: Pair) -> None:
        near, far = pair
        sink = await near.open_sink(timeout=TIME)
        await sink.send(bytes(size), timeout=TIME)
        opened = await far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        came = 0
        while part := await opened.stream.receive_part(timeout=TIME):
            came += len(part.data)
            if part.is_last:
                break
        assert came == size
        with pytest.raises(LinkTimeout, match="no part came within"):
            await opened.stream.receive_part(timeout=NOW)
        await sink.close(timeout=TIME)
        assert await opened.stream.receive_part(timeout=TIME) is None

    with_pair(test, parts=True, memory=8 << 20)
