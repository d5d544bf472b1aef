"""The calls of the data source in Java: plans, with arguments and results as JSON.

A call has the members that its function here reads. `planner` has the process around them.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ackline.exceptions import UsageError
from ackline.spark.definition import Definition
from ackline.spark.fields import Field, Schema, json_schema
from ackline.spark.planning import BatchPlan, StreamPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ackline.spark.columns import Columns
    from ackline.spark.options import BatchOptions, StreamOptions
    from ackline.spark.pieces import Task

Request = dict[str, Any]
"""A request: a JSON object of one line."""

Plan = StreamPlan | BatchPlan

_T = TypeVar("_T")


def schema(request: Request) -> dict[str, Any]:
    """Return the columns that options name: `ddl`, a text for Spark's parser, or `json`.

    Args:
        request: `options`, and `spark`, the version of Spark.

    Raises:
        UsageError: An option is unknown, missing or out of its range; the text names it.
    """
    found = _definition(request, is_asked=True).schema()
    return {"ddl": found} if isinstance(found, str) else {"json": json_schema(found)}


def opened(request: Request) -> tuple[Plan, dict[str, Any]]:
    """Return the plan of a query, and what Java needs to read its tasks.

    Args:
        request: `options` and `spark` as for `schema`; `kind`, which is `stream` or `batch`;
            `cores`; `is_asked`, whether the user gave no schema; and `schema` with the members
            `fields` and `arrow`.

    Raises:
        UsageError: An option cannot be read, or contradicts the schema.
    """
    kind, cores = argument(request, "kind", str), request.get("cores")
    if kind not in ("stream", "batch"):
        raise UsageError(f"kind must be stream or batch, not {kind!r}")
    if cores is not None and not isinstance(cores, int):
        raise UsageError(f"cores must be a number or null, not {cores!r}")
    definition = _definition(request, is_asked=argument(request, "is_asked", bool))
    wanted = _schema(argument(request, "schema", dict))
    if kind == "batch":
        of_batch, columns = definition.batch(wanted)
        return BatchPlan(of_batch, columns, cores), _reply(of_batch, columns, None)
    of_stream, columns = definition.stream(wanted)
    plan = StreamPlan(of_stream, columns, cores)
    return plan, _reply(of_stream, columns, plan.limit)


def answered(plan: Plan, request: Request) -> Any:  # noqa: ANN401 - any JSON
    """Return the result of a call of an open query.

    Raises:
        UsageError: There is no such call, or an argument is missing.
        SpoolError: A spool cannot be read, or a loss ends the query.
    """
    call = argument(request, "call", str)
    if isinstance(plan, BatchPlan):
        if call != "partitions":
            raise UsageError(f"a batch query has no call {call!r}, only partitions and close")
        return _pieces(plan.partitions())
    if call not in _CALLS:
        raise UsageError(f"there is no call {call!r}, only {', '.join(_CALLS)} and close")
    return _CALLS[call](plan, request)


def argument(request: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    """Return a member of a request.

    Raises:
        UsageError: It is missing, or has another type.
    """
    found = request.get(name)
    if not isinstance(found, kind):
        raise UsageError(f"the request needs the member {name}: {_KINDS[kind]}")
    return found


def _definition(request: Request, *, is_asked: bool) -> Definition:
    options = argument(request, "options", dict)
    if not all(isinstance(text, str) for text in options.values()):
        raise UsageError("the values of options are texts")
    return Definition(options, argument(request, "spark", str), is_asked=is_asked)


def _schema(given: Mapping[str, Any]) -> Schema:
    fields = (
        Field(
            argument(field, "name", str),
            argument(field, "kind", str),
            argument(field, "nullable", bool),
            field.get("metadata") or {},
        )
        for field in argument(given, "fields", list)
    )
    try:
        arrow = b64decode(argument(given, "arrow", str), validate=True)
    except binascii.Error as error:
        raise UsageError(f"arrow is no base64: {error}") from None
    return Schema(tuple(fields), lambda: arrow)


def _reply(
    options: StreamOptions | BatchOptions, columns: Columns, limit: tuple[str, int] | None
) -> dict[str, Any]:
    filling = columns.projection
    reading = {
        "names": columns.names,
        "of_events": columns.of_events,
        "projection": None if filling is None else filling.described(),
        "skip_repeats": options.skip_repeats,
        "memory": options.read_memory,
    }
    return {"reading": reading, "limit": None if limit is None else dict([limit])}


def _latest(plan: StreamPlan, request: Request) -> dict[str, Any]:
    start = argument(request, "start", dict)
    end = plan.latest(start, is_all=argument(request, "all", bool))
    tasks = plan.partitions_ahead(start, end)
    return {
        "end": end,
        "report": plan.report(),
        "tasks": None if tasks is None else _pieces(tasks),
    }


def _partitions(plan: StreamPlan, request: Request) -> list[list[dict[str, Any]]]:
    start, end = argument(request, "start", dict), argument(request, "end", dict)
    return _pieces(plan.partitions(start, end, is_ahead=argument(request, "is_ahead", bool)))


def _pieces(tasks: Iterable[Task]) -> list[list[dict[str, Any]]]:
    return [[asdict(piece) for piece in task.pieces] for task in tasks]


_KINDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "an array",
    dict: "an object",
}
_CALLS: Final[Mapping[str, Callable[[StreamPlan, Request], Any]]] = {
    "initial": lambda plan, _: plan.initial(),
    "latest": _latest,
    "pin": lambda plan, _: plan.pin(),
    "partitions": _partitions,
}
"""The calls of a stream. `latest` has all that a batch needs, so one request plans it."""
