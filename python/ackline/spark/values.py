"""The values of options from their texts; an error names the option in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ackline import _values
from ackline._table import nearest
from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MOST: Final = 10**15
"""The largest number of an option that has no limit of its own."""


def unknown(where: str, name: str, names: Sequence[str]) -> UsageError:
    """Return the error for an unknown option.

    Args:
        where: The call that was given the option.
        name: The option's name.
        names: The known names, spelled as in the documentation.
    """
    hint = nearest(name, names)
    return UsageError(f"{where} has no option {name!r}{hint}, only {', '.join(names)}")


def listed(text: str) -> list[str]:
    """Return the parts between commas, without the empty ones."""
    return [part.strip() for part in text.split(",") if part.strip()]


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read true or false.

    Raises:
        UsageError: The value is neither.
    """
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name} must be true or false, not {text!r}")
    return text == "true"


def count(options: Mapping[str, str], name: str, most: int = MOST) -> int | None:
    """Read a number from 1 to `most`; None if the option is missing.

    Raises:
        UsageError: The value is no such number, or is above `most`.
    """
    text = options.get(name.lower())
    if text is None:
        return None
    # Python refuses to read numbers of thousands of digits.
    is_short = text.isdecimal() and len(text) <= len(str(MOST))
    if not is_short or not 1 <= int(text) <= most:
        message = f"{name} must be a number from 1 to {most}, not {text[:100]!r}"
        raise UsageError(message)
    return int(text)


def size(options: Mapping[str, str], name: str) -> int | None:
    """Read a number of bytes, with a unit as on the command line; None if it is missing.

    Raises:
        UsageError: The value is no number of bytes.
    """
    text = options.get(name.lower())
    if text is None:
        return None
    found = _values.size(text)
    if found is None or found < 1:
        message = f"{name} must be a number of bytes such as 67108864 or 64MiB, not {text!r}"
        raise UsageError(message)
    return found
