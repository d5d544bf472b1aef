"""The sending of `ackline send bpmux://…`: each window a sink, closed with its count.

A window is acknowledged when the close of its sink is. After a lost connection the unacknowledged
windows are sent again, each as a new sink with the same opening.
"""

import logging
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ackline._bpmux_core import (
    BpmuxConnection,
    BpmuxSink,
    PendingOp,
    bpmux_connect_within,
)
from ackline._relink_core import RelinkBatch
from ackline.cli.lines import Lines, Window
from ackline.cli.resending import CONNECT, GOODBYE, PASSING, TELL, Resending, tell_away
from ackline.cli.stalling import StallTimer
from ackline.cli.terminal import text_of
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    PeerCancelled,
    TransportError,
    UsageError,
)

__all__ = ["BpmuxSending"]

_log = logging.getLogger("ackline.send")


class Refused(AcklineError):  # noqa: N818 (an act of the receiver)
    """The receiver wants no more messages."""


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


class BpmuxSending(Resending[BpmuxConnection, _Batch]):
    """Sends windows and knows how many of their messages are acknowledged."""

    def __init__(self, lines: Lines, url: str, options: dict[str, Any], timeout: float) -> None:
        self._most = options.pop("max_in_flight")
        attempt = {"connect_timeout": min(CONNECT, timeout) or CONNECT}
        super().__init__(lines, options | attempt, timeout)
        self._url = url
        self._id = uuid.uuid4()
        self._out: deque[_Closing] = deque()
        self._begun = 0
        self._taken = 0
        self.acked_lines: list[tuple[int, int]] = []

    def _tell_lost(self, windows: int, error: Exception) -> None:
        _log.warning("connection lost code=bpmux.lost windows=%d end=%s", windows, error)

    def _on_one_connection(self) -> Iterator[int]:
        connection = self._connected()
        try:
            yield from self._send_all(connection)
        except PASSING as error:
            self._lost(error)
        finally:
            # This is done after a signal too: all acknowledgements up to then count.
            connection.shutdown(None).wait(GOODBYE)
            with suppress(AcklineError):
                self._settle(connection)
            self._again.extendleft(reversed([one.batch for one in self._out]))
            self._out.clear()
            connection.abort()

    def _connected(self) -> BpmuxConnection:
        failures = max(self._losses.count - 1, 0)
        doing = bpmux_connect_within(
            self._url, self._options, self._timeout, self._wait_max, failures
        )
        if not doing.wait(min(TELL, self._timeout)):
            tell_away(self._timeout)
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
        missing = "no credit and no acknowledgement"
        wait = StallTimer(lambda: connection.stats()["bytes_sent"], self._timeout, missing)
        try:
            yield from self._sent(connection, wait, self._most)
        except _Retiring as error:
            self._lost(error)
            # The sinks open there come to their end.
        yield from self._settled(connection, wait)

    def _batch(self, window: Window) -> _Batch:
        batch = _Batch(self._begun, self._taken, window)
        self._begun += 1
        self._taken += len(window.events)
        return batch

    def _in_flight(self) -> int:
        return len(self._out)

    def _send(self, connection: BpmuxConnection, batch: _Batch, wait: StallTimer) -> None:
        self._again.appendleft(batch)
        closing = self._begin(connection, batch, wait)
        self._out.append(_Closing(self._again.popleft(), closing))

    def _begin(self, connection: BpmuxConnection, batch: _Batch, wait: StallTimer) -> PendingOp:
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
    def _send_events(sink: BpmuxSink, events: RelinkBatch, wait: StallTimer) -> None:
        sent = 0
        while sent < len(events):
            if taken := sink.try_send_many(events, sent):
                sent += taken
                continue
            size = events.size(sent)
            wait.until(partial(_has_room, sink, size))

    def _opened(self, connection: BpmuxConnection, batch: _Batch, wait: StallTimer) -> BpmuxSink:
        opening = f"sending={self._id} window={batch.number} first={batch.first}"
        try:
            doing = connection.open("sink", opening.encode())
            wait.until(doing.wait)
            sink: BpmuxSink = doing.take()
        except (PeerCancelled, UsageError) as error:
            raise _Retiring(str(error)) from None
        return sink

    def _await_first(self, connection: BpmuxConnection, wait: StallTimer) -> None:
        wait.until(self._out[0].closing.wait)
        self._take_first(connection)

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
        self._losses.progress()

    def _lost(self, error: Exception) -> None:
        self._losses.add(error, len(self._out) + len(self._again))

    @staticmethod
    def _refused(connection: BpmuxConnection, error: PeerCancelled) -> AcklineError:
        """Returns the error of a cancelled sink: the whole connection's end, or a refusal."""
        if connection.sink().cancelled is not None:
            return LinkClosed(str(error))
        return Refused(f"the receiver has cancelled a sink: {text_of(error.payload)}")


def _has_room(sink: BpmuxSink, size: int, seconds: float) -> bool:
    return sink.wait("room", seconds, size)
