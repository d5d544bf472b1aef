"""Times in options: RFC 3339 with its zone, to the microsecond of `received_at`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ackline.exceptions import UsageError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LEAST: Final = 100_000_000_000
"""Milliseconds from 1970 to March 1973, as seconds the year 5138."""
_MOST: Final = 253_402_300_800_000
"""Milliseconds from 1970 to the year 10000."""
_INSTANT: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))? ?([Zz]|[+-]\d{2}:\d{2})"
)
_SPARK_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?")


def microseconds(name: str, text: str) -> int:
    """Read the option `name` as microseconds since 1970; a number is milliseconds.

    A finer time is rounded up to a microsecond: "received at or after" and "received before"
    then select the same events as the exact time would.

    Raises:
        UsageError: The text is no time, or a time without its zone; the error names the option.
    """
    if re.fullmatch(r"[0-9]{1,15}", text):
        return of_milliseconds(name, int(text))
    match = _INSTANT.fullmatch(text)
    if match is None:
        why = (
            "needs its zone (Spark's session time zone is not known here)"
            if _SPARK_TIME.fullmatch(text)
            else "must be a time"
        )
        raise UsageError(
            f"{name} {why}, such as 2026-11-21T16:00:00Z, or milliseconds since 1970, not {text!r}"
        )
    day, clock, fraction, zone = match.groups()
    try:
        whole = datetime.fromisoformat(f"{day}T{clock}{zone.upper()}")
    except ValueError as error:
        raise UsageError(f"{name}: {text!r} is no time: {error}") from None
    nanoseconds = int((fraction or "").ljust(9, "0"))
    return since_epoch(whole) - (-nanoseconds // 1000)


def of_milliseconds(name: str, number: int) -> int:
    """Return milliseconds since 1970 as microseconds.

    Raises:
        UsageError: It would be a time before March 1973, so it is rather one in seconds, or a time
            after the year 9999; the error names the option.
    """
    if number == 0 or _LEAST <= number < _MOST:
        return number * 1000
    raise UsageError(
        f"{name} must be a time such as 2026-11-21T16:00:00Z, or milliseconds since 1970, and "
        f"{number} milliseconds are {'the year 1970 to 1973' if number < _LEAST else 'no time'}"
    )


def since_epoch(at: datetime) -> int:
    """Return a time with its zone as microseconds since 1970."""
    return (at - _EPOCH) // _MICROSECOND


def text_of(at_us: int) -> str:
    """Write microseconds since 1970 as RFC 3339 in UTC, always with six digits."""
    at = _EPOCH + at_us * _MICROSECOND
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}Z"


def now_text() -> str:
    """Write the current time in the format of `text_of`."""
    return text_of(since_epoch(datetime.now(UTC)))
