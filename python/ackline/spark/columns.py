"""The columns of a query: those of every event, and those that its schema takes from payloads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ackline.exceptions import UsageError
from ackline.spark.fields import Field
from ackline.spark.options import COLUMNS, DIGEST, BatchOptions, StreamOptions, check_columns
from ackline.spark.payload import Filling, PayloadOptions, element_columns, filling

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ackline.spark.fields import Schema
    from ackline.spark.spools import Span, Spools


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that are built of each event.

    Attributes:
        names: The columns, in the order wanted.
        projection: The columns that not every event has, and how they are filled; None if there
            are none.
        of_events: Without a projection, the names that the columns have in an event, in the same
            order; empty if they are the same.
        beside_stream: A member of JSON beside the column `stream`, where no option says that this
            is the event's; None if there is no doubt.
    """

    names: tuple[str, ...]
    projection: Filling | None = None
    of_events: tuple[str, ...] = ()
    beside_stream: str | None = None


def fields_of(columns: Sequence[str]) -> tuple[Field, ...]:
    """Return the fields of an event's `columns`."""
    return tuple(Field(name, _TYPES[name]) for name in columns)


def own_schema(columns: Sequence[str], payload: PayloadOptions) -> tuple[Field, ...]:
    """Return the schema of an event's `columns` if the query gives none."""
    fields = fields_of(columns)
    if payload.element is not None:
        return (*fields, *element_columns(payload))
    if not payload.is_variant or "payload" not in columns:
        return fields
    fields = tuple(
        Field(field.name, VARIANT) if field.name == "payload" else field for field in fields
    )
    # A text that is no JSON is no VARIANT, and must not be lost.
    return (*fields, Field(payload.corrupt_record, "string"))


def wanted_columns(schema: Schema, options: StreamOptions | BatchOptions) -> Columns:
    """Return the columns that a query's schema wants.

    Args:
        schema: The schema from Spark: the source's own, or the one given to `.schema(…)`.
        options: The options of the query.

    Raises:
        UsageError: A column of every event has another type or may not be null, a column cannot be
            filled from JSON, or an option contradicts the schema.
    """
    names, chosen = schema.names, options.columns
    own = own_columns(names, options.payload, chosen or ())
    of_payload = [
        field.name for field in schema.fields if field.name not in own or field.kind == VARIANT
    ]
    own_names = () if chosen is None else own_schema(chosen, options.payload)
    if chosen is not None and tuple(field.name for field in own_names) != names:
        message = (
            f"the option columns wants {', '.join(chosen)} and .schema(…) {', '.join(names)}: "
            "give one of them"
        )
        raise UsageError(message)
    if options.digest and DIGEST not in own.values():
        raise UsageError("the option digest wants a column digest of type binary in .schema(…)")
    if of_payload:
        if options.table != "events":
            kind = "JSON payloads" if options.payload.element is None else "elements"
            message = f"column {of_payload[0]} is filled from {kind}; the quarantine has none"
            raise UsageError(message)
        beside = _beside_stream(own, names, options.payload)
        return Columns(names, filling(schema, options.payload), beside_stream=beside)
    check_columns(tuple(dict.fromkeys(own.values())))
    for wanted, given in zip(fields_of([*own.values()]), schema.fields, strict=True):
        if wanted.kind != given.kind or not given.nullable:
            message = (
                f"column {given.name} is a nullable {wanted.kind}, not "
                f"{given.kind}{'' if given.nullable else ' not null'}"
            )
            raise UsageError(message)
    return Columns(names, of_events=tuple(own.values()))


def own_columns(
    names: Sequence[str], payload: PayloadOptions, chosen: Collection[str] = ()
) -> dict[str, str]:
    """Return the names of a schema that are columns of every event, with their names there.

    Args:
        names: The columns of the schema.
        payload: The options for payloads as columns.
        chosen: The columns that the option `columns` names.

    Raises:
        UsageError: `eventColumns` names a column that the schema or an event does not have.
    """
    if payload.event_columns is not None:
        named = dict(payload.event_columns)
        for name, of_event in named.items():
            if of_event not in _TYPES:
                known = ", ".join(_TYPES)
                text = f"eventColumns: an event has no column {of_event!r}, only {known}"
                raise UsageError(text)
            if name not in names:
                raise UsageError(f"eventColumns names {name}, which the schema does not have")
        return {name: named[name] for name in names if name in named}
    # Members of JSON may have the names of the others.
    reserved = {*COLUMNS, DIGEST, *chosen}
    return {name: name for name in names if name in reserved and name in _TYPES}


def check_stream(columns: Columns, spools: Spools, spans: Mapping[str, Span]) -> None:
    """Refuse a batch whose events have no stream of their own, where members of JSON stand beside.

    Lumberjack names no stream, so the column would be null, and hide a member of its name.

    Raises:
        UsageError: The text says which option tells the two from each other.
    """
    if columns.beside_stream is None:
        return
    parts = [(uuid, part) for uuid, span in spans.items() for part in span.parts]
    for uuid, part in parts:
        blocks = spools.at(uuid).blocks(part.start, part.end)
        if any(block["protocol"] == "lumberjack" for block in blocks):
            raise UsageError(
                "column stream of the schema is the event's own, which Lumberjack has not, and "
                f"stands beside members of JSON ({columns.beside_stream}): is it a member, too, as "
                "in the logs of containers? The option eventColumns lists the columns that are "
                "the event's: 'position, received_at' makes stream a member, 'position, stream' "
                "keeps it, and 'position, channel=stream' gives the event's another name"
            )


def _beside_stream(
    own: Mapping[str, str], names: Sequence[str], payload: PayloadOptions
) -> str | None:
    """Return a member of JSON that stands beside the column stream; None if it is not in doubt."""
    if payload.event_columns is not None or payload.element is not None or "stream" not in own:
        return None
    special = {payload.rescued, payload.corrupt_record}
    return next((name for name in names if name not in own and name not in special), None)


VARIANT: Final = "variant"
"""The type of a column that holds a whole payload."""

_TYPES: Final[Mapping[str, str]] = {
    "spool": "string",
    "position": "bigint",
    "received_at": "timestamp",
    "protocol": "string",
    "peer": "string",
    "link": "string",
    "stream": "string",
    "sequence": "bigint",
    "repeat": "boolean",
    "attributes": "map<string,string>",
    "parts": "array<binary>",
    "payload": "binary",
    "digest": "binary",
    "listener": "string",
    "endpoint": "string",
}
