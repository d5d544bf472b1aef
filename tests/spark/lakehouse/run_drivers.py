"""Two drivers append one batch to an Iceberg table at once, by the function of the page.

    python run_drivers.py PROGRAM RETRIES

The second one has loaded the table before the first one commits, as a driver that was thought dead.
Prints how often the rows of the batch are in the table then.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog


class OtherDriver:
    """A catalog that lets the other driver commit once, after a table was loaded."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog
        self.commit: Any = None

    def load_table(self, name: str) -> Any:
        table = self._catalog.load_table(name)
        commit, self.commit = self.commit, None
        if commit is not None:
            commit()
        return table


class Session:
    """The part of a Spark session that names the query."""

    @property
    def sparkContext(self) -> Session:  # noqa: N802 - Spark's name
        return self

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return name


class Batch:
    """A batch of one row."""

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        return pa.table({"position": [7]})


def functions(program: Path) -> dict[str, Any]:
    """Define the functions of a program, with its imports of PyIceberg alone."""
    tree = ast.parse(program.read_text("utf-8"))
    chosen = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg"))
    ]
    names: dict[str, Any] = {"pa": pa, "DataFrame": Any, "spark": Session()}
    exec(compile(ast.Module(chosen, []), str(program), "exec"), names)
    return names


def main() -> None:
    program, retries = Path(sys.argv[1]), sys.argv[2]
    real = load_catalog(
        "lake", type="sql", uri="sqlite:///other.db", warehouse=f"file://{Path('other').absolute()}"
    )
    real.create_namespace_if_not_exists("logs")
    table = real.create_table(
        "logs.events",
        schema=Batch().toArrow().schema,
        properties={"commit.retry.num-retries": retries},
    )
    names = functions(program)
    catalog = names["catalog"] = OtherDriver(real)
    catalog.commit = lambda: names["append"](Batch(), 3)
    names["append"](Batch(), 3)
    table.refresh()
    print(table.scan().to_arrow().num_rows)


if __name__ == "__main__":
    main()
