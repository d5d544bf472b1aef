"""go-lumber v0.2.0, the client of Beats: sequence numbers from 1 in each window, sync and async."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("in_flight", [0, 1, 3], ids=["sync", "async-1", "async-3"])
def test_every_event_arrives_byte_for_byte(
    receive: Callable[..., Any],
    spool: Path,
    events_of: Callable[[Path], list[dict[str, Any]]],
    golumber: Path,
    in_flight: int,
    level: int,
) -> None:
    receiver = receive("--spool", str(spool))
    lines = [json.dumps({"n": n, "text": "ä - " + "x" * (n % 700)}) for n in range(5000)]
    arguments = ["-addr", f"127.0.0.1:{receiver.port}", "-batch", "2048"]
    done = subprocess.run(
        [golumber, *arguments, "-async", str(in_flight), "-level", str(level)],
        input="".join(f"{line}\n" for line in lines).encode(),
        capture_output=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert int(done.stdout) == 5000
    events = events_of(spool)
    assert [event["payload"] for event in events] == lines
    sizes = [2048, 2048, 904]
    assert [event["sequence"] for event in events] == [n + 1 for size in sizes for n in range(size)]
    assert receiver.stop() == 0
