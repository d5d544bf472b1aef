"""Options as Spark gives them: those of its own, and the path of `load` and `save`.

Spark gives a source of Python the options of a table of its catalog once, when the table is made,
and none when it is read. It gives the table's columns each time, so they carry the options: in the
metadata of the first column, or, where a text names the columns, in the comment of the last.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from ackline.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ackline.spark.fields import Field

_REMEMBERED: Final = "ackline.options"
"""The member of a column's metadata, and the beginning of a comment, with a table's options."""
_PATHS: Final = frozenset({"path", "paths"})
"""Names of the paths of `load` and `save`, and of the place of a table of Spark's catalog."""
_PROVIDER: Final = "provider"
"""The name by which the options of such a table are known."""
_COPY: Final = "option."
"""The beginning of the names of a table's options, beside which Spark gives its properties."""
_NOT_KEPT: Final = ("listen", "connect", "ack", "budget", "memory", "receiver.")
"""Options of a receiver, or the beginning of their names: a table has none."""


def own_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the source or of the sink, of all that Spark gives.

    ``load("/var/spool/x")`` is ``option("spool", "/var/spool/x")``, and ``save("lumberjack://…")``
    is ``option("url", …)``. The location of a table of Spark's catalog counts where the table names
    neither.

    Raises:
        UsageError: The path contradicts the option.
    """
    names = {name.lower(): value for name, value in given.items()}
    is_table = is_of_table(given)
    own = {name: value for name, value in given.items() if name.lower() not in _PATHS}
    if is_table:
        # All else is a property of the table: its owner, its comment, its collation, TBLPROPERTIES.
        prefixed = {name[len(_COPY) :]: own[name] for name in own if name.lower().startswith(_COPY)}
        own = {name: value for name, value in prefixed.items() if name.lower() not in _PATHS}
    path = _path(names)
    if path is None:
        return own
    option = "url" if "://" in path else "spool"
    lowered = {name.lower(): value for name, value in own.items()}
    known = next((lowered[name] for name in ("spool", "url") if name in lowered), None)
    if known is None:
        own[option] = path
    elif known.strip() != path and not is_table:
        call = "save" if "url" in names else "load"
        raise UsageError(
            f"{call}({path!r}) and the option {'url' if 'url' in names else 'spool'}={known!r} "
            "contradict each other: give one"
        )
    return own


def is_of_table(given: Mapping[str, str]) -> bool:
    """Return whether options are those of a table of Spark's catalog that is made."""
    return any(name.lower() == _PROVIDER for name in given)


def remembering(schema: tuple[Field, ...] | str, own: Mapping[str, str]) -> tuple[Field, ...] | str:
    """Return the columns of a table with its options.

    Raises:
        UsageError: The columns have no room for the options, or a table has no such option.
    """
    for name in own:
        if name.lower().startswith(_NOT_KEPT):
            raise UsageError(f"a table has no option {name}: start the receiver in a query")
    text = json.dumps(dict(sorted(own.items())))
    if not isinstance(schema, str):
        return (replace(schema[0], metadata={_REMEMBERED: text}), *schema[1:])
    if schema.rstrip().endswith(("'", '"')):
        raise UsageError(
            "the option schema of a table must not end with a comment: the source keeps the "
            "table's options there"
        )
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"{schema} COMMENT '{_REMEMBERED} {quoted}'"


def with_remembered(
    own: Mapping[str, str], fields: Sequence[Field], groups: Collection[Collection[str]] = ()
) -> dict[str, str]:
    """Return the options of a query, behind those that the columns of its table carry.

    A query that names a spool itself takes none of them: its columns may be those of any frame.

    Args:
        own: The options of the query.
        fields: The columns.
        groups: Options of which one can be given: one of the query replaces all of its group.
    """
    given = {name.lower() for name in own}
    if "spool" in given:
        return dict(own)
    found: dict[str, str] = {}
    for field in fields:
        comment = str(field.metadata.get("comment", ""))
        text = field.metadata.get(_REMEMBERED)
        if text is None and comment.startswith(f"{_REMEMBERED} "):
            text = comment.removeprefix(_REMEMBERED)
        if text is not None:
            found = json.loads(text)
    replaced = {
        name.lower()
        for group in groups
        if any(one.lower() in given for one in group)
        for name in group
    }
    kept = {
        name: text
        for name, text in found.items()
        if name.lower() not in replaced and not name.lower().startswith(_NOT_KEPT)
    }
    return kept | dict(own)


def _path(names: Mapping[str, str]) -> str | None:
    if "paths" in names:
        return ",".join(_plain(path) for path in json.loads(names["paths"]))
    return _plain(names["path"]) if "path" in names else None


def _plain(path: str) -> str:
    """Return the path of a `file:` URL, and any other text as it is.

    `file:///a%20b` is a URL. Spark writes `file:/a b` for the location of a table, and quotes
    nothing.
    """
    if not path.startswith("file:"):
        return path.strip()
    rest = path.removeprefix("file:")
    if not rest.startswith("//") or Path(rest[2:]).exists():
        return rest.removeprefix("//")
    return unquote("/" + rest[2:].partition("/")[2])
