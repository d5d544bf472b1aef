"""The runs of the buyer's figure side by side, as a Markdown table for each load and profile."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

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

    def line(key: tuple[str, str], text: str, digits: int) -> None:
        one, other = a.get(key), b.get(key)
        # A row of nothing, such as a process of an instant, is left out; lost events are told.
        if one or other or (key[0] == "" and (one, other) != (None, None)):
            cells = (cell(one, digits), cell(other, digits), ratio(one, other))
            lines.append(f"| {text} | {' | '.join(cells)} |")

    for name, text, digits in FIGURES:
        line(("", name), text, digits)
    for group, text, digits in GROUPS:
        names = dict.fromkeys(name for found, name in [*a, *b] if found == group)
        for name in sorted(names, key=lambda each: each == "total"):
            line((group, name), f"{text}: {name}", digits)
    return lines


def report(runs: list[Run]) -> str:
    """Return all tables."""
    loads = dict.fromkeys((run["profile"], run["load"]) for run in runs)
    text = ""
    for profile, load in loads:
        sides: dict[str, list[Run]] = {}
        failed: list[str] = []
        for run in runs:
            if (run["profile"], run["load"]) != (profile, load):
                continue
            if "failed" in run:
                failed.append(f"* {run['side']}, round {run['round']} FAILED: {run['failed']}")
            else:
                sides.setdefault(run["side"], []).append(run)
        rounds = ", ".join(f"{side} {len(found)}" for side, found in sorted(sides.items()))
        title = load if load == "ceiling" else f"{load} events/s"
        text += f"\n### {title}, {profile} (rounds: {rounds or 'none'})\n\n"
        text += "\n".join([*rows(sides), *failed]) + "\n"
    return text
