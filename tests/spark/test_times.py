"""Times as options give them."""

from __future__ import annotations

import pytest

from ackline.exceptions import UsageError
from ackline.spark.options import batch_options, stream_options
from ackline.spark.times import microseconds, text_of


@pytest.mark.parametrize(
    ("text", "at_us"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1795276800000", 1_795_276_800_000_000),
        ("0", 0),
        ("1970-01-01 00:00:01Z", 1_000_000),
        ("1970-01-01 00:00:01 +00:00", 1_000_000),
        ("1970-01-01t02:00:01.5+02:00", 1_500_000),
        ("1969-12-31T23:59:59.999999z", -1),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.0000010Z", 1),
        ("1970-01-01T00:00:00.000000001Z", 1),
    ],
)
def test_a_time_with_its_zone_is_read_to_the_microsecond(text: str, at_us: int) -> None:
    assert microseconds("startingTimestamp", text) == at_us


@pytest.mark.parametrize("at_us", [0, -1, 1_763_740_800_000_000, 999_999])
def test_a_time_is_written_as_it_is_read(at_us: int) -> None:
    assert microseconds("x", text_of(at_us)) == at_us


@pytest.mark.parametrize(
    "text", ["2026-11-21", "2026-11-21T16:00", "2026-11-21 16:00:00", "2026-11-21T16:00:00.123"]
)
def test_a_time_without_its_zone_is_refused_for_that(text: str) -> None:
    with pytest.raises(UsageError, match="endingTimestamp needs its zone"):
        microseconds("endingTimestamp", text)


def test_times_and_positions_contradict_each_other() -> None:
    time = "2026-11-21T16:00:00Z"
    assert stream_options({"spool": "/a", "startingTimestamp": time}).start == 1_795_276_800_000_000
    for options, text in (
        ({"startingTimestamp": time, "start": "5"}, "start and startingTimestamp contradict"),
        ({"endingTimestamp": time, "end": "5"}, "end and endingTimestamp contradict"),
        (
            {"startingTimestamp": time, "endingTimestamp": "2026-11-21T15:59:59Z"},
            "endingTimestamp lies before",
        ),
    ):
        with pytest.raises(UsageError, match=text):
            batch_options({"spool": "/a"} | options)
    with pytest.raises(UsageError, match="startingPosition and startingTimestamp contradict"):
        stream_options({"spool": "/a", "startingTimestamp": time, "startingPosition": "latest"})
