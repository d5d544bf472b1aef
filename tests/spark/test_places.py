"""`startingOffsets`, `endingOffsets` and their times, for each of two spools on a real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered
from pyspark.errors import PySparkException, StreamingQueryException

from ackline import Spool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def both(receive: Receive, tmp_path: Path) -> tuple[str, str]:
    """Two spools with events 0 to 19; the second ten came later."""
    receivers = [receive(tmp_path / name) for name in ("one", "two")]
    for first in (0, 10):
        for receiver in receivers:
            receiver.send(numbered(first, 10))
    return str(receivers[0].spool), str(receivers[1].spool)


def found(frame: DataFrame, both: tuple[str, str]) -> tuple[list[int], list[int]]:
    uuids = [Spool(path).uuid for path in both]
    rows = frame.select("spool", "position").collect()
    one, two = (sorted(row.position for row in rows if row.spool == uuid) for uuid in uuids)
    return one, two


def time_of(path: str, position: int) -> str:
    table = Spool(path).read(columns=["received_at"]).to_table()
    return str(table["received_at"][position].as_py().isoformat())


def test_a_batch_begins_and_ends_in_each_spool_where_it_is_told(
    spark: SparkSession, both: tuple[str, str]
) -> None:
    one, two = both

    def read(**options: object) -> tuple[list[int], list[int]]:
        given = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in options.items()
        }
        reader = spark.read.format("ackline").options(spool=f"{one},{two}", **given)
        return found(reader.load(), both)

    whole = [*range(20)]
    assert read(startingOffsets="earliest", endingOffsets="latest") == (whole, whole)
    assert read(startingOffsets={one: 5, Spool(two).uuid: 18}) == (whole[5:], whole[18:])
    # The numbers of Kafka's source; a spool that is not named is read as a whole.
    assert read(startingOffsets={one: -1}, endingOffsets={two: 3}) == ([], whole[:3])
    assert read(startingOffsets={two + "/": -2}, endingOffsets={one: 1, two: -1}) == (
        whole[:1],
        whole,
    )
    assert read(startingOffsetsByTimestamp={one: time_of(one, 10)}) == (whole[10:], whole)
    # The first day of the year 2100, in milliseconds.
    assert read(startingOffsetsByTimestamp={one: 4_102_444_800_000}) == ([], whole)
    late = {one: time_of(one, 10), two: 0}
    assert read(endingOffsetsByTimestamp=late) == (whole[:10], [])
    with pytest.raises(PySparkException, match="names the spool '/no/such', and the query reads"):
        read(startingOffsets={"/no/such": 5})
    # A number without JSON is milliseconds, as in Kafka's source.
    assert read(startingTimestamp="4102444800000") == ([], [])
    assert read(endingTimestamp="0") == ([], [])
    for options, text in (
        ({"startingOffsets": {one: 1, Spool(one).uuid: 2}}, "names one spool twice"),
        ({"startingOffsets": {one: 10}, "endingTimestamp": "0"}, "behind its end at 0"),
        (
            {
                "startingOffsetsByTimestamp": {one: 4_102_444_800_000},
                "endingOffsetsByTimestamp": {one: 0},
            },
            "behind its end at 0",
        ),
    ):
        with pytest.raises(PySparkException, match=text):
            read(**options)
    for start in ("start", "end"):
        with pytest.raises(PySparkException, match=f"{start} is a position of one spool, not of"):
            spark.read.format("ackline").option(start, "3").load(one[:-3] + "*").count()
    with pytest.raises(PySparkException, match="positions 0 to 21 are not all in spool"):
        read(endingOffsets={one: 21})


def test_a_stream_begins_in_each_spool_where_it_is_told(
    spark: SparkSession, both: tuple[str, str], tmp_path: Path
) -> None:
    one, two = both
    numbers = iter(range(100))

    def read(checkpoint: Path, **options: object) -> tuple[list[int], list[int]]:
        given = {name: json.dumps(value) for name, value in options.items()}
        name = f"places_{next(numbers)}"
        query = (
            spark.readStream.format("ackline")
            .options(spool=f"{one},{two}", consumer="lake", **given)
            .load()
            .writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(checkpoint))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(100)
        return found(spark.table(name), both)

    assert read(tmp_path / "a", startingOffsets={one: 15}) == ([*range(15, 20)], [*range(20)])
    # The consumer's marks stand at the end now.
    assert read(tmp_path / "b", startingOffsets={one: 2, two: "committed"}) == (
        [*range(2, 20)],
        [],
    )
    since = {one: time_of(one, 10), two: time_of(two, 10)}
    assert read(tmp_path / "c", startingOffsetsByTimestamp=since) == (
        [*range(10, 20)],
        [*range(10, 20)],
    )
    for wrong, text in (
        ({one: 21}, "names position 21 of spool .*, which ends at 20"),
        ({"x": 0}, "names the spool 'x'"),
    ):
        with pytest.raises(StreamingQueryException, match=text):
            read(tmp_path / f"wrong{len(text)}", startingOffsets=wrong)
