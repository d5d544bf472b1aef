"""The tasks of a batch: how many there are, and which positions each reads.

Without options a batch has a task for each core, but none of little work: a Python task costs tens
of milliseconds before its first row. With options it has what they say.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ackline.exceptions import UsageError
from ackline.spark.pieces import Piece, Task
from ackline.spark.values import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ackline.spark.spools import Span, Spools

MIN_TASK_BYTES: Final = 1 << 20
"""Bytes of segment below which a task is not worth its start, where no option sets the tasks."""

MOST_TASKS: Final = 100_000
"""The most tasks that options can ask for."""

OPTIONS: Final = ("minPartitions", "maxPartitions", "maxRecordsPerPartition")
"""The options of this module, of streams and of batches."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The number of tasks of a batch.

    Attributes:
        least: The fewest tasks, where there are as many events; None for no such number.
        most: The most tasks; None for one per core.
        rows: The most events of a task; None for no limit.
    """

    least: int | None = None
    most: int | None = None
    rows: int | None = None


def task_options(options: Mapping[str, str]) -> TaskOptions:
    """Read the options; their names are in lower case.

    Raises:
        UsageError: An option is out of its range, or two contradict each other.
    """
    least, most = (count(options, name, MOST_TASKS) for name in OPTIONS[:2])
    rows = count(options, OPTIONS[2])
    if least is not None and most is not None and least > most:
        raise UsageError(f"minPartitions ({least}) is above maxPartitions ({most})")
    if rows is not None and most is not None:
        raise UsageError(
            "maxRecordsPerPartition and maxPartitions contradict each other for a large batch: "
            "give one"
        )
    return TaskOptions(least, most, rows)


def cores_here() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def planned(
    spools: Spools, spans: Mapping[str, Span], options: TaskOptions, cores: int | None = None
) -> list[Task]:
    """Cut the positions of a batch into tasks.

    Args:
        spools: The spools of the query.
        spans: The positions of each spool.
        options: The number of tasks.
        cores: How many tasks run at once; None for the cores of this process.
    """
    wanted = options.most or max(cores or cores_here(), options.least or 1)
    is_set = options.most is not None or options.least is not None
    floor = 0 if is_set else MIN_TASK_BYTES
    pieces: list[Piece] = []
    for uuid, span in spans.items():
        for part in span.parts:
            pieces += _sliced(spools, uuid, part.start, part.end, wanted, floor)
    tasks = packed(pieces, wanted, floor)
    total = sum(_rows(task.pieces) for task in tasks)
    least = min(options.least or 0, total)
    fullest = max((_rows(task.pieces) for task in tasks), default=0)
    if options.rows is not None and fullest > options.rows:
        least = max(least, len(tasks), -(-total // options.rows))
    return tasks if len(tasks) >= least else _by_rows(spools, spans, total, least)


def packed(pieces: Iterable[Piece], most: int, floor: int = 0) -> list[Task]:
    """Pack pieces, in order, into at most `most` tasks of about equal size, of `floor` or more."""
    waiting = list(pieces)
    total = sum(piece.size for piece in waiting)
    most = max(1, min(most, total // floor)) if floor else most
    target = max(1, -(-total // most))
    tasks: list[list[Piece]] = []
    done = 0
    for piece in waiting:
        # Each piece goes to the task that its middle lies in: this keeps the count below the limit.
        wanted = min((done + piece.size // 2) // target, most - 1)
        done += piece.size
        if not tasks or wanted >= len(tasks):
            tasks.append([])
        tasks[-1].append(piece)
    return [Task(tuple(task)) for task in tasks]


def _by_rows(spools: Spools, spans: Mapping[str, Span], total: int, tasks: int) -> list[Task]:
    """Cut the positions of a batch into exactly `tasks` tasks of equal numbers of events.

    Tasks that share a block of the spool read it each.
    """
    bounds = [total * task // tasks for task in range(tasks + 1)]
    made: list[list[Piece]] = [[] for _ in range(tasks)]
    before = 0
    for uuid, span in spans.items():
        for part in span.parts:
            for task, (first, end) in enumerate(pairwise(bounds)):
                start = max(part.start, part.start + first - before)
                stop = min(part.end, part.start + end - before)
                if start < stop:
                    made[task] += _sliced(spools, uuid, start, stop, 1, 0)
            before += part.rows
    return [Task(tuple(task)) for task in made]


def _sliced(
    spools: Spools, uuid: str, start: int, end: int, most: int, floor: int
) -> Iterator[Piece]:
    with spools.losses_by_name(uuid, start):
        found = spools.at(uuid).slices(start, end, most, floor)
    return (Piece(**piece) for piece in found)


def _rows(pieces: Sequence[Piece]) -> int:
    return sum(piece.end - piece.start for piece in pieces)
