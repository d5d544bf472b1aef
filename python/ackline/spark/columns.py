"""The columns of a query: those of every event, and those that its schema takes from payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from ackline.exceptions import UsageError
from ackline.spark.options import DIGEST, BatchOptions, StreamOptions, check_columns
from ackline.spark.payload import PayloadOptions, element_columns, projection
from ackline.spark.reader import Columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ackline.spark.spools import Span, Spools


def schema_of(columns: Sequence[str]) -> StructType:
    """Return the schema of an event's `columns`."""
    return StructType([StructField(name, _TYPES[name], nullable=True) for name in columns])


def own_schema(columns: Sequence[str], payload: PayloadOptions) -> StructType:
    """Return the schema of an event's `columns` if the query gives none."""
    schema = schema_of(columns)
    if payload.element is not None:
        return StructType([*schema, *element_columns(payload)])
    if not payload.is_variant or "payload" not in columns:
        return schema
    fields = [
        StructField(field.name, VariantType()) if field.name == "payload" else field
        for field in schema
    ]
    # A text that is no JSON is no VARIANT, and must not be lost.
    return StructType([*fields, StructField(payload.corrupt_record, StringType())])


def wanted_columns(schema: StructType, options: StreamOptions | BatchOptions) -> Columns:
    """Return the columns that a query's schema wants.

    Args:
        schema: The schema from Spark: the source's own, or the one given to `.schema(…)`.
        options: The options of the query.

    Raises:
        UsageError: A column of every event has another type or may not be null, a column cannot be
            filled from JSON, or an option contradicts the schema.
    """
    names, chosen = tuple(schema.names), options.columns
    own = own_columns(names, options.payload)
    of_payload = [
        field.name
        for field in schema
        if field.name not in own or isinstance(field.dataType, VariantType)
    ]
    if chosen is not None and own_schema(chosen, options.payload).names != list(names):
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
        return Columns(names, projection(schema, options.payload), beside_stream=beside)
    check_columns(tuple(dict.fromkeys(own.values())))
    for name, wanted, given in zip(names, schema_of([*own.values()]), schema, strict=True):
        if wanted.dataType != given.dataType or not given.nullable:
            message = (
                f"column {name} is a nullable {wanted.dataType.simpleString()}, not "
                f"{given.dataType.simpleString()}{'' if given.nullable else ' not null'}"
            )
            raise UsageError(message)
    return Columns(names, of_events=tuple(own.values()))


def own_columns(names: Sequence[str], payload: PayloadOptions) -> dict[str, str]:
    """Return the names of a schema that are columns of every event, with their names there.

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
    return {name: name for name in names if name in _TYPES}


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


_TYPES: Final[Mapping[str, DataType]] = {
    "spool": StringType(),
    "position": LongType(),
    "received_at": TimestampType(),
    "protocol": StringType(),
    "peer": StringType(),
    "link": StringType(),
    "stream": StringType(),
    "sequence": LongType(),
    "repeat": BooleanType(),
    "attributes": MapType(StringType(), StringType()),
    "parts": ArrayType(BinaryType()),
    "payload": BinaryType(),
    "digest": BinaryType(),
}
