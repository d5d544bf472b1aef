"""The lines to be sent: reading them, checking them, and combining them as windows."""

import json
import os
import select
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from ackline._core import LumberjackRoom
from ackline.cli.terminal import say

__all__ = ["SHOWN", "Lines", "Pipe", "Window"]

SHOWN = 20
"""Bad lines that are reported one by one; the rest is counted."""
_SLACK = 4096
"""Bytes of white space around an event that are not counted."""
_LINGER = 1.0
"""Seconds that a line of a pipe waits for other lines of its window."""
_CHUNK = 1 << 16


class Source(Protocol):
    def readline(self, most: int, /) -> bytes: ...


class Pipe:
    """A source that may pause between its lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = bytearray()
        self._searched = 0
        self._is_over = False

    def readline(self, most: int, /) -> bytes:
        """Returns a line with its end, `most` bytes of a longer one, or nothing at the end."""
        while (length := self._line(most)) is None:
            self._fill()
        line = bytes(self._held[:length])
        del self._held[:length]
        self._searched = 0
        return line

    def has_line(self, most: int, seconds: float) -> bool:
        """Returns whether `readline` has something within this time."""
        deadline = time.monotonic() + seconds
        while self._line(most) is None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left)[0]:
                return False
            self._fill()
        return True

    def _line(self, most: int) -> int | None:
        """Returns the length of the next line, once it is known."""
        found = self._held.find(b"\n", self._searched, most)
        if found >= 0:
            return found + 1
        self._searched = min(len(self._held), most)
        return self._searched if self._is_over or self._searched == most else None

    def _fill(self) -> None:
        chunk = os.read(self._descriptor, _CHUNK)
        self._held += chunk
        self._is_over = not chunk


@dataclass(slots=True)
class Window:
    """Events that are sent together.

    Attributes:
        events: The events.
        file_bytes: The bytes of the file from the end of the window before to the last event's end.
        first_line: The line of the first event, from 1.
        last_line: The line of the last event.
    """

    events: list[bytes] = field(default_factory=list)
    file_bytes: int = 0
    first_line: int = 0
    last_line: int = 0


class Lines:
    """The events of a file, the count of lines read, and the lines that cannot be sent."""

    def __init__(self, source: Source, name: str, limit: int) -> None:
        self._source = source
        self._name = name
        self._limit = limit
        self.number = 0
        """The last line that was read, from 1."""
        self._begun: float | None = None
        self.is_json = True
        """Whether blank lines and lines that are not JSON are passed over."""
        self.read = 0
        self.bad = 0

    def windows(self, most: int, most_bytes: int) -> Iterator["Window"]:
        """Yields windows to be sent, none of them empty."""
        window, room = Window(), LumberjackRoom(most, most_bytes)
        for event, file_bytes in self._good():
            if window.events and (event is None or not room.takes(len(event))):
                yield window
                window, room = Window(), LumberjackRoom(most, most_bytes)
            if event is None:
                continue
            if not window.events:
                self._begun = time.monotonic()
                room.takes(len(event))
                window.first_line = self.number
            window.last_line = self.number
            window.events.append(event)
            window.file_bytes += file_bytes
            if room.is_full:
                self._begun = None
                yield window
                window, room = Window(), LumberjackRoom(most, most_bytes)
        if window.events:
            yield window

    def would_wait(self) -> bool:
        """Returns whether the next line is not there yet."""
        source = self._source
        return isinstance(source, Pipe) and not source.has_line(self._limit + _SLACK, 0.0)

    def skip_rest(self) -> None:
        """Counts the lines that are not sent any more."""
        for line, _ in self._lines():
            self.read += line != b"" or not self.is_json

    def _good(self) -> Iterator[tuple[bytes | None, int]]:
        """Yields events, each with the bytes of the file up to its end; None at a pause."""
        passed = 0
        for event, length in self._lines():
            passed += length
            if not length:
                yield None, 0
            if event == b"" and (self.is_json or not length):
                continue
            self.read += 1
            why = self._too_long(length) if event is None else self._refused(event)
            if event is None or why is not None:
                self._tell(str(why))
                continue
            yield event, passed
            passed = 0

    def _lines(self) -> Iterator[tuple[bytes | None, int]]:
        """Yields lines without their ends, None for a line above any limit, with their bytes.

        If a window has begun and the next line is late, it yields a line of no bytes.
        """
        most = self._limit + _SLACK
        while True:
            if self._is_late(most):
                self._begun = None
                yield b"", 0
            if not (line := self._source.readline(most)):
                return
            self.number += 1
            if len(line) < most or line.endswith(b"\n"):
                yield self._event(line), len(line)
                continue
            length = len(line)
            while not line.endswith(b"\n") and (line := self._source.readline(most)):
                length += len(line)
            yield None, length

    def _event(self, line: bytes) -> bytes:
        return line.strip() if self.is_json else line.removesuffix(b"\n")

    def _is_late(self, most: int) -> bool:
        if self._begun is None or not isinstance(self._source, Pipe):
            return False
        left = self._begun + _LINGER - time.monotonic()
        return not self._source.has_line(most, left)

    def _too_long(self, length: int) -> str:
        return f"{length} bytes, the limit is {self._limit}; --max-json-bytes changes it"

    def _refused(self, event: bytes) -> str | None:
        if len(event) > self._limit:
            return self._too_long(len(event))
        if not self.is_json:
            return None
        try:
            _JSON.decode(event.decode())
        except json.JSONDecodeError as error:
            return f"not JSON: {error.msg} at column {error.colno}"
        except ValueError as error:
            return f"not JSON: {error}"
        except RecursionError:
            return "JSON of too many levels"
        return None

    def _tell(self, why: str) -> None:
        self.bad += 1
        if self.bad <= SHOWN:
            say(f"{self._name}, line {self.number}: not sent: {why}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


# Numbers are not checked: as floats they are cheap, however long they are.
_JSON = json.JSONDecoder(parse_int=float, parse_constant=_no_constant)
