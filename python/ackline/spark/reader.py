"""The work of a task: reading slices of segments and handing on record batches.

A task gets file names and byte ranges, so it lists nothing and asks nobody.
"""

from __future__ import annotations

import platform
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from ackline import _core
from ackline._spool_reading import shares
from ackline.exceptions import SpoolError
from ackline.spark.logs import log_to_stderr, task_name
from ackline.spark.spools import gone_by_name
from ackline.spool import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ackline.spark.columns import Columns
    from ackline.spark.pieces import Piece

BATCH_ROWS: Final = 1024
"""Events in a record batch: few enough to stay in the cache until they are sent and freed."""


@dataclass(frozen=True)
class SpoolPartition(InputPartition):
    """The work of one task: pieces in the order of their positions."""

    pieces: tuple[Piece, ...]


def read_batches(
    partition: SpoolPartition,
    columns: Columns,
    *,
    skip_repeats: bool = False,
    memory: int = MEMORY,
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a task as record batches with `columns` in the order wanted.

    Args:
        partition: The task's work.
        columns: The columns that are built.
        skip_repeats: Whether events that were sent before are left out.
        memory: Bytes that the task's reader holds at once.
    """
    context = TaskContext.get()
    if context is not None:
        log_to_stderr(task_name(context))
    for piece in partition.pieces:
        with _placed(piece), gone_by_name([piece.spool]):
            yield from _piece_batches(piece, columns, skip_repeats=skip_repeats, memory=memory)


@contextmanager
def _placed(piece: Piece) -> Iterator[None]:
    """Add the place of each error to its text: Spark shows the text far from the place."""
    place = f"spool {piece.spool}, positions {piece.start} to {piece.end}, host {platform.node()}"
    try:
        yield
    except SpoolError as error:
        raise SpoolError(f"{error} ({place})", code=error.code) from error
    except pa.ArrowInvalid as error:
        # Reading raises this error in the middle of a batch.
        raise pa.ArrowInvalid(f"{error} ({place})") from error


def _piece_batches(
    piece: Piece, columns: Columns, *, skip_repeats: bool, memory: int
) -> Iterator[pa.RecordBatch]:
    names = list(columns.names)
    native = None if columns.projection is None else columns.projection.native()
    # The order in which a reader yields its columns is its own.
    yielded = names if native is not None else list(columns.of_events or names)
    of_reader, of_columns = shares(memory, projects=native is not None)
    stream = _core.Spool.read_slice(
        asdict(piece),
        columns=[*dict.fromkeys(yielded)] if native is None else native.columns,
        batch_rows=BATCH_ROWS,
        memory=of_reader,
        skip_repeats=skip_repeats,
    )
    if native is not None:
        stream = stream.project(native, of_columns)
    with pa.RecordBatchReader.from_stream(stream) as batches:
        for batch in batches:
            ordered = batch if batch.schema.names == yielded else batch.select(yielded)
            yield ordered if yielded == names else ordered.rename_columns(names)
