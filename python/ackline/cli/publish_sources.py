"""The sources of `ackline publish`: a file, or standard input, as batches of elements."""

import ast
import asyncio
import binascii
import os
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackline.cli.elements import Element
from ackline.cli.output import JsonOutput, Output, TextOutput
from ackline.cli.standard import standard_input
from ackline.cli.values import USAGE, fail
from ackline.exceptions import AcklineError

__all__ = ["FORMATS", "STANDARD_INPUT", "Batch", "PublishArguments", "Source", "SourceFailed"]

FORMATS = ("lines", "raw", "base64")
"""The forms of elements in a file."""
STANDARD_INPUT = "-"
"""The file that stands for standard input."""
_CHUNK = 64 << 10
"""Bytes that are read at once, and of an element of raw bytes, at most."""
_TOGETHER = 4 << 20
"""Bytes of a file that are read for all streams at once, about."""
_LEAST = 512
"""Bytes that are read at once for one of many streams."""
_JSON_BYTES = 6
"""Bytes of JSON that stand for one of a payload, at most: an escape such as `\\u0000`."""
_JSON_OTHERS = 1 << 20
"""Bytes of a line of JSON beside its payload, at most."""
_NPY = b"\x93NUMPY"
"""The beginning of a NumPy file."""
_NPY_SHORT = 2
"""The first version of NumPy files with four bytes for the length of the header."""

Batch = list[bytes] | bytes
"""Elements; of a fixed size, they stand one behind the other."""


@dataclass(frozen=True, slots=True)
class PublishArguments:
    """The arguments of `ackline publish` that every protocol has.

    Attributes:
        url: The peer.
        file: The source.
        form: The form of the elements or messages in the source.
        timeout: Seconds for the connection and the peer's answers.
        as_json: Whether JSON lines go to standard output.
        options: The options of the protocol's tables that the command line gives.
    """

    url: str
    file: str
    form: str
    timeout: float
    as_json: bool
    options: dict[str, Any]

    def output(self) -> Output:
        """Returns the output of the command's events."""
        return JsonOutput() if self.as_json else TextOutput()


class SourceFailed(AcklineError):  # noqa: N818 (a state, no error)
    """The source cannot be published any further."""


class Source:
    """A file, for each stream from the beginning, or standard input, for one stream.

    Args:
        file: Its path, or `STANDARD_INPUT`.
        form: One of `FORMATS`, or json, whose lines are handed over as they are; it does not apply
            to elements of a described type.
        shape: The type of elements of a fixed size.
        limit: Bytes of an element, at most, and the option that changes it.
    """

    def __init__(self, file: str, form: str, shape: Element | None, limit: tuple[int, str]) -> None:
        self.is_standard_input = file == STANDARD_INPUT
        self.name = "standard input" if self.is_standard_input else file
        self._path = Path(file)
        self._form = form
        self._shape = shape
        self._limit, self._cure = limit
        self._longest = _longest_line(form, self._limit)
        self._begin = 0
        self._files = _Files()
        if self.is_standard_input:
            self._input = standard_input().fileno()
        elif not self._path.is_file():
            fail(f"{file} is not a file", USAGE)
        elif shape is not None:
            self._check(shape)

    @property
    def element_size(self) -> int:
        """The bytes of every element; 0 is any size."""
        return 0 if self._shape is None else self._shape.size

    async def batches(
        self, wanted: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncGenerator[Batch]:
        """Yields the elements.

        Args:
            wanted: Waits until elements are wanted: then more of a file is read.

        Raises:
            SourceFailed: The source cannot be read, or is not of its form.
        """
        chunks = _chunks(self._input) if self.is_standard_input else self._file_chunks(wanted)
        try:
            async with aclosing(chunks), aclosing(self._elements(chunks)) as batches:
                async for batch in batches:
                    yield batch
        except OSError as error:
            raise SourceFailed(f"{self.name}: {error.strerror}") from None

    async def _file_chunks(
        self, wanted: Callable[[], Awaitable[None]] | None
    ) -> AsyncGenerator[bytes]:
        """Yields the file's bytes; its end is seen also if nothing is wanted."""
        with self._files.reading(self._path) as descriptor:
            at = self._begin
            while True:
                await asyncio.sleep(0)
                if wanted is not None and at < os.fstat(descriptor).st_size:
                    await wanted()
                # A piece of raw bytes is an element.
                most = _CHUNK if self._form == "raw" else self._files.share(_TOGETHER, _CHUNK)
                if not (chunk := os.pread(descriptor, most, at)):
                    return
                at += len(chunk)
                yield chunk

    def _elements(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[Batch]:
        if self._shape is not None:
            return self._packed(chunks, self._shape.size)
        return self._raw(chunks) if self._form == "raw" else self._lines(chunks)

    @staticmethod
    async def _raw(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[Batch]:
        async for chunk in chunks:
            yield [chunk]

    async def _packed(self, chunks: AsyncGenerator[bytes], size: int) -> AsyncGenerator[Batch]:
        held = bytearray()
        async for chunk in chunks:
            held += chunk
            if whole := len(held) // size * size:
                yield bytes(held[:whole])
                del held[:whole]
        if held:
            raise SourceFailed(self._cut(len(held), size))

    async def _lines(self, chunks: AsyncGenerator[bytes]) -> AsyncGenerator[Batch]:
        held, number = bytearray(), 1
        async for chunk in chunks:
            first, *others = chunk.split(b"\n")
            held += first
            if others:
                lines = [bytes(held), *others]
                held = bytearray(lines.pop())
                yield self._checked(lines, number)
                number += len(lines)
            if len(held) > self._longest:
                raise self._too_long(number)
        if held:
            yield self._checked([bytes(held)], number)

    def _checked(self, lines: list[bytes], number: int) -> list[bytes]:
        """Returns the elements of lines; `number` is that of the first."""
        for at, line in enumerate(lines, number):
            if len(line) > self._longest:
                raise self._too_long(at)
        if self._form != "base64":
            return lines
        elements = []
        for at, line in enumerate(lines, number):
            try:
                element = binascii.a2b_base64(line.strip(), strict_mode=True)
            except binascii.Error as error:
                why = str(error).lower()
                raise SourceFailed(f"{self.name}, line {at}: not base64: {why}") from None
            if len(element) > self._limit:
                raise self._too_long(at)
            elements.append(element)
        return elements

    def _too_long(self, number: int) -> SourceFailed:
        limit = f"longer than the limit of {self._limit} bytes"
        return SourceFailed(f"{self.name}, line {number}: {limit}; {self._cure} changes it")

    def _cut(self, rest: int, size: int) -> str:
        return f"{self.name}: {rest} bytes at the end are no whole element of {size} bytes"

    def _check(self, shape: Element) -> None:
        """Ends the command if a file has no elements of this type."""
        try:
            with self._path.open("rb") as file:
                if self.name.endswith(".npy"):
                    self._begin = _numpy_begin(file.read(_CHUNK), self.name, shape)
                size = os.fstat(file.fileno()).st_size - self._begin
        except OSError as error:
            fail(f"{self.name}: {error.strerror}", USAGE)
        if rest := size % shape.size:
            fail(self._cut(rest, shape.size), USAGE)


class _Files:
    """The open files of all streams: one descriptor for each file, however many read it."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[int, int]] = {}

    @contextmanager
    def reading(self, path: Path) -> Generator[int]:
        """Opens the file that has this path now; yields its descriptor, for `os.pread`."""
        descriptor = os.open(path, os.O_RDONLY)
        found = os.fstat(descriptor)
        file = (found.st_dev, found.st_ino)
        if file in self._open:
            os.close(descriptor)
        descriptor, readers = self._open.get(file, (descriptor, 0))
        self._open[file] = (descriptor, readers + 1)
        try:
            yield descriptor
        finally:
            descriptor, readers = self._open.pop(file)
            if readers > 1:
                self._open[file] = (descriptor, readers - 1)
            else:
                os.close(descriptor)

    def share(self, together: int, most: int) -> int:
        """Returns the bytes that each reader may hold of `together`."""
        readers = sum(readers for _, readers in self._open.values())
        return min(most, max(_LEAST, together // max(readers, 1)))


def _longest_line(form: str, limit: int) -> int:
    """Returns the bytes of the longest line of an element with this limit."""
    match form:
        case "base64":
            # Four characters stand for three bytes; a line may end with a carriage return.
            return (limit + 2) // 3 * 4 + 1
        case "json":
            return limit * _JSON_BYTES + _JSON_OTHERS
        case _:
            return limit


def _numpy_begin(head: bytes, name: str, shape: Element) -> int:
    """Returns the offset of the values in a NumPy file; another type of them ends the command."""
    is_numpy, is_turned, begin, dtype = head.startswith(_NPY), False, 0, None
    try:
        at = 12 if head[6] >= _NPY_SHORT else 10
        begin = at + int.from_bytes(head[8:at], "little")
        header = ast.literal_eval(head[at:begin].decode())
        dtype, is_turned = header["descr"], header["fortran_order"]
    except (ValueError, SyntaxError, LookupError, TypeError):
        is_numpy = False
    if not is_numpy:
        fail(f"{name} is not a NumPy file", USAGE)
    if is_turned:
        fail(f"{name} is stored column by column: save it in C order", USAGE)
    if not shape.is_of(dtype):
        fail(f"{name} has values of {dtype!r}; --element {shape.text} describes others", USAGE)
    return begin


async def _chunks(descriptor: int) -> AsyncGenerator[bytes]:
    """Yields what can be read; other tasks go on while a pipe has nothing."""
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        await (asyncio.sleep(0) if is_file else _readable(descriptor))
        if not (chunk := os.read(descriptor, _CHUNK)):
            return
        yield chunk


async def _readable(descriptor: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, event.set)
    except PermissionError:
        # A device such as /dev/null never waits.
        return
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
