"""Sizes and times as people write them, and how a command ends."""

import re
import sys
from datetime import datetime
from typing import NoReturn

import typer

__all__ = ["DISK", "FAILED", "UNACKED", "USAGE", "fail", "instant", "milliseconds", "size"]

FAILED = 1
"""Exit code: the system or a peer refused."""
USAGE = 2
"""Exit code: the command line was wrong."""
UNACKED = 4
"""Exit code: something received was left unacknowledged."""
DISK = 74
"""Exit code: the spool cannot be written any more (EX_IOERR)."""

_UNITS = {
    "": 1, "B": 1,
    "K": 1 << 10, "KB": 1000, "KIB": 1 << 10,
    "M": 1 << 20, "MB": 1000**2, "MIB": 1 << 20,
    "G": 1 << 30, "GB": 1000**3, "GIB": 1 << 30,
    "T": 1 << 40, "TB": 1000**4, "TIB": 1 << 40,
}  # fmt: skip
_TIMES = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def size(text: str, option: str | None = None) -> int:
    """Bytes of a size such as ``4GiB``, ``256MiB``, ``10MB`` or ``65536``, given to `option`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise typer.BadParameter(f"{text!r} is not a size such as 256MiB", param_hint=option)
    return int(float(match[1]) * _UNITS[match[2].upper()])


def milliseconds(text: str, option: str | None = None) -> int:
    """Milliseconds of a time such as ``10s``, ``500ms``, ``15m``, ``7d``; ``off`` is 0."""
    if text == "off":
        return 0
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _TIMES:
        message = f"{text!r} is not a time such as 10s, 500ms, 15m, 7d or off"
        raise typer.BadParameter(message, param_hint=option)
    return int(float(match[1]) * _TIMES[match[2]])


def instant(text: str) -> datetime | None:
    """The time of an RFC 3339 text with its zone; None for any other text."""
    if re.match(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", text) is None:
        return None
    try:
        at = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return None if at.tzinfo is None else at


def fail(message: object, code: int = FAILED) -> NoReturn:
    """Says why on standard error and ends."""
    sys.stderr.write(f"ackline: {message}\n")
    sys.exit(code)
