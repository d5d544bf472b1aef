"""Sessions that find the source by themselves: `spark-sql`, a Scala shell, and Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from harness import HOST, Receiver, numbered

from ackline import Spool
from ackline.spark.jar import path

if TYPE_CHECKING:
    from collections.abc import Callable

    Receive = Callable[..., Receiver]

SPARK = Path(pyspark.__file__).parent
CONFIGURED = (
    "--master=local[2]",
    "--conf=spark.ui.enabled=false",
    "--conf=spark.driver.memory=600m",
    "--conf=spark.sql.catalogImplementation=in-memory",
)
SERVER = """
import sys
from pyspark.sql import SparkSession

names = dict(pair.split("=", 1) for pair in sys.argv[1:])
builder = SparkSession.builder.master("local[2]")
for name, value in names.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
print("ready", flush=True)
sys.stdin.readline()
"""
CLIENT = """
import sys
from pyspark.sql import SparkSession

import ackline.spark

url, spool, checkpoint = sys.argv[1:]
session = SparkSession.builder.remote(url).getOrCreate()
for _ in range(2):
    print("rows", session.read.format("ackline").load(spool).count(), flush=True)
    # From here on it is the session's own source.
    ackline.spark.register(session)
query = (
    session.readStream.format("ackline")
    .option("consumer", "lake")
    .load(spool)
    .writeStream.format("noop")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
print("ended", query.awaitTermination(60))
"""


def environment() -> dict[str, str]:
    return os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST}


def run(tool: str, directory: Path, *arguments: str, text: str = "") -> str:
    """Return what a program of Spark prints."""
    done = subprocess.run(
        [str(SPARK / "bin" / tool), *CONFIGURED, *arguments],
        cwd=directory,
        env=environment(),
        input=text,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("jars", [[], [f"--jars={path()}"]], ids=["python", "jar"])
def test_spark_sql_reads_and_writes_tables(
    receive: Receive, tmp_path: Path, jars: list[str]
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    url = f"lumberjack://{HOST}:{receiver.port}"
    out = run(
        "spark-sql",
        tmp_path,
        *jars,
        f"--conf=spark.sql.warehouse.dir={tmp_path / 'warehouse'}",
        "-e",
        f"""
        CREATE TABLE logs USING ackline OPTIONS (spool '{receiver.spool}');
        CREATE TABLE target (payload BINARY) USING ackline;
        SELECT 'before', count(*), max(position) FROM logs;
        INSERT INTO target WITH (url '{url}', payload 'raw')
            SELECT payload FROM logs WHERE position < 5;
        SELECT 'after', count(*), max(position) FROM logs;
        """,
    )
    assert "before\t30\t29\n" in out
    assert "after\t35\t34\n" in out


@pytest.mark.parametrize("jars", [[], [f"--jars={path()}"]], ids=["python", "jar"])
def test_a_scala_shell_reads_a_spool(receive: Receive, tmp_path: Path, jars: list[str]) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    scala = f"""
    val events = spark.read.format("ackline").load("{receiver.spool}")
    println("rows " + events.where("position >= 10").count())
    sys.exit(0)
    """
    assert "rows 20\n" in run("spark-shell", tmp_path, *jars, text=scala)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("jars", [{}, {"spark.jars": path()}], ids=["python", "jar"])
def test_spark_connect_reads_with_and_without_register(
    receive: Receive, tmp_path: Path, port: int, jars: dict[str, str]
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    options = jars | {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "600m",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
    }
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, *(f"{name}={value}" for name, value in options.items())],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        arguments = [f"sc://{HOST}:{port}", str(receiver.spool), str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, *arguments],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["rows 30", "rows 30", "ended True"]
    finally:
        server.communicate("\n", timeout=60)
    (lake,) = Spool(receiver.spool).consumers()
    assert (lake.name, lake.committed) == ("lake", 30)
