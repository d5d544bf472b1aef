"""Fixtures of all tests: receivers and echo servers as processes of their own."""

from collections.abc import Callable, Iterator

import pytest
from support.commands import RunningReceiver


@pytest.fixture
def receiver() -> Iterator[Callable[..., RunningReceiver]]:
    """Starts receivers on a free port; ends those that still run."""
    started: list[RunningReceiver] = []

    def start(*arguments: str, url: str = "lumberjack://127.0.0.1:0") -> RunningReceiver:
        started.append(RunningReceiver(url, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def echo() -> Iterator[Callable[..., RunningReceiver]]:
    """Starts `ackline serve --echo` on a free port; ends those that still run."""
    started: list[RunningReceiver] = []

    def start(*arguments: str, url: str = "bpmux://127.0.0.1:0") -> RunningReceiver:
        started.append(RunningReceiver(url, "--echo", *arguments, command="serve"))
        return started[-1]

    yield start
    for one in started:
        one.kill()
