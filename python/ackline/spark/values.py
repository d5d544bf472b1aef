"""What the texts of options mean, each refused in a sentence that names the option."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


def listed(text: str) -> list[str]:
    """Return the parts between commas, without the empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read true or false.

    Raises:
        UsageError: It is neither.
    """
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, not {text!r}")
    return text == "true"


def count(options: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    """Read a number from 1 on; None where the option is missing.

    Raises:
        UsageError: It is none, or above `most`.
    """
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1 or (most is not None and int(text) > most):
        limit = "of at least 1" if most is None else f"from 1 to {most}"
        message = f"{name} must be a number {limit}, not {text!r}"
        raise UsageError(message)
    return int(text)


def size(options: Mapping[str, str], name: str) -> int | None:
    """Read a number of bytes, which may have a unit; None where the option is missing.

    Raises:
        UsageError: It is none.
    """
    text = options.get(name.lower())
    if text is None:
        return None
    found = bytes_of(text)
    if found is None or found < 1:
        message = f"{name} must be a number of bytes such as 67108864 or 64MiB, not {text!r}"
        raise UsageError(message)
    return found


def bytes_of(text: str) -> int | None:
    """Return what `67108864` or `64MiB` stands for; None for anything else."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) << _SHIFTS[match[2].lower()]


_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB|)", re.IGNORECASE)
_SHIFTS = {"": 0, "kib": 10, "mib": 20, "gib": 30}
