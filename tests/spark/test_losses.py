"""Positions that are gone: the error that names them, and the notes of `failOnDataLoss=false`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from fake import FakeSpool

from ackline.exceptions import SpoolError
from ackline.spark.losses import GAPS, Loss, Losses
from ackline.spark.offsets import Limit, Tracker, concrete, ranges_between
from ackline.spark.spools import Span, Spools, gone_by_name, open_spools

if TYPE_CHECKING:
    from pathlib import Path

    from ackline.spark.offsets import Offset

ALL = Limit()
NOTED = "2026-01-01T00:00:00Z"


def at(**spans: tuple[int, int]) -> Offset:
    return concrete({uuid: Span(*span) for uuid, span in spans.items()})


def held(directory: Path, *fakes: FakeSpool, missing: tuple[str, ...] = ()) -> Spools:
    for fake in fakes:
        (directory / fake.uuid / "consumers").mkdir(0o700, parents=True, exist_ok=True)
        (directory / fake.uuid).chmod(0o700)
    return Spools({str(directory / fake.uuid): fake for fake in fakes}, missing)


def lossy(start: Any = "committed") -> Tracker:
    return Tracker(start, "c", Losses(fail=False, consumer="c"))


def notes(directory: Path) -> list[dict[str, Any]]:
    file = directory / GAPS
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def ranges(directory: Path) -> list[tuple[Any, ...]]:
    return [(n["consumer"], n["spool"], n["from"], n["to"], n["reason"]) for n in notes(directory)]


def test_a_gap_is_noted_once_and_the_query_goes_on_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spools = held(tmp_path, FakeSpool("a", first=8, end=20))
    tracker = lossy()
    end = tracker.latest(spools, at(a=(0, 5)), ALL)
    assert end == at(a=(8, 20))
    assert tracker.latest(spools, at(a=(0, 5)), ALL) == end
    assert ranges_between(spools, at(a=(0, 5)), end, tracker.losses) == {"a": Span(8, 20)}
    assert ranges(tmp_path / "a") == [("c", "a", 5, 8, "spool.gap")]
    assert list(notes(tmp_path / "a")[0]) == ["time", "consumer", "spool", "from", "to", "reason"]
    assert (tmp_path / "a" / GAPS).stat().st_mode & 0o777 == 0o600
    assert caplog.text.count("failOnDataLoss=false passes over a loss") == 1


def test_a_spool_of_which_nothing_is_kept_still_moves_the_query_over_the_gap(
    tmp_path: Path,
) -> None:
    spools = held(tmp_path, FakeSpool("a", first=20, end=20))
    end = lossy().latest(spools, at(a=(0, 5)), ALL)
    assert end == at(a=(20, 20))
    assert lossy().latest(spools, end, ALL) is end
    assert ranges(tmp_path / "a") == [("c", "a", 5, 20, "spool.gap")]


def test_positions_that_vanish_before_a_batch_is_repeated_are_noted(tmp_path: Path) -> None:
    spools = held(tmp_path, FakeSpool("a", first=8, end=20))
    found = ranges_between(spools, at(a=(0, 5)), at(a=(5, 12)), Losses(fail=False))
    assert found == {"a": Span(8, 12)}
    assert ranges_between(spools, at(a=(0, 5)), at(a=(5, 7)), Losses(fail=False)) == {}
    assert ranges(tmp_path / "a")[0] == (None, "a", 5, 8, "spool.gap")


def test_a_strict_batch_ends_before_a_hole_and_the_next_one_names_it(tmp_path: Path) -> None:
    spools = held(tmp_path, FakeSpool("a", end=50, lost=[(20, 30, "lost", NOTED)]))
    tracker = Tracker("earliest", "c")
    end = tracker.latest(spools, tracker.initial(), ALL)
    assert end == at(a=(0, 20))
    for again in (tracker, Tracker("earliest", None)):
        with pytest.raises(SpoolError, match=r"spool\.gap: positions 20 to 30 of spool a") as error:
            again.latest(spools, end, ALL)
        assert error.value.code == "spool.gap"
    assert spools.at("a").consumers() == [("c", 20, "2026-01-01T00:00:00Z")]


@pytest.mark.parametrize("limit", [ALL, Limit(rows=1000)])
def test_holes_are_left_out_of_a_batch_and_noted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: Limit
) -> None:
    lost = [(20, 30, "lost", NOTED), (30, 35, "corrupt", NOTED), (45, 50, "removed", NOTED)]
    fake = FakeSpool("a", end=50, lost=lost)
    spools, tracker = held(tmp_path, fake), lossy()
    end = tracker.latest(spools, at(a=(0, 0)), limit)
    assert end == at(a=(0, 50))
    for _ in range(2):
        found = ranges_between(spools, at(a=(0, 0)), end, tracker.losses)["a"]
        assert found == Span(0, 50, (Span(20, 30), Span(30, 35), Span(45, 50)))
        assert found.parts == [Span(0, 20), Span(35, 45)]
    assert ranges(tmp_path / "a") == [
        ("c", "a", 20, 30, "spool.gap"),
        ("c", "a", 30, 35, "spool.corrupt"),
        ("c", "a", 45, 50, "spool.gap"),
    ]
    assert tracker.losses.positions == 20
    assert "20 positions so far code=spark.loss" in caplog.text
    assert tracker.latest(spools, end, limit) is end
    assert fake.marks == {"c": 50}, "the mark has passed the holes"


def test_a_batch_of_which_everything_is_lost_has_no_parts() -> None:
    assert Span(5, 9, (Span(5, 9),)).parts == []
    assert Span(5, 9).parts == [Span(5, 9)]


@pytest.mark.parametrize("start", ["committed", "latest", 15])
def test_a_replaced_spool_is_read_from_its_earliest_position(tmp_path: Path, start: Any) -> None:
    spools = held(tmp_path, FakeSpool("new", first=3, end=20))
    tracker = lossy(start)
    end = tracker.latest(spools, at(old=(0, 90)), ALL)
    assert end == at(new=(3, 20))
    assert ranges_between(spools, at(old=(0, 90)), end, tracker.losses) == {"new": Span(3, 20)}
    assert ranges(tmp_path / "new") == [("c", "old", 90, None, "spool.replaced")]


def test_a_spool_behind_its_checkpoint_goes_on_at_its_end(tmp_path: Path) -> None:
    spool = FakeSpool("a", end=30)
    end = lossy().latest(held(tmp_path, spool), at(a=(0, 50)), ALL)
    assert end == at(a=(30, 30))
    assert spool.marks == {"c": 30}
    assert ranges(tmp_path / "a") == [("c", "a", 30, 50, "spool.behind_checkpoint")]


def test_a_spool_taken_out_of_the_option_is_gone_by_name(tmp_path: Path) -> None:
    spools = held(tmp_path, FakeSpool("a", end=9))
    start = at(a=(0, 9), b=(0, 4))
    with pytest.raises(
        SpoolError, match=r"spool\.gone: .* positions of spool b, .*holds a"
    ) as error:
        Tracker("latest", None).latest(spools, start, ALL)
    assert error.value.code == "spool.gone"
    assert lossy().latest(spools, start, ALL) == at(a=(9, 9))
    assert ranges(tmp_path / "a") == [("c", "b", 4, None, "spool.gone")]


@pytest.mark.parametrize("losses", [Losses(), Losses(fail=False)])
def test_a_directory_that_vanished_is_named_with_the_spool_it_held(
    tmp_path: Path, losses: Losses
) -> None:
    spools = held(tmp_path, FakeSpool("a", end=9), missing=("/mnt/two",))
    start = at(a=(0, 9), b=(0, 4))
    for call in (
        lambda: Tracker("latest", None, losses).latest(spools, start, ALL),
        lambda: ranges_between(spools, at(a=(0, 0), b=(0, 0)), start, losses),
    ):
        with pytest.raises(SpoolError, match=r"no spool in /mnt/two, .*positions of b;") as error:
            call()
        assert error.value.code == "spool.gone"


def test_a_loss_that_cannot_be_noted_ends_the_query(tmp_path: Path) -> None:
    loss = Loss(str(tmp_path / "nowhere"), "a", 0, 5)
    with pytest.raises(FileNotFoundError):
        Losses(fail=False).meet(SpoolError("gap", code="spool.gap"), loss)


def test_notes_of_all_readers_are_kept(tmp_path: Path) -> None:
    for consumer in ("a", "b"):
        losses = Losses(fail=False, consumer=consumer)
        losses.meet(SpoolError("gap", code="spool.gap"), Loss(str(tmp_path), "u", 0, 5))
    assert [note["consumer"] for note in notes(tmp_path)] == ["a", "b"]


def test_an_error_that_names_no_code_gets_its_code_and_a_lost_directory_its_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "spool.json").touch()
    with (
        pytest.raises(SpoolError, match=r"^spool\.consumer_busy: held"),
        gone_by_name([str(tmp_path)]),
    ):
        raise SpoolError("held", code="spool.consumer_busy")
    (tmp_path / "spool.json").unlink()
    with (
        pytest.raises(SpoolError, match=r"^spool\.gone: .* no spool in"),
        gone_by_name([str(tmp_path)]),
    ):
        raise SpoolError("cannot open", code="spool.io")


def test_a_quarantine_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    quarantine = tmp_path / "quarantine"
    quarantine.mkdir()
    for half in (None, "spool.json", "durable"):
        # The same holds for one that its receiver is creating.
        if half is not None:
            (quarantine / half).touch()
        spools = open_spools([str(tmp_path)], "quarantine")
        spools.require()
    tracker = Tracker("latest", None)
    none = tracker.latest(spools, tracker.initial(), ALL)
    assert none == {"spools": {}, "v": 1}
    assert tracker.latest(spools, none, ALL) is none
    assert ranges_between(spools, tracker.initial(), none) == {}
    # The spool was added while the query ran or stood still: all its events are new.
    came = held(tmp_path, FakeSpool("q", end=4))
    assert Tracker("latest", None).latest(came, none, ALL) == at(q=(0, 4))


def test_events_that_are_not_there_are_gone(tmp_path: Path) -> None:
    with pytest.raises(SpoolError, match=f"no spool in {tmp_path}") as error:
        open_spools([str(tmp_path)]).require()
    assert error.value.code == "spool.gone"
