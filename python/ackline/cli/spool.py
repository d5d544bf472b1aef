"""`ackline spool …`: the content of a spool, its soundness, and its consumers."""

import itertools
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ackline.cli import consumers
from ackline.cli.show import (
    Directory,
    Group,
    Json,
    Memory,
    check_end,
    failed,
    lines,
    loss_line,
    memory_of,
    open_spool,
    table,
)  # fmt: skip
from ackline.cli.summary import summary, tell
from ackline.cli.terminal import print_line, say
from ackline.cli.values import FAILED, USAGE, fail, instant
from ackline.exceptions import SpoolError
from ackline.spool import Adopted, Mended, MendStep, Spool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ackline.spool import OnLoss, Repeats

__all__ = ["app"]

app = typer.Typer(help="The content of a spool, and its consumers.", no_args_is_help=True)
app.add_typer(consumers.app, name="consumers")

_BLOCK = [
    "position", "count", "windows", "received_at", "peer", "body_bytes", "inflated_bytes",
]  # fmt: skip
_ROWS = 1000
"""Blocks in one printed table."""
_STEPS = {
    "file_rebuilt": "make a file anew",
    "index_rebuilt": "rebuild the index",
    "group_cut_out": "cut out a damaged group",
    "tail_cut": "cut the end",
    "segment_set_aside": "set a segment aside",
    "mark_set_aside": "set a consumer's mark aside",
    "loss_noted": "note a loss",
    "position_raised": "raise the position",
}
"""The steps of `mend`, as the command prints them."""


@app.command()
def ls(directory: Directory, as_json: Json = False, group: Group = False) -> None:  # noqa: FBT002 (flags)
    """Shows the state of a spool, and lists its consumers, losses and blocks."""
    spool = open_spool(directory, group=group)
    try:
        stands = summary(spool)
        losses = spool.losses()
        blocks = spool.iter_blocks()
    except SpoolError as error:
        failed(error)
    if as_json:
        lines([{"event": "spool", "uuid": spool.uuid} | stands])
        lines(map(loss_line, losses))
    else:
        tell(stands)
        if losses:
            table("losses", ["from", "to", "why", "noted"], [loss_line(loss) for loss in losses])
    damaged = _Damaged()
    shown = damaged.passed(blocks)
    if as_json:
        lines({"event": "block"} | block for block in shown)
    else:
        _block_tables(shown)
    if damaged.met:
        say(f"`ackline spool mend {directory}` notes damaged groups as losses")
        sys.exit(FAILED)


class _Damaged:
    """Passes blocks on, and reports the groups that cannot be read."""

    def __init__(self) -> None:
        self.met = False

    def passed(self, blocks: "Iterator[dict[str, Any]]") -> "Iterator[dict[str, Any]]":
        while True:
            try:
                yield next(blocks)
            except StopIteration:
                return
            except SpoolError as error:
                if error.code != "spool.corrupt":
                    failed(error)
                self.met = True
                say(f"{error.code}: {error}")


def _block_tables(blocks: "Iterator[dict[str, Any]]") -> None:
    # A table is held in memory to find the width of its columns: a long list is cut into several.
    title, first = "blocks", True
    while (rows := list(itertools.islice(blocks, _ROWS))) or first:
        table(title, _BLOCK, rows)
        first = False


@app.command()
def find(
    directory: Directory,
    at: Annotated[str, typer.Option("--at", help="A time (RFC 3339).")],
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Prints the first position that was received at a time or later."""
    when = instant(at)
    if when is None:
        fail(f"{at!r} is not a time such as 2026-11-21T10:00:00Z", USAGE)
    spool = open_spool(directory, group=group)
    try:
        position, durable = spool.find(when), spool.durable()
    except SpoolError as error:
        failed(error)
    if as_json:
        lines([{"event": "found", "at": at, "position": position, "durable": durable}])
        return
    sys.stdout.write(f"{position}\n")


@app.command()
def adopt(directory: Directory, as_json: Json = False, group: Group = False) -> None:  # noqa: FBT002 (flags)
    """Gives a spool that was restored from a backup an identity of its own."""
    adopted: list[tuple[Path, Adopted]] = []
    quarantine = directory / "quarantine"
    try:
        # The quarantine is another spool next to it, in the same backup.
        if (quarantine / "spool.json").exists():
            adopted.append((quarantine, Spool.adopt(quarantine, group=group)))
        adopted.insert(0, (directory, Spool.adopt(directory, group=group)))
    except SpoolError as error:
        failed(error)
    for path, now in adopted:
        members = {"old": now.old, "new": now.new, "lowered": now.lowered}
        if as_json:
            lines([{"event": "adopted", "path": str(path)} | members])
            continue
        print_line(f"{path}: was {now.old}, is {now.new}")
        for name in now.lowered:
            print_line(f"consumer {name}: its mark was lowered to the durable position")


@app.command()
def mend(
    directory: Directory,
    dry_run: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--dry-run", help="Show the steps without changing anything.")
    ] = False,
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Repairs a damaged spool while no receiver runs on it; sound groups are not touched.

    Damaged parts are moved to DIR/lost+found. Positions whose events are gone are noted as losses:
    readers are told of them, and no position is given out again.
    """
    try:
        mended = Spool.mend(directory, dry_run=True, group=group)
        # A spool without damage is not opened for writing.
        if mended.steps and not dry_run:
            mended = Spool.mend(directory, group=group)
    except SpoolError as error:
        failed(error)
    if as_json:
        lines({"event": "mend_step"} | _step_members(step) for step in mended.steps)
        end = {"position": mended.position, "steps": len(mended.steps), "dry_run": dry_run}
        lines([{"event": "mended"} | end])
        return
    for step in mended.steps:
        print_line(_step_text(step))
    sys.stdout.write(f"{_mended_text(mended, dry_run=dry_run)}\n")


def _step_members(step: MendStep) -> dict[str, Any]:
    return {
        "what": step.what,
        "path": step.path,
        "from": step.start,
        "to": step.end,
        "why": step.why,
    }


def _step_text(step: MendStep) -> str:
    place = "" if step.start is None else f", positions {step.start} to {step.end}"
    return f"{_STEPS.get(step.what, step.what)}: {step.path}{place}: {step.why}"


def _mended_text(mended: Mended, *, dry_run: bool) -> str:
    following = f"the next event gets position {mended.position}"
    if not mended.steps:
        return f"nothing to mend, {following}"
    counted = f"{len(mended.steps)} step{'s' if len(mended.steps) > 1 else ''}"
    if dry_run:
        return f"{counted} to do, nothing was changed; after them {following}"
    return f"{counted} done, {following}"


@app.command()
def verify(
    directory: Directory,
    fsync_probe: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--fsync-probe", help="Time this disk's fsync instead.")
    ] = False,
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Checks every durable byte, and that the events that consumers want exist; ends with 1 if not.

    Noted losses are listed and are no problem. A problem is damage that is not noted yet: `ackline
    spool mend DIR` repairs it or notes it as a loss.

    With --fsync-probe it writes and syncs 4 KiB 200 times beside the segments, reports the time of
    a flush, and warns if that time is too short for a disk that really keeps the data.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    spool = open_spool(directory, group=group)
    if fsync_probe:
        _probe(spool, as_json=as_json)
        return
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=None)
            report = spool.verify(lambda done, size: bar.update(task, completed=done, total=size))
    except SpoolError as error:
        failed(error)
    losses = [loss_line(loss) for loss in report.losses]
    if as_json:
        members = {name: getattr(report, name) for name in report.__slots__}
        lines([{"event": "verified"} | members | {"losses": losses}])
    else:
        lost = sum(loss.end - loss.start for loss in report.losses)
        sys.stdout.write(
            f"{report.segments} segments, {report.groups} groups, {report.blocks} blocks, "
            f"{report.events} events, {report.bytes} bytes, {len(report.problems)} problems, "
            f"{lost} positions noted as lost\n"
        )
        if losses:
            table("losses", ["from", "to", "why", "noted"], losses)
    for problem in report.problems:
        say(problem)
    if report.problems:
        say(f"`ackline spool mend {directory} --dry-run` shows the possible repair")
        sys.exit(FAILED)


def _probe(spool: Spool, *, as_json: bool) -> None:
    try:
        found = spool.fsync_probe()
    except SpoolError as error:
        failed(error)
    if as_json:
        members = {name: getattr(found, name) for name in found.__slots__}
        lines([{"event": "fsync_probe"} | members])
        return
    sys.stdout.write(f"fsync of 4 KiB: p50 {found.p50_us:.0f} us, p99 {found.p99_us:.0f} us\n")
    if found.suspicious:
        sys.stdout.write(
            "that is too quick for a disk: it is memory, the flush is ignored, or a cache with a "
            "battery answers; an ack then survives a power loss only if that cache does\n"
        )


@app.command()
def cat(
    directory: Directory,
    start: Annotated[int | None, typer.Option("--from", help="First position.")] = None,
    end: Annotated[int | None, typer.Option("--to", help="The position after the last.")] = None,
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
    repeats: Annotated[
        str,
        typer.Option(help="mark prints events that were sent before too, skip leaves them out."),
    ] = "mark",
    on_loss: Annotated[
        str,
        typer.Option(help="fail ends at lost or damaged positions, skip leaves them out."),
    ] = "fail",
    memory: Memory = "512MiB",
) -> None:
    """Prints events: with --json all columns of each, otherwise the payloads alone.

    A --to above the durable position stands for that position. Skipped losses are listed on
    standard error. On a terminal a payload is one line, escaped as in JSON; into a pipe or a file
    it goes unchanged.
    """
    if on_loss not in {"fail", "skip"}:
        fail(f"--on-loss is fail or skip, not {on_loss!r}", USAGE)
    if repeats not in {"mark", "skip"}:
        fail(f"--repeats is mark or skip, not {repeats!r}", USAGE)
    if (start or 0) < 0 or (end is not None and end < (start or 0)):
        fail("--from and --to name positions: 0 <= from <= to", USAGE)
    most = memory_of(memory)
    spool = open_spool(directory, group=group)
    columns = None if as_json else ["parts", "payload"]
    try:
        check_end(spool, start or 0)
        end = None if end is None else min(end, spool.durable())
        events = spool.read(
            start,
            end,
            columns=columns,
            memory=most,
            repeats=cast("Repeats", repeats),
            on_loss=cast("OnLoss", on_loss),
        )
        for event in events.json_lines():
            if as_json:
                print_line(event)
            else:
                _print_payload(event)
    except SpoolError as error:
        failed(error)
    for loss in events.skipped:
        say(f"positions {loss.start} to {loss.end} were skipped: {loss.why}")


def _print_payload(line: str) -> None:
    """Prints one event per line: a terminal shows no end of line inside it."""
    event: dict[str, Any] = json.loads(line)
    payload = event.get("payload")
    if isinstance(payload, str) and not sys.stdout.isatty():
        sys.stdout.write(f"{payload}\n")
    else:
        print_line(payload if isinstance(payload, str) else line)
