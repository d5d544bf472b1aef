"""Payloads as typed columns: the columns, and the handling of payloads that do not fit."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ackline import _core
from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

__all__ = ["Elements", "Mode", "Projection"]

Mode = Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"]
"""The handling of a malformed event: a row of nulls, no row, or an error."""


@dataclass(frozen=True, slots=True)
class Projection:
    """Columns that are filled from the members of each event's JSON object.

    A column that every event has (``position``, ``received_at``, …) keeps its meaning. The
    documentation's page on schemas says how values fit types, and which events are malformed.

    Attributes:
        schema: The columns; all nullable.
        mode: The handling of a malformed event.
        rescued: The column that takes members that are unknown or do not fit, as a JSON object; it
            is added to the schema. None turns it off: an event with a value that does not fit is
            then malformed.
        corrupt_record: The column, if the schema has it, that takes the text of an event that is
            no JSON object.
        case_sensitive: Whether members must match the columns in case.
        event_columns: The columns of the schema that are those of every event: each name with the
            name that it has in an event, such as ``{"channel": "stream"}``. All other columns are
            filled from members, whatever their names. None is all names of an event's columns.

    Example:
        >>> import pyarrow as pa
        >>> Projection(pa.schema({"message": pa.string()}), mode="FAILFAST").rescued
        '_rescued'
    """

    schema: "pa.Schema"
    mode: Mode = "PERMISSIVE"
    rescued: str | None = "_rescued"
    corrupt_record: str = "_corrupt_record"
    case_sensitive: bool = False
    event_columns: "Mapping[str, str] | None" = None

    def native(self) -> _core.Projection:
        """Returns the native projection for a stream of events.

        Raises:
            UsageError: `json.schema`: the mode is unknown, or a column cannot be filled from JSON.
        """
        if not hasattr(self.schema, "serialize"):
            kind = type(self.schema).__name__
            text = f"schema is a pyarrow.Schema or a Projection of one, not {kind}"
            raise UsageError(text, "json.schema")
        return _core.Projection(
            self.schema.serialize().to_pybytes(),
            mode=self.mode,
            rescued=self.rescued,
            corrupt_record=self.corrupt_record,
            case_sensitive=self.case_sensitive,
            event_columns=None if self.event_columns is None else [*self.event_columns.items()],
        )


@dataclass(frozen=True, slots=True)
class Elements:
    """Columns that are filled from payloads that are elements of a fixed size, such as numbers.

    The fields of an element are packed without padding. A payload of another length is malformed.
    So are a ``bool`` that is neither 0 nor 1, and an event that has keys and values. The
    documentation's page on schemas lists the types.

    Attributes:
        element: A type such as ``f64``, for one column ``element``; or names with types, such as
            ``time:u64,value:f32,flag:bool``. Numbers are little-endian, as in NumPy on common
            machines, and big-endian with ``>`` in front: ``>f64``. ``_:bytes[3]`` skips bytes.
        schema: The columns, all nullable: those of every event, those of `element`, and
            `corrupt_record` as binary. None is all of them except ``payload``. An unsigned field
            may have the wider signed type that Spark gives it.
        mode: The handling of a malformed event.
        corrupt_record: The column, if the schema has it, that takes the payload of a malformed
            event. It is empty there for an event that has keys and values.

    Example:
        >>> Elements("time:u64,value:f32", mode="FAILFAST").native().columns[-1]
        'payload'
    """

    element: str
    schema: "pa.Schema | None" = None
    mode: Mode = "PERMISSIVE"
    corrupt_record: str = "_corrupt_record"

    def native(self) -> _core.Projection:
        """Returns the native projection for a stream of events.

        Raises:
            UsageError: `element.schema`: the description or the mode is wrong, or a column cannot
                be filled from such elements.
        """
        if self.schema is not None and not hasattr(self.schema, "serialize"):
            kind = type(self.schema).__name__
            raise UsageError(f"schema is a pyarrow.Schema, not {kind}", "element.schema")
        return _core.Projection.of_elements(
            self.element,
            None if self.schema is None else self.schema.serialize().to_pybytes(),
            mode=self.mode,
            corrupt_record=self.corrupt_record,
        )
