"""Writes the figures of the last `make test-attacks` into the table of docs/security.md.

``python table.py`` reads target/attacks, where each test has left its row.
"""

import json
import sys

from programs import PROGRAMS
from test_attacks import FIGURES

PAGE = FIGURES.parents[1] / "docs" / "security.md"
BEGIN, END = "<!-- figures: begin -->\n", "<!-- figures: end -->\n"
HEAD = [
    "attack",
    "its peers",
    "resident, MiB of bound",
    "afterwards",
    "descriptors left",
    "CPU s",
    "good peer's p99 ms, alone / elsewhere / here",
    "refused with",
]


def line(cells: list[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |\n"


def main() -> int:
    """Writes the table; 1 if an attack has left no row."""
    missing = [name for name in sorted(PROGRAMS) if not (FIGURES / f"{name}.json").exists()]
    if missing:
        print(f"run make test-attacks first: nothing of {', '.join(missing)}", file=sys.stderr)
        return 1
    rows = [json.loads((FIGURES / f"{name}.json").read_text()) for name in sorted(PROGRAMS)]
    table = line(HEAD) + line(["---"] * len(HEAD)) + "".join(line(row) for row in rows)
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(before + BEGIN + table + END + rest.split(END)[1])
    print(f"{PAGE}: {len(rows)} attacks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
