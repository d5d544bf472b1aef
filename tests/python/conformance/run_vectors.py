"""Runs the conformance vectors of the folders named on the command line, each protocol as one line.

A folder holds one folder per protocol with `frames.json` and `conversations.json`; it need not hold
every protocol. Ends with 1 if anything failed.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ackline.sansio import protocols
from vectors import VectorFailure, run_conversation, run_frame_vector

Runner = Callable[[dict[str, Any]], int]


def load(folder: Path, file: str, member: str) -> list[dict[str, Any]]:
    path = folder / file
    if not path.exists():
        return []
    content = json.loads(path.read_text())
    unknown = content.keys() - {"protocol", member, "note", "source"}
    if unknown or content.get("protocol") != folder.name:
        raise SystemExit(f"{path}: not vectors of {folder.name} ({sorted(unknown)})")
    vectors: list[dict[str, Any]] = content[member]
    return vectors


def run_all(vectors: list[dict[str, Any]], run: Runner, failures: list[str]) -> int:
    splits = 0
    for vector in vectors:
        try:
            splits += run(vector)
        except Exception as failure:  # noqa: BLE001 (any exception is that vector's failure)
            kind = "" if isinstance(failure, VectorFailure) else type(failure)
            failures.append(f"{vector.get('name')}: {kind}{failure}")
    return splits


def run_protocol(folder: Path) -> list[str]:
    """Prints one protocol's line, its failures above it; returns the failures."""
    frames = load(folder, "frames.json", "vectors")
    conversations = load(folder, "conversations.json", "conversations")
    if folder.name not in protocols():
        print(f"{folder.name}: not built, {len(frames) + len(conversations)} vectors")
        return []
    failures: list[str] = []
    splits = run_all(frames, partial(run_frame_vector, folder.name), failures)
    splits += run_all(conversations, partial(run_conversation, folder.name), failures)
    for failure in failures:
        print(f"{folder.name} python: {failure}")
    print(
        f"{folder.name} python: {len(frames)} frames, {len(conversations)} conversations, "
        f"{splits} splits, {len(failures)} failed"
    )
    return failures


def main(arguments: list[str]) -> int:
    if not arguments:
        print("usage: run_vectors.py DIR...", file=sys.stderr)
        return 2
    failed = 0
    for argument in arguments:
        folders = sorted(path for path in Path(argument).iterdir() if path.is_dir())
        if not folders:
            print(f"{argument}: no vectors", file=sys.stderr)
            return 2
        failed += sum(len(run_protocol(folder)) for folder in folders)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
