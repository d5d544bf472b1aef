"""A spool in memory, with the methods of `ackline._core.Spool` that offsets need."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ackline.exceptions import SpoolError


@dataclass
class FakeLease:
    """A lease on a spool in memory."""

    spool: FakeSpool
    name: str

    def committed(self) -> int | None:
        return self.spool.marks.get(self.name)

    def commit(self, position: int) -> None:
        self.spool.marks[self.name] = position
        self.spool.writes.append((self.name, position))

    def seen(self) -> None:
        self.spool.seen += 1

    def release(self) -> None:
        self.spool.leased.remove(self.name)


@dataclass
class FakeSpool:
    """Positions without bodies: every event is `EVENT_BYTES` long."""

    uuid: str
    end: int = 0
    first: int = 0
    block: int = 10
    marks: dict[str, int] = field(default_factory=dict)
    writes: list[tuple[str, int]] = field(default_factory=list)
    leased: list[str] = field(default_factory=list)
    seen: int = 0
    lost: list[tuple[int, int, str, str]] = field(default_factory=list)
    epochs: dict[int, str] = field(default_factory=dict)

    def first_kept(self) -> int:
        return self.first

    def durable(self) -> int:
        return self.end

    def end_for(
        self,
        start: int,
        max_rows: int | None,
        max_bytes: int | None,
        *,
        skip_losses: bool = False,
    ) -> int:
        for first, end, _, _ in [] if skip_losses else self.lost:
            if first <= start < end:
                raise SpoolError("lost", code="spool.gap")
            if start < first < self.end:
                return min(first, replace(self, lost=[]).end_for(start, max_rows, max_bytes))
        if max_rows is None and max_bytes is None:
            return self.end
        rows = self.end - start if max_rows is None else max_rows
        if max_bytes is not None:
            rows = min(rows, max(1, max_bytes // EVENT_BYTES))
        end = min(self.end, start + rows)
        whole = end // self.block * self.block
        return whole if whole > start else end

    def holes(
        self, start: int | None, end: int | None, *, check: bool = False
    ) -> list[tuple[int, int, str, str]]:
        del check
        low, high = start or 0, self.end if end is None else end
        found = [(max(a, low), min(b, high), why, noted) for a, b, why, noted in self.lost]
        return [hole for hole in found if hole[0] < hole[1]]

    def epoch_at(self, position: int) -> str | None:
        """The epoch of the last writer that began at or below a position."""
        begun = [first for first in self.epochs if first <= position]
        return self.epochs[max(begun)] if begun and position < self.end else None

    def find(self, at_us: int) -> int:
        return min(max(at_us, self.first), self.end)

    def consumers(self) -> list[tuple[str, int, str]]:
        return [(name, position, "2026-01-01T00:00:00Z") for name, position in self.marks.items()]

    def lease(self, name: str, holder: str, wait: float, create_at: int | None) -> FakeLease:
        del holder, wait, create_at
        self.leased.append(name)
        return FakeLease(self, name)

    def wait_durable(self, position: int, timeout: float) -> int:
        del position, timeout
        return self.end


EVENT_BYTES = 100
