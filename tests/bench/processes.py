"""Servers and load generators as processes, and the processor time and memory that servers take."""

import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

TICK = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    found = [pid]
    # A child belongs to the thread that started it.
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            for child in children.read_text(encoding="ascii").split():
                found += tree(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process tree, with its children that have ended."""
    total = 0
    for each in tree(pid):
        stat = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        total += sum(int(stat[index]) for index in (11, 12, 13, 14))
    return total / TICK


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process tree."""
    total = 0
    for each in tree(pid):
        status = Path(f"/proc/{each}/status").read_text(encoding="ascii")
        total += 1024 * int(status.split("VmRSS:")[1].split()[0])
    return total


@contextmanager
def server(command: list[str]) -> Iterator[tuple[int, str]]:
    """Run a server that prints a `listening` line; yields its pid and its address."""
    with tempfile.TemporaryFile("w+") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=subprocess.DEVNULL)
        try:
            yield process.pid, address(process, lines)
        finally:
            process.terminate()
            process.wait(30)


def address(process: subprocess.Popen[bytes], lines: Any) -> str:
    """Wait for the address that the server says it listens on."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        lines.seek(0)
        first = lines.readline()
        if first.endswith("\n"):
            return str(json.loads(first)["urls"][0]).split("://", 1)[1]
        time.sleep(0.02)
    raise SystemExit(f"{process.args!r} did not listen")


def send(
    target: str, load: Path, seconds: float, windows: int | None = None, shape: tuple[str, ...] = ()
) -> Callable[[], Any]:
    """Prepare a load generator; the returned function starts it and gives back its result."""
    limit = [] if windows is None else [str(windows)]
    process = subprocess.Popen(
        [load, *shape, target, str(seconds), *limit],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()

    def start() -> Any:
        output, _ = process.communicate("go\n", timeout=seconds + 300)
        if process.returncode:
            raise SystemExit(f"the load generator ended with {process.returncode}")
        return json.loads(output.splitlines()[-1])

    return start


def raise_file_limit() -> None:
    """Allow a thousand sockets, here and in child processes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
