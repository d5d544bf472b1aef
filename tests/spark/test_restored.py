"""A spool that was restored from a backup and has gone on: the epochs of offsets reveal it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake import FakeSpool
from test_losses import held, ranges

from ackline.exceptions import SpoolError
from ackline.spark.losses import Losses
from ackline.spark.offsets import Limit, Tracker, concrete, ranges_between, spans_of
from ackline.spark.spools import Span

if TYPE_CHECKING:
    from pathlib import Path

    from ackline.spark.offsets import Offset

ALL = Limit()
FIRST, LOST, NEW = "00000001aaaaaaaa", "00000002bbbbbbbb", "00000002cccccccc"
READ: Offset = concrete({"a": Span(0, 100, epoch=LOST)})


def copy(**members: int) -> FakeSpool:
    """A copy of a backup at position 50 that has gone on to 130; the query had read up to 100."""
    return FakeSpool("a", end=130, epochs={0: FIRST, 50: NEW}, marks=dict(members))


def test_an_offset_carries_the_epoch_of_its_last_position(tmp_path: Path) -> None:
    spools = held(tmp_path, FakeSpool("a", end=100, epochs={0: FIRST, 50: LOST}))
    tracker = Tracker("earliest", "c")
    end = tracker.latest(spools, tracker.initial(), ALL)
    assert list(end["spools"]["a"].items()) == [("epoch", LOST), ("from", 0), ("to", 100)]
    assert end == READ
    assert tracker.latest(spools, end, ALL) is end
    spans = spans_of(end)
    assert spans is not None
    assert spans["a"].epoch == LOST


def test_an_offset_without_an_epoch_is_read_as_it_is(tmp_path: Path) -> None:
    spools = held(tmp_path, copy())
    start = concrete({"a": Span(0, 100)})
    end = Tracker("earliest", "c").latest(spools, start, ALL)
    assert end == concrete({"a": Span(100, 130, epoch=NEW)})
    assert ranges_between(spools, start, end) == {"a": Span(100, 130)}


def test_an_epoch_that_is_no_text_is_no_offset_of_ours() -> None:
    with pytest.raises(SpoolError, match=r"spool\.format"):
        spans_of({"v": 1, "spools": {"a": {"from": 0, "to": 1, "epoch": 5}}})


def test_a_copy_that_has_gone_on_ends_the_query_by_name(tmp_path: Path) -> None:
    spools = held(tmp_path, copy(c=40))
    tracker = Tracker("earliest", "c")
    tracker.hold(spools)
    text = r"spool\.restored: .*position 100 of spool a.*Positions 40 to 100 .*`ackline spool adopt"
    with pytest.raises(SpoolError, match=text) as error:
        tracker.latest(spools, READ, ALL)
    assert error.value.code == "spool.restored"
    with pytest.raises(SpoolError, match=r"spool\.restored") as error:
        ranges_between(spools, concrete({"a": Span(0, 0)}), READ)
    assert error.value.code == "spool.restored"


def test_a_copy_is_read_again_behind_the_mark_where_losses_are_passed_over(tmp_path: Path) -> None:
    fake = copy(c=40)
    spools = held(tmp_path, fake)
    tracker = Tracker("earliest", "c", Losses(fail=False, consumer="c"))
    for _ in range(2):
        end = tracker.latest(spools, READ, ALL)
        assert end == concrete({"a": Span(40, 130, epoch=NEW)})
        assert fake.marks == {"c": 40}, "nothing above it was read in this copy"
    assert ranges_between(spools, READ, end, tracker.losses) == {"a": Span(40, 130)}
    assert ranges(tmp_path / "a") == [("c", "a", 40, 100, "spool.restored")]
    assert tracker.latest(spools, end, ALL) is end
    assert fake.marks == {"c": 130}


def test_a_copy_ends_a_query_without_consumer_also_where_losses_are_passed_over(
    tmp_path: Path,
) -> None:
    spools = held(tmp_path, copy())
    with pytest.raises(SpoolError) as error:
        Tracker("earliest", None, Losses(fail=False)).latest(spools, READ, ALL)
    assert error.value.code == "spool.restored"
