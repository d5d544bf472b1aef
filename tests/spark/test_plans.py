"""Batches that were planned once are planned the same again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake import FakeSpool

from ackline.exceptions import SpoolError
from ackline.spark.files import write
from ackline.spark.offsets import Limit, Tracker, concrete
from ackline.spark.plans import KEPT, Plans, plans_file
from ackline.spark.spools import Span, Spools

if TYPE_CHECKING:
    from pathlib import Path

    from ackline.spark.offsets import Offset


def at(**spans: tuple[int, int]) -> Offset:
    return concrete({uuid: Span(*span) for uuid, span in spans.items()})


def held(directory: Path, *fakes: FakeSpool) -> Spools:
    for fake in fakes:
        (directory / fake.uuid / "consumers").mkdir(parents=True, exist_ok=True)
    return Spools({str(directory / fake.uuid): fake for fake in fakes})


def test_a_rolled_back_checkpoint_gets_the_same_batches(tmp_path: Path) -> None:
    one, two = FakeSpool("a", end=30), FakeSpool("b", end=0)
    first = at(a=(0, 30), b=(0, 0))
    one.end = 45
    second = Tracker("earliest", "c").latest(held(tmp_path, one, two), first, Limit())
    assert second == at(a=(30, 45), b=(0, 0))
    one.end, two.end = 70, 9
    third = Tracker("earliest", "c").latest(held(tmp_path, one, two), second, Limit())
    assert third == at(a=(45, 70), b=(0, 9))
    one.end, two.end = 500, 500
    again = Tracker("earliest", "c")
    assert again.latest(held(tmp_path, one, two), first, Limit()) == second
    assert again.latest(held(tmp_path, one, two), second, Limit(rows=10)) == third
    fourth = again.latest(held(tmp_path, one, two), third, Limit())
    assert fourth == at(a=(70, 500), b=(9, 500))


def test_a_plan_that_no_longer_holds_is_made_anew(tmp_path: Path) -> None:
    spool = FakeSpool("a", end=60)
    start = at(a=(0, 30))
    assert Tracker("earliest", "c").latest(held(tmp_path, spool), start, Limit()) == at(a=(30, 60))
    spool.end = 50
    assert Tracker("earliest", "c").latest(held(tmp_path, spool), start, Limit()) == at(a=(30, 50))


def test_a_query_without_a_checkpoint_is_not_bound_to_plans_and_a_tail_keeps_none(
    tmp_path: Path,
) -> None:
    spool = FakeSpool("a", end=60)
    tail = Tracker("earliest", None)
    tail.latest(held(tmp_path, spool), at(a=(0, 30)), Limit())
    tail.latest(held(tmp_path, spool), tail.initial(), Limit())
    named = Tracker("earliest", "c")
    named.latest(held(tmp_path, spool), named.initial(), Limit())
    assert list((tmp_path / "a" / "consumers").iterdir()) == []


def test_a_missing_checkpoint_is_refused_once_a_batch_was_committed(tmp_path: Path) -> None:
    spool = FakeSpool("a", end=60)
    spools = held(tmp_path, spool)
    query = Tracker("committed", "c", start_given=False)
    first = query.latest(spools, query.initial(), Limit())
    spool.marks.setdefault("c", 0)
    # Killed before Spark logged batch 0: nothing was committed yet.
    again = Tracker("committed", "c", start_given=False)
    assert again.latest(spools, again.initial(), Limit()) == first
    again.latest(spools, first, Limit())
    for start_given in (False, True):
        fresh = Tracker("committed", "c", start_given=start_given)
        if start_given:
            assert fresh.latest(spools, fresh.initial(), Limit()) == at(a=(60, 60))
        else:
            with pytest.raises(SpoolError, match=r"spool\.checkpoint_missing: consumer c has"):
                fresh.latest(spools, fresh.initial(), Limit())


def test_the_last_plans_are_kept_in_a_file_that_does_not_grow(tmp_path: Path) -> None:
    (tmp_path / "consumers").mkdir(0o700)
    file = plans_file(str(tmp_path), "c")
    for n in range(5 * KEPT):
        Plans(file).note(at(a=(n, n + 1)), at(a=(n + 1, n + 2)))
    plans = Plans(file)
    assert plans.end_of(at(a=(4 * KEPT - 1, 4 * KEPT))) is None
    for n in range(4 * KEPT, 5 * KEPT):
        assert plans.end_of(at(a=(n, n + 1))) == at(a=(n + 1, n + 2))
    assert len(file.read_text().splitlines()) <= 2 * KEPT + 1
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_plan_cut_short_by_a_kill_is_no_plan_and_spoils_none(tmp_path: Path) -> None:
    (tmp_path / "consumers").mkdir(0o700)
    file = plans_file(str(tmp_path), "c")
    Plans(file).note(at(a=(0, 1)), at(a=(1, 2)))
    Plans(file).note(at(a=(1, 2)), at(a=(2, 3)))
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    plans = Plans(file)
    assert plans.end_of(at(a=(0, 1))) == at(a=(1, 2))
    assert plans.end_of(at(a=(1, 2))) is None
    plans.note(at(a=(1, 2)), at(a=(2, 9)))
    assert Plans(file).end_of(at(a=(1, 2))) == at(a=(2, 9))


def test_a_plan_that_cannot_be_kept_is_said_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = plans_file(str(tmp_path), "c")
    Plans(file).note(at(a=(0, 1)), at(a=(1, 2)))
    assert "a plan was not kept" in caplog.text


def test_files_get_the_rights_of_their_directory(tmp_path: Path) -> None:
    for rights in (0o700, 0o770):
        directory = tmp_path / oct(rights)
        directory.mkdir()
        directory.chmod(rights)
        write(directory / "file", "text", sync=True)
        assert (directory / "file").stat().st_mode & 0o777 == rights & 0o666
