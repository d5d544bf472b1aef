"""Shared parts of the sinks' tests: rows on their way to receivers, and their arrival."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ledger import TRANSACTIONS

from ackline import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

    Receive = Callable[..., Receiver]


def payloads(spool: Path) -> list[bytes]:
    """Return the payloads of a spool's events, in the order of their positions."""
    import pyarrow as pa

    view = _core.Spool(str(spool))
    events = view.read(columns=["payload"])
    return [payload.as_py() for batch in pa.table(events).to_batches() for payload in batch[0]]


def events(spool: Path) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in payloads(spool)]


def url(*receivers: Receiver) -> str:
    return "lumberjack://" + ",".join(f"127.0.0.1:{receiver.port}" for receiver in receivers)


def write(frame: DataFrame, to: str, **options: Any) -> None:
    frame.write.format("ackline").mode("append").options(url=to, **options).save()


def start(frame: DataFrame, checkpoint: Path, to: str, **options: str) -> StreamingQuery:
    return (
        frame.writeStream.format("ackline")
        .options(url=to, **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def drain(frame: DataFrame, checkpoint: Path, to: str, **options: str) -> None:
    query = start(frame, checkpoint, to, **options)
    assert query.awaitTermination(100), "the query drains"


def ids(found: list[dict[str, Any]]) -> list[int]:
    return sorted(event["id"] for event in found)


def listening(receive: Receive, spool: Path, *arguments: str) -> Receiver:
    place = f"/t{TRANSACTIONS}"
    return receive(spool, scheme="relink", place=place, arguments=arguments)


def url_of(receiver: Receiver) -> str:
    return f"relink://127.0.0.1:{receiver.port}/t"
