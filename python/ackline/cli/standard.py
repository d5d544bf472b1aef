"""Standard output and input of every command: if one is unusable, one line reports it."""

import errno
import io
import os
import sys
from typing import Any, BinaryIO, NoReturn, TextIO

from ackline.cli.values import DISK, USAGE, fail

__all__ = ["finish", "guard", "standard_input", "to_nowhere", "unwritable"]


_WHY = {errno.EBADF: "it is closed", errno.EPIPE: "its reader has left"}


class _Guarded(io.FileIO):
    """Ends the command with the first write that fails."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (any buffer)
        try:
            return super().write(data)
        except OSError as error:
            unwritable(error)


def guard() -> None:
    """Replaces standard output; a closed one stays closed, so that no other file becomes it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # This gets the lowest free descriptor, opened in the direction that nobody uses.
            os.open(os.devnull, os.O_WRONLY if descriptor == 0 else os.O_RDONLY)
    there = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Guarded(1, "w", closefd=False)),
        encoding=there.encoding if there else "utf-8",
        errors=there.errors if there else "strict",
        line_buffering=bool(there and there.line_buffering),
    )


def finish() -> None:
    """Writes the buffered rest."""
    sys.stdout.flush()


def standard_input() -> BinaryIO:
    """Returns standard input in bytes; the command ends if it is closed."""
    there: TextIO | None = sys.stdin
    if there is None:
        fail("standard input is closed", USAGE)
    return there.buffer


def unwritable(error: OSError) -> NoReturn:
    """Reports that standard output cannot be written, and ends."""
    # The buffered rest, and everything that others write at the end, is discarded.
    to_nowhere()
    why = _WHY.get(error.errno or 0, error.strerror)
    fail(f"standard output cannot be written: {why}", DISK)


def to_nowhere() -> None:
    """Discards everything that is still written to standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
