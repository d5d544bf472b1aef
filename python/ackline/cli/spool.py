"""`ackline spool …`: what a spool holds, whether it is sound, and who holds it."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ackline.cli.values import FAILED, USAGE, fail
from ackline.exceptions import SpoolError
from ackline.spool import Spool

__all__ = ["app"]

app = typer.Typer(help="What a spool holds, and who holds it.", no_args_is_help=True)
consumers = typer.Typer(help="The consumers of a spool and their marks.", no_args_is_help=True)
app.add_typer(consumers, name="consumers")

_Directory = Annotated[Path, typer.Argument(help="The spool's directory.")]
_Json = Annotated[bool, typer.Option("--json", help="JSON lines alone on standard output.")]


def _open(directory: Path) -> Spool:
    try:
        return Spool(directory)
    except SpoolError as error:
        fail(f"{error.code}: {error}", FAILED)


@app.command()
def ls(directory: _Directory, as_json: _Json = False) -> None:  # noqa: FBT002 (a flag)
    """Lists the blocks of a spool."""
    spool = _open(directory)
    try:
        blocks = spool.blocks()
        kept = {
            "event": "spool",
            "uuid": spool.uuid,
            "first_kept": spool.first_kept(),
            "durable": spool.durable(),
            "blocks": len(blocks),
        }
    except SpoolError as error:
        fail(f"{error.code}: {error}", FAILED)
    if as_json:
        _print_lines([kept, *({"event": "block"} | block for block in blocks)])
        return
    _table(
        f"{kept['uuid']}: positions {kept['first_kept']} to {kept['durable']}",
        ["position", "count", "windows", "received_at", "peer", "body_bytes", "inflated_bytes"],
        blocks,
    )


@app.command()
def verify(directory: _Directory, as_json: _Json = False) -> None:  # noqa: FBT002 (a flag)
    """Checks every durable byte; ends with 1 if anything is wrong."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    spool = _open(directory)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=None)
            report = spool.verify(lambda done, size: bar.update(task, completed=done, total=size))
    except SpoolError as error:
        fail(f"{error.code}: {error}", FAILED)
    if as_json:
        members = {name: getattr(report, name) for name in report.__slots__}
        _print_lines([{"event": "verified"} | members])
    else:
        sys.stdout.write(
            f"{report.segments} segments, {report.groups} groups, {report.blocks} blocks, "
            f"{report.events} events, {report.bytes} bytes, {len(report.problems)} problems\n"
        )
    if report.problems:
        fail("\nackline: ".join(report.problems), FAILED)


@app.command()
def cat(
    directory: _Directory,
    start: Annotated[int | None, typer.Option("--from", help="First position.")] = None,
    end: Annotated[int | None, typer.Option("--to", help="The position after the last.")] = None,
    as_json: _Json = False,  # noqa: FBT002 (a flag)
) -> None:
    """Prints events: with --json all columns of each, otherwise the payloads alone.

    --to above the durable position means: to the end.
    """
    if (start or 0) < 0 or (end is not None and end < (start or 0)):
        fail("--from and --to name positions: 0 <= from <= to", USAGE)
    spool = _open(directory)
    columns = None if as_json else ["parts", "payload"]
    try:
        end = None if end is None else min(end, spool.durable())
        for line in spool.read(start, end, columns=columns).json_lines():
            sys.stdout.write(f"{line if as_json else _payload(line)}\n")
        sys.stdout.flush()
    except SpoolError as error:
        fail(f"{error.code}: {error}", FAILED)
    except BrokenPipeError:
        # Whoever reads has seen enough; nothing may be flushed into the broken pipe at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _payload(line: str) -> str:
    event: dict[str, Any] = json.loads(line)
    payload = event.get("payload")
    return payload if isinstance(payload, str) else line


@consumers.command("ls")
def consumers_ls(directory: _Directory, as_json: _Json = False) -> None:  # noqa: FBT002 (a flag)
    """Lists the consumers of a spool."""
    spool = _open(directory)
    try:
        durable = spool.durable()
        rows = [
            {
                "event": "consumer",
                "name": mark.name,
                "committed": mark.committed,
                "lag": durable - mark.committed,
                "updated": mark.updated,
            }
            for mark in spool.consumers()
        ]
    except SpoolError as error:
        fail(f"{error.code}: {error}", FAILED)
    if as_json:
        _print_lines(rows)
        return
    _table("consumers", ["name", "committed", "lag", "updated"], rows)


@consumers.command("rm")
def consumers_rm(
    directory: _Directory, name: Annotated[str, typer.Argument(help="The consumer.")]
) -> None:
    """Forgets a consumer: what it alone held may be retired."""
    spool = _open(directory)
    try:
        was_there = spool.remove_consumer(name)
    except SpoolError as error:
        fail(f"{error.code}: {error}", FAILED)
    if not was_there:
        fail(f"there is no consumer {name!r}", FAILED)


def _print_lines(lines: list[dict[str, Any]]) -> None:
    for line in lines:
        sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")


def _table(title: str, names: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*names, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(row[name]) for name in names))
    Console().print(table)
