"""What a user asked of the source: the options and the columns of one query or table.

The checks of both, before a spool is opened. No Spark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ackline.exceptions import UsageError
from ackline.spark import check_version
from ackline.spark.columns import VARIANT, Columns, own_schema, wanted_columns
from ackline.spark.given import is_of_table, own_options, remembering, with_remembered
from ackline.spark.options import (
    BATCH_NAMES,
    COLUMNS,
    PLACES,
    STREAM_NAMES,
    BatchOptions,
    StreamOptions,
    batch_options,
    check_options,
    columns_of,
    stream_options,
)
from ackline.spark.payload import payload_options
from ackline.spark.sink_options import check_sink_options, writes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ackline.spark.fields import Field, Schema


class Definition:
    """The options of one query or table, as Spark gives them.

    Args:
        given: The options.
        version: Spark's version, as in `spark.version`.
        is_asked: Whether Spark asked for the columns: it does only if `.schema(…)` names none.

    Raises:
        UsageError: Spark is too old, or an option is unknown, missing or out of its range.
    """

    def __init__(self, given: Mapping[str, str], version: str, *, is_asked: bool = False) -> None:
        check_version(version)
        self._is_of_table = is_of_table(given)
        self._is_asked = is_asked
        self.options = own_options(given)
        # This is done here: Spark hides the errors of a stream's reader behind an error of its own.
        # Where no place is named, the columns of a table may carry it.
        if writes(self.options) or any(name.lower() == "spool" for name in self.options):
            check_any(self.options)

    def schema(self) -> tuple[Field, ...] | str:
        """Return the columns of an event, or the text of the option `columns` or `schema`.

        Raises:
            UsageError: The options name no columns, or a table has no such option.
        """
        self._is_asked = True
        check_any(self.options)
        if writes(self.options):
            raise UsageError(
                "a table whose rows are sent must name its columns, and each INSERT names the "
                "url again: INSERT INTO table WITH (url = '...') SELECT ..."
            )
        schema = self._own_schema()
        return remembering(schema, self.options) if self._is_of_table else schema

    def stream(self, schema: Schema) -> tuple[StreamOptions, Columns]:
        """Return the options of a stream, and the columns that its schema wants.

        Raises:
            UsageError: An option cannot be read, or contradicts the schema.
        """
        options = stream_options(self._with_remembered(schema, STREAM_NAMES))
        return options, self._wanted(schema, options)

    def batch(self, schema: Schema) -> tuple[BatchOptions, Columns]:
        """Return the options of a batch query, and the columns that its schema wants.

        Raises:
            UsageError: An option cannot be read, or contradicts the schema.
        """
        options = batch_options(self._with_remembered(schema, BATCH_NAMES))
        return options, self._wanted(schema, options)

    def _own_schema(self) -> tuple[Field, ...] | str:
        given = {name.lower(): value for name, value in self.options.items()}
        payload = payload_options(given)
        if payload.event_columns is not None and payload.ddl is None:
            raise UsageError("eventColumns needs .schema(…) or the option schema")
        return payload.with_rescued() or own_schema(columns_of(given) or COLUMNS, payload)

    def _with_remembered(self, schema: Schema, names: Collection[str]) -> dict[str, str]:
        """Return the options, and those of a table that a query of this kind has."""
        found = with_remembered(self.options, schema.fields, PLACES)
        known = {name.lower() for name in names}
        own = {name.lower() for name in self.options}
        # The columns of such a table were asked for when it was made.
        self._is_asked |= len(found) > len(self.options) and "schema" not in own
        return {name: text for name, text in found.items() if name.lower() in own | known}

    def _wanted(self, schema: Schema, options: BatchOptions | StreamOptions) -> Columns:
        if options.payload.ddl is not None and not self._is_asked:
            raise UsageError("the option schema and .schema(…) contradict each other: give one")
        if options.payload.is_variant and not self._is_asked:
            whole = [field.kind for field in schema.fields if field.name == "payload"]
            if not whole or any(kind != VARIANT for kind in whole):
                raise UsageError(
                    "payload=variant makes the whole payload one column and needs no schema, but "
                    ".schema(…) names other columns: leave payload=variant out, or name "
                    "'payload VARIANT' in .schema(…)"
                )
        return wanted_columns(schema, options)


def check_any(options: Mapping[str, str]) -> None:
    """Refuse options that neither a reader nor a sink takes.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    if writes(options):
        check_sink_options(options)
    else:
        check_options(options)
