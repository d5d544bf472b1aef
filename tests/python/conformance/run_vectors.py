"""Runs the conformance vectors of the folders named on the command line, each protocol as one line.

A folder holds one folder per protocol with `frames.json` and `conversations.json`; it need not hold
every protocol. Ends with 1 if anything failed.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from vectors_common import VectorFailure

Runner = Callable[[dict[str, Any]], int]


def built() -> dict[str, tuple[Runner, Runner]]:
    """Each protocol's runners of frames and of conversations: `vectors_PROTOCOL.py` beside this."""
    found = (path.stem for path in sorted(Path(__file__).parent.glob("vectors_*.py")))
    modules = {name: import_module(name) for name in found if name != "vectors_common"}
    return {
        name.removeprefix("vectors_"): (module.run_frame_vector, module.run_conversation)
        for name, module in modules.items()
    }


BUILT = built()


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
    if folder.name not in BUILT:
        print(f"{folder.name}: not built, {len(frames) + len(conversations)} vectors")
        return []
    run_frame, run_conversation = BUILT[folder.name]
    failures: list[str] = []
    splits = run_all(frames, run_frame, failures)
    splits += run_all(conversations, run_conversation, failures)
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
