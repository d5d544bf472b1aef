"""Delta and Iceberg tables: the programs of their pages, killed with -9, land each event once.

Delta Lake has no build for Spark 4.3, so its programs run with Spark 4.2. Iceberg's runtime for
Spark has none for either, so its programs write with PyIceberg, with the Spark of the environment.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from harness import HOST, numbered, until
from kill_test import family
from lakehouse import fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Receiver

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Path(__file__).with_name("lakehouse") / "run_program.py"
EVENTS = 1000
ROWS_PER_BATCH = 100
BLOCK = re.compile(r"<!-- example: lakehouse -->\n```python\n# (\w+\.py)\n(.*?)```", re.DOTALL)


def programs(kind: str) -> dict[str, str]:
    """The programs of a page, by the names in their first lines."""
    return dict(BLOCK.findall((ROOT / "docs" / f"spark-{kind}.md").read_text("utf-8")))


def environment(kind: str) -> dict[str, str]:
    found = os.environ | {"SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
    arguments = [
        "--master local[2] --driver-memory 600m",
        "--conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false",
        "--conf spark.sql.shuffle.partitions=2",
    ]
    if kind == "delta":
        first = fetch.spark42_path()
        arguments.append("--jars " + ",".join(map(str, fetch.delta_jars())))
        # Delta reads its log with 50 tasks otherwise, and lists a table with 10,000: minutes.
        arguments.append("--conf spark.databricks.delta.snapshotPartitions=1")
        arguments.append("--conf spark.sql.sources.parallelPartitionDiscovery.parallelism=2")
    else:
        first = fetch.pyiceberg_path()
    found["PYTHONPATH"] = os.pathsep.join([str(first), found.get("PYTHONPATH", "")])
    arguments.append("--driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1'")
    found["PYSPARK_SUBMIT_ARGS"] = " ".join([*arguments, "pyspark-shell"])
    return found


@dataclass
class Lakehouse:
    """The programs of a page, in the directory of a spool."""

    kind: str
    directory: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self, program: str, *arguments: str) -> None:
        script = self.directory / program
        script.write_text(programs(self.kind)[program], "utf-8")
        command = [sys.executable, str(RUNNER), program, "--kind", self.kind, *arguments]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.directory, env=self.environment, stdout=log, stderr=log
            )

    def ended(self) -> int:
        assert self.process is not None
        return self.process.wait(200)

    def run(self, program: str, *arguments: str) -> None:
        self.start(program, *arguments)
        assert self.ended() == 0, self.last_words()

    def kill(self) -> None:
        """End the driver, its JVM and their workers with -9."""
        if self.process is None or self.process.poll() is not None:
            return
        for pid in reversed(family(self.process.pid)):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait(30)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.last_words()
            return condition()

        until(is_so, what, 150)

    def last_words(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-5000:]

    def committed(self) -> int:
        """The last batch that Spark has committed; -1 for none."""
        commits = (self.directory / "checkpoint" / "commits").glob("[0-9]*")
        return max((int(file.name) for file in commits), default=-1)

    def begun(self) -> int:
        """The last batch that Spark has planned; -1 for none."""
        offsets = (self.directory / "checkpoint" / "offsets").glob("[0-9]*")
        return max((int(file.name) for file in offsets), default=-1)

    def written(self) -> int:
        """The last batch that Delta's log has; -1 for none."""
        found = -1
        for file in (self.directory / "table" / "_delta_log").glob("*.json"):
            for line in file.read_text("utf-8").splitlines():
                action = json.loads(line)
                found = max(found, action.get("txn", {}).get("version", -1))
        return found

    def files(self) -> int:
        """The files that a compacted table has."""
        return int((self.directory / "files").read_text("ascii"))

    def table(self, name: str = "events") -> pa.Table:
        with pa.memory_map(str(self.directory / f"{name}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()

    def check(self) -> None:
        """Every event is in the table, once, at its position."""
        rows = self.table().sort_by("position")
        assert rows["position"].to_pylist() == list(range(EVENTS))
        assert rows["payload"].to_pylist() == numbered(0, EVENTS)

    def doubled(self, name: str) -> list[int]:
        counts = Counter(self.table(name)["position"].to_pylist())
        assert counts.keys() == set(range(EVENTS))
        assert set(counts.values()) <= {1, 2}
        return sorted(position for position, count in counts.items() if count == 2)


@pytest.fixture
def lakehouse(
    request: pytest.FixtureRequest, receive: Receive, tmp_path: Path
) -> Iterator[Lakehouse]:
    kind = request.param
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, EVENTS), window=50)
    receiver.stop()
    made = Lakehouse(kind, tmp_path, environment(kind))
    yield made
    made.kill()


def of_batches(*numbers: int) -> list[int]:
    return [n * ROWS_PER_BATCH + row for n in numbers for row in range(ROWS_PER_BATCH)]


@pytest.mark.parametrize("lakehouse", ["delta"], indirect=True)
def test_a_stream_into_delta_that_is_killed_lands_each_event_once(lakehouse: Lakehouse) -> None:
    def repeats_a_batch() -> bool:
        """Kill between the commits of Delta and of Spark; whether it fell there."""
        before = lakehouse.committed()
        lakehouse.start("stream.py")
        lakehouse.until(lambda: lakehouse.written() > max(before, lakehouse.committed()), "a gap")
        lakehouse.kill()
        return lakehouse.written() > lakehouse.committed()

    lakehouse.start("stream.py")
    lakehouse.until(lambda: lakehouse.begun() > lakehouse.committed() >= 0, "a batch is begun")
    lakehouse.kill()
    assert any(repeats_a_batch() for _ in range(3)), "no kill fell between the two commits"
    assert lakehouse.committed() < EVENTS // ROWS_PER_BATCH - 1, "there were batches left"
    lakehouse.run("stream.py", "--drain")
    lakehouse.check()


@pytest.mark.parametrize("lakehouse", ["delta", "iceberg"], indirect=True)
def test_foreach_batch_that_is_killed_lands_each_event_once_by_the_number_of_the_batch(
    lakehouse: Lakehouse,
) -> None:
    at = ("--die-after", "2", "--die-after", "5")
    for number in (2, 5):
        lakehouse.start("foreach.py", "--plain", *at)
        assert lakehouse.ended() == -9, lakehouse.last_words()
        assert lakehouse.committed() == number - 1, "the batch is in the table, not in Spark's log"
    lakehouse.run("foreach.py", "--plain", "--drain")
    lakehouse.check()
    # An append without the number: the same kills double both batches.
    assert lakehouse.doubled("plain") == of_batches(2, 5)
    (lakehouse.directory / "events.arrow").unlink()
    lakehouse.run("compact.py")
    assert lakehouse.files() < EVENTS // ROWS_PER_BATCH, "small files became few"
    lakehouse.check()


@pytest.mark.parametrize(
    ("kind", "run"),
    [
        ("delta", {"stream.py", "foreach.py", "compact.py"}),
        ("iceberg", {"foreach.py", "compact.py"}),
    ],
)
def test_every_program_of_the_pages_is_run_here(kind: str, run: set[str]) -> None:
    page = (ROOT / "docs" / f"spark-{kind}.md").read_text("utf-8")
    assert programs(kind).keys() == run
    assert page.count("<!-- example: lakehouse -->") == page.count("```python") == len(run)


@pytest.mark.parametrize(("retries", "rows"), [(0, 1), (4, 2)])
def test_two_drivers_append_a_batch_to_iceberg_once_if_pyiceberg_repeats_no_commit(
    tmp_path: Path, retries: int, rows: int
) -> None:
    (tmp_path / "foreach.py").write_text(programs("iceberg")["foreach.py"], "utf-8")
    drivers = RUNNER.with_name("run_drivers.py")
    done = subprocess.run(
        [sys.executable, str(drivers), "foreach.py", str(retries)],
        cwd=tmp_path, env=environment("iceberg"), capture_output=True, text=True, check=True,
        timeout=100,
    )  # fmt: skip
    assert int(done.stdout.split()[-1]) == rows
