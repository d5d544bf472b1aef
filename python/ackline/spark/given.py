"""Options as Spark gives them: those of its own, and the path of `load` and `save`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATHS: Final = frozenset({"path", "paths"})
"""Names of the paths of `load` and `save`, and of the place of a table of Spark's catalog."""
_PROVIDER: Final = "provider"
"""The name by which the options of such a table are known."""
_OF_TABLES: Final = frozenset({_PROVIDER, "owner", "location"})
"""Further names that Spark adds to them."""
_COPY: Final = "option."
"""The beginning of the names under which Spark gives a table's options a second time."""


def own_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the source or of the sink, of all that Spark gives.

    ``load("/var/spool/x")`` is ``option("spool", "/var/spool/x")``, and ``save("lumberjack://…")``
    is ``option("url", …)``. The location of a table of Spark's catalog counts where the table names
    neither.

    Raises:
        UsageError: The path contradicts the option.
    """
    names = {name.lower(): value for name, value in given.items()}
    is_table = _PROVIDER in names
    own = {name: value for name, value in given.items() if name.lower() not in _PATHS}
    if is_table:
        own = {
            name: value
            for name, value in own.items()
            if name.lower() not in _OF_TABLES and not name.lower().startswith(_COPY)
        }
    path = _path(names)
    if path is None:
        return own
    option = "url" if "://" in path else "spool"
    known = next((names[name] for name in ("spool", "url") if name in names), None)
    if known is None:
        own[option] = path
    elif known.strip() != path and not is_table:
        call = "save" if "url" in names else "load"
        raise UsageError(
            f"{call}({path!r}) and the option {'url' if 'url' in names else 'spool'}={known!r} "
            "contradict each other: give one"
        )
    return own


def _path(names: Mapping[str, str]) -> str | None:
    if "paths" in names:
        return ",".join(_plain(path) for path in json.loads(names["paths"]))
    return _plain(names["path"]) if "path" in names else None


def _plain(path: str) -> str:
    """Return the path of a `file:` URL, and any other text as it is."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path.strip()
