"""Times in options: RFC 3339 with its zone, to the microsecond of `received_at`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ackline.exceptions import UsageError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_INSTANT: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))? ?([Zz]|[+-]\d{2}:\d{2})"
)
_SPARK_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}([Tt ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?")


def microseconds(name: str, text: str) -> int:
    """Read the option `name` as microseconds since 1970.

    A finer time is rounded up to a microsecond: "received at or after" and "received before"
    then select the same events as the exact time would.

    Raises:
        UsageError: The text is no time, or a time without its zone; the error names the option.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        why = (
            "needs its zone (Spark's session time zone is not known here)"
            if _SPARK_TIME.fullmatch(text)
            else "must be a time"
        )
        raise UsageError(f"{name} {why}, such as 2026-11-21T16:00:00Z, not {text!r}")
    day, clock, fraction, zone = match.groups()
    try:
        whole = datetime.fromisoformat(f"{day}T{clock}{zone.upper()}")
    except ValueError as error:
        raise UsageError(f"{name}: {text!r} is no time: {error}") from None
    nanoseconds = int((fraction or "").ljust(9, "0"))
    return since_epoch(whole) - (-nanoseconds // 1000)


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
