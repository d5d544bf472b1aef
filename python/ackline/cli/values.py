"""Sizes and times as people write them, and how a command ends."""

import re
import sys
from collections.abc import Collection
from datetime import datetime
from typing import NoReturn

import typer

from ackline import _values
from ackline.cli.terminal import say
from ackline.exceptions import LinkLost, ProtocolError, UsageError

__all__ = [
    "DISK",
    "FAILED",
    "UNACKED",
    "USAGE",
    "as_written",
    "fail",
    "instant",
    "milliseconds",
    "option_of",
    "place",
    "size",
    "with_dashes",
]

FAILED = 1
"""Exit code: the system or a peer refused."""
USAGE = 2
"""Exit code: the command line was wrong."""
UNACKED = 4
"""Exit code: something received was left unacknowledged."""
DISK = 74
"""Exit code: the spool, or standard output, cannot be written any more (EX_IOERR)."""

_OFFSET = re.compile(r" \(at byte \d+ of the connection\)")
"""What the text of a `ProtocolError` ends with."""
_LARGEST = (1 << 63) - 1
_LONGEST = 36_500 * 86_400_000


def size(text: str, option: str | None = None) -> int:
    """Bytes of a size such as ``4GiB``, ``256MiB``, ``10MB`` or ``65536``, given to `option`."""
    if (found := _values.size(text)) is None:
        raise typer.BadParameter(f"{text!r} is not a size such as 256MiB", param_hint=option)
    if found > _LARGEST:
        raise typer.BadParameter(f"{text!r} is more than 8EiB", param_hint=option)
    return found


def milliseconds(text: str, option: str | None = None) -> int:
    """Milliseconds of a time such as ``10s``, ``500ms``, ``15m``, ``7d``; ``off`` is 0."""
    if (found := _values.milliseconds(text)) is None:
        message = f"{text!r} is not a time such as 10s, 500ms, 15m, 7d or off"
        raise typer.BadParameter(message, param_hint=option)
    if found > _LONGEST:
        message = f"{text!r} is more than 36500d (100 years)"
        raise typer.BadParameter(message, param_hint=option)
    return found


def option_of(name: str) -> str:
    """The option of a command that sets `name`."""
    return "--" + name.removesuffix("_ms").replace("_", "-")


def as_written(error: UsageError, names: Collection[str] = ()) -> str:
    """An error's text with its options named as a command line names them.

    Args:
        error: The error.
        names: Options of the command, of which the text may begin with one.
    """
    text = str(error)
    if error.option is not None:
        text = option_of(error.option) + text.removeprefix(error.option)
    elif (name := text.partition(" ")[0]) in names:
        text = option_of(name) + text.removeprefix(name)
    if error.other is not None:
        text = text.removesuffix(error.other) + option_of(error.other)
    return text


def with_dashes(error: Exception, names: Collection[str]) -> str:
    """An error's text with options of Python named as a command line names them.

    Of a `ProtocolError` that is its own option, if it is one of these, and of a `LinkLost` any of
    these. Other texts name paths and hosts of the user's, which stay as they are.

    Where in the connection it was is left out: whose bytes that counts is known to who tells it.
    """
    if isinstance(error, ProtocolError):
        names = [name for name in names if name == error.option]
    elif not isinstance(error, LinkLost):
        names = ()

    def dashed(found: re.Match[str]) -> str:
        return option_of(found[0]) if found[0] in names else found[0]

    return re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", dashed, _OFFSET.sub("", str(error)))


def place(code: str, offset: int | None) -> str:
    """Where a peer broke a rule, for behind the text; a limit is above it wherever it stands."""
    if offset is None or code.endswith(".limit_exceeded"):
        return ""
    return f" (at byte {offset} of what the peer sent)"


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
    say(message)
    sys.exit(code)
