"""Processor time, memory, processes and disk of one run, sampled once a second."""

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from processes import TICK, tree

PERIOD_S = 1.0


@dataclass(frozen=True)
class Seen:
    """A process as a sample found it; times in seconds."""

    pid: int
    parent: int
    own_s: float
    ended_children_s: float
    label: str


@dataclass
class Clock:
    """Processor time by label, with processes that have ended.

    A process that has ended is known up to its last sample. The rest of its time, and processes
    between two samples, are in its parent's account of ended children.
    """

    seen: dict[int, Seen] = field(default_factory=dict)

    def note(self, processes: list[Seen]) -> None:
        """Take the newest figures of each process."""
        self.seen.update({each.pid: each for each in processes})

    def by_label(self, living: set[int]) -> dict[str, float]:
        """Return the seconds of each label."""
        known: defaultdict[int, float] = defaultdict(float)
        for each in self.seen.values():
            if each.pid not in living:
                known[each.parent] += each.own_s + each.ended_children_s
        total: defaultdict[str, float] = defaultdict(float)
        for each in self.seen.values():
            unseen = max(0.0, each.ended_children_s - known[each.pid])
            total[each.label] += each.own_s + unseen
        return dict(total)


def label(root: str, words: list[str]) -> str:
    """Name a process: that of its root, or its part of Spark."""
    if root != "Spark":
        return root
    text = " ".join(words)
    if words and Path(words[0]).name == "java":
        return "Spark JVM"
    if "pyspark.daemon" in text or "pyspark.worker" in text:
        return "Python workers"
    if "ackline.spark.planner" in text:
        return "Ackline's planner"
    if "buyer_spark.py" in text:
        return "Spark's Python driver"
    return "other Python of Spark" if "python" in text else "other of Spark"


def read(root: str, pid: int) -> Seen | None:
    """Read one process, or return None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    except OSError:
        return None
    own, ended = (sum(map(int, stat[at : at + 2])) / TICK for at in (11, 13))
    return Seen(pid, int(stat[1]), own, ended, label(root, words))


def pss_bytes(pid: int) -> int:
    """Return a process's share of the memory that it has mapped, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def allocated_bytes(directory: Path) -> int:
    """Return the bytes that a directory's files take on the disk: holes count for nothing."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += 512 * path.lstat().st_blocks
        except OSError:  # removed meanwhile
            continue
    return total


def reserved_bytes(spool: Path) -> int:
    """Return the bytes of a spool's reserve, which it gives up when the disk is full."""
    reserve = spool / "reserve"
    return 512 * reserve.stat().st_blocks if reserve.exists() else 0


class Watch:
    """Samples process trees and a directory until its `with` block ends."""

    def __init__(self, store: Path) -> None:
        """Begin with no process; `store` is the directory of the broker or the spool."""
        self.roots: dict[str, int] = {}
        self._store = store
        self._clock = Clock()
        self._living: set[int] = set()
        self._base: dict[str, float] = {}
        self._pss: Counter[str] = Counter()
        self._processes: Counter[str] = Counter()
        self._peak = {"pss": 0, "processes": 0, "store": 0}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.sample()

    def sample(self) -> None:
        """Look at every process now."""
        with self._lock:
            found = []
            for root, pid in list(self.roots.items()):
                try:
                    pids = tree(pid)
                except OSError:  # one of them has just ended
                    pids = [pid]
                found += [each for one in pids if (each := read(root, one)) is not None]
            self._clock.note(found)
            self._living = {each.pid for each in found}
            self._peaks(found)

    def _peaks(self, found: list[Seen]) -> None:
        pss: Counter[str] = Counter()
        for each in found:
            pss[each.label] += pss_bytes(each.pid)
        count = Counter(each.label for each in found)
        self._pss |= pss
        self._processes |= count
        now = {"pss": pss.total(), "processes": count.total()}
        now["store"] = allocated_bytes(self._store)
        self._peak = {key: max(self._peak[key], value) for key, value in now.items()}

    def begin(self) -> None:
        """Count from here on: the time so far was the start of the programs."""
        self.sample()
        with self._lock:
            self._base = self._clock.by_label(self._living)
            self._pss, self._processes = Counter(), Counter()
            self._peak = dict.fromkeys(self._peak, 0)
        self.sample()

    def figures(self, events: int) -> dict[str, Any]:
        """Return what has been used since `begin`."""
        self.sample()
        with self._lock:
            used = self._clock.by_label(self._living)
            cpu = {
                name: 1e6 * (seconds - self._base.get(name, 0.0)) / events
                for name, seconds in sorted(used.items())
            }
            pss = {name: value / 2**20 for name, value in sorted(self._pss.items())}
            return {
                "cpu_s_per_million": cpu | {"total": sum(cpu.values())},
                "pss_mib": pss | {"total": self._peak["pss"] / 2**20},
                "processes": dict(self._processes) | {"total": self._peak["processes"]},
                "store_mib": {
                    "at the end": allocated_bytes(self._store) / 2**20,
                    "at its peak": self._peak["store"] / 2**20,
                    "of it reserved for a full disk": reserved_bytes(self._store) / 2**20,
                },
            }
