"""The jar: Spark reads by Java and Rust what the source in Python reads."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, Receiver, numbered, until
from kill_test import family
from py4j.protocol import Py4JJavaError
from pyspark.sql.functions import pandas_udf
from queries import OF_PYTHON, register_python

from ackline.spark.jar import PYTHON, path

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

EVENTS = [
    b'{"message":"a","n":1,"log":{"level":"info"},"tags":["x",null],"sizes":{"a":1}}',
    b'{"message":"b","n":"many","log.level":"warn","new":true}',
    b"{broken",
    b'{"message":null,"n":-4,"log":null}',
    b"[1]",
    *(b'{"message":"%d","n":%d}' % (n, n) for n in range(5_000)),
]
JSON = (
    "position BIGINT, message STRING, n BIGINT, log STRUCT<level: STRING>, tags ARRAY<STRING>, "
    "sizes MAP<STRING, INT>, _rescued STRING, _corrupt_record STRING, "
    "attributes MAP<STRING, STRING>"
)


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("jar") / "spool"
    receiver = Receiver(directory).start()
    receiver.send(EVENTS)
    receiver.stop()
    return directory


def children(pid: int) -> dict[int, str]:
    """Return the processes below another, with their command lines."""
    found: dict[int, str] = {}
    for each in family(pid)[1:]:
        # It may have ended meanwhile.
        with suppress(OSError):
            words = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
            found[each] = b" ".join(words).decode().strip()
    return found


def planners() -> list[int]:
    return [pid for pid, line in children(os.getpid()).items() if "ackline.spark.planner" in line]


def both(spark: SparkSession, spool: Path, schema: str | None, **options: str) -> list[DataFrame]:
    register_python(spark)
    readers = [spark.read.format(name) for name in ("ackline", OF_PYTHON)]
    readers = [reader.option("spool", str(spool)).options(**options) for reader in readers]
    return [reader.load() if schema is None else reader.schema(schema).load() for reader in readers]


def test_the_wheel_has_the_jar() -> None:
    jar = path()
    assert jar is not None
    named = subprocess.run(
        [sys.executable, "-m", "ackline.spark.jar"], capture_output=True, text=True, check=True
    )
    assert named.stdout == f"{jar}\n"


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (None, {}),
        (None, {"columns": "payload,position"}),
        (None, {"columns": "position,digest", "digest": "true"}),
        (JSON, {}),
        (JSON, {"mode": "DROPMALFORMED"}),
        (JSON, {"rescuedDataColumn": "", "maxPartitions": "3"}),
        ("at BIGINT, message STRING", {"eventColumns": "at=position"}),
        (None, {"payload": "variant"}),
        (None, {"reactive.element": "first:u8,_:bytes[5],last:u16"}),
        (None, {"start": "100", "end": "200", "repeats": "skip"}),
    ],
)
def test_both_read_the_same(
    spark: SparkSession, spool: Path, schema: str | None, options: dict[str, str]
) -> None:
    of_java, of_python = both(spark, spool, schema, **options)
    assert of_java.schema == of_python.schema
    # Neither maps nor variants can be compared.
    shown = [
        f"CAST(`{name}` AS STRING)" if "map" in kind or kind == "variant" else f"`{name}`"
        for name, kind in of_java.dtypes
    ]
    first, second = (frame.selectExpr(*shown) for frame in (of_java, of_python))
    assert first.count() == second.count() > 0
    assert first.exceptAll(second).count() == second.exceptAll(first).count() == 0


def test_what_a_query_does_not_use_is_not_read(spark: SparkSession, spool: Path) -> None:
    frame = spark.read.format("ackline").option("spool", str(spool)).load()

    def scanned(used: DataFrame) -> str:
        plan = used._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
        return plan[plan.index("ackline struct<") :].partition("\n")[0]

    assert scanned(frame.groupBy().count()).startswith("ackline struct<>")
    assert scanned(frame.select("position")).startswith("ackline struct<position:bigint>")
    assert frame.count() == len(EVENTS)
    assert frame.select("position").distinct().count() == len(EVENTS)
    nested = spark.read.format("ackline").option("spool", str(spool)).schema(JSON).load()
    assert nested.where("log.level = 'info'").select("message").collect()[0][0] == "a"
    assert nested.groupBy("message").count().where("message = '7'").collect()[0][1] == 1


@pytest.mark.parametrize("events", [10, 5_000])
def test_functions_of_python_get_the_rows_that_they_stand_beside(
    spark: SparkSession, spool: Path, events: int
) -> None:
    """Spark writes many batches to a function before it joins its results with their columns."""
    frame = spark.read.format("ackline").option("end", str(events)).load(str(spool))

    beside = pandas_udf(lambda values: values, "bigint")("position")
    texts = pandas_udf(lambda values: values.astype(str), "string")("position")
    joined = frame.select("position", "payload", beside.alias("p"), texts.alias("t"))
    assert joined.where("position <> p OR t <> string(position)").count() == 0
    rows = joined.collect()
    assert [row.p for row in rows] == [row.position for row in rows] == list(range(events))
    assert [bytes(row.payload) for row in rows] == EVENTS[:events]
    doubled = frame.select("position").mapInArrow(lambda batches: batches, "position BIGINT")
    assert doubled.distinct().count() == events


def test_an_operator_that_leaves_early_harms_nothing(spark: SparkSession, spool: Path) -> None:
    """Its input is read by a thread that may still run when the task has ended."""
    frame = spark.read.format("ackline").load(str(spool))
    frame.createOrReplaceTempView("left_early")

    def first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield next(batches).slice(0, 1)

    for _ in range(5):
        using = "SELECT TRANSFORM(position) USING 'head -n 1' AS (first STRING) FROM left_early"
        # Spark fails the task if the program ended before Spark had written all rows to it.
        try:
            assert spark.sql(using).collect()[0].first == "0"
        except Py4JJavaError as error:
            if not re.search("Broken pipe|Stream closed", str(error)):
                raise
        early = frame.select("position").coalesce(1).mapInArrow(first, "position BIGINT")
        assert early.collect()[0].position == 0
        assert frame.select("position").rdd.map(lambda row: row.position).take(1) == [0]
        assert len(frame.limit(3).collect()) == 3
    frame.cache()
    assert frame.count() == len(EVENTS)
    assert [bytes(row.payload) for row in frame.orderBy("position").collect()] == EVENTS
    frame.unpersist()


def test_the_jar_needs_no_listener_in_python(spark: SparkSession) -> None:
    streams: Any = spark._jsparkSession.streams()
    assert len(streams.listListeners()) == 0


def test_dropmalformed_counts_the_rows_that_it_has(spark: SparkSession, spool: Path) -> None:
    reader = spark.read.format("ackline").option("spool", str(spool)).schema(JSON)
    dropped = reader.option("mode", "DROPMALFORMED").load()
    assert dropped.count() == len(dropped.collect()) == len(EVENTS) - 2


PROGRAM = """
import sys
from pyspark.sql import SparkSession
import ackline.spark

spool, checkpoint, out, master, cores = sys.argv[1:]
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
builder = builder.config("spark.task.cpus", cores)
session = builder.config("spark.driver.memory", "600m").getOrCreate()
ackline.spark.register(session)
stream = session.readStream.format("ackline").option("consumer", f"lean{len(master)}").load(spool)
writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
query = writer.start(out)
query.processAllAvailable()
print("rows", session.read.parquet(out).count(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("master", "cores"), [("local[2]", 2), ("local-cluster[2,1,1024]", 1)], ids=["local", "cluster"]
)
def test_a_query_has_no_python_worker(spool: Path, tmp_path: Path, master: str, cores: int) -> None:
    """In a session of its own: other tests start workers in the session that they share."""
    paths = [str(spool), str(tmp_path / "checkpoint"), str(tmp_path / "out")]
    arguments = [*paths, master, str(cores)]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == f"rows {len(EVENTS)}\n"
        below = children(program.pid)
        program.stdin.close()
    of_python = [line for line in below.values() if "python" in line.partition(" ")[0]]
    assert [line.partition(" ")[2] for line in of_python] == ["-P -m ackline.spark.planner"]


ONE_REQUEST = """
import sys
from pyspark.sql import SparkSession
from ackline.spark.jar import path

spool, checkpoint, out, python = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.jars", path()).config("spark.ackline.python", python)
session = builder.config("spark.driver.memory", "600m").getOrCreate()
stream = session.readStream.format("ackline").options(consumer="one", maxRowsPerBatch=1_000)
writer = stream.load(spool).writeStream.format("parquet").option("checkpointLocation", checkpoint)
assert writer.trigger(availableNow=True).start(out).awaitTermination(60)
print("rows", session.read.parquet(out).count(), flush=True)
"""


def test_one_request_plans_a_batch(spool: Path, tmp_path: Path) -> None:
    requests = tmp_path / "requests"
    between = tmp_path / "python3"
    between.write_text(f'#!/bin/sh\ntee {requests} | {sys.executable} "$@"\n', encoding="utf-8")
    between.chmod(0o700)
    arguments = [str(spool), str(tmp_path / "checkpoint"), str(tmp_path / "out"), str(between)]
    done = subprocess.run(
        [sys.executable, "-c", ONE_REQUEST, *arguments],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == f"rows {len(EVENTS)}\n"
    calls = [json.loads(line)["call"] for line in requests.read_text(encoding="utf-8").splitlines()]
    batches = -(-len(EVENTS) // 1_000)
    # The last one finds no events.
    assert calls.count("latest") == batches + 1
    assert set(calls) == {"schema", "open", "pin", "initial", "latest", "close"}


@pytest.mark.parametrize(("first", "second"), [("ackline", OF_PYTHON), (OF_PYTHON, "ackline")])
def test_one_continues_what_the_other_has_begun(
    spark: SparkSession, tmp_path: Path, first: str, second: str
) -> None:
    register_python(spark)
    receiver = Receiver(tmp_path / "spool").start()
    for turn, name in enumerate((first, second, first)):
        receiver.send(numbered(turn * 100, 100))
        stream = spark.readStream.format(name).option("spool", str(tmp_path / "spool"))
        query = (
            stream.option("consumer", "lake")
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(60)
        assert query.exception() is None
        assert spark.read.parquet(str(tmp_path / "out")).count() == (turn + 1) * 100
    receiver.stop()
    positions = spark.read.parquet(str(tmp_path / "out")).select("position").distinct()
    assert positions.count() == 300


def test_a_killed_planner_ends_its_queries_and_the_next_one_starts_another(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    def start() -> object:
        stream = spark.readStream.format("ackline").option("consumer", "killed").load(str(spool))
        noop = stream.writeStream.format("noop")
        return noop.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start()
    until(lambda: query.lastProgress, "the first batch")
    (planner,) = planners()
    os.kill(planner, signal.SIGKILL)
    until(lambda: not query.isActive, "the end of the query")
    assert "the process that plans ackline's queries ended with status 137" in str(
        query.exception()
    )
    again = start()
    until(lambda: again.lastProgress, "the first batch again")
    assert planners() not in ([], [planner])
    again.stop()
    assert spark.read.format("ackline").load(str(spool)).count() == len(EVENTS)


def test_a_python_without_ackline_is_named(spark: SparkSession, spool: Path) -> None:
    (planner,) = planners() or [None]
    if planner is not None:
        os.kill(planner, signal.SIGKILL)
    of_java: Any = spark._jvm
    system = of_java.java.lang.System
    own = system.getProperty(PYTHON)
    until(lambda: not planners(), "the end of the planner")
    try:
        for python, text in (
            ("/no/python", "cannot start /no/python -P -m ackline.spark.planner"),
            ("/usr/bin/env", "ended with status .* set spark.ackline.python to a Python in which"),
        ):
            system.setProperty(PYTHON, python)
            with pytest.raises(Exception, match=text):
                spark.read.format("ackline").load(str(spool))
    finally:
        system.setProperty(PYTHON, own)
    assert spark.read.format("ackline").load(str(spool)).count() == len(EVENTS)


def test_metrics_of_the_source_tell_the_lag(
    spark: SparkSession, spool: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("ackline").option("maxRowsPerBatch", "1000")
    query = (
        stream.load(str(spool))
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    metrics = [progress["sources"][0]["metrics"] for progress in query.recentProgress]
    behind = [int(one["rows_behind"]) for one in metrics]
    assert behind[0] == len(EVENTS) - 1000
    assert behind[-1] == 0
    assert all(float(one["seconds_behind"]) >= 0 for one in metrics)
