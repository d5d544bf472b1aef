"""Log lines of Spark's Python processes: time, level and query."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Receive = Callable[..., Receiver]

TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z "


def told_by(script: str, timeout: float = 60.0) -> str:
    """Return standard error of a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def lines(text: str, code: str) -> list[str]:
    return [line for line in text.splitlines() if f"code={code}" in line]


PLANNING = """
from ackline.spark.options import stream_options
from ackline.spark.source import StreamReader

options = stream_options({"spool": "SPOOL", "startingPosition": "earliest"})
reader = StreamReader(options, None)
start = reader.initialOffset()
reader.latestOffset(start, reader.getDefaultReadLimit())
"""


def test_a_warning_of_a_stream_has_time_level_and_query_and_comes_once(
    receive: Receive, tmp_path: Path
) -> None:
    receive(tmp_path / "spool").send(numbered(0, 10))
    told = lines(told_by(PLANNING.replace("SPOOL", str(tmp_path / "spool"))), "spark.no_consumer")
    assert len(told) == 1, told
    query = re.escape(f"[query with no consumer of spool {tmp_path / 'spool'}]")
    assert re.search(TIME + r"WARNING ackline\.spark: .* code=spark\.no_consumer " + query, told[0])


def test_a_process_that_configures_logging_keeps_its_own_lines(
    receive: Receive, tmp_path: Path
) -> None:
    receive(tmp_path / "spool").send(numbered(0, 10))
    own = "import logging\nlogging.basicConfig(format='mine %(message)s')\n" + PLANNING
    told = lines(told_by(own.replace("SPOOL", str(tmp_path / "spool"))), "spark.no_consumer")
    assert len(told) == 1, told
    assert told[0].startswith("mine the ackline stream has no option consumer")


def test_the_query_of_a_line_is_the_one_that_the_process_works_for_now() -> None:
    script = """
import logging
from ackline.spark.logs import log_to_stderr

for query, level in (("first", logging.INFO), ("second", logging.WARNING)):
    log_to_stderr(query, level)
    logging.getLogger("ackline.spark").info("said code=spark.listening")
"""
    told = lines(told_by(script), "spark.listening")
    assert [line.rpartition(" ")[2] for line in told] == ["[first]", "[second]"]
    assert all(re.match(TIME + "INFO ackline.spark: said", line) for line in told)


SPARK = """
import sys
from pyspark.sql import SparkSession
import ackline.spark

spark = ackline.spark.tuned(SparkSession.builder.master("local[1]")).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
ackline.spark.register(spark)
events = spark.readStream.format("ackline").option("spool", "SPOOL").load()
query = (
    events.selectExpr("position")
    .writeStream.format("ackline")
    .option("url", "URL")
    .option("checkpointLocation", "CHECKPOINT")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print("id", query.id, file=sys.stderr)
spark.range(3).write.format("ackline").mode("append").option("url", "URL").save()
"""


@pytest.mark.timeout(240)
def test_warnings_in_a_real_query_name_it_in_its_process_and_in_its_tasks(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 10))
    # The first host is not reached, which the sink's task warns of.
    closed = "127.0.0.1:1"
    script = (
        SPARK.replace("SPOOL", str(tmp_path / "spool"))
        .replace("CHECKPOINT", str(tmp_path / "checkpoint"))
        .replace("URL", f"lumberjack://{closed},127.0.0.1:{receiver.port}")
    )
    told = told_by(script, timeout=200)
    (planned,) = lines(told, "spark.no_consumer")
    assert re.search(TIME + "WARNING ackline.spark: ", planned)
    assert planned.endswith(f"[query with no consumer of spool {tmp_path / 'spool'}]")
    streams, batches = (
        [line for line in lines(told, "sender.not_connected") if kind in line]
        for kind in ("[query ", "[batch query, ")
    )
    query = next(line.split()[1] for line in told.splitlines() if line.startswith("id "))
    part = r"partition \d+ attempt 0\]$"
    for sinks, name in ((streams, f"query {query} batch 0"), (batches, r"batch query, stage \d+")):
        assert sinks, told
        assert re.search(TIME + rf"WARNING ackline.*\[{name} {part}", sinks[0])
