"""Results of a spool's upkeep: repairs, checks, and the disk's times."""

from dataclasses import dataclass

from ackline._spool_reading import Loss

__all__ = ["Adopted", "MendStep", "Mended", "Probe", "Verified"]


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of `Spool.adopt`.

    Attributes:
        old: The UUID before.
        new: The UUID now.
        lowered: Consumers whose marks were above the durable position and were lowered to it.
    """

    old: str
    new: str
    lowered: list[str]


@dataclass(frozen=True, slots=True)
class MendStep:
    """One step of `Spool.mend`.

    Attributes:
        what: ``file_rebuilt``, ``index_rebuilt``, ``group_cut_out``, ``tail_cut``,
            ``segment_set_aside``, ``mark_set_aside``, ``loss_noted`` or
            ``position_raised``.
        path: The file that it changes.
        start: The first position that it concerns, or None.
        end: The position after the last one, or None.
        why: The reason.
    """

    what: str
    path: str
    start: int | None
    end: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Mended:
    """The result of `Spool.mend`.

    Attributes:
        position: The position of the next event.
        steps: The steps that were taken, or would be taken with `dry_run`.
    """

    position: int
    steps: list[MendStep]


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of timing fsync on the spool's disk.

    Attributes:
        p50_us: The median time of an fsync behind a write of 4 KiB, in microseconds.
        p99_us: The 99th percentile.
        suspicious: Whether the median is too short for a disk that really keeps the data.
    """

    p50_us: float
    p99_us: float
    suspicious: bool


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of `Spool.verify`.

    Attributes:
        segments: Segments that were read.
        groups: Group commits that were read.
        blocks: Blocks that were read.
        events: Events in them.
        bytes: Bytes that were read.
        problems: A text for each problem; empty if nothing is wrong. A noted loss is no problem.
        losses: Losses that are noted in the spool.
    """

    segments: int
    groups: int
    blocks: int
    events: int
    bytes: int
    problems: list[str]
    losses: list[Loss]
