"""The runs of the buyer's figure side by side: a Markdown table for each load and profile, a chart.

`python tests/bench/buyer_report.py FILE [CHART]` prints the tables of figures that `--json` has
kept, and writes the chart as SVG.
"""

import json
import math
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ackline.spark.svg import COLORS, box, page, text

Run = dict[str, Any]
FIGURES = (
    ("rate_written", "events/s written", 0),
    ("all_in_table_s", "from the first event to the last in the table, s", 1),
    ("rate", "events/s into the table", 0),
    ("p50_ms", "creation to table, p50 ms", 0),
    ("p99_ms", "creation to table, p99 ms", 0),
    ("lost", "lost", 0),
    ("doubled", "doubled", 0),
    ("doubled_unmarked", "doubled and not marked as a repeat", 0),
    ("server_back_s", "from kill -9 until the server accepts connections, s", 1),
    ("recovered_s", "from kill -9 to the first new event in the table, s", 1),
    ("bytes_per_event", "broker's or spool's bytes for an event, without a reserve", 0),
    ("parquet_mib", "Parquet, MiB", 1),
)
GROUPS = (
    ("cpu_s_per_million", "CPU s per million events", 1),
    ("pss_mib", "memory (PSS), peak MiB", 0),
    ("processes", "processes, most", 0),
    ("store_mib", "broker's or spool's disk, MiB", 1),
)
SAME = {"broker": "broker or receiver", "receiver": "broker or receiver"}
"""Names under which both sides stand in one row."""


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that there are."""
    there = [each for each in values if each is not None and not math.isnan(each)]
    return statistics.median(there) if there else None


def flat(run: Run) -> dict[tuple[str, str], float | None]:
    """Return a run's figures by group and name."""
    figures: dict[tuple[str, str], float | None] = {
        ("", name): run.get(name) for name, _, _ in FIGURES
    }
    for group, _, _ in GROUPS:
        for name, value in run[group].items():
            figures[group, SAME.get(name, name)] = value
    return figures


def middle(runs: list[Run]) -> dict[tuple[str, str], float | None]:
    """Return the medians of the rounds of one side."""
    each = [flat(run) for run in runs]
    keys = dict.fromkeys(key for figures in each for key in figures)
    return {key: median(figures.get(key) for figures in each) for key in keys}


def cell(value: float | None, digits: int) -> str:
    """Return a figure as text."""
    return "" if value is None else f"{value:,.{digits}f}"


def ratio(one: float | None, other: float | None) -> str:
    """Return `other` / `one` as text, or nothing where it says nothing."""
    return f"{other / one:.2f}" if one and other is not None else ""


def rows(sides: dict[str, list[Run]]) -> list[str]:
    """Return the lines of the table of one load and profile."""
    a, b = (middle(sides.get(side, [])) for side in "AB")
    lines = ["| | A: Kafka | B: Ackline | B / A |", "|---|---|---|---|"]

    def line(key: tuple[str, str], words: str, digits: int) -> None:
        one, other = a.get(key), b.get(key)
        # A row of nothing, such as a process of an instant, is left out; lost events are told.
        if one or other or (key[0] == "" and (one, other) != (None, None)):
            cells = (cell(one, digits), cell(other, digits), ratio(one, other))
            lines.append(f"| {words} | {' | '.join(cells)} |")

    for name, words, digits in FIGURES:
        line(("", name), words, digits)
    for group, words, digits in GROUPS:
        names = dict.fromkeys(name for found, name in [*a, *b] if found == group)
        for name in sorted(names, key=lambda each: each == "total"):
            line((group, name), f"{words}: {name}", digits)
    return lines


def report(runs: list[Run]) -> str:
    """Return all tables."""
    told = ""
    for (profile, load), sides in by_load(runs).items():
        rounds = ", ".join(f"{side} {len(found)}" for side, found in sorted(sides.items()))
        told += f"\n### {titled(load)}, {profile} (rounds: {rounds or 'none'})\n\n"
        failed = [
            f"* {run['side']}, round {run['round']} FAILED: {run['failed']}"
            for run in runs
            if (run["profile"], run["load"]) == (profile, load) and "failed" in run
        ]
        told += "\n".join([*rows(sides), *failed]) + "\n"
    return told


def titled(load: str) -> str:
    """Return a load's name in a title."""
    return load if load == "ceiling" else f"{int(load):,} events/s"


def by_load(runs: list[Run]) -> dict[tuple[str, str], dict[str, list[Run]]]:
    """Return the runs that did not fail by profile and load, and by side."""
    found: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        sides = found.setdefault((run["profile"], run["load"]), {})
        if "failed" not in run:
            sides.setdefault(run["side"], []).append(run)
    return found


PARTS = {
    "Filebeat": ("Filebeat",),
    "broker or receiver": ("broker or receiver",),
    "Spark's JVM": ("Spark JVM",),
    "Python of Spark": (
        "Ackline's planner",
        "Spark's Python driver",
        "Python workers",
        "other Python of Spark",
        "other of Spark",
    ),
}
"""The parts of a bar of the chart, and the processes of each."""


def chart(runs: list[Run]) -> str:
    """Return bars of the processor time of both sides for each load and profile, as SVG."""
    bars: list[tuple[str, list[float]]] = []
    for (profile, load), sides in by_load(runs).items():
        for side, name in (("A", "Kafka"), ("B", "Ackline")):
            figures = middle(sides.get(side, []))
            parts = [
                sum(figures.get(("cpu_s_per_million", label)) or 0.0 for label in labels)
                for labels in PARTS.values()
            ]
            bars.append((f"{titled(load)}, {profile}: {name}", parts))
    left, width = 250.0, 860
    scale = (width - left - 60) / max([1.0, *(sum(parts) for _, parts in bars)])
    drawn = [text(8, 20, "CPU seconds per million events, from the log file to the table")]
    for at, (name, color) in enumerate(zip(PARTS, COLORS, strict=False)):
        drawn += [
            box(left + 150 * at, 32, (10, 10), color, name),
            text(left + 150 * at + 14, 42, name),
        ]
    top = 56.0
    for at, (name, parts) in enumerate(bars):
        drawn.append(text(8, top + 12, name))
        begin = left
        for label, color, part in zip(PARTS, COLORS, parts, strict=False):
            drawn.append(box(begin, top, (part * scale, 16), color, f"{label}: {part:,.1f} s"))
            begin += part * scale
        drawn.append(text(begin + 6, top + 12, f"{sum(parts):,.0f}"))
        top += 20 if at % 2 == 0 else 30
    return page(width, top + 8, drawn)


def main() -> None:
    """Print the tables of a file, and write the chart."""
    runs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["runs"]
    sys.stdout.write(report(runs))
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(chart(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
