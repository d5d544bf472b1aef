"""Where a query begins and ends, spool by spool: the options `startingOffsets` and their kin.

Their names and words are those of Spark's Kafka source; a spool stands for a partition of a topic.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from ackline.exceptions import SpoolError, UsageError
from ackline.spark.times import microseconds, of_milliseconds, text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ackline.spark.spools import Spools

StartingPosition = Literal["committed", "earliest", "latest"] | int
"""The start in spools that no checkpoint knows; a number is microseconds since 1970."""

_NUMBERS: Final = {-1: "latest", -2: "earliest"}
"""The numbers by which Spark's Kafka source knows two of the words."""


@dataclass(frozen=True, slots=True)
class At:
    """A position of a spool."""

    position: int


Place = StartingPosition | At


@dataclass(frozen=True, slots=True)
class Places:
    """A place in each spool.

    Attributes:
        option: The option that names them, for errors.
        otherwise: The place in spools that have none of their own.
        by_spool: The places of spools, by UUID or directory.
    """

    option: str
    otherwise: Place
    by_spool: tuple[tuple[str, Place], ...] = ()

    def of(self, uuid: str, path: str) -> Place:
        """Return the place in a spool."""
        place = self.named(uuid, path)
        return self.otherwise if place is None else place

    def named(self, uuid: str, path: str) -> Place | None:
        """Return the place of a spool that has one of its own; None for others."""
        return next((place for name, place in self.by_spool if _is_named(name, uuid, path)), None)

    def text(self) -> str:
        """Write the places for a checkpoint: the same text for the same places."""
        whole = {name: _text(place) for name, place in sorted(self.by_spool)}
        return f"offsets:{json.dumps(whole)}" if whole else _text(self.otherwise)

    def check(self, spools: Spools) -> None:
        """Refuse places in spools that the query does not read, and two for one spool.

        Raises:
            SpoolError: `spool.range`.
        """
        if isinstance(self.otherwise, At) and len(list(spools)) > 1:
            found = ", ".join(spools.sorted_paths())
            message = f"spool.range: {self.option} is a position of one spool, not of {found}"
            raise SpoolError(message, code="spool.range")
        for uuid, _ in spools:
            names = [name for name, _ in self.by_spool if _is_named(name, uuid, spools.path(uuid))]
            if len(names) > 1:
                message = (
                    f"spool.range: the option {self.option} names one spool twice, as {names[0]!r} "
                    f"and as {names[1]!r}"
                )
                raise SpoolError(message, code="spool.range")
        for name, _ in self.by_spool:
            if not any(_is_named(name, uuid, spools.path(uuid)) for uuid, _ in spools):
                found = ", ".join(f"{spools.path(uuid)} ({uuid})" for uuid, _ in spools)
                message = (
                    f"spool.range: the option {self.option} names the spool {name!r}, and the "
                    f"query reads {found}"
                )
                raise SpoolError(message, code="spool.range")


def one_of(options: Mapping[str, str], names: Collection[str]) -> str | None:
    """Return which of some options is given; None if none is.

    Raises:
        UsageError: Two are given.
    """
    given = [name for name in names if name.lower() in options]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} contradict each other: give one")
    return given[0] if given else None


def places(options: Mapping[str, str], option: str, words: tuple[Place, ...]) -> Places:
    """Read an option with the place of each spool.

    Args:
        options: The options; their names are in lower case.
        option: Its name: one that ends in `Offsets` for positions, otherwise for times.
        words: The words that may stand for a position; the first is the place of other spools.

    Raises:
        UsageError: The value names no places; the text names the option.
    """
    text = options[option.lower()]
    takes_words = option.endswith("Offsets")
    if takes_words and text.lower() in words:
        return Places(option, cast("Place", text.lower()))
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _once(option, pairs))
    except UsageError:
        raise
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        such = 1000 if takes_words else "2026-11-21T16:00:00Z"
        listed = f"{', '.join(map(str, words))} or " if takes_words else ""
        raise UsageError(
            f"{option} must be {listed}a JSON object of spools such as "
            f"{json.dumps({'/var/spool/x': such})}, not {text!r}"
        )
    read = _position if takes_words else _time
    by_spool = tuple(
        (name, read(f"{option} of {name}", value, words)) for name, value in found.items()
    )
    return Places(option, words[0], by_spool)


def _once(option: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{option} names the spool {twice!r} twice")
    return found


def _position(name: str, value: object, words: tuple[Place, ...]) -> Place:
    place = _NUMBERS.get(value, value) if isinstance(value, int) else value
    if isinstance(place, int) and not isinstance(place, bool) and place >= 0:
        return At(place)
    if isinstance(place, str) and place.lower() in words:
        return cast("Place", place.lower())
    allowed = ", ".join(map(str, words))
    raise UsageError(f"{name} must be a position or one of {allowed}, not {json.dumps(value)}")


def _time(name: str, value: object, _words: tuple[Place, ...]) -> Place:
    if isinstance(value, int) and not isinstance(value, bool):
        return of_milliseconds(name, value)
    if isinstance(value, str):
        return microseconds(name, value)
    raise UsageError(
        f'{name} must be a time such as "2026-11-21T16:00:00Z" or milliseconds since 1970, not '
        f"{json.dumps(value)}"
    )


def _is_named(name: str, uuid: str, path: str) -> bool:
    directory = Path(path)
    # A quarantine lies below the directory that the query names.
    named = directory.parent if directory.name == "quarantine" else directory
    return name == uuid or Path(name) in {directory, named}


def _text(place: Place) -> str:
    if isinstance(place, At):
        return str(place.position)
    return f"timestamp:{text_of(place)}" if isinstance(place, int) else place
