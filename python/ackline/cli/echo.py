"""What `ackline serve --echo` does with a connection: everything that is sent comes back."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

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
_BATCH = 64
"""Messages that are taken at once, and held until they are sent back."""
_MOST_WAITING = 32 << 20
"""Bytes that may wait for credit of one connection before nothing new of it is taken."""
_LOOK_BYTES = 1 << 20
"""Bytes of answers between two looks at what waits."""
_LOOK = 0.02
"""Seconds between two looks while too much waits."""
_TURN = 64
"""What is taken of a connection before all else has its turn."""


class EchoServer:
    """Serves the connections of listeners.

    Args:
        listeners: Where they come from.
        output: Is told who is refused.
        most_open: What is served at once of a connection, beside requests.
    """

    def __init__(self, listeners: list[Listener], output: Output, most_open: int) -> None:
        self._listeners = listeners
        self._output = output
        self._most_open = most_open
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
            pile = _Pile(connection)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_quietly(self._top_level(connection, pile)))
                await _quietly(self._take(connection, pile, tasks))
            # What the peer did wrong is told here, whenever it was.
            await connection.shutdown()
        except ProtocolError as error:
            self._counts["refused"] += 1
            peer = connection.peer
            name = peer.name if peer else None
            message = with_dashes(str(error), _NAMED)
            self._refuse(name, error.code, error.offset, message)
        except AcklineError:
            return
        finally:
            connection.abort()
            self._connections.discard(connection)

    async def _take(self, connection: Connection, pile: "_Pile", tasks: asyncio.TaskGroup) -> None:
        """Takes what the peer begins, as long as its answers do not pile up."""
        taken = 0
        free = asyncio.Semaphore(self._most_open)
        async for incoming in connection:
            if isinstance(incoming, Request):
                self._answer(incoming)
            else:
                await free.acquire()
                serving = tasks.create_task(_quietly(self._begin(incoming, pile)))
                serving.add_done_callback(lambda _: free.release())
            await pile.grows(len(incoming.payload))
            taken += 1
            if taken % _TURN == 0:
                # Where more is there already, nothing else makes this wait.
                await asyncio.sleep(0)

    def _answer(self, request: Request) -> None:
        self._counts["requests"] += 1
        self._counts["bytes"] += len(request.payload)
        # The answer may not be wanted any more.
        with suppress(AcklineError):
            request.respond(request.payload)

    def _begin(
        self, incoming: OpenedSink | OpenedStream | OpenedDuplex, pile: "_Pile"
    ) -> Coroutine[Any, Any, None]:
        match incoming:
            case OpenedSink(stream, _):
                self._counts["sinks"] += 1
                return self._drain(stream)
            case OpenedStream(sink, payload):
                self._counts["streams"] += 1
                return _repeat(sink, payload)
            case OpenedDuplex(duplex, _):
                self._counts["duplexes"] += 1
                return self._echo(duplex, pile)

    async def _top_level(self, connection: Connection, pile: "_Pile") -> None:
        while messages := await connection.stream.receive_many(_BATCH):
            await connection.sink.send_many(messages)
            await pile.grows(self._count(messages))

    async def _drain(self, stream: Stream) -> None:
        self._open.add(stream)
        try:
            async with stream:
                while messages := await stream.receive_many(_BATCH):
                    self._count(messages)
        finally:
            self._open.discard(stream)

    async def _echo(self, duplex: Duplex, pile: "_Pile") -> None:
        self._open.add(duplex)
        try:
            async with duplex:
                while messages := await duplex.receive_many(_BATCH):
                    await duplex.send_many(messages)
                    await pile.grows(self._count(messages))
        finally:
            self._open.discard(duplex)

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


class _Pile:
    """What waits for credit of one connection, for all that is answered there."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answered = 0

    async def grows(self, size: int) -> None:
        """So many bytes more were answered; waits while too many wait."""
        self._answered += size
        if self._answered < _LOOK_BYTES:
            return
        self._answered = 0
        # There is no wait for it: what waits is of many sinks and answers.
        while self._connection.stats()["waiting_bytes"] > _MOST_WAITING:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)


async def _repeat(sink: Sink, payload: bytes) -> None:
    """Sends what a stream was opened with once, and closes it."""
    await sink.send(payload)
    await sink.close()


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
