"""Reactive Streams between Python and Rust: the programs of docs/publishers-and-subscribers.md.

The Rust end is the example `publish_and_subscribe` of crates/ackline, as a process.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import peers
import pytest
from conftest import Addresses

TIME = 30
PYTHON = [sys.executable, str(peers.ROOT / "examples/publish_and_subscribe.py")]
FAST = "fast: 1000000 elements, sum 499999500000\n"
SAID = {
    "fast": f"sensor: 7\n{FAST}rejected: there is no sensor none\n",
    "both": f"{FAST}slow: 10 elements wait\n",
    "by-hand": "first: 3 and 0 requested\nnext: 3.0\n",
}


def command(language: str, *arguments: str) -> list[str]:
    program = PYTHON if language == "python" else [str(peers.rust_example("publish_and_subscribe"))]
    return [*program, *arguments]


@contextmanager
def running(language: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program whose output is read line by line; kill it at the end."""
    process = subprocess.Popen(command(language, *arguments), stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIME)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().removesuffix("\n")


@contextmanager
def publishing(language: str, url: str = "reactive://127.0.0.1:0") -> Iterator[str]:
    """Run the publisher; its address."""
    with running(language, "publish", url) as process:
        yield line(process)


def run(language: str, *arguments: str) -> str:
    done = subprocess.run(
        command(language, *arguments),
        capture_output=True, text=True, timeout=2 * TIME, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("over", ["tcp", "unix", "tls", "mutual"])
@pytest.mark.parametrize("subscriber", ["python", "rust"])
@pytest.mark.parametrize("publisher", ["python", "rust"])
def test_the_guides_programs_understand_each_other(
    publisher: str, subscriber: str, over: str, addresses: Addresses
) -> None:
    listens, adds = addresses.over(over, "reactive")
    with publishing(publisher, listens) as url:
        for name, said in SAID.items():
            assert run(subscriber, name, url + adds) == said


@pytest.mark.parametrize(("slow", "fast"), [("python", "rust"), ("rust", "python")])
@pytest.mark.parametrize("publisher", ["python", "rust"])
def test_a_slow_subscriber_and_a_fast_one_do_not_hold_each_other_up(
    publisher: str, slow: str, fast: str
) -> None:
    with publishing(publisher) as url, running(slow, "slow", f"{url}/numbers") as process:
        assert line(process) == "slow: 1"
        assert run(fast, "fast", url) == SAID["fast"]
        # At ten elements a second the slow one has taken few of the million, and it goes on.
        assert process.poll() is None
        assert [line(process) for _ in range(3)] == ["slow: 2", "slow: 3", "slow: 4"]
