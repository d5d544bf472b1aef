"""Warnings on standard error: each kind is bounded in time, and the excess is counted."""

import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from ackline.cli.terminal import escaped, lines_escaped

__all__ = ["Bound", "Notices", "tell_elsewhere"]

_MOST = 10
_SECONDS = 10.0
_CODE = re.compile(r"\bcode=(\S+)")


class Bound:
    """At most `most` lines of a kind within `seconds`, counted from the first of them."""

    def __init__(
        self,
        most: int = _MOST,
        seconds: float = _SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self.seconds = seconds
        self._clock = clock
        self._since: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def admits(self, kind: str) -> bool:
        """Returns whether a line of this kind is shown; other lines are counted."""
        now = self._clock()
        if now - self._since.setdefault(kind, now) >= self.seconds and not self._beyond(kind):
            self._since[kind], self._counts[kind] = now, 0
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return self._counts[kind] <= self._most

    def passed(self, *, all_of_them: bool = False) -> list[str]:
        """Returns a line for each kind with lines not shown and with its time over."""
        now = self._clock()
        over = [
            kind
            for kind, since in self._since.items()
            if all_of_them or now - since >= self.seconds
        ]
        told = []
        for kind in over:
            if beyond := self._beyond(kind):
                seconds = now - self._since[kind]
                told.append(f"{beyond} more like this in {seconds:.0f} s are not shown: {kind}")
            del self._since[kind], self._counts[kind]
        return told

    def is_hiding(self) -> bool:
        """Returns whether `passed` has something left to report."""
        return any(self._beyond(kind) for kind in self._counts)

    def _beyond(self, kind: str) -> int:
        return max(0, self._counts.get(kind, 0) - self._most)


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        # A traceback follows it, in lines of its own.
        return escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802, ANN401 (logging's)
        # The text of the exception may be a peer's.
        return lines_escaped(super().formatException(ei))


class Notices(logging.Handler):
    """Shows records on the current standard error: a live line may have replaced it.

    Records that report no problem come only on request, so they are not bounded.
    """

    def __init__(self, bound: Bound | None = None) -> None:
        super().__init__()
        self.setFormatter(_Formatter("ackline: %(levelname)s: %(message)s"))
        self._bound = bound or Bound()
        self._timer: threading.Timer | None = None
        self.told_elsewhere: tuple[str, ...] = ()
        """Beginnings of records that another output shows itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Shows a record, or counts it."""
        text = record.getMessage()
        if text.startswith(self.told_elsewhere):
            return
        if record.levelno >= logging.WARNING:
            code = _CODE.search(text)
            if not self._bound.admits(f"code={code[1]}" if code else "without a code"):
                self._wait()
                return
        self._write(self.format(record))

    def close(self) -> None:
        """Reports the number of lines not shown, at the end."""
        self.acquire()
        try:
            self._tell(self._bound.passed(all_of_them=True))
        finally:
            self.release()
        super().close()

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(self._bound.seconds, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._tell(self._bound.passed())
            if self._bound.is_hiding():
                self._wait()
        finally:
            self.release()

    def _tell(self, texts: list[str]) -> None:
        for text in texts:
            self._write(f"ackline: WARNING: {text}")

    @staticmethod
    def _write(text: str) -> None:
        stream: TextIO | None = sys.stderr
        try:
            if stream is not None:
                stream.write(text + "\n")
                stream.flush()
        except (OSError, ValueError):  # standard error has no reader any more
            return


def tell_elsewhere(beginnings: tuple[str, ...]) -> None:
    """Leaves records that begin so to another output of the command, which shows them itself."""
    for handler in logging.getLogger("ackline").handlers:
        if isinstance(handler, Notices):
            handler.told_elsewhere = beginnings
