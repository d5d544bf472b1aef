"""Holes in a spool, from the damaged file to the table: the events around them are delivered."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered
from pyspark.sql.streaming.datasource import ReadAllAvailable
from queries import Query, mark
from test_reader import positions, stream

from ackline import _core
from ackline.exceptions import SpoolError
from ackline.spark.losses import GAPS
from ackline.spark.spools import OpenSpools

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    Receive = Callable[..., Receiver]

HOLE = range(20, 30)
SMALL = ("--segment-bytes", "64KiB", "--budget", "512KiB")


def damage(spool: Path) -> None:
    """Flips a bit in the payload of position 25."""
    for segment in (spool / "segments").glob("*.arrows"):
        content = bytearray(segment.read_bytes())
        at = content.find(numbered(25, 1)[0])
        if at >= 0:
            content[at + 1] ^= 1
            segment.write_bytes(content)


def holed(receive: Receive, spool: Path, *arguments: str) -> Receiver:
    """Fill a spool with groups of 10 events, damage one, and start its receiver again."""
    receiver = receive(spool, arguments=arguments)
    for first in range(0, 60, 10):
        receiver.send(numbered(first, 10), window=10)
    receiver.stop()
    damage(spool)
    return receiver.start()


AROUND = [*range(20), *range(30, 60)]


def test_a_strict_query_ends_with_the_range_and_has_the_events_before_it(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = holed(receive, tmp_path / "spool")
    receiver.stop()
    _core.spool_mend(str(receiver.spool))
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c")
    text = query.fail()
    assert "spool.corrupt: positions 20 to 30 of spool" in text
    assert query.positions() == list(range(20))
    assert mark(receiver.spool, "c") == 20


@pytest.mark.parametrize("noted", [False, True])
def test_a_damaged_group_is_left_out_alone_and_the_mark_passes_it(
    spark: SparkSession, receive: Receive, tmp_path: Path, *, noted: bool
) -> None:
    receiver = holed(receive, tmp_path / "spool", *SMALL)
    if noted:
        receiver.stop()
        _core.spool_mend(str(receiver.spool))
        receiver.start()
    query = Query(spark, tmp_path, spool=str(receiver.spool), consumer="c", failOnDataLoss="false")
    query.drain()
    assert query.positions() == AROUND
    (line,) = (receiver.spool / GAPS).read_text().splitlines()
    note = json.loads(line)
    assert (note["from"], note["to"], note["reason"]) == (20, 30, "spool.corrupt")
    # A repeated batch is the same batch.
    for file in list((query.checkpoint / "commits").iterdir()):
        file.unlink()
    shutil.rmtree(query.table)
    query.drain()
    assert query.positions() == AROUND
    # More than the budget: the senders wait for the mark, which passes the hole.
    sent = 60
    while _core.Spool(str(receiver.spool)).first_kept() <= HOLE.stop:
        assert sent < 100_000, "the segment with the hole is retired"
        receiver.send(numbered(sent, 1000))
        sent += 1000
        query.drain()
    assert query.positions() == [*AROUND, *range(60, sent)]
    assert mark(receiver.spool, "c") > HOLE.stop


def test_progress_counts_the_positions_that_were_passed_over(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = holed(receive, tmp_path / "spool")
    reader = stream(receiver.spool, failOnDataLoss="false", startingPosition="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert "lost" not in reader.reportLatestOffset()
    assert positions(reader, start, end) == AROUND
    assert reader.reportLatestOffset()["lost"] == len(HOLE)
    reader.stop()


def test_a_copy_from_a_backup_that_has_gone_on_ends_the_query(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 50))
    receiver.stop()
    shutil.copytree(receiver.spool, tmp_path / "backup")
    receiver.start().send(numbered(50, 50))
    reader = stream(receiver.spool)
    read = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reader.stop()
    receiver.stop()
    shutil.rmtree(receiver.spool)
    shutil.copytree(tmp_path / "backup", receiver.spool)
    receiver.start().send(numbered(200, 80))
    for again in (reader, stream(receiver.spool)):
        with pytest.raises(SpoolError) as error:
            again.latestOffset(read, ReadAllAvailable())
        assert error.value.code == "spool.restored"
        assert f"`ackline spool adopt {receiver.spool}`" in str(error.value)
        again.stop()
    lossy = stream(receiver.spool, failOnDataLoss="false")
    end = lossy.latestOffset(read, ReadAllAvailable())
    assert positions(lossy, read, end) == list(range(130)), "the backup had no consumer"
    lossy.stop()


def test_a_spool_stays_open_until_another_one_takes_its_place(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 5))
    opened, path = OpenSpools(), str(receiver.spool)
    first = opened.at(path, group=False)
    assert opened.at(path, group=False) is first
    receiver.send(numbered(5, 5))
    assert opened.at(path, group=False) is first
    assert first.durable() == 10
    receiver.stop()
    shutil.copytree(receiver.spool, tmp_path / "copy")
    shutil.rmtree(receiver.spool)
    (tmp_path / "copy").rename(receiver.spool)
    assert opened.at(path, group=False) is not first
    assert opened.at(path, group=False).durable() == 10
