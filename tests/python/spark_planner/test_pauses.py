"""How long a query without events waits before it asks again."""

from __future__ import annotations

from ackline.spark.pauses import AT_ONCE_SECONDS, LONGEST_SECONDS, Pauses


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def called(pauses: Pauses, clock: Clock, later: float, work: float = 0.0) -> float:
    """The wait of a call that finds no events, and takes so many seconds beside it."""
    clock.now += later
    pauses.asked()
    clock.now += work
    seconds = pauses.next()
    clock.now += seconds
    pauses.ended()
    # The report of the spools, which belongs to the call.
    clock.now += work
    pauses.ended()
    return seconds


def test_waits_grow_while_spark_asks_at_once_and_finds_nothing() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    waits = [called(pauses, clock, 0.9 * AT_ONCE_SECONDS) for _ in range(6)]
    assert waits == [0.0, 0.1, 0.2, 0.4, LONGEST_SECONDS, LONGEST_SECONDS]
    pauses.found()
    assert called(pauses, clock, 0.01) == 0.1


def test_nothing_waits_when_spark_comes_later_by_itself() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    for _ in range(3):
        called(pauses, clock, 0.01)
    assert called(pauses, clock, 2 * AT_ONCE_SECONDS) == 0
    assert called(pauses, clock, 0.01) == 0.1, "it begins again"


def test_slow_work_of_a_call_is_not_taken_for_work_of_spark() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    waits = [called(pauses, clock, 0.01, work=3 * AT_ONCE_SECONDS) for _ in range(3)]
    assert waits == [0.0, 0.1, 0.2]
