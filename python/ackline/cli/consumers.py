"""`ackline spool consumers …`: consumers that hold a spool's events, and moves of their marks."""

import sys
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ackline.cli.show import (
    Directory,
    Group,
    Json,
    failed,
    lines,
    open_spool,
    position_of,
    table,
)
from ackline.cli.terminal import print_line
from ackline.exceptions import SpoolError
from ackline.spool import Consumer, Spool

__all__ = ["app", "rows"]

app = typer.Typer(help="The consumers of a spool and their marks.", no_args_is_help=True)

_Name = Annotated[str, typer.Argument(help="The consumer.")]
_PLACE = "earliest, latest, a position, or a time (RFC 3339)."


def rows(spool: Spool, consumers: list[Consumer]) -> list[dict[str, Any]]:
    """Each consumer with its lag; may raise `SpoolError`."""
    durable, now = spool.durable(), time.time()
    found = []
    for consumer in consumers:
        # After a power failure a mark may be above the events that the next receiver recovers.
        lag = spool.lag(min(consumer.committed, durable))
        age = 0.0 if lag.oldest is None else max(0.0, now - lag.oldest.timestamp())
        found.append(
            {
                "name": consumer.name,
                "committed": consumer.committed,
                "lag_events": lag.events,
                "lag_bytes": lag.bytes,
                "lag_s": round(age, 3),
                "state": consumer.state,
                "last_seen_s": round(consumer.last_seen_s, 3),
            }
        )
    return found


@app.command()
def ls(directory: Directory, as_json: Json = False, group: Group = False) -> None:  # noqa: FBT002 (flags)
    """Lists the consumers: mark, lag, whether somebody reads, last seen."""
    spool = open_spool(directory, group=group)
    try:
        consumers = spool.consumers()
        found = rows(spool, consumers)
    except SpoolError as error:
        failed(error)
    if as_json:
        lines([_line(*both) for both in zip(found, consumers, strict=True)])
        return
    names = ["name", "committed", "lag_events", "lag_bytes", "lag_s", "state", "last_seen_s"]
    table("consumers", names, found)


def _line(row: dict[str, Any], consumer: Consumer) -> dict[str, Any]:
    holder = None if consumer.holder is None else asdict(consumer.holder)
    more = {"lag": row["lag_events"], "updated": consumer.updated}
    more |= {"generation": consumer.generation, "holder": holder}
    return {"event": "consumer"} | row | more


@app.command()
def add(
    directory: Directory,
    name: _Name,
    at: Annotated[str, typer.Option("--at", help=f"Its mark: {_PLACE}")] = "earliest",
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Makes a consumer before its query exists, so that the spool keeps the events for it."""
    spool = open_spool(directory, group=group)
    try:
        position = position_of(spool, at)
        spool.add_consumer(name, position)
        skipped = position - min(position, spool.first_kept())
    except SpoolError as error:
        failed(error)
    if as_json:
        lines([{"event": "consumer_added", "name": name, "committed": position}])
        return
    print_line(f"{name}: at position {position}")
    _tell_skipped(name, skipped)


@app.command()
def rm(
    directory: Directory,
    name: _Name,
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Removes a consumer: events that it alone held may then be removed."""
    spool = open_spool(directory, group=group)
    try:
        marks = {consumer.name: consumer.committed for consumer in _consumers(spool)}
        durable, committed = spool.durable(), marks.get(name)
        was_there = spool.remove_consumer(name)
    except SpoolError as error:
        failed(error)
    if not was_there:
        text = f'spool {spool.path} has no consumer "{name}"'
        failed(SpoolError(text, "spool.no_consumer"))
    dropped = max(0, durable - committed) if committed is not None else 0
    if as_json:
        lines([{"event": "consumer_removed", "name": name}])
        return
    print_line(f"{name}: removed")
    if dropped:
        sys.stdout.write(
            f"{dropped} events that it had not committed are not kept for it any more; a receiver "
            f"with --ack committed={name} acknowledges nothing until it is added again\n"
        )


@app.command()
def seek(
    directory: Directory,
    name: _Name,
    to: Annotated[str, typer.Option("--to", help=f"Its new mark: {_PLACE}")],
    as_json: Json = False,  # noqa: FBT002 (a flag)
    group: Group = False,  # noqa: FBT002 (a flag)
) -> None:
    """Moves the mark of a consumer without a reader; reports the events skipped or repeated."""
    spool = open_spool(directory, group=group)
    try:
        sought = spool.seek_consumer(name, position_of(spool, to))
    except SpoolError as error:
        failed(error)
    if as_json:
        effect = {"skipped": sought.skipped, "repeated": sought.repeated}
        lines([{"event": "sought", "name": name, "from": sought.start, "to": sought.to} | effect])
        return
    said = "nothing changes"
    if sought.to > sought.start:
        said = f"{sought.skipped} events are skipped"
    elif sought.to < sought.start:
        said = f"{sought.repeated} events are repeated"
    print_line(f"{name}: from position {sought.start} to {sought.to}, {said}")
    _tell_skipped(name, sought.skipped)


def _tell_skipped(name: str, skipped: int) -> None:
    if skipped:
        sys.stdout.write(
            f"a receiver with --ack committed={name} takes these {skipped} events as committed and "
            "acknowledges them\n"
        )


def _consumers(spool: Spool) -> list[Consumer]:
    """Consumers with readable files: `rm` helps when a file cannot be read."""
    try:
        return spool.consumers()
    except SpoolError:
        return []
