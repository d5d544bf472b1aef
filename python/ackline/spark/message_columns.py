"""The options of the sink that make destinations and properties of messages from columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DESTINATION: Final = "micromsg.destination"
"""The option that names the column of destinations."""

PROPERTIES: Final = "micromsg.properties"
"""The option that lists the columns of properties."""


def message_columns(
    options: Mapping[str, str], protocol: str
) -> dict[str, str | tuple[tuple[str, str], ...]]:
    """Read the options; their names are in lower case.

    Returns:
        `destination`, the column of destinations, and `properties`: columns, each with the name of
        its property, which is empty if the option does not give one.

    Raises:
        UsageError: An option cannot be read, or the receivers have another protocol.
    """
    chosen: dict[str, str | tuple[tuple[str, str], ...]] = {}
    for name in (DESTINATION, PROPERTIES):
        if name in options and protocol != "micromsg":
            raise UsageError(f"{name} is an option of micromsg://, not of {protocol}://")
    if DESTINATION in options:
        destination = _column(options[DESTINATION])
        if destination is None:
            raise UsageError(f"{DESTINATION} must name a column, not {options[DESTINATION]!r}")
        chosen["destination"] = destination
    if PROPERTIES in options:
        chosen["properties"] = _properties(options[PROPERTIES])
    return chosen


def _properties(text: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        entry = _ENTRY.match(text, at)
        column = None if entry is None else _column(entry["column"])
        if entry is None or column is None:
            break
        found.append((column, entry["property"] or ""))
        at = entry.end()
    if not found or at < len(text):
        message = (
            f"{PROPERTIES} must list columns with commas between them, each as column or "
            f"property=column, not {text!r}; a column with a comma or an equals sign in its name "
            "stands in backquotes"
        )
        raise UsageError(message)
    return tuple(found)


def _column(text: str) -> str | None:
    """Return the name of a column, which may stand in backquotes; None if there is none."""
    quoted = _QUOTED.fullmatch(text.strip())
    name = text.strip() if quoted is None else quoted[1].replace("``", "`")
    return name or None


_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_ENTRY: Final = re.compile(
    r"\s*(?:(?P<property>[^`,=]*[^`,=\s])\s*=\s*)?"
    r"(?P<column>`(?:[^`]|``)+`|[^`,=]+?)\s*(?:$|,(?=\s*\S))"
)
