"""The table of `docs/spark-from-kafka.md`: each row in one process, and in several."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import HOST
from kafka_rows import ROWS

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "spark-from-kafka.md"


def test_each_row_of_the_table_is_tried() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    assert cells[0] == "Spark's Kafka source"
    assert cells[2:] == [*ROWS]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_each_row_of_the_table_holds(tmp_path: Path, master: str) -> None:
    tried = subprocess.run(
        [sys.executable, str(HERE / "kafka_rows.py"), master, str(tmp_path)],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert tried.returncode == 0, tried.stderr[-3_000:]
    assert tried.stdout.splitlines() == [*ROWS]
