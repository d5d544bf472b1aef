"""One Spark session for all tests, and receivers that end with theirs."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest
from harness import HOST, Receiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("default::ResourceWarning"))
        item.add_marker(pytest.mark.filterwarnings("default::DeprecationWarning"))
        item.add_marker(pytest.mark.filterwarnings("default::UserWarning"))
        item.add_marker(pytest.mark.filterwarnings("default::FutureWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    import ackline.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ackline-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "600m")
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        # A worker that starts on a busy machine may need longer than the default of 15 s.
        .config("spark.python.authenticate.socketTimeout", "60s")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    session = ackline.spark.tuned(builder).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    ackline.spark.register(session)
    yield session
    session.stop()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Start receivers; each is ended with the test."""
    started: list[Receiver] = []

    def start(spool: Path, **options: Any) -> Receiver:
        started.append(Receiver(spool, **options).start())
        return started[-1]

    yield start
    for receiver in started:
        receiver.kill()


@pytest.fixture
def replaced() -> Callable[[Path, Path], None]:
    """Replace a directory by a copy of another."""

    def replace(directory: Path, copy: Path) -> None:
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)

    return replace


@pytest.fixture
def port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])
