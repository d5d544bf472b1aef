"""The columns of a schema, described without Spark's classes.

The process that plans queries for the JVM imports neither pyspark nor pyarrow. It gets a schema as
names, types and Arrow's serialized form, and returns one as Spark's JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Field:
    """A column.

    Attributes:
        name: Its name.
        kind: Its type as Spark's `simpleString`, such as `bigint` or `map<string,string>`.
        nullable: Whether it may be null.
        metadata: Spark's metadata of the column.
    """

    name: str
    kind: str
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a query, as Spark gives it.

    Attributes:
        fields: The columns.
        arrow: Returns Arrow's IPC message of the schema. It raises `UsageError` if Arrow has no
            such type, so it is called only for columns that are filled from payloads.
    """

    fields: tuple[Field, ...]
    arrow: Callable[[], bytes]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.fields)


def json_schema(fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return columns of the source as Spark writes schemas in JSON (`StructType.jsonValue`)."""
    columns = [
        {
            "name": column.name,
            "type": _JSON.get(column.kind, column.kind),
            "nullable": column.nullable,
            "metadata": dict(column.metadata),
        }
        for column in fields
    ]
    return {"type": "struct", "fields": columns}


_JSON: Final[Mapping[str, Any]] = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "map<string,string>": {
        "type": "map",
        "keyType": "string",
        "valueType": "string",
        "valueContainsNull": True,
    },
    "array<binary>": {"type": "array", "elementType": "binary", "containsNull": True},
}
"""The types of the source's columns that have another name in Spark's JSON."""
