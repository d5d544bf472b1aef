"""What `ackline serve --echo` does with a connection: everything that is sent comes back."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from ackline.aio._bpmux_watch import until_received, when_ended
from ackline.aio.bpmux import (
    Connection,
    Duplex,
    Listener,
    OpenedDuplex,
    OpenedSink,
    OpenedStream,
    Request,
    Sink,
    Stream,
)
from ackline.cli.echo_room import EchoRoom, OpenPlaces
from ackline.cli.output import Output
from ackline.cli.values import with_dashes
from ackline.exceptions import AcklineError, ProtocolError

__all__ = ["EchoServer"]

_STOPS = b"the server stops"
"""Why everything ends when the server does."""
_NAMED = (
    "max_payload_bytes",
    "max_entities",
    "max_requests",
    "pong_timeout",
    "chunk_receive_timeout",
)
"""Options that a peer's refusal may name."""
_BATCH = 1024
"""Messages that are taken at once, as far as `receive_many` hands out so many bytes."""
_ROOM = 8
"""One part of so many of the memory is beside it for what has not gone back."""
_OPEN_ROOM = 4
"""And one of so many for what is open, which takes `_OPEN_BYTES` each."""
_OPEN_BYTES = 8 << 10
_OPEN_OWN = 8
"""Sinks, streams and duplexes that a connection may have open however many others have."""
_TURN = 64
"""What is taken of a connection before all else has its turn."""


class EchoServer:
    """Serves the connections of listeners.

    Args:
        listeners: Where they come from.
        output: Is told who is refused.
        memory: Bytes of received payload that the listeners hold. An eighth of it is beside it
            for what is to go back, twice that at the most, and a quarter for what is open.
    """

    def __init__(self, listeners: list[Listener], output: Output, memory: int) -> None:
        self._listeners = listeners
        self._output = output
        self._room = EchoRoom(max(1, memory // _ROOM), self._end_slow)
        self._places = OpenPlaces(memory // _OPEN_ROOM // _OPEN_BYTES, _OPEN_OWN)
        self._connections: set[Connection] = set()
        self._open: set[Stream | Duplex] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._counts: Counter[str] = Counter()
        self._turned_away: Counter[str] = Counter()

    async def accept(self) -> None:
        """Serves who connects, until the listeners are closed.

        Raises:
            TransportError: A listener is broken.
        """
        async with asyncio.TaskGroup() as tasks:
            for listener in self._listeners:
                tasks.create_task(self._accept(listener))

    async def stop(self) -> None:
        """Accepts no more, ends everything that is open in good order, and waits until it has."""
        for listener in self._listeners:
            await listener.close()
        ends = [_quietly(_end(one)) for one in self._open]
        for connection in self._connections:
            for end in (connection.cancel, connection.close):
                # The peer may have ended it before.
                with suppress(AcklineError):
                    end(_STOPS)
        await asyncio.gather(*ends)
        while self._serving:
            await asyncio.wait(self._serving)

    def abort(self) -> int:
        """Ends at once what is left: how many connections."""
        for connection in self._connections:
            connection.abort()
        return len(self._connections)

    def stats(self) -> dict[str, Any]:
        """The members of a `stats` line."""
        counts = self._counts
        names = ("served", "requests", "sinks", "streams", "duplexes", "messages", "bytes")
        told: dict[str, Any] = {"connections": len(self._connections)}
        told |= {name: counts[name] for name in names}
        stats = [listener.stats() for listener in self._listeners]
        told["refused"] = counts["refused"] + self._turned_away.total()
        told["turned_away"] = dict(self._turned_away)
        told["health_checks"] = sum(one["health_checks"] for one in stats)
        return told

    def look(self) -> None:
        """Tells who was turned away since the last time."""
        now: Counter[str] = Counter()
        for listener in self._listeners:
            now.update(listener.stats()["turned_away"])
        for code, times in sorted((now - self._turned_away).items()):
            message = "turned away before its first chunk: the log names the peer"
            self._refuse(None, code, None, message, times=times)
        self._turned_away = now

    async def _accept(self, listener: Listener) -> None:
        async for connection in listener:
            self._connections.add(connection)
            self._counts["served"] += 1
            task = asyncio.create_task(self._serve(connection))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _serve(self, connection: Connection) -> None:
        try:
            when_ended(connection, partial(self._ends, connection))
            async with asyncio.TaskGroup() as tasks:
                top = self._copy(connection, connection.stream, connection.sink)
                tasks.create_task(_quietly(top))
                await _quietly(self._take(connection, tasks))
            # What the peer did wrong is told here, whenever it was.
            await connection.shutdown()
        except ProtocolError as error:
            self._counts["refused"] += 1
            peer = connection.peer
            name = peer.name if peer else None
            message = with_dashes(error, _NAMED)
            self._refuse(name, error.code, error.offset, message)
        except AcklineError:
            return
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _take(self, connection: Connection, tasks: asyncio.TaskGroup) -> None:
        """Takes what the peer begins, as long as there is room for it."""
        taken = 0
        async for incoming in connection:
            if connection.is_ended:
                # Nothing can go back, and thousands may have been opened before.
                return
            if isinstance(incoming, Request):
                self._answer(incoming)
            else:
                await self._places.take(connection)
                serving = tasks.create_task(_quietly(self._begin(connection, incoming)))
                serving.add_done_callback(partial(self._closed, connection))
            await self._room.wait(connection)
            taken += 1
            if taken % _TURN == 0:
                # Where more is there already, nothing else makes this wait.
                await asyncio.sleep(0)

    def _closed(self, connection: Connection, _: asyncio.Task[None]) -> None:
        self._places.give_back(connection)

    def _ends(self, connection: Connection) -> None:
        """Nothing waits any more on behalf of a connection that has ended."""
        self._room.wake(connection)
        self._places.wake(connection)

    def _answer(self, request: Request) -> None:
        self._counts["requests"] += 1
        self._counts["bytes"] += len(request.payload)
        # The answer may not be wanted any more.
        with suppress(AcklineError):
            request.respond(request.payload)

    def _begin(
        self, connection: Connection, incoming: OpenedSink | OpenedStream | OpenedDuplex
    ) -> Coroutine[Any, Any, None]:
        match incoming:
            case OpenedSink(stream, _):
                self._counts["sinks"] += 1
                return self._drain(stream)
            case OpenedStream(sink, payload):
                self._counts["streams"] += 1
                return self._repeat(connection, sink, payload)
            case OpenedDuplex(duplex, _):
                self._counts["duplexes"] += 1
                return self._echo(connection, duplex)

    async def _drain(self, stream: Stream) -> None:
        self._open.add(stream)
        try:
            async with stream:
                while messages := await stream.receive_many(_BATCH):
                    self._count(messages)
        finally:
            self._open.discard(stream)

    async def _echo(self, connection: Connection, duplex: Duplex) -> None:
        self._open.add(duplex)
        try:
            async with duplex:
                await self._copy(connection, duplex, duplex)
        finally:
            self._open.discard(duplex)

    async def _copy(
        self, connection: Connection, read: Stream | Duplex, write: Sink | Duplex
    ) -> None:
        """Sends back what comes, until no more can come."""
        part = self._room.part(connection)
        try:
            while True:
                await until_received(read)
                has_room = await self._room.wait(connection)
                messages = await read.receive_many(_BATCH if has_room else 1)
                if not messages:
                    return
                size = self._count(messages)
                part.take(size)
                await write.send_many(messages)
                part.sent(write, size)
        finally:
            part.end()

    async def _repeat(self, connection: Connection, sink: Sink, payload: bytes) -> None:
        """Sends what a stream was opened with once, and closes it."""
        part = self._room.part(connection)
        part.take(len(payload))
        try:
            await sink.send(payload)
            await sink.close()
        finally:
            part.end()

    def _end_slow(self, connection: Connection, size: int) -> None:
        self._counts["refused"] += 1
        peer = connection.peer
        message = (
            f"{size} bytes wait for it, more than for any other, and too many for all (--memory)"
        )
        self._refuse(peer.name if peer else None, "bpmux.no_credit", None, message)
        connection.abort()

    def _count(self, messages: list[bytes]) -> int:
        size = sum(map(len, messages))
        self._counts["messages"] += len(messages)
        self._counts["bytes"] += size
        return size

    def _refuse(
        self, peer: str | None, code: str, offset: int | None, message: str, *, times: int = 1
    ) -> None:
        members: dict[str, Any] = {"peer": peer, "protocol": "bpmux", "code": code}
        members |= {"offset": offset, "message": message}
        if times > 1 or peer is None:
            members["times"] = times
        self._output.say("refused", **members)


async def _end(one: Stream | Duplex) -> None:
    if isinstance(one, Duplex):
        await asyncio.gather(_quietly(one.close(_STOPS)), _quietly(one.cancel(_STOPS)))
    else:
        await one.cancel(_STOPS)


async def _quietly(serving: Coroutine[Any, Any, None]) -> None:
    """What the peer or the connection ends is over, and that is all."""
    try:
        await serving
    except AcklineError:
        return
