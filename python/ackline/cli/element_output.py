"""The output of `ackline subscribe`: elements and messages, as fast as their reader takes them."""

import base64
import errno
import json
import os
import select
import signal
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ackline.cli.elements import Element
from ackline.cli.standard import unwritable
from ackline.cli.terminal import escaped, lines_escaped
from ackline.cli.values import USAGE, check_word, fail

__all__ = [
    "FORMATS",
    "LOOK",
    "ElementOutput",
    "ReaderLeft",
    "Signals",
    "Stopped",
    "SubscribeArguments",
]

FORMATS = ("lines", "raw", "base64", "json")
"""The forms of an element."""
LOOK = 0.2
"""Seconds between two checks for a signal, and for a reader that has left."""
_OUT = 1
"""The descriptor of standard output."""


@dataclass(frozen=True, slots=True)
class SubscribeArguments:
    """The arguments of `ackline subscribe` that every protocol has.

    Attributes:
        url: The publisher, topic or queue.
        count: Elements or messages after which the command ends; None is all.
        timeout: Seconds for the connection and the peer's acceptance.
        form: The form of an element or message; None is the default.
        options: The options of the protocol's table that the command line gives.
    """

    url: str
    count: int | None
    timeout: float
    form: str | None
    options: dict[str, Any]

    def checked_form(self) -> str | None:
        """Returns the form; ends the command if there is no such form."""
        if self.form is not None:
            check_word("--format", self.form, FORMATS)
        return self.form


class ReaderLeft(Exception):  # noqa: N818 (an outcome)
    """The reader of standard output has left."""


class Stopped(BaseException):
    """A signal requested the end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Signals:
    """SIGINT and SIGTERM: raised as `Stopped`, at once or between two writes.

    The second signal is always raised at once.
    """

    def __init__(self) -> None:
        self._waits = False
        self._came = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def wait_for_looks(self) -> None:
        """From now on the first signal is raised by `look`, so that no line is cut."""
        self._waits = True

    def look(self) -> None:
        """Raises the signal that came."""
        if self._came:
            raise Stopped(self._came)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._came or not self._waits:
            raise Stopped(number)
        self._came = number


class ElementOutput:
    """Writes elements.

    Args:
        form: One of `FORMATS`; it does not apply to elements of a described type.
        shape: The type of elements that are written as JSON values.
    """

    def __init__(self, form: str, shape: Element | None) -> None:
        self._form = form
        self._shape = shape
        self._is_terminal = os.isatty(_OUT)
        mode = os.fstat(_OUT).st_mode
        # A pipe that is ready takes so many bytes without a wait.
        self._step = 1 << 20 if stat.S_ISREG(mode) else select.PIPE_BUF
        self._reader = select.poll()
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            self._reader.register(_OUT, 0)

    @property
    def takes_packed(self) -> bool:
        """Whether elements of a fixed size are better handed over in one piece."""
        return self._shape is not None or self._form == "raw"

    def check(self, size: int) -> None:
        """Ends the command if elements of this size cannot be written; 0 is any size."""
        shape = self._shape
        if shape is not None and size not in {0, shape.size}:
            has = f"--element {shape.text} has {shape.size} bytes"
            fail(f"{has}, and the publisher's elements have {size}", USAGE)

    def write(self, elements: Sequence[bytes], signals: Signals) -> None:
        """Writes elements."""
        if self._shape is not None:
            self._put(map(self._shape.line, elements), signals)
        elif self._form == "json":
            self._put(map(_object, elements), signals)
        elif self._form == "base64":
            self._put((base64.b64encode(one) + b"\n" for one in elements), signals)
        elif self._is_terminal:
            self._show(elements)
        else:
            end = b"\n" if self._form == "lines" else b""
            self._put((one + end for one in elements), signals)

    def write_lines(self, lines: Iterable[bytes], signals: Signals) -> None:
        """Writes lines as they are; each has its line feed and is fit for a terminal."""
        self._put(lines, signals)

    def write_packed(self, elements: bytes, size: int, signals: Signals) -> None:
        """Writes elements of this size that stand one behind the other."""
        if self._shape is None and not self._is_terminal:
            self._put([elements], signals)
            return
        if self._shape is not None:
            self._put([self._shape.lines(elements)], signals)
        else:
            self._show(elements[at : at + size] for at in range(0, len(elements), size))

    def look(self) -> None:
        """Looks whether the reader has left.

        Raises:
            ReaderLeft: It has.
        """
        if self._reader.poll(0):
            raise ReaderLeft

    def _show(self, elements: Iterable[bytes]) -> None:
        """Shows elements on a terminal: escaped, each on one line or as they are."""
        for element in elements:
            text = element.decode(errors="backslashreplace")
            shown = f"{escaped(text)}\n" if self._form == "lines" else lines_escaped(text)
            sys.stdout.write(shown)
        sys.stdout.flush()

    def _put(self, pieces: Iterable[bytes], signals: Signals) -> None:
        left = memoryview(b"".join(pieces))
        while left:
            try:
                if select.select([], [_OUT], [], LOOK)[1]:
                    left = left[os.write(_OUT, left[: self._step]) :]
                else:
                    signals.look()
            except BlockingIOError:
                continue
            except OSError as error:
                if error.errno in {errno.EPIPE, errno.ECONNRESET}:
                    raise ReaderLeft from None
                unwritable(error)


def _object(element: bytes) -> bytes:
    """Returns an element as a line of JSON, with hex if it is no text."""
    try:
        members = {"element": element.decode()}
    except UnicodeDecodeError:
        members = {"element_hex": element.hex()}
    return escaped(json.dumps(members)).encode() + b"\n"
