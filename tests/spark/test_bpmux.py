"""A stream over a spool that senders of bpmux fill, whose receiver is killed on the way."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from queries import Query

from ackline import _core, bpmux
from ackline.exceptions import AcklineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def sent(link: bpmux.Connection, opening: str, texts: list[bytes]) -> None:
    """A sink with these messages, whose close is acknowledged."""
    sink = link.open_sink(opening.encode(), timeout=30)
    sink.send_many(texts, timeout=30)
    sink.close(str(len(texts)).encode(), timeout=30)


def test_a_stream_has_each_message_with_its_sink_or_request(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", scheme="bpmux")
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="table")
    with bpmux.connect(f"bpmux://127.0.0.1:{receiver.port}") as link:
        sent(link, "orders", [b"one", b"two"])
        running = query.start(processingTime="0 seconds")
        try:
            running.processAllAvailable()
            sent(link, "", [b"\xff"])
            link.call(b"asked", timeout=30)
            running.processAllAvailable()
        finally:
            running.stop()
    rows = query.rows().orderBy("position").collect()
    found = [(row.stream, row.sequence, bytes(row.payload), row.attributes) for row in rows]
    by = {"receiver.url": f"bpmux://127.0.0.1:{receiver.port}"}
    sink = by | {"bpmux.kind": "sink"}
    orders = sink | {"bpmux.opening": "orders"}
    assert found == [
        ("0", 0, b"one", orders),
        ("0", 1, b"two", orders),
        ("0.2", 0, b"\xff", sink),
        (None, 0, b"asked", by | {"bpmux.kind": "request"}),
    ]
    assert {(row.protocol, row.repeat, row.parts) for row in rows} == {("bpmux", False, None)}
    assert len({row.link for row in rows}) == 1
    assert all(row.peer.startswith("127.0.0.1:") for row in rows)
    assert {row.spool for row in rows} == {_core.Spool(str(receiver.spool)).uuid}


def test_acknowledged_messages_are_in_the_table_once_however_the_receiver_dies(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", scheme="bpmux", arguments=("--ack", "committed=table"))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="table")
    running = query.start(processingTime="0 seconds")
    kept: dict[str, list[bytes]] = {}
    try:
        for life in range(3):
            url = f"bpmux://127.0.0.1:{receiver.port}"
            # Leaving `with` raises too: the last sink is lost with the receiver.
            with contextlib.suppress(AcklineError), bpmux.connect(url) as link:
                for number in range(3):
                    name = f"{life}.{number}"
                    texts = [f"{name}/{at}".encode() for at in range(500)]
                    sent(link, name, texts)
                    kept[name] = texts
                # Of this one nothing is acknowledged.
                link.open_sink(b"cut").send_many([b"x" * 1_000] * 100, timeout=30)
                receiver.kill()
            receiver.start()
        running.processAllAvailable()
    finally:
        running.stop()
    assert len(kept) == 9
    landed = defaultdict(list)
    for row in query.rows().orderBy("position").collect():
        landed[row.attributes["bpmux.opening"]].append(bytes(row.payload))
    for name, texts in kept.items():
        assert landed[name] == texts, "whole, in order and once"
    assert landed.keys() <= kept.keys() | {"cut"}
