"""What every interop test needs: `ackline receive` as a process, and what its spool holds."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Line = dict[str, Any]


def ackline_command() -> str:
    beside = Path(sys.executable).with_name("ackline")
    found = str(beside) if beside.exists() else shutil.which("ackline")
    assert found, "the command `ackline` is not installed here: make setup"
    return found


def until(condition: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    """Wait for a condition; its first true value is returned."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)


class Receiver:
    """`ackline receive … --json`, its lines as they come, its memory as the system sees it."""

    def __init__(self, *arguments: str) -> None:
        self.lines: list[Line] = []
        self.process = subprocess.Popen(
            [ackline_command(), "receive", "lumberjack://127.0.0.1:0", *arguments, "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()
        urls = self.wait("listening")["urls"]
        self.port = int(urls[0].rsplit(":", 1)[1])

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def seen(self, event: str) -> list[Line]:
        return [line for line in self.lines if line["event"] == event]

    def wait(
        self, event: str, where: Callable[[Line], bool] = lambda _: True, timeout: float = 20.0
    ) -> Line:
        found: list[Line] = until(
            lambda: [line for line in self.seen(event) if where(line)], f"line {event}", timeout
        )
        return found[0]

    def newer_stats(self) -> Line:
        """Wait for a line of statistics that is younger than this call."""
        # Two, for the first may have been on its way.
        before = len(self.seen("stats"))
        until(lambda: len(self.seen("stats")) >= before + 2, "two more lines of statistics")
        return self.seen("stats")[-1]

    def rss(self) -> int:
        """Resident bytes of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def peak_rss(self) -> int:
        """Return the highest number of resident bytes so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(20)
        finally:
            self.process.kill()
            self._reader.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Start receivers; each is ended with the test."""
    started: list[Receiver] = []

    def start(*arguments: str) -> Receiver:
        started.append(Receiver(*arguments))
        return started[-1]

    yield start
    for receiver in started:
        receiver.process.kill()
        receiver.stop()


@pytest.fixture(scope="session")
def golumber(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program that sends with go-lumber."""
    program = tmp_path_factory.mktemp("golumber") / "send"
    subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(program), "."],
        cwd=Path(__file__).parent / "golumber",
        env={**os.environ, "GOTOOLCHAIN": "local"},
        check=True,
        timeout=110,
    )
    return program


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def events_of() -> Callable[[Path], list[Line]]:
    """Read the events of a spool by the command line, and prove that its positions are dense."""

    def read(directory: Path) -> list[Line]:
        command = [ackline_command(), "spool", "cat", str(directory), "--json"]
        output = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
        events = [json.loads(line) for line in output.splitlines()]
        assert [event["position"] for event in events] == list(range(len(events)))
        return events

    return read
