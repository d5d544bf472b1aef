"""`ackline schema …`: columns for the payloads of a spool."""

import sys
from typing import Annotated

import typer

from ackline.cli.show import Directory, Group, Json, Memory, failed, lines, memory_of, open_spool
from ackline.cli.terminal import escaped, print_text
from ackline.cli.values import FAILED, fail
from ackline.exceptions import SpoolError, UsageError

__all__ = ["app"]

app = typer.Typer(help="Columns for the payloads of a spool.", no_args_is_help=True)


@app.callback()
def schema() -> None:
    """Columns for the payloads of a spool."""


@app.command()
def infer(
    directory: Directory,
    sample: Annotated[int, typer.Option(min=1, help="Events to look at, at the most.")] = 10_000,
    start: Annotated[int | None, typer.Option("--from", min=0, help="First position.")] = None,
    end: Annotated[int | None, typer.Option("--to", min=0, help="Position after the last.")] = None,
    case_sensitive: Annotated[  # noqa: FBT002 (a flag)
        bool, typer.Option(help="Whether names that differ in case alone are two.")
    ] = False,
    memory: Memory = "512MiB",
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Prints the columns of a sample of events as Spark's DDL, for `.schema(...)`."""
    most = memory_of(memory)
    spool = open_spool(directory, group=group)
    try:
        found = spool.infer_schema(
            start, end, sample=sample, case_sensitive=case_sensitive, memory=most
        )
    except (SpoolError, UsageError) as error:
        failed(error)
    if as_json:
        line = {"event": "schema", "ddl": found.ddl, "events": found.events}
        line |= {"malformed": found.malformed, "shadowed": list(found.shadowed)}
        lines([line | {"names_left_out": found.names_left_out}])
        return
    if not found.ddl:
        fail(f"none of {found.events} events has a member that can be a column", FAILED)
    print_text(f"{found.ddl}\n".encode())
    for note in _notes(found.malformed, found.events, found.shadowed, found.names_left_out):
        sys.stderr.write(f"{escaped(note)}\n")


def _notes(malformed: int, events: int, shadowed: tuple[str, ...], left_out: int) -> list[str]:
    notes = [f"{events - malformed} of {events} events are JSON objects"]
    if shadowed:
        notes.append(
            f"no columns: {', '.join(shadowed)}, for these names mean something else in a schema; "
            "_rescued takes the members"
        )
    if left_out:
        notes.append(
            f"members left out {left_out} times: more than 2,000 names, or empty or too long ones"
        )
    return notes
