"""Payloads as typed columns: their options, and the columns that a query's schema wants."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from ackline import _core
from ackline.exceptions import UsageError
from ackline.projection import Elements
from ackline.spark.fields import Field
from ackline.spark.values import flag, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ackline.projection import Mode
    from ackline.spark.fields import Schema

OPTIONS: Final = (
    "schema",
    "payload",
    "mode",
    "rescuedDataColumn",
    "columnNameOfCorruptRecord",
    "caseSensitive",
    "eventColumns",
    "reactive.element",
)
"""The options of this module, of streams and of batches."""


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """The options for payloads as columns.

    Attributes:
        ddl: The columns that the option `schema` names; None without it.
        is_variant: Whether the column `payload` is VARIANT, if no schema is given.
        mode: The handling of a malformed event.
        rescued: The column for members that are unknown or do not fit; None turns it off.
        corrupt_record: The column for the text of an event that is no JSON object, or for the
            payload of an event that is no element.
        case_sensitive: Whether members must match the columns in case.
        event_columns: The columns of the schema that are those of every event, and their names in
            an event; None is all names of an event's columns.
        element: The description of payloads that are elements of a fixed size; None for JSON.
    """

    ddl: str | None
    is_variant: bool
    mode: Mode
    rescued: str | None
    corrupt_record: str
    case_sensitive: bool
    event_columns: tuple[tuple[str, str], ...] | None
    element: str | None

    def with_rescued(self) -> str | None:
        """Return the columns of the option `schema` followed by the column of rescued members."""
        if self.ddl is None or self.rescued is None or _names(self.ddl, self.rescued):
            return self.ddl
        return f"{self.ddl}, `{self.rescued.replace('`', '``')}` STRING"


def payload_options(options: Mapping[str, str]) -> PayloadOptions:
    """Read the options; their names are in lower case.

    Raises:
        UsageError: An option is out of its range; the text names it.
    """
    mode = options.get("mode", "PERMISSIVE").upper()
    if mode not in ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"):
        message = f"mode must be PERMISSIVE, DROPMALFORMED or FAILFAST, not {options['mode']!r}"
        raise UsageError(message)
    ddl = options.get("schema")
    if ddl is not None and not ddl.strip():
        raise UsageError("schema must name columns, such as 'message STRING, log STRUCT<...>'")
    if ddl is not None and "columns" in options:
        raise UsageError("schema and columns contradict each other: give one")
    form = options.get("payload", "binary").lower()
    if form not in ("binary", "variant"):
        raise UsageError(f"payload must be binary or variant, not {options['payload']!r}")
    if ddl is not None and "payload" in options:
        raise UsageError("schema names the type of payload: leave the option payload out")
    corrupt = options.get("columnnameofcorruptrecord", "_corrupt_record")
    if not corrupt:
        raise UsageError("columnNameOfCorruptRecord must be a name")
    return PayloadOptions(
        ddl=ddl,
        is_variant=form == "variant",
        mode=cast("Mode", mode),
        rescued=options.get("rescueddatacolumn", "_rescued") or None,
        corrupt_record=corrupt,
        case_sensitive=flag(options, "caseSensitive", default=False),
        event_columns=_event_columns(options),
        element=_element(options, corrupt),
    )


@dataclass(frozen=True, slots=True)
class Filling:
    """Columns that are filled from payloads.

    Attributes:
        schema: Arrow's IPC message of the query's schema.
        options: How payloads become columns.
    """

    schema: bytes
    options: PayloadOptions

    def native(self) -> _core.Projection:
        """Return the native projection for a stream of events.

        Raises:
            UsageError: A column cannot be filled from payloads, or has the name of a column that
                every event has, and another type.
        """
        options = self.options
        if options.element is not None:
            return _core.Projection.of_elements(
                options.element,
                self.schema,
                mode=options.mode,
                corrupt_record=options.corrupt_record,
            )
        pairs = options.event_columns
        return _core.Projection(
            self.schema,
            mode=options.mode,
            rescued=options.rescued,
            corrupt_record=options.corrupt_record,
            case_sensitive=options.case_sensitive,
            event_columns=None if pairs is None else [*pairs],
        )

    def described(self) -> dict[str, Any]:
        """Return it as JSON for the reader in the JVM."""
        options, schema = self.options, b64encode(self.schema).decode()
        if options.element is not None:
            return {
                "kind": "elements",
                "element": options.element,
                "schema": schema,
                "mode": options.mode,
                "corrupt_record": options.corrupt_record,
            }
        return {
            "kind": "json",
            "schema": schema,
            "mode": options.mode,
            "rescued": options.rescued,
            "corrupt_record": options.corrupt_record,
            "case_sensitive": options.case_sensitive,
            "event_columns": options.event_columns,
        }


def element_columns(options: PayloadOptions) -> tuple[Field, ...]:
    """Return the columns of the elements, and the column for payloads that are none.

    The latter is there in every mode, so that a query's columns do not depend on its mode.
    """
    if options.element is None:
        return ()
    named = _core.Projection.element_fields(options.element)
    fields = [Field(name, kind.lower()) for name, kind in named]
    return (*fields, Field(options.corrupt_record, "binary"))


def filling(schema: Schema, options: PayloadOptions) -> Filling:
    """Return how the columns of a query's schema are filled from payloads.

    Raises:
        UsageError: A column cannot be filled from payloads, or has the name of a column that every
            event has, and another type.
    """
    found = Filling(schema.arrow(), options)
    if options.element is None:
        found.native()
    else:
        _check(found)
    return found


def _event_columns(options: Mapping[str, str]) -> tuple[tuple[str, str], ...] | None:
    text = options.get("eventcolumns")
    if text is None:
        return None
    for name in ("columns", "reactive.element", "payload"):
        if name in options:
            raise UsageError(
                f"{name} and eventColumns contradict each other: eventColumns is for the columns "
                "that a schema names"
            )
    pairs: list[tuple[str, str]] = []
    for part in listed(text):
        name, renames, own = (word.strip() for word in part.partition("="))
        pairs.append((name, own if renames else name))
    if not pairs or not all(all(pair) for pair in pairs):
        raise UsageError(
            "eventColumns must name columns such as 'position, channel=stream', where channel is "
            f"the schema's name for the event's column stream, not {text!r}"
        )
    if len({name for name, _ in pairs}) != len(pairs):
        raise UsageError(f"eventColumns names a column of the schema twice: {text!r}")
    return tuple(pairs)


def _element(options: Mapping[str, str], corrupt: str) -> str | None:
    element = options.get("reactive.element")
    if element is None:
        return None
    for name in ("schema", "payload", "rescuedDataColumn", "caseSensitive"):
        if name.lower() in options:
            raise UsageError(
                f"{name} is for payloads that are JSON, and reactive.element for payloads that are "
                "elements of a fixed size: give one"
            )
    _check(Elements(element, corrupt_record=corrupt))
    return element


def _check(elements: Elements | Filling) -> None:
    """Raise the error of elements with the name that the option has in Spark."""
    try:
        elements.native()
    except UsageError as error:
        text = str(error)
        prefix = "reactive." if text.startswith("element is ") else ""
        raise UsageError(f"{prefix}{text}", error.code) from None


def _names(ddl: str, column: str) -> bool:
    """Return whether a list of columns has a column of this name: not a field within its types."""
    depth, flat = 0, []
    for part in re.split(r"('(?:[^'\\]|\\.)*'|[<>()])", ddl):
        if part in ("<", "("):
            depth += 1
        elif part in (">", ")"):
            depth -= 1
        elif depth == 0 and not part.startswith("'"):
            flat.append(part)
    name = re.escape(column)
    return re.search(rf"(?i)(^|[,\s`]){name}[`\s:]", "".join(flat)) is not None
