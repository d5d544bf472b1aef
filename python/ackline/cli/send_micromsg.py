"""The sending of `ackline send micromsg://…`: each line one message to a topic or a queue.

Messages have no identity beyond a connection: after a lost connection those that are not
acknowledged are sent again as new messages.
"""

import logging
import random
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ackline._micromsg_core import (
    MicroMsgBatch,
    MicroMsgConnection,
    micromsg_connect,
    micromsg_split,
)
from ackline.cli.lines import Lines, Window
from ackline.cli.resending import CONNECT, GOODBYE, PASSING, TELL, Resending, tell_away
from ackline.cli.stalling import LOOK, StallTimer
from ackline.cli.values import LEAST
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkTimeout,
    ProtocolError,
    TransportError,
    UsageError,
)

__all__ = ["MicromsgSending"]

_log = logging.getLogger("ackline.send")

_FIRST_WAIT = 0.1
"""Seconds of the longest first wait before the next attempt to connect."""
_MOST_DOUBLINGS = 20
"""Doublings of this wait, at most."""
_IN_FLIGHT = 2
"""Windows of lines that are handed over and not acknowledged; the connection limits messages."""


class NoAcknowledgements(AcklineError):  # noqa: N818 (a state, no error)
    """The receiver acknowledges nothing."""


@dataclass(slots=True)
class _Batch:
    """A window of lines, or the part of it that is not acknowledged.

    Attributes:
        window: The window.
        done: Messages of it that were acknowledged.
        repeats: Further messages of it that an earlier connection has sent.
        before: Messages that the connection sent before the first that is left.
        base: Messages of the window that were acknowledged before this connection.
    """

    window: Window
    done: int = 0
    repeats: int = 0
    before: int = 0
    base: int = 0

    @property
    def last(self) -> int:
        """The position of its last message on the connection."""
        return self.before + len(self.window.events) - self.base

    def reach(self, position: int) -> int:
        """Returns the messages of the window up to a position on the connection."""
        return self.base + min(max(position - self.before, 0), self.last - self.before)


class MicromsgSending(Resending[MicroMsgConnection, _Batch]):
    """Sends windows of lines and knows how many of their messages are acknowledged."""

    def __init__(self, lines: Lines, url: str, options: dict[str, Any], timeout: float) -> None:
        super().__init__(lines, options, timeout)
        self._at, self._destination, chosen = micromsg_split(url)
        if chosen is not None:
            raise UsageError("a filter is for subscribers: leave it out of the URL")
        if not self._destination:
            place = self._at.partition("?")[0]
            form = "micromsg://host:port/DESTINATION or micromsg+unix:///path?topic=DESTINATION"
            raise UsageError(f"{place}: the destination is missing: write {form}")
        self._out: deque[_Batch] = deque()

    def _tell_lost(self, windows: int, error: Exception) -> None:
        _log.warning("connection lost code=micromsg.lost windows=%d end=%s", windows, error)

    def _on_one_connection(self) -> Iterator[int]:
        try:
            connection = self._connected()
        except (LinkClosed, ProtocolError) as error:
            # The handshake failed; a receiver that is starting or stopping does so too.
            self._losses.add(error, len(self._again))
            return
        try:
            wait = StallTimer(partial(_progress, connection), self._timeout, "no acknowledgement")
            yield from self._sent(connection, wait, _IN_FLIGHT)
            yield from self._settled(connection, wait)
        except PASSING as error:
            self._settle(connection)
            self._losses.add(error, len(self._out) + len(self._again))
        finally:
            # This is done after a signal too: all acknowledgements up to then count.
            with suppress(AcklineError):
                connection.close(GOODBYE).wait(GOODBYE)
            self._settle(connection)
            self._keep_rest(connection)
            connection.abort()

    def _connected(self) -> MicroMsgConnection:
        """Returns a connection, as soon as there is a receiver that makes one."""
        begin = time.monotonic()
        until, ceiling = begin + self._timeout, _FIRST_WAIT
        if failures := max(self._losses.count - 1, 0):
            ceiling *= 2 ** min(failures, _MOST_DOUBLINGS)
            _pause(min(ceiling, self._wait_max), until)
        is_told = False
        while True:
            left = max(until - time.monotonic(), LEAST)
            options = self._options | {"connect_timeout": min(CONNECT, left)}
            doing = micromsg_connect(self._at, options)
            is_made = doing.wait(min(max(begin + TELL - time.monotonic(), 0.0), left))
            if not is_made and not is_told:
                is_told = True
                tell_away(self._timeout)
            if not is_made and not doing.wait(left):
                raise LinkTimeout(f"no receiver is reached within {self._timeout:g} s")
            try:
                connection: MicroMsgConnection = doing.take()
            except UsageError as error:
                if not self._was_connected:
                    raise
                # Files of TLS have become unusable: the messages sent before are still counted.
                raise TransportError(str(error)) from None
            except TransportError:
                if time.monotonic() >= until:
                    raise
                _pause(min(ceiling, self._wait_max), until)
                ceiling *= 2
                continue
            self._was_connected = True
            if not connection.window:
                text = "the receiver acknowledges nothing: `ackline publish` sends all the same"
                raise NoAcknowledgements(text)
            return connection

    def _batch(self, window: Window) -> _Batch:
        return _Batch(window)

    def _in_flight(self) -> int:
        return len(self._out)

    def _send(self, connection: MicroMsgConnection, batch: _Batch, wait: StallTimer) -> None:
        batch.base, batch.before = batch.done, connection.stats()["sent"]
        self._out.append(batch)
        self.possible_repeats += batch.repeats
        left = batch.window.events[batch.base :]
        messages = MicroMsgBatch([(event, self._destination) for event in left])
        while connection.try_send(messages) is None:
            wait.until(partial(_has_room, connection, messages))
            self._settle(connection)

    def _await_first(self, connection: MicroMsgConnection, wait: StallTimer) -> None:
        last = self._out[0].last
        wait.until(lambda seconds: connection.wait("acknowledged", seconds, last))
        connection.try_acknowledged(last)
        self._settle(connection)

    def _settle(self, connection: MicroMsgConnection) -> None:
        """Counts the messages that are acknowledged by now."""
        acknowledged = connection.stats()["acknowledged"]
        for batch in self._out:
            if more := batch.reach(acknowledged) - batch.done:
                batch.done += more
                self.acked += more
                self._losses.progress()
        while self._out and self._out[0].done == len(self._out[0].window.events):
            self._done_bytes += self._out.popleft().window.file_bytes

    def _keep_rest(self, connection: MicroMsgConnection) -> None:
        """Keeps the windows that are not acknowledged for the next connection."""
        sent = connection.stats()["sent"]
        for batch in self._out:
            batch.repeats = batch.reach(sent) - batch.done
        self._again.extendleft(reversed(self._out))
        self._out.clear()


def _progress(connection: MicroMsgConnection) -> int:
    stats = connection.stats()
    return stats["acknowledged"] + stats["bytes_out"]


def _has_room(connection: MicroMsgConnection, messages: MicroMsgBatch, seconds: float) -> bool:
    return connection.wait("room", min(seconds, LOOK), messages.next_bytes)


def _pause(longest: float, until: float) -> None:
    """Waits a random time before the next attempt."""
    time.sleep(min(random.uniform(0.0, longest), max(until - time.monotonic(), 0.0)))  # noqa: S311
