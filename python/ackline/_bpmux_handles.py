# Written by `make sync` from ackline/aio/_bpmux_handles.py: change that file.
"""bpmux's handles for threads: sinks, streams, duplexes, requests and responses."""

from collections.abc import Iterator
from dataclasses import dataclass

from ackline._block import Block
from ackline._bpmux import (
    MOST_MESSAGES,
    Arrived,
    Part,
    Reading,
    RequestBase,
    ResponseBase,
    Writing,
    part_of,
)
from ackline._bpmux_core import BpmuxSink, BpmuxStream, PendingOp
from ackline._connections import late
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Buffer, Payloads
from ackline._relink_core import RelinkBatch

__all__ = [
    "Duplex",
    "Incoming",
    "OpenedDuplex",
    "OpenedSink",
    "OpenedStream",
    "Request",
    "Response",
    "Sink",
    "Stream",
    "done",
    "incoming",
    "wait_open",
]


def done(doing: PendingOp, what: str, timeout: float | None) -> object:
    """Waits for the outcome, and returns it; raises `LinkTimeout` with `what` after `timeout`."""
    if not doing.wait(timeout):
        raise late(what, timeout)
    return doing.take()


def wait_open(doing: PendingOp, timeout: float | None) -> None:
    """Waits until the opening is sent."""
    if not doing.wait(timeout):
        raise late("the opening was not sent", timeout)


class _Sends(Writing):
    """The half that this end writes."""

    def send(self, payload: Buffer, *, timeout: float | None = None) -> None:
        """Sends a message; waits while `send_bytes` leaves no room.

        Args:
            payload: Bytes, or anything else with a buffer of bytes.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            PeerCancelled: The reader wants no more.
            UsageError: As by `try_send`, which also raises `LinkClosed`.
        """
        deadline = deadline_in(timeout)
        while not self._sink.try_send(payload):
            size = memoryview(payload).nbytes
            if not self._sink.wait("room", left_until(deadline), size=size):
                raise late("there was no room", timeout)

    def send_many(self, payloads: Payloads, *, timeout: float | None = None) -> None:
        """Sends messages in order; a sequence of bytes, or an Arrow array of binary or strings.

        Args:
            payloads: The messages.
            timeout: Seconds for all messages; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; the text says how many were sent.
            UsageError: As by `send`, whose other errors are raised too.
        """
        deadline, batch, sent = deadline_in(timeout), RelinkBatch(payloads), 0
        while sent < len(batch):
            taken = self._sink.try_send_many(batch, sent)
            sent += taken
            if taken or sent == len(batch):
                continue
            if not self._sink.wait("room", left_until(deadline), size=batch.size(sent)):
                raise late(f"there was room for {sent} of {len(batch)} messages", timeout)

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until every message has gone to the transport, which needs credit from the peer.

        Raises:
            LinkTimeout: Messages still wait.
            PeerCancelled: The reader wants no more.
            LinkClosed: It was closed here, or the connection is over.
        """
        if not self._sink.wait("flushed", timeout):
            raise late("messages did not go", timeout)
        self._sink.check()

    def wait_cancelled(self, *, timeout: float | None = None) -> bytes | None:
        """Waits until the reader cancels it.

        Returns:
            The payload of the cancel; None if it ended in another way.

        Raises:
            LinkTimeout: It was not cancelled in time.
            LinkClosed: It was closed here before.
        """
        if not self._sink.wait("cancelled", timeout):
            raise late("it was not cancelled", timeout)
        return self._sink.cancelled

    def close(self, payload: Buffer = b"", *, timeout: float | None = None) -> None:
        """Closes it after its messages, and waits until the peer has acknowledged the close.

        Every message sent before has then arrived. If the peer serves a sink, its handler has
        returned too. A close of the top-level returns at once. Closing again does nothing.

        Args:
            payload: The reason; by convention empty if all is well.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The close was not acknowledged in time; it is closed all the same.
            PeerCancelled: The reader cancelled it before, or refuses it: the reader may not have
                seen all messages.
            LinkClosed: The connection is over.
        """
        closing = self._sink.close(payload)
        if closing is not None:
            done(closing, "the close was not acknowledged", timeout)


class _Receives(Reading):
    """The half that this end reads."""

    def receive(self, *, timeout: float | None = None) -> bytes | None:
        """Waits for the next message; returns None when the writer has closed (`closed` tells why).

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
            UsageError: ``too_large``: the message comes in parts and has more bytes than
                `max_payload_bytes`: `receive_part` goes on with it.
            LinkClosed: It was cancelled here, or the connection is over and every message that
                came was handed out.
        """
        received = self.receive_many(1, timeout=timeout)
        return received[0] if received else None

    def receive_many(
        self, max_messages: int = MOST_MESSAGES, *, timeout: float | None = None
    ) -> list[bytes]:
        """Waits for at least one message; an empty list means that the writer has closed it.

        Args:
            max_messages: Messages at most. A message that reaches 256 KiB in all is the last one.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
            LinkClosed: As `receive`.
        """
        deadline = deadline_in(timeout)
        while (received := self._stream.try_receive(max_messages)) is not None:
            if received:
                return received
            if not self._stream.wait(left_until(deadline)):
                raise late("no message came", timeout)
        return []

    def receive_part(self, *, timeout: float | None = None) -> Part | None:
        """Waits for the next part of a message; returns None when the writer has closed.

        With ``parts=True`` of `connect` and `listen` a message of several chunks comes in parts, of
        any length, and the peer gets credit for the parts that were taken: `memory` limits the
        bytes that wait here, not the length of the message. Otherwise each message is one part.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No part came in time.
            LinkClosed: As `receive`.

        Example:
            >>> while part := stream.receive_part():  # doctest: +SKIP
            ...     file.write(part.data)
        """
        deadline = deadline_in(timeout)
        while (taken := self._stream.try_receive_part()) is False:
            if not self._stream.wait(left_until(deadline)):
                raise late("no part came", timeout)
        return part_of(taken)

    def __iter__(self) -> Iterator[bytes]:
        while received := self.receive_many():
            yield from received

    def ping(self, *, timeout: float = 10.0) -> float:
        """Pings the peer on this half; returns the seconds until its answer.

        Raises:
            LinkTimeout: It did not answer in time.
            UsageError: ``already_ended``.
            LinkClosed: It was cancelled here, or the connection is over.
        """
        doing = self._stream.ping(timeout)
        doing.wait(None)
        return float(doing.take())

    def cancel(self, payload: Buffer = b"", *, timeout: float | None = None) -> None:
        """Cancels it, and waits until the peer has acknowledged the cancel.

        Messages on their way are lost. A cancel of the top-level returns at once. Cancelling again
        does nothing.

        Args:
            payload: The reason; by convention empty if all is well.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The cancel was not acknowledged in time; it is cancelled all the same.
            UsageError: ``already_ended``: its writer has closed it.
            LinkClosed: The connection is over.
        """
        cancelling = self._stream.cancel(payload)
        if cancelling is not None:
            done(cancelling, "the cancel was not acknowledged", timeout)


class Sink(Block, _Sends):
    """Messages that this end writes.

    A sink that is dropped without `close` is closed with the payload ``dropped``.

    The end of a `with` block closes it. If an exception leaves the block, the sink is dropped.

    Example:
        >>> with connection.open_sink(b"log") as sink:  # doctest: +SKIP
        ...     sink.send_many([b"one", b"two"])
    """

    def __init__(self, sink: BpmuxSink) -> None:
        self._sink = sink

    def _leave(self, *, failed: bool) -> None:
        if not failed:
            self.close()
        else:
            self._sink.let_go()


class Stream(Block, _Receives):
    """An iterator over messages that this end reads.

    A stream that is dropped before its end is cancelled; the end of a `with` block cancels it too.

    Example:
        >>> with connection.open_stream(b"prices") as stream:  # doctest: +SKIP
        ...     for message in stream:
        ...         print(message)
    """

    def __init__(self, stream: BpmuxStream) -> None:
        self._stream = stream

    def _leave(self, *, failed: bool) -> None:
        del failed
        self._stream.let_go()


class Duplex(Block, _Sends, _Receives):
    """A sink and a stream in one: `close` ends the sink, `cancel` the stream, each by itself.

    A `with` block closes the sink and gives up the stream.

    Example:
        >>> with connection.open_duplex(b"echo") as duplex:  # doctest: +SKIP
        ...     duplex.send(b"hello")
        ...     print(duplex.receive(timeout=10))
    """

    def __init__(self, sink: BpmuxSink, stream: BpmuxStream) -> None:
        self._sink, self._stream = sink, stream

    def _leave(self, *, failed: bool) -> None:
        try:
            if not failed:
                self.close()
            else:
                self._sink.let_go()
        finally:
            self._stream.let_go()


class Response(Block, ResponseBase):
    """The response to a request.

    If it is dropped before the response is there, the request is cancelled; the end of a `with`
    block does the same.

    Example:
        >>> response = connection.request(b"question")  # doctest: +SKIP
        >>> response.response(timeout=10)  # doctest: +SKIP
        b'answer'
    """

    def response(self, *, timeout: float | None = None) -> bytes:
        """Waits for the response, which is handed out once.

        Args:
            timeout: Seconds; None waits for ever. The request goes on after a timeout.

        Raises:
            LinkTimeout: No response came in time.
            RequestClosed: The peer will not answer.
            PeerCancelled: The peer refused all requests before this one was sent.
            UsageError: ``already_ended``: it was handed out before.
            LinkClosed: The request was cancelled here, or the connection is over.
        """
        deadline = deadline_in(timeout)
        while (answer := self._core.try_response()) is None:
            if not self._core.wait(left_until(deadline)):
                raise late("no response came", timeout)
        return answer

    def ping(self, *, timeout: float = 10.0) -> float:
        """Asks whether the peer still works on it; returns the seconds until the answer.

        Raises:
            LinkTimeout: The peer did not answer this in time; the response may be on its way
                instead.
            UsageError: ``already_ended``: the request is answered. ``unknown_id``: it is not sent
                yet.
            LinkClosed: The connection is over.
        """
        doing = self._core.ping(timeout)
        doing.wait(None)
        return float(doing.take())

    def _leave(self, *, failed: bool) -> None:
        del failed
        self._core.let_go()


class Request(RequestBase):
    """A request of the peer, to be answered once. If dropped, it is closed with ``dropped``."""

    def wait_cancelled(self, *, timeout: float | None = None) -> bytes | None:
        """Waits until the peer gives the request up.

        Returns:
            The payload of the cancel; None if the request is over.

        Raises:
            LinkTimeout: It was not given up in time.
            LinkClosed: It was answered here.
        """
        if not self._core.wait(timeout):
            raise late("it was not cancelled", timeout)
        return self._core.cancelled


@dataclass(frozen=True, slots=True)
class OpenedSink:
    """A sink of the peer, which this end reads."""

    stream: Stream
    """The messages of the peer."""
    payload: bytes
    """The payload that the peer opened it with."""


@dataclass(frozen=True, slots=True)
class OpenedStream:
    """A stream of the peer, which this end writes."""

    sink: Sink
    """The messages for the peer."""
    payload: bytes
    """The payload that the peer opened it with."""


@dataclass(frozen=True, slots=True)
class OpenedDuplex:
    """A duplex of the peer."""

    duplex: Duplex
    """Both halves."""
    payload: bytes
    """The payload that the peer opened it with."""


Incoming = Request | OpenedSink | OpenedStream | OpenedDuplex
"""An arrival: a request, or a sink, stream or duplex that the peer opens."""


def incoming(arrived: Arrived) -> Incoming | None:
    """Returns an arrival as an object; None when the native module reports the end."""
    _, request, sink, stream, payload = arrived
    if payload is None:
        return None
    if request is not None:
        return Request(request, payload)
    if sink is not None and stream is not None:
        return OpenedDuplex(Duplex(sink, stream), payload)
    if stream is not None:
        return OpenedSink(Stream(stream), payload)
    return None if sink is None else OpenedStream(Sink(sink), payload)
