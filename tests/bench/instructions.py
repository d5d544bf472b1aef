"""Instructions for each event, counted by callgrind: `make callgrind`.

Load changes seconds and hardly instructions. Each path runs twice, with few windows and with many;
the difference is divided by the events between them, so that the start does not count. With
`--check` more than 3 % above a noted figure fails, where windows wait for commits more than a
tenth. A figure above that is counted again, and its least count decides: work that timers do while
a loaded disk is waited for only adds. `--note` writes the new figures.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTED = Path(__file__).with_suffix(".json")
TOLERANCE = {"count": 0.03, "land": 0.10, "write": 0.03}
"""The part by which a count may be above the noted one; how long commits take is chance."""
# Events in a window, zlib level, and how many windows the two runs have.
SHAPES = {
    "2,048 events, zlib 3": (2048, 3, (4, 16)),
    "50 events, zlib 3": (50, 3, (40, 440)),
    "2,048 events, plain": (2048, 0, (4, 16)),
}
PATHS = ("count", "land", "write")
NAMES = [f"{path}: {shape}" for shape in SHAPES for path in PATHS]
COUNTS = 3
"""How often a figure is counted until it is near the noted one."""


def build() -> Path:
    """Build the counted programs."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "ackline-counted"]
    # With the package and the feature of the wheel, so that both share their dependencies.
    packages = ["-p", "ackline-bench", "-p", "ackline-python"]
    features = ["--no-default-features", "--features", "ackline-python/extension-module"]
    subprocess.run([*command, *packages, *features], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release" / "ackline-counted"


def instructions(command: list[str]) -> int:
    """Return how many instructions a command takes."""
    with tempfile.TemporaryDirectory(prefix="ackline-callgrind-") as directory:
        out = f"--callgrind-out-file={directory}/out"
        run = subprocess.run(
            ["valgrind", "--tool=callgrind", out, *command],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "TMPDIR": directory},
        )
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode or found is None:
        raise SystemExit(f"{command}: {run.stdout}{run.stderr}")
    return int(found[1])


def prepare(program: Path, shape: str, directory: str) -> str:
    """Write the windows of a shape to a file, and return its path."""
    events, level, _ = SHAPES[shape]
    file = str(Path(directory) / f"{events}-{level}")
    subprocess.run([program, "prepare", file, str(events), str(level)], check=True)
    return file


def count(program: Path, names: Iterable[str] = NAMES) -> dict[str, int]:
    """Return the instructions for each event of every path and shape, or of those named."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="ackline-counted-") as directory:
        for name in names:
            path, shape = name.split(": ")
            events, _, (few, many) = SHAPES[shape]
            file = prepare(program, shape, directory)
            runs = [
                instructions([str(program), path, file, str(windows)]) for windows in (few, many)
            ]
            each = (runs[1] - runs[0]) / (events * (many - few))
            results[name] = round(each)
    return results


def least(program: Path, found: dict[str, int], noted: dict[str, int]) -> dict[str, int]:
    """Return the figures, those above the noted ones replaced by the least of `COUNTS` counts."""
    for _ in range(COUNTS - 1):
        above = [name for name in found if is_above(name, found[name], noted)]
        again = count(program, above)
        found = found | {name: min(found[name], again[name]) for name in above}
    return found


def table(results: list[dict[str, int]]) -> list[str]:
    """Return the lines of a table, with the spread of several counts."""
    lines = ["| path | " + " | ".join(SHAPES) + " |", "|---|" + "---|" * len(SHAPES)]
    for path in PATHS:
        cells = []
        for shape in SHAPES:
            found = sorted(each[f"{path}: {shape}"] for each in results)
            low, high = found[0], found[-1]
            middle = found[len(found) // 2]
            cells.append(f"{middle:,}" + ("" if low == high else f" ({low:,}-{high:,})"))
        lines.append(f"| {path} | " + " | ".join(cells) + " |")
    return lines


def is_above(name: str, value: int, noted: dict[str, int]) -> bool:
    """Whether a count is too far above the noted one."""
    return name in noted and value > noted[name] * (1 + TOLERANCE[name.partition(":")[0]])


def too_many(found: dict[str, int], noted: dict[str, int]) -> list[str]:
    """Return the figures that are too far above the noted ones, or have none."""
    lines = []
    for name, value in found.items():
        if name not in noted:
            lines.append(f"{name}: {value:,}, and no figure is noted")
        elif is_above(name, value, noted):
            lines.append(
                f"{name}: {value:,} instructions for each event, noted are {noted[name]:,}; "
                "mend it, or note the new figure and say why (make callgrind NOTE=--note)"
            )
    return lines


def main() -> None:
    """Count, print, and judge or note if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="count so often, for the spread")
    parser.add_argument("--check", action="store_true", help="fail above a noted figure")
    parser.add_argument("--note", action="store_true", help="note the new counts")
    options = parser.parse_args()
    program = build()
    results = [count(program) for _ in range(options.times)]
    sys.stdout.write("\n".join(table(results)) + "\n")
    machine = platform.machine()
    noted = json.loads(NOTED.read_text(encoding="utf-8"))
    last = results[-1]
    if options.note:
        noted[machine] = last
        NOTED.write_text(json.dumps(noted, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if options.check and machine not in noted:
        sys.stdout.write(f"no figures are noted for {machine}: nothing is judged\n")
    elif options.check:
        wrong = too_many(least(program, last, noted[machine]), noted[machine])
        sys.stdout.write("\n".join(wrong) + "\n" if wrong else "all near the noted counts\n")
        raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
