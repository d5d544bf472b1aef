"""Standard output of every command: where it cannot be written, one line says so."""

import errno
import io
import os
import sys
from typing import Any

from ackline.cli.values import DISK

__all__ = ["finish", "guard"]


class _Guarded(io.FileIO):
    """Ends the command with the first write that fails, unless it is the reader that has left."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 (whatever has a buffer)
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            # What is still buffered, and what others write at the end, goes nowhere.
            _to_nowhere()
            why = "it is closed" if error.errno == errno.EBADF else error.strerror
            sys.stderr.write(f"ackline: standard output cannot be written: {why}\n")
            sys.exit(DISK)


def guard() -> None:
    """Takes standard output over; a closed one stays closed: no other file becomes it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest that is free, and open for what it is not used for.
            os.open(os.devnull, os.O_WRONLY if descriptor == 0 else os.O_RDONLY)
    there = sys.stdout
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Guarded(1, "w", closefd=False)),
        encoding=there.encoding if there else "utf-8",
        errors=there.errors if there else "strict",
        line_buffering=bool(there and there.line_buffering),
    )


def finish() -> None:
    """Writes what is left."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere()


def _to_nowhere() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
