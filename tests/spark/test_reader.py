"""The readers as Spark calls them, without a running Spark, over spools of a real receiver."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from harness import Receiver, numbered
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from ackline import _core
from ackline.exceptions import SpoolError, UsageError
from ackline.spark import planning, source, tasks
from ackline.spark import reader as reading
from ackline.spark.columns import Columns
from ackline.spark.offsets import concrete
from ackline.spark.options import batch_options, stream_options
from ackline.spark.spools import Span

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.datasource import InputPartition

    from ackline.spark.offsets import Offset

    Receive = Callable[..., Receiver]

SMALL_SEGMENTS = ("--segment-bytes", "64KiB", "--budget", "512KiB")


def stream(spool: object, **options: str) -> source.StreamReader:
    given = stream_options({"spool": str(spool), "consumer": "c"} | options)
    return source.StreamReader(given, Columns(given.columns or ("position", "payload")))


def batch(spool: object, **options: str) -> source.BatchReader:
    return source.BatchReader(
        batch_options({"spool": str(spool)} | options), Columns(("position",))
    )


def uuid(receiver: Receiver) -> str:
    return _core.Spool(str(receiver.spool)).uuid


def at(receiver: Receiver, start: int, end: int) -> Offset:
    view = _core.Spool(str(receiver.spool))
    epoch = view.epoch_at(end - 1) if end else None
    return concrete({view.uuid: Span(start, end, epoch=epoch)})


def rows(reader: Any, *offsets: Offset) -> list[dict[str, Any]]:
    """Plan a batch and do the work of its tasks, one after the other."""
    return [row for task in reader.partitions(*offsets) for row in task_rows(reader, task)]


def task_rows(reader: Any, task: InputPartition) -> list[dict[str, Any]]:
    return [row for found in reader.read(task) for row in found.to_pylist()]


def positions(reader: Any, *offsets: Offset) -> list[int]:
    return [row["position"] for row in rows(reader, *offsets)]


def with_a_gap(receive: Receive, spool: Path) -> Receiver:
    """Fill a spool beyond its budget while its consumer keeps up, until a segment is retired."""
    receiver = receive(spool, arguments=SMALL_SEGMENTS)
    view = _core.Spool(str(spool))
    while view.first_kept() == 0:
        assert view.durable() < 100_000, "a segment is retired"
        receiver.send(numbered(view.durable(), 1000))
        view.commit_mark("c", view.durable())
    return receiver


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give small ranges a task of their own."""
    monkeypatch.setattr(tasks, "MIN_TASK_BYTES", 1)


@pytest.mark.parametrize("span", [(0, 5000), (0, 1), (699, 701), (1000, 1025), (13, 4999)])
@pytest.mark.parametrize("most", ["1", "3"])
@pytest.mark.usefixtures("small_tasks")
def test_a_batch_holds_each_of_its_positions_once(
    receive: Receive, tmp_path: Path, span: tuple[int, int], most: str
) -> None:
    receiver = receive(tmp_path / "spool", arguments=SMALL_SEGMENTS)
    events = numbered(0, 5000)
    receiver.send(events, window=700)
    reader = stream(receiver.spool, maxPartitions=most)
    found = rows(reader, reader.initialOffset(), at(receiver, *span))
    assert [row["position"] for row in found] == list(range(*span))
    assert [row["payload"] for row in found] == events[slice(*span)]


def test_a_batch_of_two_spools_holds_both(receive: Receive, tmp_path: Path) -> None:
    both = [receive(tmp_path / name) for name in ("one", "two")]
    both[0].send(numbered(0, 30))
    both[1].send(numbered(0, 20))
    reader = stream(f"{both[0].spool},{both[1].spool}")
    end = concrete({uuid(both[0]): Span(3, 30), uuid(both[1]): Span(0, 19)})
    found = positions(reader, reader.initialOffset(), end)
    assert sorted(found) == sorted([*range(3, 30), *range(19)])


def test_columns_come_in_the_order_that_was_wanted(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 5))
    reader = stream(receiver.spool, columns="payload,sequence,position")
    found = rows(reader, reader.initialOffset(), at(receiver, 0, 5))
    assert [list(row) for row in found] == [["payload", "sequence", "position"]] * 5


@pytest.mark.usefixtures("small_tasks")
def test_as_many_tasks_as_the_option_says_or_one_for_each_core(
    receive: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    receiver = receive(tmp_path / "spool")
    # One group for each: the receiver may join windows otherwise.
    for first in range(0, 1200, 50):
        receiver.send(numbered(first, 50))
    end = at(receiver, 0, 1200)
    for options, count in (({}, 3), ({"maxPartitions": "1"}, 1), ({"maxPartitions": "5"}, 5)):
        reader = stream(receiver.spool, **options)
        assert len(reader.partitions(reader.initialOffset(), end)) == count


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"minPartitions": "7"}, [7, 7, 7, 7, 7, 7, 8]),
        ({"minPartitions": "60"}, [1] * 50),
        ({"maxRecordsPerPartition": "20"}, [16, 17, 17]),
        ({"maxRecordsPerPartition": "50"}, [50]),
        ({"maxRecordsPerPartition": "20", "minPartitions": "5"}, [10] * 5),
        ({"minPartitions": "2", "maxPartitions": "2"}, [20, 30]),
        ({}, [50]),
    ],
)
def test_tasks_have_the_numbers_of_events_that_the_options_say(
    receive: Receive, tmp_path: Path, options: dict[str, str], sizes: list[int]
) -> None:
    both = [receive(tmp_path / name) for name in ("one", "two")]
    # Each spool has one block.
    both[0].send(numbered(0, 30))
    both[1].send(numbered(0, 20))
    reader = stream(f"{both[0].spool},{both[1].spool}", **options)
    end = concrete({uuid(both[0]): Span(0, 30), uuid(both[1]): Span(0, 20)})
    made = reader.partitions(reader.initialOffset(), end)
    found = [
        [(piece.uuid, n) for piece in task.pieces for n in range(piece.start, piece.end)]
        for task in made
    ]
    assert sorted(map(len, found)) == sizes
    each = [event for task in found for event in task]
    assert sorted(each) == sorted(
        [(uuid(both[0]), n) for n in range(30)] + [(uuid(both[1]), n) for n in range(20)]
    )
    read = [row["position"] for task in made for row in task_rows(reader, task)]
    assert sorted(read) == sorted([*range(30), *range(20)])


def test_a_record_batch_fits_the_cache(receive: Receive, tmp_path: Path) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 2500), window=2500)
    reader = stream(receiver.spool, maxPartitions="1")
    (task,) = reader.partitions(reader.initialOffset(), at(receiver, 0, 2500))
    sizes = [found.num_rows for found in reader.read(task)]
    assert sum(sizes) == 2500
    assert max(sizes) == reading.BATCH_ROWS


def test_an_event_above_the_memory_of_a_task_is_an_error_that_names_the_option(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send([b"{}", b'"%s"' % (b"x" * 3_000_000), b"{}"])
    columns = Columns(("position", "payload"))

    def of_stream(memory: str) -> Any:
        return stream(receiver.spool, readMemory=memory)

    def of_batch(memory: str) -> Any:
        given = {"spool": str(receiver.spool), "readMemory": memory}
        return source.BatchReader(batch_options(given), columns)

    for make in (of_stream, of_batch):
        reader = make("4MiB")
        is_stream = isinstance(reader, source.StreamReader)
        span = (reader.initialOffset(), at(receiver, 0, 3)) if is_stream else ()
        (task,) = reader.partitions(*span)
        with pytest.raises(pa.ArrowInvalid, match=r"spool.memory: .*readMemory.*positions 0 to 3"):
            list(reader.read(task))
        assert sum(found.num_rows for found in make("32MiB").read(task)) == 3


def test_limits_of_the_options_hold_unless_spark_wants_all(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 400), window=20)
    for options, limit, most in (
        ({"maxRowsPerBatch": "50"}, ReadMaxRows(50), 50),
        ({"maxBytesPerBatch": "4KiB"}, ReadMaxBytes(4096), 80),
        ({"maxRowsPerBatch": "60", "maxBytesPerBatch": "64KiB"}, ReadMaxRows(60), 60),
        ({"maxRowsPerBatch": "300", "maxBytesPerBatch": "4KiB"}, ReadMaxRows(300), 80),
    ):
        reader = stream(receiver.spool, **options)
        default = reader.getDefaultReadLimit()
        assert (type(default), vars(default)) == (type(limit), vars(limit))
        start = reader.initialOffset()
        assert 0 < len(positions(reader, start, reader.latestOffset(start, default))) <= most
        assert reader.latestOffset(start, ReadAllAvailable()) == at(receiver, 0, 400)
    assert isinstance(stream(receiver.spool).getDefaultReadLimit(), ReadAllAvailable)


def test_events_that_come_while_latest_offset_waits_are_in_the_next_batch(
    receive: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 10))
    monkeypatch.setattr(planning, "wait_for_more", lambda *_: receiver.send(numbered(10, 5)))
    reader = stream(receiver.spool)
    start = at(receiver, 0, 10)
    assert reader.latestOffset(start, ReadAllAvailable()) == start, "the first call does not wait"
    assert reader.latestOffset(start, ReadAllAvailable()) == at(receiver, 10, 15)


def test_available_now_ends_where_it_was_pinned_without_waiting(
    receive: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 10))
    monkeypatch.setattr(planning, "wait_for_more", lambda *_: pytest.fail("it waits"))
    reader = stream(receiver.spool)
    reader.prepareForTriggerAvailableNow()
    receiver.send(numbered(10, 5))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == at(receiver, 0, 10)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_batch_planned_before_the_last_was_committed_is_refused(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    receiver.send(numbered(0, 30))
    reader = stream(receiver.spool)
    first, second = at(receiver, 0, 10), at(receiver, 10, 20)
    reader.partitions(reader.initialOffset(), first)
    with pytest.raises(UsageError, match="asyncProgressTrackingEnabled"):
        reader.partitions(first, second)
    reader.stop()
    committed = stream(receiver.spool)
    committed.partitions(committed.initialOffset(), first)
    committed.commit(first)
    assert positions(committed, first, second) == list(range(10, 20))


def test_positions_of_a_retired_segment_are_a_gap_to_a_stream(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = with_a_gap(receive, tmp_path / "spool")
    first = _core.Spool(str(receiver.spool)).first_kept()
    reader = stream(receiver.spool)
    for call in (
        lambda: reader.latestOffset(at(receiver, 0, first - 1), ReadAllAvailable()),
        lambda: reader.partitions(reader.initialOffset(), at(receiver, first - 1, first + 1)),
    ):
        with pytest.raises(SpoolError, match=f"position {first - 1} .* is {first}: 1 pos") as error:
            call()
        assert error.value.code == "spool.gap"
    following = reader.latestOffset(at(receiver, 0, first), ReadAllAvailable())
    held = positions(reader, at(receiver, 0, first), following)
    assert held == list(range(first, _core.Spool(str(receiver.spool)).durable()))


def test_positions_of_a_retired_segment_are_a_gap_to_a_batch(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = with_a_gap(receive, tmp_path / "spool")
    view = _core.Spool(str(receiver.spool))
    first, end = view.first_kept(), view.durable()
    assert positions(batch(receiver.spool)) == list(range(first, end))
    part = batch(receiver.spool, start=str(first + 3), end=str(end - 3))
    assert positions(part) == list(range(first + 3, end - 3))
    for options, code in (
        ({"start": str(first - 1)}, "spool.gap"),
        ({"end": str(end + 1)}, "spool.range"),
        ({"start": str(end), "end": str(end - 1)}, "spool.range"),
    ):
        with pytest.raises(SpoolError, match="are not all in spool") as error:
            batch(receiver.spool, **options).partitions()
        assert error.value.code == code


def test_a_task_whose_segment_was_retired_meanwhile_says_gap(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool", arguments=SMALL_SEGMENTS)
    receiver.send(numbered(0, 10))
    reader = stream(receiver.spool)
    planned = reader.partitions(reader.initialOffset(), at(receiver, 0, 10))
    receiver.stop()
    with_a_gap(receive, tmp_path / "spool")
    with pytest.raises(SpoolError) as error:
        list(reader.read(planned[0]))
    assert error.value.code == "spool.gap"
    place = f"(spool {receiver.spool}, positions 0 to 10, host {platform.node()})"
    assert str(error.value).endswith(place)
