"""The rules of offsets, without Spark and without a spool on disk."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING

import pytest
from fake import EVENT_BYTES, FakeSpool

from ackline.exceptions import SpoolError
from ackline.spark.offsets import (
    Limit,
    Tracker,
    concrete,
    ranges_between,
    spans_of,
    wait_for_more,
)
from ackline.spark.spools import Span, Spools

if TYPE_CHECKING:
    from pathlib import Path

    from ackline.spark.offsets import Offset
    from ackline.spark.places import StartingPosition

ALL = Limit()


def spools(*fakes: FakeSpool) -> Spools:
    return Spools({f"/spools/{fake.uuid}": fake for fake in fakes})


def at(**spans: tuple[int, int]) -> Offset:
    return concrete({uuid: Span(*span) for uuid, span in spans.items()})


@pytest.mark.parametrize("start", ["committed", "earliest", "latest"])
def test_initial_offset_is_a_constant_of_the_options(start: StartingPosition) -> None:
    tracker = Tracker(start, "a")
    assert tracker.initial() == {"v": 1, "start": start}
    assert tracker.initial() == Tracker(start, "b").initial()


def test_offsets_are_written_with_sorted_keys() -> None:
    for offset in (Tracker("latest", None).initial(), at(b=(3, 4), a=(1, 2))):
        assert json.dumps(offset) == json.dumps(offset, sort_keys=True)
    assert at(a=(1, 2)) == {"v": 1, "spools": {"a": {"from": 1, "to": 2}}}


@pytest.mark.parametrize(
    ("start", "mark", "begins"),
    [
        ("earliest", None, 5),
        ("earliest", 20, 5),
        ("latest", None, 40),
        ("latest", 20, 40),
        ("committed", None, 5),
        ("committed", 20, 20),
    ],
)
def test_first_batch_begins_where_the_option_says(
    start: StartingPosition, mark: int | None, begins: int
) -> None:
    spool = FakeSpool("a", end=40, first=5, marks={} if mark is None else {"c": mark})
    tracker = Tracker(start, "c")
    assert tracker.latest(spools(spool), tracker.initial(), ALL) == at(a=(begins, 40))


@pytest.mark.parametrize("start", ["committed", "earliest", "latest"])
def test_start_is_resolved_once_while_the_spool_grows(start: StartingPosition) -> None:
    spool = FakeSpool("a", end=30)
    tracker = Tracker(start, "c")
    first = spans_of(tracker.latest(spools(spool), tracker.initial(), ALL))
    spool.end = 50
    again = spans_of(tracker.latest(spools(spool), tracker.initial(), ALL))
    assert first is not None
    assert again is not None
    assert first["a"].start == again["a"].start
    assert again["a"].end == 50


def test_an_empty_spool_still_resolves_latest_in_the_first_offset() -> None:
    spool = FakeSpool("a", end=7)
    tracker = Tracker("latest", None)
    first = tracker.latest(spools(spool), tracker.initial(), ALL)
    assert first == at(a=(7, 7))
    spool.end = 9
    assert Tracker("latest", None).latest(spools(spool), first, ALL) == at(a=(7, 9))


def test_nothing_new_returns_start_itself() -> None:
    start = at(a=(3, 7))
    assert Tracker("latest", None).latest(spools(FakeSpool("a", end=7)), start, ALL) is start


def test_a_batch_ends_at_its_offset_after_a_restart_with_the_initial_offset() -> None:
    spool = FakeSpool("a", end=99)
    initial = Tracker("latest", None).initial()
    assert ranges_between(spools(spool), initial, at(a=(30, 40))) == {"a": Span(30, 40)}


def test_concrete_start_that_disagrees_is_refused() -> None:
    held = spools(FakeSpool("a", end=99))
    for start in (at(a=(0, 29)), at(a=(0, 31)), at(b=(0, 30))):
        with pytest.raises(SpoolError) as error:
            ranges_between(held, start, at(a=(30, 40)))
        assert error.value.code == "spool.offset_mismatch"


def test_equal_offsets_and_empty_ranges_are_no_work() -> None:
    held = spools(FakeSpool("a", end=99))
    initial = Tracker("latest", None).initial()
    assert ranges_between(held, initial, initial) == {}
    assert ranges_between(held, at(a=(3, 9)), at(a=(3, 9))) == {}
    assert ranges_between(held, initial, at(a=(9, 9))) == {}


def test_unknown_uuid_is_replaced() -> None:
    held = spools(FakeSpool("new", end=99))
    for call in (
        lambda: Tracker("latest", None).latest(held, at(old=(0, 5)), ALL),
        lambda: ranges_between(held, Tracker("latest", None).initial(), at(old=(0, 5))),
    ):
        with pytest.raises(
            SpoolError, match=r"spool old.*/spools/new holds new.*Location"
        ) as error:
            call()
        assert error.value.code == "spool.replaced"


def test_start_above_the_end_is_behind_the_checkpoint() -> None:
    held = spools(FakeSpool("a", end=3))
    for call in (
        lambda: Tracker("latest", None).latest(held, at(a=(0, 10)), ALL),
        lambda: ranges_between(held, at(a=(0, 0)), at(a=(0, 10))),
    ):
        with pytest.raises(SpoolError, match=r"position 10 .* ends at 3") as error:
            call()
        assert error.value.code == "spool.behind_checkpoint"


def test_a_checkpoint_at_the_end_is_fine_and_one_position_further_is_not() -> None:
    held = spools(FakeSpool("a", end=9))
    start = at(a=(0, 9))
    assert Tracker("latest", None).latest(held, start, ALL) == start
    assert ranges_between(held, at(a=(0, 3)), at(a=(3, 9))) == {"a": Span(3, 9)}
    with pytest.raises(SpoolError, match=r"position 10 .* ends at 9"):
        Tracker("latest", None).latest(held, at(a=(0, 10)), ALL)


def test_the_first_kept_position_is_fine_and_one_below_is_a_gap() -> None:
    held = spools(FakeSpool("a", first=8, end=20))
    assert Tracker("latest", None).latest(held, at(a=(0, 8)), ALL) == at(a=(8, 20))
    assert ranges_between(held, at(a=(0, 8)), at(a=(8, 9))) == {"a": Span(8, 9)}
    with pytest.raises(SpoolError, match=r"is 8: 1 positions are gone"):
        Tracker("latest", None).latest(held, at(a=(0, 7)), ALL)


def test_start_below_the_first_kept_is_a_gap() -> None:
    held = spools(FakeSpool("a", first=8, end=20))
    tracker = Tracker("committed", "c")
    marked = spools(FakeSpool("a", first=8, end=20, marks={"c": 5}))
    for call in (
        lambda: tracker.latest(held, at(a=(0, 5)), ALL),
        lambda: tracker.latest(marked, tracker.initial(), ALL),
        lambda: ranges_between(held, at(a=(0, 5)), at(a=(5, 9))),
    ):
        with pytest.raises(SpoolError, match=r"position 5 .* is 8: 3 positions") as error:
            call()
        assert error.value.code == "spool.gap"


def test_offset_of_another_format_is_refused() -> None:
    later = {"v": 2, "spools": {"a": {"from": 0, "to": 1}}}
    with pytest.raises(SpoolError, match="offsets of format 2 and this release reads 1"):
        spans_of(later)
    for offset in (
        later,
        {"v": 2, "start": "latest"},
        {"v": 1},
        {"v": 1, "spools": {"a": {"from": 3}}},
        {},
    ):
        with pytest.raises(SpoolError) as error:
            spans_of(offset)
        assert error.value.code == "spool.format"


def test_a_mark_moves_only_to_offsets_that_spark_hands_back() -> None:
    spool = FakeSpool("a", end=30)
    tracker = Tracker("committed", "c")
    first = tracker.latest(spools(spool), tracker.initial(), ALL)
    tracker.latest(spools(spool), tracker.initial(), ALL)
    assert spool.writes == []
    tracker.latest(spools(spool), first, ALL)
    tracker.latest(spools(spool), first, ALL)
    assert spool.writes == [("c", 30)]


def test_a_refused_start_moves_no_mark() -> None:
    good, short = FakeSpool("a", end=30), FakeSpool("b", end=3)
    with pytest.raises(SpoolError):
        Tracker("committed", "c").latest(spools(good, short), at(a=(0, 30), b=(0, 9)), ALL)
    assert good.writes == short.writes == []


def test_without_a_consumer_nothing_is_marked() -> None:
    spool = FakeSpool("a", end=30)
    Tracker("committed", None).latest(spools(spool), at(a=(0, 20)), ALL)
    assert spool.writes == []


def test_mark_goes_back_with_an_older_checkpoint_and_says_so(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    spool = FakeSpool("a", end=30, marks={"c": 25})
    (tmp_path / "consumers").mkdir()
    held = Spools({str(tmp_path): spool})
    with caplog.at_level(logging.WARNING, "ackline.spark"):
        Tracker("committed", "c").latest(held, at(a=(0, 10)), ALL)
    assert spool.marks == {"c": 10}
    assert "from position 25 to 10" in caplog.text


def test_limits_are_kept_and_shared_between_spools_that_have_news() -> None:
    tracker = Tracker("earliest", None)
    one = spools(FakeSpool("a", end=100))
    assert tracker.latest(one, tracker.initial(), Limit(rows=35)) == at(a=(0, 30))
    assert tracker.latest(one, tracker.initial(), Limit(rows=4)) == at(a=(0, 4))
    assert tracker.latest(one, tracker.initial(), Limit(bytes=20 * EVENT_BYTES)) == at(a=(0, 20))
    three = spools(FakeSpool("a", end=100), FakeSpool("b", end=5), FakeSpool("c", end=100))
    start = at(a=(0, 0), b=(0, 5), c=(0, 0))
    assert tracker.latest(three, start, Limit(rows=40)) == at(a=(0, 20), b=(5, 5), c=(0, 20))


@pytest.mark.parametrize(
    ("limit", "backlogs", "rows"),
    [
        (100, {"a": 900, "b": 100}, {"a": 89, "b": 11}),
        (100, {"a": 1_000_000, "b": 1}, {"a": 99, "b": 1}),
        (100, {"a": 1, "b": 1, "c": 1}, {"a": 34, "b": 33, "c": 33}),
        (2, {"a": 5, "b": 50, "c": 500}, {"a": 1, "b": 1, "c": 1}),
        (7, {"a": 3}, {"a": 7}),
        (5, {}, {}),
    ],
)
def test_a_limit_is_shared_in_proportion_to_the_backlog_and_none_starves(
    limit: int, backlogs: dict[str, int], rows: dict[str, int]
) -> None:
    shared = Limit(rows=limit, bytes=limit).shared(backlogs)
    assert {uuid: share.rows for uuid, share in shared.items()} == rows
    assert {uuid: share.bytes for uuid, share in shared.items()} == rows
    assert sum(rows.values()) <= max(limit, len(backlogs))


def test_a_small_spool_keeps_pace_beside_a_large_one() -> None:
    big, small = FakeSpool("a", end=10_000, block=1), FakeSpool("b", end=10, block=1)
    tracker = Tracker("earliest", None)
    offset, batches = tracker.initial(), 0
    while (following := tracker.latest(spools(big, small), offset, Limit(rows=1001))) != offset:
        offset, batches = following, batches + 1
        sizes = [span["to"] - span["from"] for span in offset["spools"].values()]
        assert sum(sizes) <= 1001
        assert all(sizes) or offset["spools"]["b"]["to"] == 10, "both go on"
    assert batches == 10
    assert {uuid: span["to"] for uuid, span in offset["spools"].items()} == {"a": 10_000, "b": 10}


def test_a_time_is_a_constant_of_the_options_and_found_once() -> None:
    spool = FakeSpool("a", end=40, first=5)
    tracker = Tracker(30, None)
    assert tracker.initial() == {"v": 1, "start": "timestamp:1970-01-01T00:00:00.000030Z"}
    assert tracker.latest(spools(spool), tracker.initial(), ALL) == at(a=(30, 40))
    # A spool in a checkpoint goes on at its offset.
    assert Tracker(30, None).latest(spools(spool), at(a=(5, 10)), ALL) == at(a=(10, 40))


def test_a_time_before_the_first_kept_event_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    tracker = Tracker(2, None)
    tracker.latest(spools(FakeSpool("a", first=5, end=9)), tracker.initial(), ALL)
    assert "keeps nothing older than position 5" in caplog.text


def test_the_consumer_is_held_once_and_let_go() -> None:
    spool = FakeSpool("a", end=30)
    tracker = Tracker("committed", "c")
    assert spool.leased == []
    tracker.hold(spools(spool))
    tracker.latest(spools(spool), tracker.initial(), ALL)
    assert spool.leased == ["c"]
    assert spool.seen == 2
    tracker.release()
    assert spool.leased == []
    Tracker("committed", None).hold(spools(spool))
    assert spool.leased == []


def test_pinned_end_is_reached_in_limited_batches_and_then_start_returns() -> None:
    spool = FakeSpool("a", end=95)
    tracker = Tracker("earliest", None)
    tracker.pin(spools(spool))
    spool.end = 500
    offset, seen = tracker.initial(), 0
    for _ in range(30):
        following = tracker.latest(spools(spool), offset, Limit(rows=25))
        if following == offset:
            break
        seen += sum(
            span.end - span.start
            for span in ranges_between(spools(spool), offset, following).values()
        )
        offset = following
    assert offset["spools"]["a"]["to"] == 95
    assert seen == 95


def test_a_spool_that_came_after_the_end_was_pinned_waits_for_the_next_query() -> None:
    old, new = FakeSpool("a", end=30), FakeSpool("b", end=50)
    tracker = Tracker("earliest", None)
    tracker.pin(spools(old))
    end = tracker.latest(spools(old, new), at(a=(0, 10)), ALL)
    assert end == at(a=(10, 30), b=(0, 0))


def test_a_spool_added_later_begins_at_the_starting_position(tmp_path: Path) -> None:
    old, new = FakeSpool("a", end=30), FakeSpool("b", end=50, marks={"c": 20})
    (tmp_path / "consumers").mkdir()
    held = Spools({str(tmp_path): old, "/spools/b": new})
    end = Tracker("committed", "c").latest(held, at(a=(0, 30)), ALL)
    assert end == at(a=(30, 30), b=(20, 50))
    assert ranges_between(held, at(a=(0, 30)), end) == {"b": Span(20, 50)}


def test_two_directories_with_one_spool_are_refused() -> None:
    with pytest.raises(SpoolError, match="hold the same spool"):
        Spools({"/x": FakeSpool("a"), "/y": FakeSpool("a")})


def test_waiting_ends_at_once_when_a_spool_has_gone_on() -> None:
    held = spools(FakeSpool("a", end=5), FakeSpool("b", end=9))
    wait_for_more(held, at(a=(0, 5), b=(0, 8)), 3600.0)
    wait_for_more(held, Tracker("latest", None).initial(), 3600.0)


def test_events_of_any_of_many_spools_end_the_wait_at_once() -> None:
    many = [FakeSpool(f"s{number:03}", end=5) for number in range(200)]
    start = at(**{fake.uuid: (0, 5) for fake in many})
    come = threading.Timer(0.2, lambda: setattr(many[-1], "end", 6))
    come.start()
    begun = time.monotonic()
    wait_for_more(spools(*many), start, 30.0)
    assert 0.2 <= time.monotonic() - begun < 5
    come.join()
    wait_for_more(spools(*many[1:]), start, 3600.0)
