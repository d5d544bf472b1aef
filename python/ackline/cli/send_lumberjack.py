"""The sending of `ackline send lumberjack://…`: windows of JSON events."""

import sys
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

from ackline import lumberjack
from ackline._core import LumberjackSender
from ackline.cli.lines import Lines
from ackline.exceptions import TransportError

__all__ = ["LumberjackSending"]

_CONNECT = 10.0
_LAST_BYTES = 1.0
"""Seconds for the receiver's end of a connection on which everything is acknowledged."""


class LumberjackSending:
    """Sends windows and knows how many of their events are acknowledged."""

    def __init__(self, lines: Lines, url: str, options: dict[str, Any], timeout: float) -> None:
        self._lines = lines
        self._url = url
        self._options = options
        self._timeout = timeout
        self.acked = 0
        self.possible_repeats = 0

    def run(self) -> Generator[int, None, None]:
        """Sends everything; yields the bytes of the file that are acknowledged."""
        options = self._options
        buffer = {"buffer_events": None, "buffer_bytes": None}
        attempt = {"connect_timeout": min(_CONNECT, self._timeout) or _CONNECT}
        core = LumberjackSender([self._url], attempt | buffer | options)
        writer = lumberjack.Writer(core)
        patience = 0.0
        try:
            if core.wait("connected", self._timeout):
                _tell_if_away(core, self._timeout)
            yield from self._send(writer)
            patience = _LAST_BYTES
        finally:
            # Events that are not acknowledged by now have had their time.
            writer.close(timeout=patience)
            self._count(writer)

    def _send(self, writer: lumberjack.Writer) -> Iterator[int]:
        pending: deque[tuple[int, int]] = deque()
        done = 0
        most, most_bytes = self._options["batch_events"], self._options["batch_bytes"]
        for window in self._lines.windows(most, most_bytes):
            number = writer.send_window(window.events, timeout=self._timeout)
            pending.append((number, window.file_bytes))
            while pending and writer.is_acknowledged(pending[0][0]):
                done += pending.popleft()[1]
            self._count(writer)
            yield done
        for number, file_bytes in pending:
            writer.wait_acknowledged(number, timeout=self._timeout)
            done += file_bytes
            self._count(writer)
            yield done

    def _count(self, writer: lumberjack.Writer) -> None:
        """Counts single events: a receiver may acknowledge a part of a window."""
        stats = writer.stats()
        self.acked = stats["accepted"] - stats["unacknowledged"]
        self.possible_repeats = stats["possible_repeats"]


def _tell_if_away(core: LumberjackSender, timeout: float) -> None:
    try:
        core.check_connected()
    except TransportError:
        # The warning before it gives the reason.
        sys.stderr.write(f"ackline: no receiver is reached yet; trying for {timeout:g} s\n")
