"""A broker under attack, its use of the machine meanwhile, and good pairs of peers beside it."""

import os
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import harness
from harness import BASE, MIB, SLACK, TOOLS, Costs, percentile

from ackline import micromsg
from ackline.exceptions import AcklineError, LinkTimeout

MEMORY = 64 * MIB
"""Bytes of `--memory`."""

SECONDS = 4.0
"""Time of an attack."""

WITHIN = 0.25
"""Seconds within which the p99 of a good pair may be in any case: on two busy cores a pair that
nobody attacks may need as much."""

ALONE = 1.0
"""Seconds that the good pairs have before the attack."""

PERIOD = 0.02
"""Seconds between two messages of a good pair."""

LAST_MESSAGES = 5.0
"""Seconds behind an attack until the last good messages have come."""

LAST_DESCRIPTORS = 30.0
"""Seconds behind an attack until descriptors are back."""

SCRIPT = str(harness.HERE / "broker_programs.py")


def broker_formula(memory: int, connections: int, *, is_idle: bool = False) -> float:
    """The bound for the resident memory of a broker, in MiB.

    Args:
        memory: Bytes of `--memory`. They count twice, for the messages that come in and for those
            on their way, and a quarter of them is for subscriptions.
        connections: The most connections at once.
        is_idle: Whether these have sent and got nothing. A connection takes 5 KiB, and a busy one
            also 64 KiB of an incomplete frame and 64 KiB of `send_bytes`.
    """
    busy = 0 if is_idle else 64 + 64
    return BASE + TOOLS + 2.25 * memory / MIB + connections * (5 + busy) / 1024


class Broker(harness.Process):
    """``ackline serve`` of a broker, in a process of its own."""

    def __init__(self, directory: Path, *options: str, through: Sequence[str] = ()) -> None:
        """Starts the broker and waits until it listens."""
        directory.mkdir(parents=True, exist_ok=True)
        command = ["serve", "micromsg://127.0.0.1:0", "--json", "--memory", str(MEMORY)]
        super().__init__(directory, [*command, *options], through)

    @property
    def url(self) -> str:
        """The URL that it listens on."""
        return f"micromsg://127.0.0.1:{self.port('micromsg')}"


class Pair:
    """A publisher of a message each 20 ms, and the peer that gets them, each with a thread.

    A message has the time at which it is sent as its payload.
    """

    def __init__(self, url: str, destination: str) -> None:
        """Connects both, and begins at once."""
        self._destination = destination
        self._taker = micromsg.connect(url, timeout=10)
        self._taker.subscribe(destination)
        self._publisher = micromsg.connect(url, timeout=10)
        self._await_subscription()
        self._sent: list[float] = []
        self._latencies: dict[float, float] = {}
        self._goes_on = True
        self._is_over = False
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._publish, self._take)
        ]
        for thread in self._threads:
            thread.start()

    def _await_subscription(self) -> None:
        for _ in range(100):
            self._publisher.send(b"", self._destination)
            try:
                self._taker.receive(timeout=0.1)
            except LinkTimeout:
                continue
            return
        raise AssertionError("the subscription does not take effect")

    def _publish(self) -> None:
        try:
            while self._goes_on:
                now = time.monotonic()
                self._sent.append(now)
                payload = struct.pack("d", now)
                self._publisher.send(payload, self._destination, timeout=LAST_MESSAGES)
                time.sleep(PERIOD)
        except AcklineError as error:
            self.failures.append(f"publisher to {self._destination}: {error!r}")

    def _take(self) -> None:
        try:
            for message in self._taker:
                if message.payload:
                    (sent,) = struct.unpack("d", message.payload)
                    self._latencies[sent] = time.monotonic() - sent
        except AcklineError as error:
            if not self._is_over:
                self.failures.append(f"peer of {self._destination}: {error!r}")

    def end(self) -> None:
        """Publishes no more, waits until the last message has come, and ends both connections."""
        self._goes_on = False
        self._threads[0].join(2 * LAST_MESSAGES)
        until = time.monotonic() + LAST_MESSAGES
        while self._missing() and not self.failures and time.monotonic() < until:
            time.sleep(0.01)
        self._is_over = True
        if missing := self._missing():
            self.failures.append(f"{missing} messages to {self._destination} have not come")
        # The end that takes is the first: it acknowledges what the other one waits for.
        for connection in (self._taker, self._publisher):
            if self.failures:
                connection.abort()
            else:
                connection.close(timeout=LAST_MESSAGES)
        self._threads[1].join(LAST_MESSAGES)

    def _missing(self) -> int:
        return len(self._sent) - len(self._latencies)

    def p99(self, begin: float, end: float) -> float:
        """The p99 of the latencies of the messages of this time; some may never have come."""
        sent = [at for at in self._sent if begin <= at < end]
        latencies = [self._latencies.get(at, float("inf")) for at in sent]
        return percentile(latencies, 0.99) if latencies else float("inf")


class Latency(NamedTuple):
    """The p99 of a good pair before and during an attack, in seconds."""

    alone: float
    beside: float

    @property
    def is_short(self) -> bool:
        """Whether the attack has not slowed the pair much."""
        return self.beside <= max(3 * self.alone, WITHIN)


@dataclass(frozen=True, slots=True)
class Plan:
    """Attacks on one broker at once.

    Attributes:
        attacks: The names of their programs.
        refused: Codes of reasons for which the broker ends connections, among others.
        is_idle: Whether their connections send and get nothing.
        is_durable: Whether the broker has a spool.
        stays: Whether connections stay whose peers have left: what these have sent waits for a
            queue.
        seconds: The time that the programs have.
    """

    attacks: tuple[str, ...]
    refused: tuple[str, ...] = ()
    is_idle: bool = False
    is_durable: bool = False
    stays: bool = False
    seconds: float = SECONDS

    @property
    def name(self) -> str:
        """The names of all."""
        return "+".join(self.attacks) + ("+spool" if self.is_durable else "")


@dataclass
class Figures(Costs):
    """The costs of attacks on a broker, and the latencies of good pairs, by destination."""

    latencies: dict[str, Latency] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def is_served(self) -> bool:
        """Whether all good pairs are as fast as they have to be."""
        return all(latency.is_short for latency in self.latencies.values())

    def __str__(self) -> str:
        """One line."""
        latencies = ", ".join(
            f"{name} {pair.alone * 1000:.0f} -> {pair.beside * 1000:.0f} ms"
            for name, pair in self.latencies.items()
        )
        return (
            f"{' + '.join(self.attacks)}: {self.peak:.0f} of {self.bound:.0f} MiB, "
            f"{self.after:.0f} after, {self.connections} connections, {self.left} left, "
            f"{self.cpu:.1f} s of CPU, p99 {latencies}, refused {dict(self.refused)}, "
            f"failures {self.failures}"
        )


def run(plan: Plan, directory: Path) -> Figures:
    """Runs attacks on a new broker, beside good pairs, and ends the broker in order."""
    figures = Figures(list(plan.attacks))
    options = ["--spool", str(directory / "spool")] if plan.is_durable else []
    with Broker(directory, *options) as broker:
        _run(broker, figures, plan.seconds)
        code = broker.stop()
        if code != os.EX_OK:
            figures.failures.append(f"the broker has ended with {code}")
        if "panicked" in broker.errors.read_text():
            figures.failures.append("the broker has panicked")
        figures.bound = broker_formula(MEMORY, figures.connections, is_idle=plan.is_idle)
        figures.refused = harness.refused(broker)
    return figures


def _run(broker: Broker, figures: Figures, seconds: float) -> None:
    pairs = {name: Pair(broker.url, name) for name in ("good", "queue/good")}
    begun = time.monotonic()
    time.sleep(ALONE)
    descriptors = broker.descriptors()
    attacked = time.monotonic()
    port = str(broker.port("micromsg"))
    programs = [[SCRIPT, name, port, str(seconds), "1"] for name in figures.attacks]
    # More than this proves nothing more, and may take memory that others need.
    most = 4 * broker_formula(MEMORY, 0)
    harness.attack(broker, programs, seconds, figures, most)
    ended = time.monotonic()
    until = ended + LAST_DESCRIPTORS
    while broker.descriptors() > descriptors + SLACK and time.monotonic() < until:
        time.sleep(0.1)
    figures.left = max(0, broker.descriptors() - descriptors)
    figures.after = broker.resident()
    for name, pair in pairs.items():
        pair.end()
        figures.failures += pair.failures
        alone, beside = pair.p99(begun + 0.2, attacked), pair.p99(attacked, ended)
        figures.latencies[name] = Latency(alone, beside)


def measured(plan: Plan, directory: Path) -> Figures:
    """The figures of attacks, whose rule is that of `harness.measured`.

    Where nothing but a p99 is too long, the attacks are run again on another broker.
    """
    figures = run(plan, directory / "first")
    if not figures.is_served and not broken(figures, plan, but="p99"):
        print(f"p99 too long: {figures}")
        figures = run(plan, directory / "again")
    print(figures)
    return figures


def broken(figures: Figures, plan: Plan, but: str = "") -> list[str]:
    """The promises that these figures break, without one of them."""
    promises = {
        "memory": figures.peak <= figures.bound,
        "descriptors": plan.stays or figures.left <= SLACK,
        "failures": not figures.failures,
        "p99": figures.is_served,
        "refused": set(plan.refused) <= set(figures.refused),
    }
    return [name for name, is_kept in promises.items() if not is_kept and name != but]
