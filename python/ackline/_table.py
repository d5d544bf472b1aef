"""The keyword options of `connect`, `listen` and `adopt`, from the tables of the native module."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from ackline import _core, _values
from ackline.exceptions import UsageError

__all__ = ["HANDED_OVER", "Row", "known", "nearest", "rows", "signed", "value_of"]

_Call = TypeVar("_Call", bound=Callable[..., Any])
Row = dict[str, Any]
"""One option, as `_core.option_table` gives it."""

HANDED_OVER: Final = {
    "connector_channel_id_size",
    "listener_channel_id_size",
    "connector_transactions",
    "listener_transactions",
    "state",
}
"""Options of `relink.connect` that `relink.adopt` takes from the link that was handed over."""

OF_BROKER: Final = {"ack_policy", "ack_timer", "negotiation", "queues"}
"""Options of a listener of MicroMsg2 that a broker sets itself, or takes in another form."""

_NEAR: Final = 0.55
"""The least likeness of a misspelt name to the one that it is taken for, from 0 to 1."""


@cache
def rows(call: str) -> dict[str, Row]:
    """Returns the options of a call such as ``relink.connect``, by their names."""
    if call == "relink.adopt":
        return {
            name: row for name, row in rows("relink.connect").items() if name not in HANDED_OVER
        }
    but = OF_BROKER if call == "micromsg.serve" else ()
    return {row["name"]: row for row in _core.option_table(call) if row["name"] not in but}


def value_of(row: Row, text: str) -> str | float | None:
    """Returns the value of an option for Python.

    Args:
        row: The option.
        text: The value as on the command line, such as ``64MiB``.

    Returns:
        Sizes and counts as int, times as seconds, flags as bool, others as str; None is off.
    """
    if row["kind"] == "flag":
        return text == "true"
    if text in {"", "off"}:
        return None
    if row["kind"] == "time":
        return (_values.milliseconds(text) or 0) / 1000
    return _values.size(text) if row["kind"] in {"bytes", "count"} else text


def signed(call: str) -> Callable[[_Call], _Call]:
    """Returns a decorator that gives a function with ``**options`` its options as a signature.

    So `help` and `inspect.signature` show each option with its default. Type checkers know them by
    the types in `ackline._NAME_options`, one module for each protocol.
    """

    def with_signature(function: _Call) -> _Call:
        signature = inspect.signature(function)
        declared = list(signature.parameters.values())[:-1]
        options = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=value_of(row, row["default"])
            )
            for name, row in rows(call).items()
        ]
        made = signature.replace(parameters=[*declared, *options])
        function.__signature__ = made  # type: ignore[attr-defined]
        return function

    return with_signature


def known(call: str, options: Mapping[str, object]) -> dict[str, Any]:
    """Returns the options of a call.

    Raises:
        UsageError: The call has no option of that name; the text names the nearest.
    """
    names = rows(call)
    for name in options:
        if name not in names:
            raise UsageError(f"{call} has no option {name}{nearest(name, names)}")
    return dict(options)


def nearest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """Returns a question for the name that was probably meant; empty if there is none.

    Args:
        name: The name that was given.
        names: The names that exist.
        prefix: The text in front of the names where they are written.
    """
    spelled = {known_name.lower(): known_name for known_name in names}
    found = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=_NEAR)
    return f" (did you mean {prefix}{spelled[found[0]]}?)" if found else ""
