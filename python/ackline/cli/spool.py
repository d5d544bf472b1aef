"""`ackline spool …`: what a spool holds, whether it is sound, and whose it is."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ackline.cli import consumers
from ackline.cli.show import Directory, Group, Json, check_end, failed, lines, open_spool, table
from ackline.cli.summary import summary, tell
from ackline.cli.terminal import say
from ackline.cli.values import FAILED, USAGE, fail, instant
from ackline.exceptions import SpoolError
from ackline.spool import Adopted, Spool

if TYPE_CHECKING:
    from pathlib import Path

    from ackline.spool import Repeats

__all__ = ["app"]

app = typer.Typer(help="What a spool holds, and who holds it.", no_args_is_help=True)
app.add_typer(consumers.app, name="consumers")


@app.command()
def ls(directory: Directory, as_json: Json = False, group: Group = False) -> None:  # noqa: FBT002 (flags)
    """Says how a spool stands, and lists its consumers and blocks."""
    spool = open_spool(directory, group=group)
    try:
        blocks = spool.blocks()
        stands = summary(spool)
    except SpoolError as error:
        failed(error)
    if as_json:
        stands = {"event": "spool", "uuid": spool.uuid} | stands | {"blocks": len(blocks)}
        lines([stands, *({"event": "block"} | block for block in blocks)])
        return
    tell(stands)
    table(
        "blocks",
        ["position", "count", "windows", "received_at", "peer", "body_bytes", "inflated_bytes"],
        blocks,
    )


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
        # The quarantine is a spool beside it, of the same backup.
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
        sys.stdout.write(f"{path}: was {now.old}, is {now.new}\n")
        for name in now.lowered:
            sys.stdout.write(f"consumer {name}: its mark was lowered to what is durable here\n")


@app.command()
def verify(
    directory: Directory,
    fsync_probe: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option("--fsync-probe", help="Time this disk's fsync instead.")
    ] = False,
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Checks every durable byte, and that what consumers want is there; ends with 1 if not.

    With --fsync-probe it writes and syncs 4 KiB 200 times beside the segments and says what a
    flush costs here, and whether that can be true of a disk that keeps what it was told to keep.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    spool = open_spool(directory, group=group)
    if fsync_probe:
        _probe(spool, as_json=as_json)
        return
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=None)
            report = spool.verify(lambda done, size: bar.update(task, completed=done, total=size))
    except SpoolError as error:
        failed(error)
    if as_json:
        members = {name: getattr(report, name) for name in report.__slots__}
        lines([{"event": "verified"} | members])
    else:
        sys.stdout.write(
            f"{report.segments} segments, {report.groups} groups, {report.blocks} blocks, "
            f"{report.events} events, {report.bytes} bytes, {len(report.problems)} problems\n"
        )
    for problem in report.problems:
        say(problem)
    if report.problems:
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
) -> None:
    """Prints events: with --json all columns of each, otherwise the payloads alone.

    --to above the durable position means: to the end.
    """
    if repeats not in {"mark", "skip"}:
        fail(f"--repeats is mark or skip, not {repeats!r}", USAGE)
    if (start or 0) < 0 or (end is not None and end < (start or 0)):
        fail("--from and --to name positions: 0 <= from <= to", USAGE)
    spool = open_spool(directory, group=group)
    columns = None if as_json else ["parts", "payload"]
    try:
        check_end(spool, start or 0)
        end = None if end is None else min(end, spool.durable())
        events = spool.read(start, end, columns=columns, repeats=cast("Repeats", repeats))
        for event in events.json_lines():
            sys.stdout.write(f"{event if as_json else _payload(event)}\n")
    except SpoolError as error:
        failed(error)


def _payload(line: str) -> str:
    event: dict[str, Any] = json.loads(line)
    payload = event.get("payload")
    return payload if isinstance(payload, str) else line
