"""The streams of `ackline publish`: one source for the subscribers of one publisher."""

import asyncio
from collections.abc import Collection
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from ackline.aio._reactive_serving import wait_for_room
from ackline.aio.reactive import Connection, Listener, Publication, SubscribeRequest
from ackline.cli.output import Output
from ackline.cli.publish_sources import Source, SourceFailed
from ackline.cli.terminal import say
from ackline.cli.values import with_dashes
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
)

__all__ = ["Publishing"]

_GOODBYE = 2.0
"""Seconds for the end of a connection whose streams have ended."""
_STOPS = "the publisher stops"
"""The reason that is sent when a signal ends the command."""
_SHOWN = 200
"""Characters of a publisher's name that are told."""

_End = Literal["completed", "cancelled", "lost", "failed"]


@dataclass(slots=True)
class _Peer:
    """A connection that is served.

    Attributes:
        connection: The connection.
        name: The peer's address.
        begun: Streams that were accepted.
        streams: The tasks of those that have not ended.
    """

    connection: Connection
    name: str
    begun: int = 0
    streams: set[asyncio.Task[None]] = field(default_factory=set)


class Publishing:
    """Publishes a source to each subscriber of a publisher.

    Args:
        name: The publisher's name.
        source: The source.
        streams: Number of streams after which it ends; None is unlimited.
        output: The output that reports streams.
        timeout: Seconds for a subscription of a peer that was connected to, and for a peer's
            goodbye after the last stream.
        names: The command's options, for errors.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        streams: int | None,
        output: Output,
        timeout: float,
        names: Collection[str],
    ) -> None:
        self.name = name
        self.output = output
        self.streams = streams
        self.has_failed = False
        """Whether a stream was not published to its end, or its peer has not said goodbye."""
        self._source = source
        self._timeout = timeout
        self._names = names
        self._begun = 0
        self._ended = 0
        self._is_over = asyncio.Event()

    async def listen(self, listener: Listener) -> None:
        """Serves every connection, until all streams have ended.

        Raises:
            TransportError: The listener is broken.
        """
        closing = asyncio.create_task(self._close(listener))
        try:
            async with asyncio.TaskGroup() as tasks:
                async for connection in listener:
                    tasks.create_task(self._handle(connection))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            closing.cancel()

    async def serve(self, connection: Connection, name: str) -> None:
        """Serves the peer of a connection that was made, until all streams have ended.

        Args:
            connection: The connection.
            name: The peer's address.

        Raises:
            LinkTimeout: The peer does not subscribe, or does not say goodbye after its streams.
            LinkClosed: The connection was lost, or the peer has said goodbye without subscribing.
            ProtocolError: The peer broke a rule.
            TransportError: The transport failed.
        """
        peer = _Peer(connection, name)
        await self._serve(peer, self._timeout)
        reason = connection.goodbye_reason or "the connection was closed"
        if not peer.begun:
            raise LinkClosed(f"the peer has not subscribed to {self.name}: {reason}")
        if self.streams is not None and peer.begun < self.streams:
            text = f"the peer has said goodbye after {peer.begun} of {self.streams} streams"
            raise LinkClosed(f"{text}: {reason}")

    async def _close(self, listener: Listener) -> None:
        await self._is_over.wait()
        await listener.close()

    async def _handle(self, connection: Connection) -> None:
        """Serves a connection of the listener, and reports its error."""
        known = connection.peer
        peer = _Peer(connection, known.name if known is not None else "")
        try:
            await self._serve(peer, None)
        except ProtocolError as error:
            text = with_dashes(error, self._names)
            where = {"code": error.code, "offset": error.offset, "message": text}
            self.output.say("refused", peer=peer.name, protocol="reactive", **where)
            self.has_failed = self.has_failed or peer.begun > 0
        except AcklineError as error:
            # Without a number of streams each stream has reported its own end.
            if self.streams is not None and peer.begun:
                self.has_failed = True
                say(f"{peer.name}: {error}")

    async def _serve(self, peer: _Peer, patience: float | None) -> None:
        """Serves one connection.

        Args:
            peer: The connection.
            patience: Seconds for the first subscription; None waits for ever.
        """
        accepting = asyncio.create_task(self._accept(peer, patience))
        over = asyncio.create_task(self._is_over.wait())
        try:
            await asyncio.wait({accepting, over}, return_when=asyncio.FIRST_COMPLETED)
            if peer.begun and not self.has_failed:
                await asyncio.wait({accepting}, timeout=self._timeout)
            if accepting.done():
                # The end of the connection ends the streams, and each reports it.
                if peer.streams:
                    await asyncio.wait(peer.streams)
                accepting.result()
            elif peer.begun and not self.has_failed:
                late = (
                    f"the peer has not said goodbye within {self._timeout:g} s of its last stream"
                )
                raise LinkTimeout(f"{late}: it may not have kept every element")
        finally:
            tasks = [accepting, over, *peer.streams]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with suppress(AcklineError):
                await peer.connection.shutdown(timeout=_GOODBYE)
            peer.connection.abort()

    async def _accept(self, peer: _Peer, patience: float | None) -> None:
        """Answers the peer's subscriptions, until its goodbye.

        Raises:
            LinkClosed: The connection was lost.
        """
        while True:
            try:
                wait = None if peer.begun else patience
                request = await peer.connection.accept(timeout=wait)
            except LinkTimeout:
                text = f"the peer has not subscribed to {self.name} within {patience:g} s"
                raise LinkTimeout(text) from None
            except LinkClosed as error:
                if peer.connection.goodbye_reason is None:
                    raise LinkClosed(f"the connection was lost: {error}") from None
                return
            if request is None:
                return
            if (why := self._refusal(request)) is not None:
                with suppress(AcklineError):
                    request.reject(why)
                publisher = request.publisher[:_SHOWN]
                said = {"publisher": publisher, "peer": peer.name, "message": why}
                self.output.say("rejected", **said)
                continue
            self._begun += 1
            peer.begun += 1
            task = asyncio.create_task(self._stream(request, peer))
            peer.streams.add(task)
            task.add_done_callback(peer.streams.discard)

    def _refusal(self, request: SubscribeRequest) -> str | None:
        """Returns the reason for the rejection of a subscription, if there is one."""
        if request.publisher != self.name:
            shown = request.publisher[:_SHOWN]
            return f"there is no publisher {shown!r}; this one is {self.name!r}"
        if self.streams is None or self._begun < self.streams:
            return None
        if self._source.is_standard_input:
            return "the publisher reads standard input, and an earlier subscriber has it"
        return f"all {self.streams} streams of the publisher have other subscribers"

    async def _stream(self, request: SubscribeRequest, peer: _Peer) -> None:
        """Publishes one stream, to its end, and reports the end."""
        sent = _Sent()
        end, why = await self._published(request, sent)
        self.has_failed = self.has_failed or end != "completed"
        counts = {"elements": sent.elements, "bytes": sent.size}
        told = {"publisher": self.name, "peer": peer.name, **counts, "end": end, "message": why}
        self.output.say("published", **told)
        self._ended += 1
        if self.streams is not None and self._ended >= self.streams:
            self._is_over.set()

    async def _published(self, request: SubscribeRequest, sent: "_Sent") -> tuple[_End, str | None]:
        """Publishes one stream; returns its end, and the reason unless it is complete."""
        try:
            publication = request.accept(self._source.element_size)
        except PeerCancelled:
            return "cancelled", None
        except AcklineError as error:
            return "lost", str(error)
        pump = asyncio.create_task(self._pump(publication, sent))
        left = asyncio.create_task(publication.wait_cancelled())
        try:
            await asyncio.wait({pump, left}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
                publication.complete()
            else:
                # This raises the reason.
                _ = publication.room
        except PeerCancelled as error:
            return "cancelled", str(error)
        except SourceFailed as error:
            with suppress(AcklineError):
                publication.fail(str(error))
            return "failed", str(error)
        except AcklineError as error:
            return "lost", str(error)
        except asyncio.CancelledError:
            with suppress(AcklineError):
                publication.fail(_STOPS)
            raise
        finally:
            for task in (pump, left):
                task.cancel()
            await asyncio.gather(pump, left, return_exceptions=True)
        return "completed", None

    async def _pump(self, publication: Publication, sent: "_Sent") -> None:
        """Sends the source; each piece has as many elements as the subscriber has requested."""
        async with aclosing(self._source.batches(partial(wait_for_room, publication))) as batches:
            async for batch in batches:
                size = publication.element_size if isinstance(batch, bytes) else 1
                at = 0
                while at < len(batch):
                    piece = batch[at : at + max(1, publication.room) * size]
                    if isinstance(piece, bytes):
                        await publication.send_packed(piece)
                        sent.size += len(piece)
                    else:
                        await publication.send_many(piece)
                        sent.size += sum(map(len, piece))
                    sent.elements += len(piece) // size
                    at += len(piece)


@dataclass(slots=True)
class _Sent:
    """Elements of a stream that were sent, and their bytes."""

    elements: int = 0
    size: int = 0
