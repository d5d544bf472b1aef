"""Fixtures of the tests of the command line."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.commands import (
    RunningReceiver,
)
from support.publishing import ANYWHERE, COMMAND, Publisher, Start


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    """Starts `ackline publish --listen` on a free port; ends those that still run."""
    started: list[RunningReceiver] = []

    def start(*arguments: object, url: str = ANYWHERE) -> RunningReceiver:
        texts = [str(argument) for argument in arguments]
        started.append(RunningReceiver("--listen", url, *texts, command="publish"))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """A file of 5,000 lines."""
    path = tmp_path / "numbers"
    path.write_text("".join(f"{number}\n" for number in range(5_000)))
    return path


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands with pipes; ends those that still run."""
    with ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            )  # fmt: skip
            # The block of a process closes its pipes and waits; the kill comes before.
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start
