"""Spools that a pattern names, also those that come while a query runs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable
from test_reader import positions, stream

from ackline import Spool
from ackline.exceptions import SpoolError, UsageError
from ackline.spark.options import stream_options
from ackline.spark.plans import plans_file
from ackline.spark.spools import matched

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ackline.spark.offsets import Offset
    from ackline.spark.source import StreamReader

    Receive = Callable[..., Receiver]

ALL = ReadAllAvailable()


def filled(receive: Receive, spool: Path, count: int) -> Receiver:
    spool.parent.mkdir(exist_ok=True)
    receiver = receive(spool)
    receiver.send(numbered(0, count))
    return receiver


def read(reader: StreamReader, start: Offset) -> tuple[Offset, list[int]]:
    end = reader.latestOffset(start, ALL)
    found = sorted(positions(reader, start, end)) if end != start else []
    reader.commit(end)
    return end, found


def test_a_pattern_matches_spools_alone(receive: Receive, tmp_path: Path) -> None:
    for name in ("a1", "a2", "b[1]"):
        filled(receive, tmp_path / name, 1).stop()
    (tmp_path / "a3").mkdir()
    (tmp_path / "a4").write_text("no spool")
    at = {name: str(tmp_path / name) for name in ("a1", "a2", "b[1]", "a*", "a[12]", "*/*", "x*")}
    assert matched([at["a*"]]) == ([], [at["a1"], at["a2"]])
    assert matched([at["a2"], at["a*"]]) == ([at["a2"]], [at["a1"]])
    assert matched([at["a[12]"], at["a*"]]) == ([], [at["a1"], at["a2"]])
    # A directory of that very name is no pattern.
    assert matched([at["b[1]"]]) == ([at["b[1]"]], [])
    # The quarantine of a spool is no spool of its own.
    shutil.copytree(at["a2"], tmp_path / "a1" / "quarantine")
    assert matched([at["*/*"]]) == ([at["*/*"]], [])
    assert matched([at["x*"]]) == ([at["x*"]], [])


def test_a_spool_that_comes_later_is_read_from_its_start(receive: Receive, tmp_path: Path) -> None:
    filled(receive, tmp_path / "a", 10)
    for start, first in (("latest", []), ("committed", [*range(10)])):
        reader = stream(tmp_path / "*", consumer=f"of-{start}", startingPosition=start)
        at, found = read(reader, reader.initialOffset())
        assert found == first
        name = f"later-{start}"
        newcomer = filled(receive, tmp_path / name, 5)
        at, found = read(reader, at)
        assert found == [*range(5)]
        reader.stop()
        # With a mark of its own the spool goes on there.
        marked = receive(tmp_path / f"marked-{start}")
        marked.send(numbered(0, 8))
        Spool(marked.spool).add_consumer(f"of-{start}", 3)
        again = stream(tmp_path / "*", consumer=f"of-{start}", startingPosition=start)
        _, found = read(again, at)
        assert found == [3, 4, 5, 6, 7]
        again.stop()
        for receiver in (newcomer, marked):
            receiver.stop()
            receiver.spool.rename(tmp_path.parent / f"{tmp_path.name}-{receiver.spool.name}")


def test_a_spool_that_comes_back_goes_on_at_its_mark(receive: Receive, tmp_path: Path) -> None:
    receivers = {name: filled(receive, tmp_path / "in" / name, 10) for name in ("a", "b", "c")}
    for receiver in receivers.values():
        receiver.stop()
    away = tmp_path / "away"
    away.mkdir()
    options = {"consumer": "lake", "failOnDataLoss": "false"}
    reader = stream(tmp_path / "in" / "*", **options)
    at, found = read(reader, reader.initialOffset())
    assert found == sorted([*range(10)] * 3)
    at, _ = read(reader, at)

    def carry(name: str, *, back: bool = False) -> None:
        there, here = away / name, tmp_path / "in" / name
        (there if back else here).rename(here if back else there)

    # It goes and comes back while the query runs.
    carry("b")
    at, found = read(reader, at)
    assert found == []
    carry("b", back=True)
    at, found = read(reader, at)
    assert found == [], "its mark stands at its end"
    at, _ = read(reader, at)
    # One comes back when another goes, over a restart.
    carry("c")
    at, _ = read(reader, at)
    at, _ = read(reader, at)
    reader.stop()
    again = stream(tmp_path / "in" / "*", **options)
    carry("c", back=True)
    carry("b")
    _, found = read(again, at)
    assert found == []
    again.stop()


def test_a_new_spool_starts_where_it_is_told_also_beside_a_loss(
    receive: Receive, tmp_path: Path
) -> None:
    paths = [filled(receive, tmp_path / name, 50).spool for name in ("a", "b", "c")]
    options = {"consumer": "lake", "failOnDataLoss": "false"}
    reader = stream(f"{paths[0]},{paths[1]}", **options)
    at, _ = read(reader, reader.initialOffset())
    reader.stop()
    told = stream(f"{paths[0]},{paths[2]}", startingOffsets=f'{{"{paths[2]}":30}}', **options)
    _, found = read(told, at)
    assert found == [*range(30, 50)]
    told.stop()


def test_a_spool_of_a_pattern_that_is_gone_ends_the_query(receive: Receive, tmp_path: Path) -> None:
    both = [filled(receive, tmp_path / name, 4) for name in ("a", "b")]
    reader = stream(tmp_path / "*", consumer="c")
    at, _ = read(reader, reader.initialOffset())
    both[0].stop()
    both[0].spool.rename(tmp_path.parent / f"{tmp_path.name}-gone")
    with pytest.raises(SpoolError, match=r"spool.gone: the checkpoint counts positions of spool"):
        reader.latestOffset(at, ALL)
    reader.stop()


def test_the_plans_stay_where_they_were_when_a_spool_comes(
    receive: Receive, tmp_path: Path
) -> None:
    both = [filled(receive, tmp_path / name, 4) for name in ("one", "two")]
    later, first = sorted(both, key=lambda one: Spool(one.spool).uuid)
    later.stop()
    later.spool.rename(tmp_path / "away")
    pattern = str(tmp_path / "[ot]*")
    reader = stream(pattern, consumer="c")
    at, _ = read(reader, reader.initialOffset())
    first.send(numbered(4, 4))
    read(reader, at)
    reader.stop()
    assert plans_file(str(first.spool), "c").exists()
    (tmp_path / "away").rename(later.spool)
    # The batch that was planned from here is planned the same again, without the newcomer.
    again = stream(pattern, consumer="c")
    end = again.latestOffset(at, ALL)
    assert sorted(positions(again, at, end)) == [4, 5, 6, 7]
    again.stop()
    assert not plans_file(str(later.spool), "c").exists()


def test_a_pattern_without_a_spool_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"spool.gone: there is no spool in .*/none-\*"):
        spark.read.format("ackline").load(f"{tmp_path}/none-*").count()
    given = {"spool": "/spools/*", "consumer": "c", "listen": "lumberjack://127.0.0.1:0"}
    with pytest.raises(UsageError, match="listen needs exactly one spool"):
        stream_options(given)


@pytest.mark.timeout(240)
def test_a_query_meets_a_spool_that_comes_while_it_runs(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    spools = tmp_path / "spools"
    filled(receive, spools / "a", 10)
    reader = spark.readStream.format("ackline").options(consumer="lake", startingPosition="latest")
    query = (
        reader.load(f"{spools}/*")
        .selectExpr("spool", "position")
        .writeStream.format("memory")
        .queryName("newcomers")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    query.processAllAvailable()
    newcomer = filled(receive, spools / "b", 7)
    query.processAllAvailable()
    query.stop()
    rows = spark.table("newcomers").collect()
    uuid = Spool(newcomer.spool).uuid
    assert sorted(rows) == [(uuid, position) for position in range(7)]
    assert spark.read.format("ackline").load(f"{spools}/?").count() == 17
