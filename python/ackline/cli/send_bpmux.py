"""The sending of `ackline send bpmux://…`: each window a sink, closed with its count.

A window is acknowledged when the close of its sink is. After a lost connection the unacknowledged
windows are sent again, each as a new sink with the same opening.
"""

import logging
import sys
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxSink,
    PendingOp,
    bpmux_connect_within,
)
from ackline._relink_core import RelinkBatch
from ackline.cli.lines import Lines, Window
from ackline.cli.terminal import text_of
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkTimeout,
    PeerCancelled,
    ProtocolError,
    TransportError,
    UsageError,
)

__all__ = ["BpmuxSending"]

_log = logging.getLogger("ackline.send")
_CONNECT = 10.0
_LEAST = 0.1
"""Least seconds that a receiver has to answer, even if --timeout leaves less."""
_TELL = 1.0
"""Seconds after which it is reported that no receiver is there."""
_LOOK = 0.2
"""Seconds between two checks whether a wait made progress."""
_STUCK_AFTER = 8
"""Connections in a row with nothing acknowledged, after which the sending gives up."""
_GOODBYE = 1.0
"""Seconds for the end of the connection."""
_PASSING = (LinkClosed, TransportError, ProtocolError)
"""Errors that end a connection and not the sending."""


class Refused(AcklineError):  # noqa: N818 (an act of the receiver)
    """The receiver wants no more messages."""


class Stuck(AcklineError):  # noqa: N818 (a state, no error)
    """Connections come and go, and nothing is acknowledged."""


class _Retiring(Exception):  # noqa: N818 (a state, no error)
    """The receiver takes nothing new on this connection."""


@dataclass(slots=True)
class _Batch:
    """A window with its place in the input."""

    number: int
    first: int
    window: Window
    was_sent: bool = False


@dataclass(frozen=True, slots=True)
class _Closing:
    """A sink that was closed with its count."""

    batch: _Batch
    closing: PendingOp


class BpmuxSending:
    """Sends windows and knows how many of their messages are acknowledged."""

    def __init__(self, lines: Lines, url: str, options: dict[str, Any], timeout: float) -> None:
        self._lines = lines
        self._url = url
        self._windows = lines.windows(options.pop("batch_events"), options.pop("batch_bytes"))
        self._most = options.pop("max_in_flight")
        self._wait_max = options.pop("backoff_max")
        self._options = options | {"connect_timeout": min(_CONNECT, timeout) or _CONNECT}
        self._timeout = max(timeout, _LEAST)
        self._id = uuid.uuid4()
        self._again: deque[_Batch] = deque()
        self._out: deque[_Closing] = deque()
        self._begun = 0
        self._taken = 0
        self._failures = 0
        self._was_connected = False
        self._done_bytes = 0
        self.acked = 0
        self.possible_repeats = 0
        self.acked_lines: list[tuple[int, int]] = []

    def run(self) -> Generator[int, None, None]:
        """Sends everything; yields the bytes of the file that are acknowledged."""
        batch = self._next()
        while batch is not None or self._again:
            if batch is not None:
                self._again.appendleft(batch)
            yield from self._on_one_connection()
            batch = None if self._again else self._next()

    def _on_one_connection(self) -> Iterator[int]:
        connection = self._connected()
        try:
            yield from self._send_all(connection)
        except _PASSING as error:
            self._lost(error)
        finally:
            # This is done after a signal too: all acknowledgements up to then count.
            connection.shutdown(None).wait(_GOODBYE)
            with suppress(AcklineError):
                self._settle(connection)
            self._again.extendleft(reversed([one.batch for one in self._out]))
            self._out.clear()
            connection.abort()

    def _connected(self) -> BpmuxConnection:
        failures = max(self._failures - 1, 0)
        doing = bpmux_connect_within(
            self._url, self._options, self._timeout, self._wait_max, failures
        )
        if not doing.wait(min(_TELL, self._timeout)):
            away = f"no receiver is reached yet; trying for {self._timeout:g} s"
            sys.stderr.write(f"ackline: {away}\n")
        doing.wait(None)
        try:
            connected: BpmuxConnection = doing.take()
        except UsageError as error:
            if not self._was_connected:
                raise
            # Files of TLS have become unusable: the messages sent before are still counted.
            raise TransportError(str(error)) from None
        self._was_connected = True
        return connected

    def _send_all(self, connection: BpmuxConnection) -> Iterator[int]:
        """Sends until there is nothing more, or the receiver takes nothing new."""
        wait = _StallTimer(connection, self._timeout)
        try:
            while (batch := self._next_of(wait)) is not None:
                self._again.appendleft(batch)
                closing = self._send(connection, batch, wait)
                self._out.append(_Closing(self._again.popleft(), closing))
                self._settle(connection)
                while len(self._out) >= self._most:
                    self._await_first(wait)
                yield self._done_bytes
        except _Retiring as error:
            self._lost(error)
            # The sinks open there come to their end.
        while self._out:
            self._await_first(wait)
            yield self._done_bytes

    def _next_of(self, wait: "_StallTimer") -> _Batch | None:
        """Returns the next window; waits for acknowledgements rather than for a line."""
        if self._again:
            return self._again.popleft()
        while self._out and self._lines.would_wait():
            self._await_first(wait)
        return self._next()

    def _next(self) -> _Batch | None:
        window = next(self._windows, None)
        if window is None:
            return None
        batch = _Batch(self._begun, self._taken, window)
        self._begun += 1
        self._taken += len(window.events)
        return batch

    def _send(self, connection: BpmuxConnection, batch: _Batch, wait: "_StallTimer") -> PendingOp:
        events = batch.window.events
        sink = self._opened(connection, batch, wait)
        if batch.was_sent:
            self.possible_repeats += len(events)
        batch.was_sent = True
        try:
            self._send_events(sink, RelinkBatch(events), wait)
            closing = sink.close(str(len(events)).encode())
        except UsageError as error:
            raise LinkClosed(str(error)) from None
        except PeerCancelled as error:
            raise self._refused(connection, error) from None
        finally:
            # For a closed sink this does nothing.
            sink.let_go()
        if closing is None:
            raise LinkClosed("the sink is closed")
        return closing

    @staticmethod
    def _send_events(sink: BpmuxSink, events: RelinkBatch, wait: "_StallTimer") -> None:
        sent = 0
        while sent < len(events):
            if taken := sink.try_send_many(events, sent):
                sent += taken
                continue
            size = events.size(sent)
            wait.until(partial(_has_room, sink, size))

    def _opened(self, connection: BpmuxConnection, batch: _Batch, wait: "_StallTimer") -> BpmuxSink:
        opening = f"sending={self._id} window={batch.number} first={batch.first}"
        try:
            doing = connection.open("sink", opening.encode())
            wait.until(doing.wait)
            sink: BpmuxSink = doing.take()
        except (PeerCancelled, UsageError) as error:
            raise _Retiring(str(error)) from None
        return sink

    def _await_first(self, wait: "_StallTimer") -> None:
        wait.until(self._out[0].closing.wait)
        self._take_first(wait.connection)

    def _settle(self, connection: BpmuxConnection) -> None:
        """Counts the windows that are acknowledged by now."""
        while self._out and self._out[0].closing.wait(0.0):
            self._take_first(connection)

    def _take_first(self, connection: BpmuxConnection) -> None:
        try:
            self._out[0].closing.take()
        except UsageError as error:
            raise LinkClosed(str(error)) from None
        except PeerCancelled as error:
            raise self._refused(connection, error) from None
        window = self._out.popleft().batch.window
        self.acked += len(window.events)
        self.acked_lines.append((window.first_line, window.last_line))
        self._done_bytes += window.file_bytes
        self._failures = 0

    def _lost(self, error: Exception) -> None:
        self._failures += 1
        open_ones = len(self._out) + len(self._again)
        _log.warning("connection lost code=bpmux.lost windows=%d end=%s", open_ones, error)
        if self._failures >= _STUCK_AFTER:
            many = f"{_STUCK_AFTER} connections in a row have ended with nothing acknowledged"
            raise Stuck(f"{many}, the last one: {error}")

    @staticmethod
    def _refused(connection: BpmuxConnection, error: PeerCancelled) -> AcklineError:
        """Returns the error of a cancelled sink: the whole connection's end, or a refusal."""
        if connection.sink().cancelled is not None:
            return LinkClosed(str(error))
        return Refused(f"the receiver has cancelled a sink: {text_of(error.payload)}")


def _has_room(sink: BpmuxSink, size: int, seconds: float) -> bool:
    return sink.wait("room", seconds, size)


class _StallTimer:
    """Waits as long as payload leaves, and for the timeout when no payload leaves."""

    def __init__(self, connection: BpmuxConnection, timeout: float) -> None:
        self.connection = connection
        self._timeout = timeout

    def until(self, wait: Callable[[float], bool]) -> None:
        """Waits.

        Raises:
            LinkTimeout: No payload left for the timeout.
        """
        sent, since = self._sent(), monotonic()
        while not wait(min(_LOOK, self._timeout)):
            if (now := self._sent()) > sent:
                sent, since = now, monotonic()
            elif monotonic() - since >= self._timeout:
                message = f"no credit and no acknowledgement within {self._timeout:g} s"
                raise LinkTimeout(message)

    def _sent(self) -> int:
        return self.connection.stats()["bytes_sent"]
