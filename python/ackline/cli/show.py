"""The parts that the commands on spools share: opening a spool, printing lines or a table."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ackline.cli.terminal import escaped
from ackline.cli.values import FAILED, USAGE, fail, instant, size
from ackline.exceptions import SpoolError, UsageError
from ackline.spool import LEAST_MEMORY, Loss, Spool

__all__ = [
    "Directory", "Group", "Json", "Memory", "check_end", "failed", "lines", "loss_line",
    "memory_of", "open_spool", "position_of", "table",
]  # fmt: skip

Directory = Annotated[Path, typer.Argument(help="The spool's directory.")]
Json = Annotated[bool, typer.Option("--json", help="JSON lines alone on standard output.")]
Memory = Annotated[
    str, typer.Option(help="Bytes that the reading holds at once at the most, 4MiB or more.")
]
Group = Annotated[
    bool, typer.Option("--group", help="The spool is shared with its group (0770, 0660).")
]


def open_spool(directory: Path, *, group: bool) -> Spool:
    """Opens a spool, or reports the error and ends."""
    try:
        return Spool(directory, group=group)
    except SpoolError as error:
        failed(error)


def failed(error: SpoolError | UsageError) -> NoReturn:
    """Reports the error of the spool, or of the command line, and ends."""
    fail(f"{error.code}: {error}", USAGE if error.code == "spool.consumer_name" else FAILED)


def memory_of(text: str) -> int:
    """Returns the bytes of `--memory`, or reports the error and ends."""
    memory = size(text, "--memory")
    if memory < LEAST_MEMORY:
        fail(f"--memory is {text}; it is 4MiB at least", USAGE)
    return memory


def position_of(spool: Spool, text: str) -> int:
    """The position of ``earliest``, ``latest``, a number or a time; may raise `SpoolError`."""
    if text == "earliest":
        return spool.first_kept()
    if text == "latest":
        return spool.durable()
    if text.isascii() and text.isdigit():
        position = int(text)
        check_end(spool, position)
        return position
    at = instant(text)
    if at is None:
        fail(
            f"{text!r} is none of earliest, latest, a position, or a time such as "
            "2026-11-21T10:00:00Z",
            USAGE,
        )
    return spool.find(at)


def check_end(spool: Spool, position: int) -> None:
    """Refuses a position that the spool has not given out yet, by a `SpoolError`."""
    durable = spool.durable()
    if position > durable:
        text = f"position {position} is above the end {durable} of {spool.path}"
        raise SpoolError(text, "spool.behind_checkpoint")


def loss_line(loss: Loss) -> dict[str, Any]:
    """Returns the line of `--json` for a loss."""
    members = {"from": loss.start, "to": loss.end, "why": loss.why, "noted": loss.noted}
    return {"event": "loss"} | members


def lines(values: Iterable[dict[str, Any]]) -> None:
    """Prints JSON lines."""
    for value in values:
        sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")


def table(title: str, names: list[str], rows: list[dict[str, Any]]) -> None:
    """Prints rows for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(*names, title=title, title_justify="left")
    for row in rows:
        # The texts are shown as they are: markup would change an address in brackets or colons.
        shown.add_row(*(Text(escaped(_text(row[name]))) for name in names))
    Console().print(shown)


def _text(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
