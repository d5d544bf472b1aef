"""Cut the power of a receiver's spool again and again, and look for all that it had acknowledged.

    python tests/power/power.py --cuts 200
    python tests/power/power.py --cuts 30 --filesystem xfs --seed 7

Root alone can do this. A file system in an image file is mounted, a receiver keeps its spool there,
senders send without end and a consumer commits. At a random moment the receiver is stopped, the
acknowledgements that it has sent are read, and the file system is shut down: bytes only in memory
are lost. The receiver is killed, the file system is mounted again, and a new receiver starts
on the spool that is left. Then no acknowledged event may be missing, no position may hold another
event than before, no loss may be reported, and the consumer's mark must not be below a
confirmed commit.

One cut in four hits a receiver that is not stopped; acknowledgements after that cut do not count.
Some cuts fall into a receiver's start. Between cuts receivers are killed with -9, so that the next
receiver finds writes that only memory holds; dirty pages are written in a random order, as the
kernel may; and the disk is filled. After 25 cuts a new file system begins. A seed repeats the
choices, not the moments.

The exit code is 1 when a promise was not kept; the image, the receiver's log and a copy of the
spool after the last cut are then kept. Without root, loop devices or mkfs one line says why the
cuts are skipped, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from account import Account, Wrong, beside_retention
from disk import FLUSH_ALL, LOG_FLUSH, NO_LOG_FLUSH, Disk, Skipped, check_machine, disk, run
from parties import CONSUMER, Consumer, NotStarted, Receiver, Sender, ackline_command, free_port

import ackline
from ackline.exceptions import SpoolError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


@dataclass
class Figures:
    """The lines at the end."""

    filesystem: str
    seed: int
    cuts: int = 0
    running: int = 0
    starting: int = 0
    kills: int = 0
    full_disks: int = 0
    refused_starts: int = 0
    acked: int = 0
    events: int = 0
    retired: int = 0
    missing: int = 0
    positions_twice: int = 0
    false_losses: int = 0
    stale_marks: int = 0
    cut_tails: int = 0
    repeats: int = 0
    unmarked_repeats: int = 0
    late_acks: int = 0
    late_acks_gone: int = 0

    def add(self, account: Account) -> None:
        """Add the result of one spool."""
        self.acked += len(account.acked)
        self.events += len(account)
        self.retired += account.first_kept
        self.missing += account.missing
        self.positions_twice += account.twice
        self.repeats += account.repeats
        self.unmarked_repeats += account.unmarked
        self.late_acks_gone += account.escaped

    def tell(self) -> None:
        """Print them."""
        print(
            f"{self.filesystem}: {self.cuts} cuts, {self.acked} acked, {self.missing} missing, "
            f"{self.positions_twice} positions twice, {self.false_losses} false losses, "
            f"{self.stale_marks} stale marks"
        )
        print(
            f"{self.filesystem}: of these cuts {self.running} while the receiver ran and "
            f"{self.starting} while it started; {self.kills} kills between them, "
            f"{self.full_disks} full disks, {self.refused_starts} starts refused on them; "
            f"{self.events} events in the spools, {self.retired} retired, {self.cut_tails} tails "
            f"cut, {self.repeats} repeats marked, {self.unmarked_repeats} not marked though kept; "
            f"{self.late_acks} acks after the cut, {self.late_acks_gone} of them for nothing",
            flush=True,
        )


class Spool:
    """One spool on one new file system, from life to life."""

    def __init__(self, disk: Disk, chance: random.Random, figures: Figures) -> None:
        self.disk = disk
        self.chance = chance
        self.figures = figures
        self.account = Account()
        self.directory = disk.mounted / "spool"
        self.log = disk.image.with_name("receiver.log")
        self.port = free_port(chance)
        self.has_consumer = chance.random() < 0.8
        self.was_full = False
        """Whether the receiver that runs has seen a full disk."""
        self.receiver: Receiver | None = None
        self.consumer: Consumer | None = None
        self.stale_at: int | None = None
        """The durable mark after a cut, until a receiver has recovered the spool."""
        self.known = (0, 0)
        """The position after the last one read, and the mark, before the receiver's start."""
        self.late_since: int | None = None
        """The acknowledgements before a cut that hit a running receiver."""
        pace = chance.choice([0.005, 0.02, 0.05])
        self.senders = [
            Sender(number, self.port, self.account, random.Random(chance.random()), pace)
            for number in range(chance.randint(1, 5))
        ]
        disk.make()
        self.mount()

    def mount(self) -> None:
        """Mount the file system again, and check the spool before a receiver does."""
        self.stale_at = None
        options = self.chance.choice(_MOUNT_OPTIONS[self.disk.kind])
        self.disk.mount(options)
        if self.chance.random() < 0.5:
            self.empty_disk()
        if not (self.directory / "spool.json").exists():
            return
        kept = self.disk.image.with_name("after-the-cut")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.directory, kept, ignore=shutil.ignore_patterns("reserve"))
        self.look_at_mark()
        with contextlib.suppress(SpoolError):
            # A creation that was cut short has no durable mark yet.
            spool = ackline.Spool(self.directory)
            self.stale_at = spool.durable()
        if self.stale_at is not None and self.chance.random() < 0.3:
            self.account.read(spool)

    def look_at_mark(self) -> None:
        """Compare the consumer's mark with its confirmed commits."""
        path = self.directory / "consumers" / f"{CONSUMER}.json"
        account = self.account
        found = json.loads(path.read_text())["committed"] if path.exists() else 0
        if not account.told <= found <= account.attempted:
            raise Wrong(
                f"the mark is {found}; a commit up to {account.told} had returned, "
                f"one up to {account.attempted} had begun"
            )

    def empty_disk(self) -> None:
        """Give the room back that a file had taken."""
        self.disk.filler.unlink(missing_ok=True)

    def fill_disk(self) -> None:
        """Take the room away."""
        self.disk.fill(self.chance.choice([0, 64 << 10, 1 << 20]))
        self.was_full = True
        self.figures.full_disks += 1

    def begin(self, arguments: Sequence[str]) -> Receiver:
        """Start a receiver, and do not wait for it."""
        if self.late_since is not None:
            self.figures.late_acks += self.account.late(self.late_since)
            self.late_since = None
        self.was_full = self.disk.filler.exists()
        self.known = (self.account.end, self.account.told)
        self.receiver = Receiver(self.directory, self.port, arguments, self.log)
        self.receiver.start()
        return self.receiver

    def start(self, arguments: Sequence[str]) -> None:
        """Start a receiver, and check its recovery."""
        is_old = (self.directory / "spool.json").exists()
        try:
            self.begin(arguments).listen(is_old=is_old)
        except NotStarted as error:
            if not self.disk.filler.exists():
                raise Wrong(f"the receiver does not start: {error}") from error
            self.figures.refused_starts += 1
            self.empty_disk()
            self.start(arguments)
            return
        self.judge_recovery()
        self.check()

    def judge_recovery(self) -> None:
        """Check the recovery that the receiver reports."""
        found = self.receiver.recovered() if self.receiver is not None else None
        if found is None:
            return
        account = self.account
        self.figures.cut_tails += found["cut_bytes"] > 0
        if self.stale_at is not None and self.stale_at < found["position"]:
            self.figures.stale_marks += 1
        self.stale_at = None
        findings = []
        end, mark = self.known
        if found["position"] < end:
            findings.append(f"{end} positions were read, it goes on at {found['position']}")
        if found["position"] < mark:
            findings.append(f"it goes on at {found['position']}, the mark is {mark}")
        if found["lost"] is not None:
            findings.append(f"{found['lost']} is reported as lost")
        if not findings:
            return
        try:
            account.check(ackline.Spool(self.directory))
        except (Wrong, SpoolError) as error:
            findings.append(str(error))
        self.figures.false_losses += found["lost"] is not None and account.missing == 0
        raise Wrong("; ".join(findings))

    def check(self) -> None:
        """Look for everything that was acknowledged, and verify every byte."""
        spool = ackline.Spool(self.directory)
        self.account.check(spool)
        report = beside_retention(spool.verify)
        if report.problems:
            raise Wrong(f"verify: {report.problems}")
        if self.receiver is not None and (errors := self.receiver.errors(full=self.was_full)):
            raise Wrong(f"the receiver logs {errors[0]}")

    def live(self) -> None:
        """Receive for a random time; perhaps kill the receiver, perhaps fill the disk."""
        arguments = self.arguments()
        self.start(arguments)
        for sender in self.senders:
            if not sender.is_alive():
                sender.start()
        self.consume()
        self.wait()
        while self.chance.random() < 0.3:
            if self.receiver is not None:
                self.receiver.kill()
            self.figures.kills += 1
            self.start(arguments)
            self.wait()

    def arguments(self) -> list[str]:
        """Choose the options of a receiver."""
        chosen = ["--segment-bytes", self.chance.choice(["8KiB", "64KiB", "1MiB", "64MiB"])]
        chosen += ["--segment-age", self.chance.choice(["200ms", "1s", "10m"])]
        if self.has_consumer:
            chosen += ["--budget", self.chance.choice(["256KiB", "1MiB", "4MiB", "64MiB", "4GiB"])]
            chosen += ["--retain-committed", self.chance.choice(["0s", "1s", "24h"])]
            if self.chance.random() < 0.2:
                chosen += ["--ack", f"committed={CONSUMER}"]
        return chosen

    def consume(self, *, fast: bool = False) -> None:
        """Let the consumer read and commit, in one of its ways."""
        if self.has_consumer:
            pause = 0.01 if fast else self.chance.choice([0.01, 0.05, 0.3])
            is_leased = self.chance.random() < 0.5
            chance = random.Random(self.chance.random())
            self.consumer = Consumer(self.directory, self.account, pause, chance, leased=is_leased)
            self.consumer.start()

    def wait(self) -> None:
        """Let a random time pass, with some writing back and perhaps a full disk."""
        if self.chance.random() < 0.7:
            acked, deadline = len(self.account.acked), time.monotonic() + 2
            while len(self.account.acked) == acked and time.monotonic() < deadline:
                time.sleep(0.005)
        spans = [self.chance.expovariate(2.5)]
        if self.chance.random() < 0.12:
            spans += [self.chance.uniform(0.2, 1.0), self.chance.expovariate(2.5)]
        for number, span in enumerate(spans):
            if number == 1:
                self.fill_disk()
            elif number == 2 and self.chance.random() < 0.5:
                self.empty_disk()
            until_then = time.monotonic() + min(span, 2.0)
            while time.monotonic() < until_then:
                time.sleep(self.chance.uniform(0.001, 0.05))
                self.write_back()

    def write_back(self) -> None:
        """Write some dirty pages, as the kernel may."""
        if self.chance.random() < 0.02:
            self.disk.sync_all()
        files = [self.directory / "durable", *(self.directory / "segments").glob("*")]
        # The newest segment and its index are the ones that are written.
        self.disk.sync_some(self.chance.choice(sorted(files)[-3:]))

    def cut(self) -> None:
        """Cut the power, and end the processes."""
        receiver, account = self.receiver, self.account
        if receiver is None:
            raise RuntimeError("a cut needs a receiver")
        is_running = self.chance.random() < 0.25
        flag = self.chance.choices([NO_LOG_FLUSH, LOG_FLUSH, FLUSH_ALL], [8, 1, 1])[0]
        if not is_running:
            receiver.freeze()
            self.drain()
        receiver.check_alive(full=self.was_full)
        self.judge_recovery()
        if self.consumer is not None:
            self.consumer.over.set()
        before = len(account.acked)
        self.disk.cut_power(flag)
        receiver.kill()
        if self.consumer is not None:
            self.consumer.end()
            self.consumer = None
        self.disk.unmount()
        self.receiver = None
        self.figures.cuts += 1
        if is_running:
            self.figures.running += 1
            self.late_since = before

    def drain(self) -> None:
        """Wait until the senders have read the acks that were sent before the stop."""
        before, quiet = -1, 0
        while quiet < 3:
            now = len(self.account.acked)
            quiet = quiet + 1 if now == before else 0
            before = now
            time.sleep(0.01)

    def finish(self) -> None:
        """Let the senders get their last acks, stop the receiver in good order and look again."""
        self.empty_disk()
        self.start([])
        self.consume(fast=True)
        for sender in self.senders:
            sender.ending.set()
        for sender in self.senders:
            if sender.is_alive():
                sender.join(60)
                if sender.is_alive():
                    raise Wrong(f"{sender.name} does not get its last acks")
        self.check()
        if self.consumer is not None:
            self.consumer.end()
            self.consumer = None
        if self.receiver is not None and (code := self.receiver.stop()) != 0:
            raise Wrong(f"the receiver ends with {code}")
        self.receiver = None
        self.account.check(ackline.Spool(self.directory))
        run(ackline_command(), "spool", "verify", self.directory)
        self.disk.unmount()

    def bury(self) -> None:
        """End every process that still lives."""
        for sender in self.senders:
            sender.ending.set()
        if self.receiver is not None:
            self.receiver.kill()
        for sender in self.senders:
            sender.abort()
        if self.consumer is not None:
            self.consumer.end()


def play(disk: Disk, cuts: int, chance: random.Random, figures: Figures) -> None:
    """Make all cuts on one kind of file system."""
    began = time.monotonic()
    while figures.cuts < cuts:
        spool = Spool(disk, chance, figures)
        last = min(figures.cuts + _CUTS_PER_DISK, cuts)
        try:
            while figures.cuts < last:
                signal.alarm(_PATIENCE_S)
                if chance.random() < 0.15:
                    spool.begin(spool.arguments())
                    time.sleep(chance.uniform(0, 0.5))
                    figures.starting += 1
                else:
                    spool.live()
                spool.cut()
                spool.mount()
                if figures.cuts % 10 == 0:
                    print(
                        f"{time.monotonic() - began:6.1f} s  {disk.kind}: cut {figures.cuts} of "
                        f"{cuts}, {figures.acked + len(spool.account.acked)} events acked",
                        flush=True,
                    )
            signal.alarm(_PATIENCE_S)
            spool.finish()
        finally:
            signal.alarm(0)
            spool.bury()
            figures.add(spool.account)


def cut_all(kind: str, directory: Path, cuts: int, seed: int) -> bool:
    """Cut one kind of file system and tell; whether every promise was kept."""
    figures = Figures(kind, seed)
    wrong: str | None = None
    try:
        with disk(kind, directory) as made:
            try:
                play(made, cuts, random.Random(f"{seed} {kind}"), figures)
            except Wrong as finding:
                wrong = str(finding)
            except (SpoolError, OSError, ValueError) as error:
                # Whether the spool failed or this test, the place tells.
                traceback.print_exc()
                wrong = f"{type(error).__name__}: {error}"
    except Skipped as reason:
        print(f"{kind}: skipped: {reason}", flush=True)
        return True
    if wrong is not None:
        print(f"WRONG: {kind}, seed {seed}, after cut {figures.cuts}: {wrong}")
    figures.tell()
    return wrong is None


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=int, default=200, help="cuts of each file system [200]")
    parser.add_argument("--filesystem", choices=["ext4", "xfs", "both"], default="both")
    parser.add_argument("--seed", type=int, help="of the choices; a random one is printed")
    parser.add_argument("--directory", type=Path, help="where images stand [a temporary folder]")
    return parser.parse_args()


def end(number: int, _frame: Any) -> None:
    """Turn a signal into an end in which everything is unmounted."""
    if number == signal.SIGALRM:
        raise TimeoutError(f"one cut takes more than {_PATIENCE_S} s")
    sys.exit(128 + number)


def main() -> int:
    """Read the command line, cut, and tell."""
    given = arguments()
    kinds = ["ext4", "xfs"] if given.filesystem == "both" else [given.filesystem]
    try:
        check_machine()
    except Skipped as reason:
        print(f"power cuts skipped: {reason}")
        return 0
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    # It logs every connection that a cut has broken.
    logging.getLogger("ackline").setLevel(logging.CRITICAL)
    threading.excepthook = lambda failed: print("a thread failed:", failed.exc_value)
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="ackline-power-", dir=given.directory))
    is_clean = False
    try:
        is_clean = all(cut_all(kind, directory, given.cuts, seed) for kind in kinds)
    except SystemExit:
        is_clean = True
        raise
    finally:
        if is_clean:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            print(f"kept for a look: {directory}")
    return 0 if is_clean else 1


_CUTS_PER_DISK = 25
_PATIENCE_S = 180
"""A cut with its lives takes a few seconds."""
_MOUNT_OPTIONS = {
    "ext4": ("", "", "data=writeback", "data=journal", "commit=60"),
    "xfs": ("",),
}


if __name__ == "__main__":
    sys.exit(main())
