"""`ackline.spark.explain`: what a query does with its time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from harness import Receiver

import ackline.spark
from ackline.spark.explained import PHASES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROWS = 6_000


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("explain") / "spool"
    receiver = Receiver(directory).start()
    receiver.send([b'{"message":"%d","text":"%s"}' % (n, b"x" * (n % 500)) for n in range(ROWS)])
    receiver.stop()
    return directory


def ended(spark: SparkSession, spool: Path, directory: Path, **options: str) -> StreamingQuery:
    reader = spark.readStream.format("ackline").option("spool", str(spool)).options(**options)
    writer = reader.schema("position BIGINT, message STRING, text STRING").load().writeStream
    query = (
        writer.format("parquet")
        .queryName("told <b>")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "out"))
    )
    assert query.awaitTermination(60)
    return query


def test_lag_rows_bytes_and_phases_of_each_batch(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    told = ackline.spark.explain(ended(spark, spool, tmp_path, maxRowsPerBatch="2000"))
    assert told.query == "told <b>"
    assert [(one.path, one.rows_behind) for one in told.spools] == [(str(spool), 0)]
    assert [one.batch for one in told.batches] == [0, 1, 2]
    assert [one.rows for one in told.batches] == [2000, 2000, 2000]
    stored = sum(path.stat().st_size for path in spool.glob("segments/*"))
    for one in told.batches:
        assert one.bytes is not None
        assert 1_000 < one.bytes < stored
        of_tasks = (one.read_ms, one.inflate_ms, one.project_ms, one.hand_over_ms)
        assert all(phase is not None and 0 < phase < 60_000 for phase in of_tasks)
        assert 0 < one.plan_ms <= one.whole_ms
        assert 0 < one.commit_ms <= one.whole_ms
    assert json.loads(json.dumps(told.as_dict()))["batches"][1]["rows"] == 2000


def test_it_is_shown_as_tables_and_as_a_picture(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    told = ackline.spark.explain(ended(spark, spool, tmp_path, maxRowsPerBatch="2000"))
    lines = str(told).splitlines()
    assert lines[0] == "query told <b>, 3 batches with events"
    assert lines[2].split() == ["spool", "rows", "behind", "seconds", "behind"]
    assert lines[3].split() == [str(spool), "0", "0.0"]
    assert lines[5].split()[:4] == ["batch", "rows", "bytes", "plan"]
    assert [line.split()[:2] for line in lines[6:]] == [
        ["0", "2,000"],
        ["1", "2,000"],
        ["2", "2,000"],
        ["all", "6,000"],
    ]
    drawing = ET.fromstring(told._repr_svg_())
    titles = [title.text for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[: len(PHASES)] == list(PHASES)
    assert len(titles) == len(PHASES) * 4
    texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "0: 2,000 rows" in texts
    assert f"{spool}: 0 rows, 0.0 s behind" in texts


def test_a_query_of_another_source_has_nothing_to_tell(spark: SparkSession, tmp_path: Path) -> None:
    writer = (
        spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().writeStream
    )
    query = writer.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        told = ackline.spark.explain(query)
        assert (told.query, told.spools, told.batches) == (str(query.id), (), ())
        assert str(told).startswith(f"query {query.id}, 0 batches with events\n")
        assert told.svg().startswith("<svg")
    finally:
        query.stop()
