"""A consumer that does not keep up: the budget is full, senders wait, nothing is dropped."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogbeat
from conftest import until

import ackline

BATCHES = 60
BATCH = 8


def test_senders_wait_at_the_budget_and_go_on_when_the_consumer_does(
    receive: Callable[..., Any], spool: Path
) -> None:
    receiver = receive(
        *("--spool", str(spool), "--budget", "8MiB", "--segment-bytes", "1MiB"),
        memory=16 << 20,
    )
    # 40 kB each that do not deflate: 60 windows of 8 are 19 MB, more than twice the budget.
    batches = [[os.urandom(20_000).hex() for _ in range(BATCH)] for _ in range(BATCHES)]
    acked = 0

    def send() -> None:
        nonlocal acked
        # Without a timeout: this sender waits, as a Beat does as long as keepalives come.
        with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port) as client:
            for batch in batches:
                client.send(batch)
                acked += len(batch)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    paused = receiver.wait("paused", timeout=30)
    assert paused["reason"] == "budget"
    full = receiver.newer_stats()
    assert 0 < full["acked_events"] < BATCHES * BATCH
    assert full["spool_bytes"] <= 8 << 20
    assert full["paused"] == "budget"
    # Stalled and flat: the sender is alive and nothing more is acknowledged.
    assert receiver.newer_stats()["acked_events"] == full["acked_events"] == acked
    assert sender.is_alive()

    reader = ackline.Spool(str(spool))
    positions: list[int] = []

    def consume() -> bool:
        """Read new events, then commit them: their segments may go."""
        start, end = len(positions), reader.durable()
        if end > start:
            for table in reader.read(start, end, columns=["position", "payload"]):
                positions.extend(table["position"].to_pylist())
            reader.commit_mark("slow", end)
        return len(positions) == BATCHES * BATCH

    until(consume, "everything consumed", 60)
    sender.join(20)
    assert not sender.is_alive()
    assert acked == BATCHES * BATCH
    assert positions == list(range(BATCHES * BATCH))
    assert receiver.seen("resumed")
    assert receiver.stop() == 0
