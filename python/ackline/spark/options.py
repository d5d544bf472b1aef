"""The options of `format("ackline")`: their names, their defaults, what is refused and why.

Nothing here touches a spool or Spark, so a mistake is told before either is opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

COLUMNS: Final = (
    "spool",
    "position",
    "received_at",
    "protocol",
    "peer",
    "link",
    "stream",
    "sequence",
    "repeat",
    "attributes",
    "parts",
    "payload",
)
"""The columns of an event, in the order in which a spool yields them."""

StartingPosition = Literal["committed", "earliest", "latest"]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What `readStream.format("ackline")` was given.

    Attributes:
        spools: Directories, at least one.
        consumer: The name whose marks this query moves; None moves none.
        start: Where a query without a checkpoint begins.
        max_rows: Events per batch, over all spools; None for no limit.
        max_bytes: Inflated bytes per batch, over all spools; None for no limit.
        max_partitions: Tasks per batch; None for one a core.
        columns: What is built of each event; None for all.
    """

    spools: tuple[str, ...]
    consumer: str | None
    start: StartingPosition
    max_rows: int | None
    max_bytes: int | None
    max_partitions: int | None
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What `read.format("ackline")` was given.

    Attributes:
        spools: Directories, at least one.
        start: First position that is read; None for the first that is kept.
        end: First position that is not read; None for the end when the query is planned.
        max_partitions: Tasks; None for one a core.
        columns: What is built of each event; None for all.
    """

    spools: tuple[str, ...]
    start: int | None
    end: int | None
    max_partitions: int | None
    columns: tuple[str, ...] | None


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Read the options of a stream.

    Raises:
        UsageError: One is unknown, missing or out of its range; the text names it.
    """
    options = _known(given, _STREAM_NAMES, "readStream")
    if options.get("failondataloss", "true").lower() != "true":
        message = (
            "failOnDataLoss accepts only true in this release: "
            "a query over positions that are gone ends with spool.gap"
        )
        raise UsageError(message)
    return StreamOptions(
        spools=_spools(options),
        consumer=_consumer(options),
        start=_start(options),
        max_rows=_count(options, "maxRowsPerBatch"),
        max_bytes=_size(options, "maxBytesPerBatch"),
        max_partitions=_count(options, "maxPartitions"),
        columns=columns_of(options),
    )


def batch_options(given: Mapping[str, str]) -> BatchOptions:
    """Read the options of a batch.

    Raises:
        UsageError: One is unknown, missing or out of its range; the text names it.
    """
    options = _known(given, _BATCH_NAMES, "read")
    spools = _spools(options)
    start = _position(options, "start", "earliest")
    end = _position(options, "end", "latest")
    if len(spools) > 1 and (start is not None or end is not None):
        message = "start and end are positions of one spool, and spool names several"
        raise UsageError(message)
    return BatchOptions(
        spools=spools,
        start=start,
        end=end,
        max_partitions=_count(options, "maxPartitions"),
        columns=columns_of(options),
    )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Read `columns`, the names to build, in the order wanted; None for all.

    Raises:
        UsageError: A name is unknown or stands twice.
    """
    text = {name.lower(): value for name, value in given.items()}.get("columns")
    if text is None:
        return None
    names = tuple(_listed(text))
    check_columns(names)
    return names


def check_columns(names: tuple[str, ...]) -> None:
    """Refuse names that an event does not have.

    Raises:
        UsageError: There is none, one is unknown or one stands twice.
    """
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        message = f"an event has no column {unknown[0]!r}, only {', '.join(COLUMNS)}"
        raise UsageError(message)
    if not names or len(set(names)) != len(names):
        message = f"columns must name at least one column and each once, not {', '.join(names)!r}"
        raise UsageError(message)


def _known(given: Mapping[str, str], names: tuple[str, ...], verb: str) -> dict[str, str]:
    lowered = {name.lower() for name in names}
    for name in given:
        if name.lower() not in lowered:
            message = f"{verb}.format('ackline') has no option {name!r}, only {', '.join(names)}"
            raise UsageError(message)
    return {name.lower(): value.strip() for name, value in given.items()}


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _spools(options: Mapping[str, str]) -> tuple[str, ...]:
    spools = tuple(_listed(options.get("spool", "")))
    if not spools:
        message = "the option spool is missing: the directory of a spool, or several with commas"
        raise UsageError(message)
    for spool in spools:
        scheme, found, _ = spool.partition("://")
        if found:
            message = f"spool must be a directory of this machine, {scheme}:// is not read yet"
            raise UsageError(message)
    if len(set(spools)) != len(spools):
        message = f"spool names a directory twice: {', '.join(spools)}"
        raise UsageError(message)
    return spools


def _consumer(options: Mapping[str, str]) -> str | None:
    name = options.get("consumer")
    if name == "":
        message = "consumer must have a name; leave the option away to move no mark"
        raise UsageError(message)
    return name


def _start(options: Mapping[str, str]) -> StartingPosition:
    start = options.get("startingposition", "committed").lower()
    if start not in ("committed", "earliest", "latest"):
        message = f"startingPosition must be committed, earliest or latest, not {start!r}"
        raise UsageError(message)
    return cast("StartingPosition", start)


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        message = f"{name} must be a number of at least 1, not {text!r}"
        raise UsageError(message)
    return int(text)


def _size(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    if match is None or int(match[1]) < 1:
        message = f"{name} must be a number of bytes such as 67108864 or 64MiB, not {text!r}"
        raise UsageError(message)
    return int(match[1]) << _SHIFTS[match[2].lower()]


def _position(options: Mapping[str, str], name: str, word: str) -> int | None:
    text = options.get(name, word)
    if text.lower() == word:
        return None
    if not text.isdecimal():
        message = f"{name} must be a position or {word}, not {text!r}"
        raise UsageError(message)
    return int(text)


_STREAM_NAMES = (
    "spool",
    "consumer",
    "startingPosition",
    "maxRowsPerBatch",
    "maxBytesPerBatch",
    "maxPartitions",
    "columns",
    "failOnDataLoss",
)
_BATCH_NAMES = ("spool", "start", "end", "maxPartitions", "columns")
_SIZE = re.compile(r"(\d+)\s*(KiB|MiB|GiB|)", re.IGNORECASE)
_SHIFTS = {"": 0, "kib": 10, "mib": 20, "gib": 30}
