"""A receiver inside the query's process."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from harness import HOST, LumberjackSender, Receiver, numbered, until
from queries import Query, durable, mark

from ackline import reactive
from ackline.exceptions import SpoolError, UsageError
from ackline.spark import embedded
from ackline.spark.options import ListenOptions, stream_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def deliver(port: int, events: list[bytes]) -> None:
    """Send a window again and again until it is acknowledged, as a sender does."""

    def attempt() -> bool:
        try:
            with LumberjackSender(port) as sender:
                sender.send(events)
                return sender.acknowledged() == len(events)
        except ConnectionError:
            return False

    until(attempt, "the embedded receiver acknowledges")


def test_options_of_the_embedded_receiver_are_handed_on() -> None:
    given = {
        "spool": "/s",
        "consumer": "c",
        "listen": "lumberjack://a:1, lumberjack://b:2",
        "budget": "1GiB",
        "memory": "64MiB",
        "receiver.max_window_events": "100",
        "receiver.max_json_bytes": "1.5M",
        "receiver.idle_timeout_ms": "900000",
        # No number of milliseconds: the receiver refuses it by its name.
        "receiver.stall_timeout_ms": "5m",
        "receiver.no-window": "refuse",
        "receiver.allow_unsafe_filesystem": "true",
        "group": "true",
    }
    found = stream_options(given).listen
    assert found is not None
    assert found.urls == ("lumberjack://a:1", "lumberjack://b:2")
    assert dict(found.options) == {
        "ack": "committed=c",
        "budget": 1 << 30,
        "memory": 64 << 20,
        # Texts are read where the receiver is.
        "max_window_events": "100",
        "max_json_bytes": "1.5M",
        "idle_timeout_ms": 900_000,
        "stall_timeout_ms": "5m",
        "no_window": "refuse",
        "allow_unsafe_filesystem": "true",
        "group": True,
    }
    durable_acks = stream_options(given | {"ack": "durable"}).listen
    assert durable_acks is not None
    assert dict(durable_acks.options)["ack"] == "durable"


def test_a_part_of_the_embedded_receiver_is_no_size() -> None:
    options = {"spool": "/s", "consumer": "c", "listen": "lumberjack://a:1"}
    listen = stream_options(options | {"receiver.max_sender_share": "0.25"}).listen
    assert listen is not None
    assert dict(listen.options)["max_sender_share"] == "0.25"


@pytest.mark.parametrize(
    ("given", "meant"),
    [("max_connection", "max_connections"), ("keepalives", "keepalive"), ("bugdet", "budget")],
)
def test_a_misspelt_option_of_the_embedded_receiver_is_answered_with_the_nearest(
    given: str, meant: str
) -> None:
    options = {"spool": "/s", "consumer": "c", "listen": "lumberjack://a:1"}
    says = rf"no option receiver.{given} of a receiver \(did you mean receiver.{meant}\?\)"
    with pytest.raises(UsageError, match=says):
        stream_options(options | {f"receiver.{given}": "1"})
    with pytest.raises(UsageError, match=r"no option receiver.zzzzzzzz of a receiver$"):
        stream_options(options | {"receiver.zzzzzzzz": "1"})


def test_an_ack_means_that_the_query_has_committed(
    spark: SparkSession, tmp_path: Path, port: int
) -> None:
    spool = tmp_path / "spool"
    query = Query(
        spark, tmp_path, spool=str(spool), consumer="c", listen=f"lumberjack://{HOST}:{port}"
    )
    for first in (0, 10, 20):
        # Each start comes while the process of the one before may still have port and spool.
        running = query.start(processingTime="0 seconds")
        deliver(port, numbered(first, 10))
        # Events that an ending process had taken and not acknowledged came twice.
        assert set(query.payloads()) == set(numbered(0, first + 10))
        assert query.positions() == list(range(mark(spool, "c") or 0))
        running.stop()


def test_durable_acks_do_not_wait_for_the_query(
    spark: SparkSession, tmp_path: Path, port: int
) -> None:
    spool = tmp_path / "spool"
    query = Query(
        spark,
        tmp_path,
        spool=str(spool),
        consumer="c",
        listen=f"lumberjack://{HOST}:{port}",
        ack="durable",
    )
    running = query.start(processingTime="0 seconds")
    deliver(port, numbered(0, 10))
    assert durable(spool) == 10
    running.processAllAvailable()
    running.stop()
    assert query.positions() == list(range(10))


def test_a_query_subscribes_to_a_publisher(spark: SparkSession, tmp_path: Path) -> None:
    numbers = np.arange(5_000, dtype="<f8")
    with reactive.listen(f"reactive://{HOST}:0") as listener:
        serving = threading.Thread(target=lambda: listener.serve({"numbers": numbers}))
        serving.start()
        query = Query(
            spark,
            tmp_path,
            spool=str(tmp_path / "spool"),
            consumer="c",
            connect=f"{listener.url}/numbers",
            **{"reactive.element": "f64", "receiver.demand": "100"},
        )
        running = query.start(processingTime="0 seconds")
        spool = tmp_path / "spool"
        kept = lambda: (spool / "durable").exists() and durable(spool)  # noqa: E731 (one use)
        until(lambda: kept() == len(numbers), "every element is kept")
        running.processAllAvailable()
        running.stop()
        rows = query.rows().select("element", "stream").collect()
        assert sorted(row.element for row in rows) == numbers.tolist()
        assert {row.stream for row in rows} == {"numbers"}
        listener.close()
        serving.join(60)


def test_a_spool_that_another_receiver_fills_is_refused_after_a_wait(
    receive: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "WAIT_SECONDS", 0.3)
    receiver = receive(tmp_path / "spool")
    options = ListenOptions((f"lumberjack://{HOST}:0",), ())
    with pytest.raises(SpoolError) as error:
        embedded.Embedded(str(receiver.spool), options).start()
    assert error.value.code == "spool.locked"


def test_it_listens_once_and_its_end_keeps_received_events(tmp_path: Path) -> None:
    code = f"""
import sys
from ackline.spark.embedded import Embedded
from ackline.spark.options import ListenOptions
one = Embedded({str(tmp_path / "spool")!r}, ListenOptions(("lumberjack://{HOST}:0",), ()))
try:
    one.start()
    one.start()
    print(one._receiver.urls[0], flush=True)
    sys.stdin.read()
finally:
    one.stop()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, process.stdout:
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        with LumberjackSender(port) as sender:
            sender.send(numbered(0, 10))
            sender.acknowledged()
            process.terminate()
            assert process.wait(30) == 0
    assert durable(tmp_path / "spool") == 10
