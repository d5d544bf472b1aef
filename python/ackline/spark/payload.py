"""Payloads as typed columns: their options, and the columns that a query's schema wants."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from ackline.exceptions import UsageError
from ackline.projection import Projection
from ackline.spark.values import flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from ackline.projection import Mode

OPTIONS: Final = (
    "schema",
    "payload",
    "mode",
    "rescuedDataColumn",
    "columnNameOfCorruptRecord",
    "caseSensitive",
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
        corrupt_record: The column for the text of an event that is no JSON object.
        case_sensitive: Whether members must match the columns in case.
    """

    ddl: str | None
    is_variant: bool
    mode: Mode
    rescued: str | None
    corrupt_record: str
    case_sensitive: bool

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
    )


def projection(schema: StructType, options: PayloadOptions) -> Projection:
    """Return the projection that fills the columns of a query's schema.

    Raises:
        UsageError: A column cannot be filled from JSON, or has the name of a column that every
            event has, and another type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        arrow = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise UsageError(f".schema(…) has a type that Arrow does not carry: {error}") from None
    wanted = Projection(
        schema=arrow,
        mode=options.mode,
        rescued=options.rescued,
        corrupt_record=options.corrupt_record,
        case_sensitive=options.case_sensitive,
    )
    wanted.native()
    return wanted


def _names(ddl: str, column: str) -> bool:
    name = re.escape(column)
    return re.search(rf"(?i)(^|[,\s`]){name}[`\s:]", ddl) is not None
