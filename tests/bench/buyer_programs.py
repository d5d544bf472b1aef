"""Programs of the buyer's figure as processes: their logs, their ends, and Filebeat."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from buyer_fetch import fetched

# Frames of a stack trace begin with a blank.
ERROR = re.compile(r"^\S.*(Caused by|Error|ERROR|Exception|FATAL)|^(Caused by|ERROR)")


def until(condition: Callable[[], Any], seconds: float, failure: Callable[[], str]) -> None:
    """Wait for a condition; end the run if it does not come about in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {seconds:.0f} s: {failure()}")
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody uses."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def tail(log: Path) -> str:
    """Return the last lines of a log that name an error, or its last lines."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line[:300] for line in text.splitlines() if '"event":"stats"' not in line]
    named = [line for line in lines if ERROR.search(line)]
    return "\n".join((named or lines)[-4:])


@dataclass
class Program:
    """A process with its log, ended with its descendants."""

    name: str
    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start it; return its pid."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                # A session of its own would get a share of the processor of its own.
                process_group=0,
            )
        return self.process.pid

    def check(self) -> None:
        """End the run if the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            code = self.process.returncode
            raise SystemExit(f"{self.name} ended with {code}:\n{tail(self.log)}")

    def kill(self) -> None:
        """End it without any chance to say goodbye."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        """End it politely, and what is left of its group by force."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process = None


def filebeat(directory: Path, logs: Path, *, eager: bool) -> Program:
    """Prepare Filebeat for a file of log lines; `eager` looks for new lines each 100 ms."""
    home = directory / "filebeat"
    home.mkdir()
    source = {"type": "filestream", "id": "buyer", "enabled": True, "paths": [str(logs)]}
    settings: dict[str, Any] = {
        "filebeat.inputs": [source],
        "processors": [{"add_host_metadata": None}],
    }
    if eager:
        source |= {"backoff.init": "100ms", "backoff.max": "100ms"}
        settings |= {"queue.mem.flush.timeout": "100ms"}
    # A YAML file of Filebeat may be JSON.
    (home / "filebeat.yml").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    command = [str(fetched("filebeat") / "filebeat"), "-e", "--path.home", str(home)]
    return Program("Filebeat", command, directory / "filebeat.log")


def configure(sender: Program, output: dict[str, Any]) -> None:
    """Give Filebeat its output, whose port is known once the server runs."""
    config = Path(sender.command[-1]) / "filebeat.yml"
    settings = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(settings | output, indent=1), encoding="utf-8")
    config.chmod(0o600)
