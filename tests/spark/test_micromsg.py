"""MicroMsg2 as a source: properties, typed JSON, and filters that a broker evaluates."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from broker import Topic
from harness import HOST, until
from queries import Query, durable, mark
from sinks import events, write

from ackline import micromsg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver
    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)

NOON = datetime(2026, 11, 21, 12, 0, 0, 250_000, UTC)
SCHEMA = (
    "position BIGINT, stream STRING, attributes MAP<STRING, STRING>, `@timestamp` TIMESTAMP, "
    "message STRING, log STRUCT<level: STRING, n: INT>, _rescued STRING"
)


def sent(port: int, messages: list[tuple[bytes, str, dict[str, Any]]]) -> None:
    with micromsg.connect(f"micromsg://{HOST}:{port}") as connection:
        connection.send_some(messages, timeout=30)
        connection.wait_acknowledged(timeout=30)


def test_json_becomes_typed_columns_beside_the_properties(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", scheme="micromsg")
    event = b'{"@timestamp":"2026-11-21T10:00:00Z","message":"a","log":{"level":"info","n":1}}'
    sent(
        receiver.port,
        [
            (event, "logs/web", {"level": 3, "load": 0.5, "at": NOON, "host": "web-1 ä"}),
            (b'{"message":"b","log.n":"many"}', "logs/db", {}),
            (b"no json", "logs/db", {"level": -1}),
        ],
    )
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="table")
    batch = spark.read.format("ackline").option("spool", str(receiver.spool)).schema(SCHEMA).load()
    stream = spark.readStream.format("ackline").options(**query.options).schema(SCHEMA).load()
    writing = stream.writeStream.format("parquet").option(
        "checkpointLocation", str(query.checkpoint)
    )
    assert writing.trigger(availableNow=True).start(str(query.table)).awaitTermination(100)
    for frame in (batch, query.rows()):
        found = [row.asDict(recursive=True) for row in frame.orderBy("position").collect()]
        assert [row["stream"] for row in found] == ["logs/web", "logs/db", "logs/db"]
        own = [
            {name: value for name, value in row["attributes"].items() if "." not in name}
            for row in found
        ]
        properties = {"level": "3", "load": "0.5", "at": "1795262400.25", "host": "web-1 ä"}
        assert own == [properties, {}, {"level": "-1"}]
        assert (found[0]["message"], found[0]["log"]) == ("a", {"level": "info", "n": 1})
        assert found[1]["message"] == "b"
        assert json.loads(found[1]["_rescued"]) == {"log.n": "many"}
        assert json.loads(found[2]["_rescued"]) == {"_corrupt_record": "no json"}
    # A property's text has the value that SQL reads.
    (at,) = batch.where("position = 0").selectExpr(
        "CAST(CAST(attributes['at'] AS DECIMAL(20, 6)) AS TIMESTAMP) = "
        "TIMESTAMP '2026-11-21 12:00:00.25Z' AND attributes['level'] = 3"
    ).first() or (None,)
    assert at is True


def test_variants_and_columns_chosen_by_name(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", scheme="micromsg")
    sent(receiver.port, [(b'{"a":[1,2]}', "x", {"level": 3})])
    read = spark.read.format("ackline").option("spool", str(receiver.spool))
    read = read.option("payload", "variant").option("columns", "protocol,stream,sequence,payload")
    rows = read.load().selectExpr("*", "to_json(payload) AS text").collect()
    assert [(row.protocol, row.stream, row.sequence, row.text) for row in rows] == [
        ("micromsg", "x", 0, '{"a":[1,2]}')
    ]


def test_a_query_listens_for_messages(spark: SparkSession, tmp_path: Path, port: int) -> None:
    listen = f"micromsg://{HOST}:{port}"
    query = Query(spark, tmp_path, spool=str(tmp_path / "spool"), consumer="c", listen=listen)
    running = query.start(processingTime="0 seconds")
    until((tmp_path / "spool" / "durable").exists, "the query listens")
    sent(port, [(b"%d" % n, "numbers", {"n": n}) for n in range(100)])
    # An acknowledgement says that the query has committed.
    assert mark(tmp_path / "spool", "c") == 100
    running.processAllAvailable()
    running.stop()
    rows = query.rows().orderBy("position").collect()
    assert [(bytes(row.payload), row.attributes["n"]) for row in rows] == [
        (b"%d" % n, str(n)) for n in range(100)
    ]


ALERTS: list[tuple[bytes, dict[str, Any]]] = [
    (
        b'{"id":%d}' % n,
        {"level": n % 7, "host": f"{['web', 'db'][n % 2]}-{n % 5}"}
        | ({"region": ["eu", "us"][n // 4 % 2]} if n % 3 else {}),
    )
    for n in range(400)
]


@pytest.mark.parametrize(
    ("option", "predicate", "same"),
    [
        (
            "where",
            "level >= 3 AND region = 'eu' AND host LIKE 'web%'",
            ["{level} >= 3", "{region} = 'eu'", "{host} LIKE 'web%'"],
        ),
        (
            "where",
            "level <> 2 AND region <> 'eu' AND host NOT LIKE '%b-3%'",
            ["{level} <> 2", "{region} <> 'eu'", "{host} NOT LIKE '%b-3%'"],
        ),
        ("micromsg.filter", "level<N2;region!=Teu", ["{level} < 2", "NOT {region} <=> 'eu'"]),
    ],
)
def test_a_broker_sends_the_rows_that_dataframe_filter_would_leave(
    spark: SparkSession, tmp_path: Path, option: str, predicate: str, same: list[str]
) -> None:
    columns = {name: f"attributes['{name}']" for name in ("level", "region", "host")}
    columns["level"] = f"CAST({columns['level']} AS INT)"
    in_sql = " AND ".join(same).format(**columns)
    with Topic(ALERTS) as topic:
        found = []
        for name, given in (("filtered", {option: predicate}), ("all", {})):
            spool = tmp_path / name / "spool"
            own = {"spool": str(spool), "consumer": "c", "connect": topic.url}
            query = Query(spark, tmp_path / name, **own, **given)
            before = topic.sent
            running = query.start(processingTime="0 seconds")
            until(
                lambda spool=spool, before=before: (
                    (spool / "durable").exists()
                    and len(topic.filters) > len(found)
                    and durable(spool) == topic.sent - before > 0
                ),
                "every message that was sent is kept",
            )
            until(lambda spool=spool: mark(spool, "c") == durable(spool), "all is committed")
            running.stop()
            rows = query.rows() if given else query.rows().where(in_sql)
            found.append(sorted(json.loads(row.payload)["id"] for row in rows.collect()))
        assert topic.filters[1] is None
    assert found[0] == found[1]
    assert 10 < len(found[0]) < 200


# ---- with the broker ----


def broker(receive: Receive, spool: Path) -> tuple[Receiver, str]:
    """`ackline serve`, and its URL."""
    started = receive(spool, scheme="micromsg", command="serve")
    return started, f"micromsg://{HOST}:{started.port}"


def sent_ids(spool: Path) -> list[int]:
    """The ids in a spool, but for those that wait for a subscription."""
    return sorted(event["id"] for event in events(spool) if event["id"] >= 0)


def test_rows_go_through_topics_and_queues_of_the_broker(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    _, to = broker(receive, tmp_path / "broker")
    frame = spark.range(0, 2_000, 1, 2).selectExpr(
        "id",
        "IF(id % 2 = 0, 'alerts', 'queue/jobs') AS destination",
        "id % 7 AS level",
        "IF(id % 3 = 0, NULL, IF(id % 5 = 0, 'us', 'eu')) AS region",
    )
    queries = {
        "alerts": {"where": "level >= 3 AND region <> 'us'"},
        "queue/jobs": {"where": "level < 9"},
    }
    running = []
    for name, given in queries.items():
        directory = tmp_path / name
        own = {"spool": str(directory / "spool"), "consumer": "c", "ack": "durable"}
        query = Query(spark, directory, connect=f"{to}/{name}", **own, **given)
        running.append((query, directory / "spool", query.start(processingTime="0 seconds")))

    def is_subscribed() -> bool:
        # A topic is live only.
        with micromsg.connect(to) as connection:
            connection.send(b'{"id":-1}', "alerts", {"level": 9, "region": "eu"})
        spool = running[0][1]
        return (spool / "durable").exists() and durable(spool) > 0

    until(is_subscribed, "the query has subscribed")
    write(frame, to, **{"micromsg.properties": "level,region"})
    wanted = [
        {n for n in range(0, 2_000, 2) if n % 7 >= 3 and n % 3 and n % 5},
        set(range(1, 2_000, 2)),
    ]
    for (query, spool, started), ids in zip(running, wanted, strict=True):
        until(lambda spool=spool, ids=ids: len(sent_ids(spool)) >= len(ids), "all are kept")
        started.processAllAvailable()
        started.stop()
        assert sent_ids(spool) == sorted(ids)
        rows = [json.loads(row.payload)["id"] for row in query.rows().collect()]
        assert sorted(n for n in rows if n >= 0) == sorted(ids)


def test_a_broker_that_is_killed_keeps_every_row_of_a_queue(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    process, to = broker(receive, tmp_path / "broker")
    killed: list[bool] = []

    def kill() -> None:
        until(lambda: durable(process.spool) > 500, "some are kept")
        process.kill()
        process.start()
        killed.append(True)

    killing = threading.Thread(target=kill)
    killing.start()
    rows = spark.range(0, 30_000, 1, 1).selectExpr("id", "repeat('x', 200) AS text")
    write(rows, f"{to}/queue/jobs", timeout="60")
    killing.join(60)
    assert killed
    found: set[int] = set()
    with micromsg.connect(to) as connection:
        connection.subscribe("queue/jobs")
        while len(found) < 30_000:
            messages = connection.receive_some(timeout=30)
            found |= {json.loads(message.payload)["id"] for message in messages}
    assert found == set(range(30_000))
