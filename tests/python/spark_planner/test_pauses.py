"""How long a query without events waits before it asks again."""

from __future__ import annotations

from ackline.spark.pauses import AT_ONCE_SECONDS, LONGEST_SECONDS, Pauses


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def called(pauses: Pauses, clock: Clock, later: float, *, is_new: bool = False) -> float:
    clock.now += later
    seconds = 0.0 if is_new else pauses.next()
    clock.now += seconds
    pauses.told(is_new=is_new)
    return seconds


def test_waits_grow_while_spark_asks_at_once_and_finds_nothing() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    waits = [called(pauses, clock, 0.9 * AT_ONCE_SECONDS) for _ in range(6)]
    assert waits == [0.0, 0.1, 0.2, 0.4, 0.8, LONGEST_SECONDS]
    called(pauses, clock, 0.01, is_new=True)
    assert called(pauses, clock, 0.01) == 0.1


def test_nothing_waits_when_spark_comes_later_by_itself() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    for _ in range(3):
        called(pauses, clock, 0.01)
    assert called(pauses, clock, 2 * AT_ONCE_SECONDS) == 0
    assert called(pauses, clock, 0.01) == 0.1, "it begins again"
