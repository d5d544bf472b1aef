"""The parties: the receiver in a process of its own, senders and a consumer as threads."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from account import Wrong
from disk import until

import ackline
from ackline import lumberjack
from ackline.exceptions import AcklineError, SpoolError, TransportError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from account import Account

T = TypeVar("T")

HOST = "127.0.0.1"
CONSUMER = "power"


class NotStarted(Exception):  # noqa: N818 (the receiver's error is its text)
    """The receiver ended where it was to listen."""


def ackline_command() -> str:
    """Find the command `ackline` of this environment."""
    beside = Path(sys.executable).with_name("ackline")
    found = str(beside) if beside.exists() else shutil.which("ackline")
    if found is None:
        raise FileNotFoundError("the command `ackline` is not installed here: make setup")
    return found


def free_port(chance: random.Random) -> int:
    """Choose a port that no connection is given as its own, so that every receiver can have it."""
    while True:
        port = chance.randint(20_000, 32_000)
        with socket.socket() as trial:
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
            return port


class Receiver:
    """`ackline receive --json` on a spool; it does not outlive this process."""

    def __init__(self, spool: Path, port: int, arguments: Sequence[str], log: Path) -> None:
        self.command = ["setpriv", "--pdeathsig", "KILL", ackline_command(), "receive"]
        self.command += [f"lumberjack://{HOST}:{port}", "--spool", str(spool), "--json", *arguments]
        self.log = log
        self.log_start = 0
        self.lines: list[dict[str, Any]] = []
        self.process: subprocess.Popen[str] | None = None
        self.reader: threading.Thread | None = None
        self._is_judged = False

    def start(self) -> None:
        """Start it, and do not wait."""
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(self.command[3:])}\n".encode())
            log.flush()
            self.log_start = log.tell()
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.reader = threading.Thread(target=self._follow, args=(self.process,), daemon=True)
        self.reader.start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as stdout:
            for line in stdout:
                if line.endswith("}\n"):
                    self.lines.append(json.loads(line))

    def has_said(self, event: str) -> bool:
        """Whether a line of this kind was read."""
        return any(line["event"] == event for line in self.lines)

    def listen(self, *, is_old: bool) -> None:
        """Wait until it listens and, on a spool that is not new, has reported its recovery."""
        until(lambda: self._has_begun(is_old=is_old), "the receiver listens", 60)

    def _has_begun(self, *, is_old: bool) -> bool:
        assert self.process is not None
        if (code := self.process.poll()) is not None:
            raise NotStarted(f"exit code {code}: {self.said()[-600:]}")
        return self.has_said("listening") and (not is_old or self.has_said("recovered"))

    def recovered(self) -> dict[str, Any] | None:
        """Return the line about the recovery of an old spool, once."""
        if self._is_judged:
            return None
        found = next((line for line in self.lines if line["event"] == "recovered"), None)
        self._is_judged = found is not None
        return found

    def said(self) -> str:
        """Return its log."""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            return log.read().decode(errors="replace")

    def errors(self, *, full: bool) -> list[str]:
        """Return the errors that it has logged; a full disk may be one of them."""
        lines = [line for line in self.said().splitlines() if ": ERROR:" in line]
        return [line for line in lines if not full or "os error 28" not in line]

    def check_alive(self, *, full: bool) -> None:
        """Raise `Wrong` if it has ended, or failed, by itself."""
        assert self.process is not None
        if (code := self.process.poll()) is not None and not full:
            raise Wrong(f"the receiver ended by itself with {code}: {self.said()[-600:]}")
        if errors := self.errors(full=full):
            raise Wrong(f"the receiver logs {errors[0]}")

    def freeze(self) -> None:
        """Stop all its threads; an fsync that has begun is finished first."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
            until(self._is_frozen, "the receiver is stopped", 20)

    def _is_frozen(self) -> bool:
        assert self.process is not None
        states = set()
        try:
            for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
                states.add(stat.read_text().rpartition(")")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            return False
        return states <= {"T"} or self.process.poll() is not None

    def kill(self) -> None:
        """End it with -9 at any point of its work."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in the orderly way; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(60)
        if self.reader is not None:
            self.reader.join(10)
        self.process = None
        return code


class Sender(threading.Thread):
    """Sends events that are told apart, over all cuts, until it is to end."""

    def __init__(
        self, number: int, port: int, account: Account, chance: random.Random, pace: float
    ) -> None:
        super().__init__(name=f"sender-{number}", daemon=True)
        self.port = port
        self.account = account
        self.chance = chance
        self.pace = pace
        self.ending = threading.Event()
        self._writer: lumberjack.Writer | None = None
        self._count = 0

    def run(self) -> None:
        try:
            self._writer = self._connect()
            if self._writer is not None:
                with self._writer as writer:
                    self._send(writer)
        except AcklineError as error:
            if not self.ending.is_set():
                self.account.failures.append(f"{self.name}: {error}")

    def _connect(self) -> lumberjack.Writer | None:
        while not self.ending.is_set():
            try:
                return lumberjack.connect(
                    f"lumberjack://{HOST}:{self.port}",
                    compression=self.chance.choice([None, 1, 3]),
                    batch_events=self.chance.choice([10, 50, 2048]),
                    max_in_flight=self.chance.randint(1, 8),
                    backoff_min=0.05,
                    backoff_max=0.1,
                )
            except TransportError:
                time.sleep(0.05)
        return None

    def _send(self, writer: lumberjack.Writer) -> None:
        while not self.ending.is_set():
            events = [self._event() for _ in range(self.chance.choice([1, 3, 20, 100]))]
            self.account.hand_over(events)
            writer.send(events, timeout=_SEND_TIMEOUT)
            self.account.acknowledge(events)
            self.ending.wait(self.chance.uniform(0, 2 * self.pace))

    def _event(self) -> bytes:
        self._count += 1
        size = 5_000 if self.chance.random() < 0.01 else self.chance.choice([0, 20, 100])
        text = {"id": f"{self.name}-{self._count}", "pad": self.chance.randbytes(size).hex()}
        return json.dumps(text).encode()

    def abort(self) -> None:
        """Forget unacknowledged events."""
        if self.is_alive() and self._writer is not None:
            self._writer.close(timeout=0.0)
            self.join(10)


class Consumer(threading.Thread):
    """Reads durable events, notes them, and commits them."""

    def __init__(
        self, spool: Path, account: Account, pause: float, chance: random.Random, *, leased: bool
    ) -> None:
        super().__init__(name="consumer", daemon=True)
        self.spool = spool
        self.account = account
        self.pause = pause
        self.chance = chance
        self.leased = leased
        self.over = threading.Event()
        """Set before the cut: an error counts no more, nor does a commit that returns."""

    def run(self) -> None:
        try:
            self._read()
        except (Wrong, SpoolError, OSError) as error:
            if not self.over.is_set():
                self.account.failures.append(f"the consumer: {error}")

    def _read(self) -> None:
        spool = ackline.Spool(self.spool)
        lease = self._when_there_is_room(lambda: spool.lease(CONSUMER)) if self.leased else None
        try:
            marks = {consumer.name: consumer.committed for consumer in spool.consumers()}
            mark = marks.get(CONSUMER, 0)
            while not self.over.wait(self.chance.uniform(0, 2 * self.pause)):
                end = min(spool.durable(), mark + self.chance.randint(1, 20_000))
                if mark < end:
                    self.account.note(spool, mark, end)
                    self._commit(spool, lease, end)
                    mark = end
        finally:
            if lease is not None:
                lease.release()

    def _commit(self, spool: ackline.Spool, lease: ackline.Lease | None, end: int) -> None:
        self.account.attempt(end)
        if lease is None:
            self._when_there_is_room(lambda: spool.commit_mark(CONSUMER, end))
        else:
            self._when_there_is_room(lambda: lease.commit(end))
        if not self.over.is_set():
            self.account.told = end

    def _when_there_is_room(self, write: Callable[[], T]) -> T | None:
        while not self.over.is_set():
            try:
                return write()
            except SpoolError as error:
                if os.strerror(errno.ENOSPC) not in str(error):
                    raise
            self.over.wait(0.05)
        return None

    def end(self) -> None:
        """End it, and wait for that."""
        self.over.set()
        self.join(30)
        if self.is_alive():
            raise TimeoutError("the consumer does not end")


_SEND_TIMEOUT = 300.0
"""Far more than the time between two receivers."""
