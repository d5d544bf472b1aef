"""Consumers of a spool, as values: their marks, their readers, and the events above a mark."""

from dataclasses import dataclass
from datetime import datetime

from ackline import _core

__all__ = ["Consumer", "Holder", "Lag", "Lease", "Sought"]

Lease = _core.Lease
"""A consumer held by this process; see `Spool.lease`."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that reads as a consumer, or that ended without letting go of it.

    Attributes:
        pid: Its process id; 0 when it cannot be seen from here.
        host: The host it runs on.
        since: The time since which it holds the consumer, RFC 3339 in UTC.
        what: Its own description of itself.
    """

    pid: int
    host: str
    since: str
    what: str


@dataclass(frozen=True, slots=True)
class Consumer:
    """A named consumer: its mark, and its reader.

    Attributes:
        name: The consumer's name.
        committed: The mark: the consumer is done with every position below it.
        generation: The number of readers it has had; a mark of an older reader is refused.
        updated: The time at which the mark was written, RFC 3339 in UTC.
        seen: The time at which a reader was last seen, RFC 3339 in UTC.
        last_seen_s: Seconds since `seen`.
        live: Whether a reader holds it now.
        state: ``live``, ``idle`` (no reader) or ``stale`` (none for an hour).
        holder: The reader, if it is live or ended without letting go.
    """

    name: str
    committed: int
    generation: int
    updated: str
    seen: str
    last_seen_s: float
    live: bool
    state: str
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class Lag:
    """The events that are kept above a position.

    Attributes:
        events: The number of events.
        bytes: The bytes on disk of the group commits they are in.
        oldest: The time at which the first of them was received; None when there is none.
    """

    events: int
    bytes: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class Sought:
    """The effect of a mark's move by hand on the events that its consumer reads next.

    Attributes:
        start: The mark before.
        to: The mark now.
        skipped: Events that are kept and will not be read.
        repeated: Events that will be read a second time.
    """

    start: int
    to: int
    skipped: int
    repeated: int
