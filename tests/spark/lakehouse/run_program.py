"""Runs a program of a lakehouse page as it stands, with small batches, and kills it where wanted.

    python run_program.py PROGRAM --kind delta --plain --die-after 2 --die-after 5
    python run_program.py PROGRAM --kind delta --plain --drain

`--die-after N` ends the driver, its JVM and their workers with -9 when the function of foreachBatch
has written batch N and before it returns, once for each N. `--plain` appends each batch to a second
table as well, without its number. `--drain` takes all that is there, and writes the rows of the
tables to files of Arrow.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from kill_test import family

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import DataFrame

ROWS_PER_BATCH = 100
"""As few that a short test has many batches."""


def die() -> None:
    """Kill this process and all that descend from it, itself last."""
    for pid in reversed(family(os.getpid())):
        os.kill(pid, signal.SIGKILL)


class Plain:
    """A second table that is appended to without the batch's number."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def append(self, function: Callable[..., None], batch: DataFrame) -> None:
        if self.kind == "delta":
            batch.write.format("delta").mode("append").save("plain")
            return
        catalog, rows = function.__globals__["catalog"], batch.toArrow()
        catalog.create_table_if_not_exists("logs.plain", schema=rows.schema).append(rows)


def rows_of(kind: str, table: str, names: dict[str, Any]) -> pa.Table:
    if kind == "delta":
        path = {"events": "table", "plain": "plain"}[table]
        frame = names["spark"].read.format("delta").load(path)
        return frame.select("position", "payload").toArrow()
    scan = (
        names["catalog"].load_table(f"logs.{table}").scan(selected_fields=("position", "payload"))
    )
    return scan.to_arrow()


def files_of(kind: str, names: dict[str, Any]) -> int:
    """Return the number of data files that the table has now."""
    if kind == "iceberg":
        return len(list(names["catalog"].load_table("logs.events").scan().plan_files()))
    detail = names["spark"].sql(f"DESCRIBE DETAIL {names['table']}").first()
    return int(detail.numFiles)


def write(rows: pa.Table, file: str) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def change_spark(given: argparse.Namespace) -> None:
    """Make batches small and at once, and the function of foreachBatch end the driver."""
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

    option, foreach = DataStreamReader.option, DataStreamWriter.foreachBatch
    trigger = DataStreamWriter.trigger

    def small(reader: Any, name: str, value: Any) -> Any:
        return option(reader, name, ROWS_PER_BATCH if name == "maxRowsPerBatch" else value)

    def at_once(writer: Any, **_: Any) -> Any:
        changed = {"availableNow": True} if given.drain else {"processingTime": "0 seconds"}
        return trigger(writer, **changed)

    def watched(writer: Any, function: Callable[[DataFrame, int], None]) -> Any:
        def batch_and_death(batch: DataFrame, number: int) -> None:
            function(batch, number)
            if given.plain:
                Plain(given.kind).append(function, batch)
            struck = Path(f"died-after-{number}")
            if number in given.die_after and not struck.exists():
                struck.touch()
                die()

        return foreach(writer, batch_and_death)

    DataStreamReader.option = small
    DataStreamWriter.trigger = at_once
    DataStreamWriter.foreachBatch = watched


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--kind", choices=["delta", "iceberg"], required=True)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--drain", action="store_true")
    parser.add_argument("--die-after", type=int, action="append", default=[])
    given = parser.parse_args()
    change_spark(given)
    names = runpy.run_path(str(given.program))
    for table in ("events", "plain") if given.plain else ("events",):
        write(rows_of(given.kind, table, names), f"{table}.arrow")
    if given.program.name == "compact.py":
        Path("files").write_text(str(files_of(given.kind, names)), "ascii")
    if "spark" in names:
        names["spark"].stop()


if __name__ == "__main__":
    main()
