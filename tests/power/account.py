"""Events that one spool was handed, has acknowledged and was seen to hold, over all its lives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from ackline.exceptions import SpoolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ackline import Spool

T = TypeVar("T")


class Wrong(Exception):  # noqa: N818 (a finding, not an error)
    """A promise was not kept."""


class Account:
    """The events and positions of one spool.

    Senders note events before they send them, and acknowledgements after they arrive.
    Every position that is read is written down with its event, and compared whenever it is read
    again.
    """

    def __init__(self) -> None:
        self.acked: list[bytes] = []
        self.told = 0
        """The consumer's mark, as far as a commit has returned."""
        self.attempted = 0
        """The highest mark that a commit was asked for."""
        self.first_kept = 0
        self.missing = 0
        self.twice = 0
        self.repeats = 0
        self.unmarked = 0
        self.escaped = 0
        self.failures: list[str] = []
        """Exceptions of other threads."""
        self._handed: dict[bytes, bytes] = {}
        self._late: set[bytes] = set()
        self._rows: dict[int, bytes] = {}
        self._placed: set[bytes] = set()
        self._original: dict[bytes, int] = {}
        self._checked = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def end(self) -> int:
        """The position after the last one that was read."""
        return max(self._rows, default=-1) + 1

    def hand_over(self, events: Sequence[bytes]) -> None:
        """Note events that are about to be sent."""
        with self._lock:
            self._handed.update(zip(events, events, strict=True))

    def acknowledge(self, events: Sequence[bytes]) -> None:
        """Note acknowledged events."""
        with self._lock:
            self.acked += events

    def late(self, since: int) -> int:
        """Set acknowledgements aside of a receiver that was not stopped before the cut."""
        with self._lock:
            self._late.update(self.acked[since:])
            return len(self.acked) - since

    def note(self, spool: Spool, start: int, end: int) -> None:
        """Note the events of a range, and compare them with an earlier reading."""
        events = spool.read(start, end, columns=["position", "payload", "repeat"])
        table, kept = events.to_table(), spool.first_kept()
        positions = table["position"].to_pylist()
        if positions != list(range(start, end)):
            raise Wrong(f"positions {start} to {end} are not dense")
        payloads, marks = table["payload"].to_pylist(), table["repeat"].to_pylist()
        with self._lock:
            rows = zip(positions, payloads, marks, strict=True)
            found = [self._place(*row[:2], is_repeat=row[2] is True, kept=kept) for row in rows]
        if findings := list(filter(None, found)):
            self.twice += len(findings)
            raise Wrong(f"{len(findings)} positions stand twice: {findings[0]}")

    def _place(self, position: int, payload: bytes, *, is_repeat: bool, kept: int) -> str | None:
        before = self._rows.get(position)
        if before is not None:
            if before == payload:
                return None
            return f"position {position} was {before[:60]!r} and is {payload[:60]!r}"
        event = self._handed.get(payload)
        if event is None:
            raise Wrong(f"position {position} holds what nobody sent: {payload[:60]!r}")
        self._rows[position] = event
        self._placed.add(event)
        if is_repeat:
            self.repeats += 1
        elif (original := self._original.setdefault(event, position)) != position:
            # A copy that retention has removed is not compared with.
            self.unmarked += original >= kept
        return None

    def attempt(self, mark: int) -> None:
        """Write down that a commit is under way."""
        self.attempted = max(self.attempted, mark)

    def read(self, spool: Spool) -> None:
        """Read the whole spool."""
        first = beside_retention(lambda: self._read(spool))
        self.first_kept = max(self.first_kept, first)
        if first > self.attempted:
            raise Wrong(f"positions below {first} were retired, the mark is {self.attempted}")

    def _read(self, spool: Spool) -> int:
        first, end = spool.first_kept(), spool.durable()
        self.note(spool, first, end)
        return first

    def check(self, spool: Spool) -> None:
        """Read the spool of a receiver that runs, and look for all that was acknowledged."""
        known, acked = self.end, len(self.acked)
        self.read(spool)
        durable = spool.durable()
        with self._lock:
            findings = list(self.failures)
            if durable < known:
                self._forget(durable)
                findings.append(f"{known} positions were read, {durable} are durable now")
            new = self.acked[self._checked : acked]
            self._checked = acked
            gone = [event for event in new if event not in self._placed]
            repeats = self._placed - self._original.keys()
            alone = [event for event in new if event in repeats]
            missing = [event for event in gone if event not in self._late]
            self.escaped += len(gone) - len(missing)
            self.missing += len(missing)
        if missing:
            findings.append(f"{len(missing)} acked events are missing, such as {missing[0][:60]!r}")
        if alone:
            findings.append(f"{len(alone)} acked events stand there as repeats alone")
        if findings:
            raise Wrong("; ".join(findings))

    def _forget(self, durable: int) -> None:
        """Forget events read at positions that are gone, and look for them again."""
        self._placed = {event for at, event in self._rows.items() if at < durable}
        self._checked = 0


def beside_retention(look: Callable[[], T]) -> T:
    """Look at a spool, and look again if a segment was retired meanwhile."""
    for _ in range(_LOOKS - 1):
        try:
            return look()
        except (SpoolError, pa.ArrowInvalid) as error:
            # In the middle of a read it comes through Arrow, which has no codes.
            if "spool.gap" not in (getattr(error, "code", ""), *str(error).split(": ")):
                raise
    return look()


_LOOKS = 10
