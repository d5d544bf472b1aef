"""Sizes and times in the form that people write, and the end of a command."""

import re
import sys
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NoReturn

import typer

from ackline import _values
from ackline._table import nearest
from ackline.cli.terminal import say
from ackline.exceptions import LinkLost, LinkTimeout, ProtocolError, UsageError

__all__ = [
    "DISK",
    "FAILED",
    "LATE",
    "LEAST",
    "UNACKED",
    "UNREACHED",
    "USAGE",
    "as_written",
    "check_timeout",
    "check_word",
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
"""Exit code: some received messages were left unacknowledged."""
UNREACHED = 69
"""Exit code: no peer could be reached (EX_UNAVAILABLE)."""
DISK = 74
"""Exit code: the spool, or standard output, cannot be written any more (EX_IOERR)."""
LATE = 124
"""Exit code: something did not happen in time, like timeout(1)."""
LEAST = 0.1
"""Least seconds that a peer has to answer, even if --timeout leaves less."""

_OFFSET = re.compile(r" \(at byte \d+ of the connection\)")
"""The end of the text of a `ProtocolError`."""
_LARGEST = (1 << 63) - 1
_LONGEST = 36_500 * 86_400_000
_LONGEST_TIMEOUT = 1e9
"""Seconds of the longest --timeout, some 30 years."""


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


def check_timeout(timeout: float) -> None:
    """Refuses a --timeout that is no number of seconds."""
    if not timeout <= _LONGEST_TIMEOUT:
        most = f"it is in seconds, from 0 to {_LONGEST_TIMEOUT:g}"
        fail(f"--timeout is {timeout:g}; {most}", USAGE)


def check_word(option: str, text: str, words: Sequence[str]) -> None:
    """Refuses a text that is none of the words of an option."""
    if text not in words:
        these = f"{', '.join(words[:-1])} or {words[-1]}"
        fail(f"{option} is {these}, not {text!r}{nearest(text, words)}", USAGE)


def option_of(name: str) -> str:
    """Returns the option of a command that sets `name`."""
    return "--" + name.removesuffix("_ms").replace("_", "-")


def as_written(error: UsageError, names: Collection[str] = ()) -> str:
    """Returns an error's text with its options named as on a command line.

    Args:
        error: The error.
        names: Options of the command; the text may begin with one.
    """
    text = str(error)
    if error.option is not None:
        if not text.startswith(error.option):
            return text
        text = option_of(error.option) + text.removeprefix(error.option)
    elif (name := text.partition(" ")[0]) in names:
        text = option_of(name) + text.removeprefix(name)
    if error.other is not None:
        text = text.removesuffix(error.other) + option_of(error.other)
    return text


def with_dashes(error: Exception, names: Collection[str], peers: Collection[str] = ()) -> str:
    """Returns an error's text with options of Python named as on a command line.

    For a `ProtocolError` this changes its own option, if it is one of `names`; for a lost link or a
    timeout one of `names` in parentheses, and one of `peers`, the options of the other end, behind
    "its". Paths and hosts of the user's stay unchanged.

    The offset in the connection is left out: only the caller knows the bytes that it counts.
    """
    if isinstance(error, ProtocolError):
        names = [name for name in names if name == error.option]
        word = r"\b[a-z]+(?:_[a-z]+)*\b"
    else:
        # Only an option stands alone in parentheses.
        names = names if isinstance(error, LinkLost | LinkTimeout) else ()
        word = r"(?<=\()[a-z]+(?:_[a-z]+)*(?=\))|(?<=\bits )[a-z]+(?:_[a-z]+)+\b"

    def dashed(found: re.Match[str]) -> str:
        is_peers = found.string[: found.start()].endswith("its ")
        known = peers if is_peers and isinstance(error, LinkLost) else names
        return option_of(found[0]) if found[0] in known else found[0]

    return re.sub(word, dashed, _OFFSET.sub("", str(error)))


def place(code: str, offset: int | None) -> str:
    """Returns the offset of a peer's error, to append to its text.

    The text of a limit gets no offset: the limit applies at any offset.
    """
    if offset is None or code.endswith(".limit_exceeded"):
        return ""
    return f" (at byte {offset} of the peer's bytes)"


def instant(text: str) -> datetime | None:
    """Returns the time of an RFC 3339 text with its zone; None for any other text."""
    if re.match(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}", text) is None:
        return None
    try:
        at = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    return None if at.tzinfo is None else at


def fail(message: object, code: int = FAILED) -> NoReturn:
    """Prints the reason on standard error and ends."""
    say(message)
    sys.exit(code)
