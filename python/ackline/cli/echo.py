"""The server of `ackline serve --echo`: it sends back everything that a connection receives."""

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
"""The reason that is sent when the server stops and everything ends."""
_NAMED = (
    "max_payload_bytes",
    "max_entities",
    "max_requests",
    "pong_timeout",
    "chunk_receive_timeout",
)
"""Options that a peer's refusal may name."""
_BATCH = 1024
"""Most messages that are taken at once; `receive_many` also bounds their bytes."""
_ROOM = 8
"""Divisor of the memory: the part beside it for bytes that have not gone back."""
_OPEN_ROOM = 4
"""Divisor of the memory: the part for open entities, which take `_OPEN_BYTES` each."""
_OPEN_BYTES = 8 << 10
_OPEN_OWN = 8
"""Sinks, streams and duplexes that a connection may always have open, regardless of others."""
_TURN = 64
"""Arrivals that are taken from a connection before all others have their turn."""


class EchoServer:
    """Serves the connections of listeners.

    Args:
        listeners: The listeners whose connections it serves.
        output: The output that reports refused connections.
        memory: Bytes of received payload that the listeners hold. An eighth of it is added for
            bytes that are to go back, at most twice that, and a quarter for open entities.
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
        """Serves every connection, until the listeners are closed.

        Raises:
            TransportError: A listener is broken.
        """
        async with asyncio.TaskGroup() as tasks:
            for listener in self._listeners:
                tasks.create_task(self._accept(listener))

    async def stop(self) -> None:
        """Accepts no more, ends everything that is open in good order, and waits for these ends."""
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
        """Ends the remaining connections at once; returns how many."""
        for connection in self._connections:
            connection.abort()
        return len(self._connections)

    def stats(self) -> dict[str, Any]:
        """Returns the members of a `stats` line."""
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
        """Reports the connections that were turned away since the last time."""
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
            # This raises an error of the peer's, even if it was made before.
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
        """Takes the peer's arrivals, as long as there is room for them."""
        taken = 0
        async for incoming in connection:
            if connection.is_ended:
                # Nothing can be sent back, and thousands may have been opened before.
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
                # If more arrivals are there already, nothing else makes this loop wait.
                await asyncio.sleep(0)

    def _closed(self, connection: Connection, _: asyncio.Task[None]) -> None:
        self._places.give_back(connection)

    def _ends(self, connection: Connection) -> None:
        """Ends all waits on behalf of a connection that has ended."""
        self._room.wake(connection)
        self._places.wake(connection)

    def _answer(self, request: Request) -> None:
        self._counts["requests"] += 1
        self._counts["bytes"] += len(request.payload)
        # The peer may not want the answer any more.
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
        """Sends back every message, until no more can come."""
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
        """Sends the opening payload of a stream once, and closes the stream."""
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
    """Ignores an error of the peer or of the connection: it only ends `serving`."""
    try:
        await serving
    except AcklineError:
        return
