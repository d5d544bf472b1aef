"""The sessions of docs/publishers-and-subscribers.md, each program a process of its own.

A comment before a block names it: <!-- session: NAME -->. A line that begins with `$ ` is the
command, and the lines behind it are its output.
"""

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_examples import ROOT, background, environment, free_port, is_open, until

from ackline import Spool

PAGE = (ROOT / "docs/publishers-and-subscribers.md").read_text("utf-8")
SESSION = re.compile(r"<!-- session: ([\w-]+) -->\n```text\n\$ (.*?)\n(.*?)```", re.DOTALL)
SESSIONS: dict[str, tuple[str, str]] = {
    name: (command, said) for name, command, said in SESSION.findall(PAGE)
}
NUMBERS = 1_000_000
READINGS = 20
TIME = 60.0


def words(name: str, port: int) -> list[str]:
    """A command of the page, with another port."""
    at = str(ROOT / "examples")
    return SESSIONS[name][0].replace("7000", str(port)).replace("examples", at).split()


def said(name: str) -> str:
    return SESSIONS[name][1]


def run(name: str, port: int, directory: Path, timeout: float = TIME) -> str:
    """The output of a program that ends by itself."""
    done = subprocess.run(
        words(name, port), cwd=directory, env=environment(), timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def running(name: str, port: int, directory: Path) -> Iterator[Path]:
    """Run a program in the background; its output."""
    aside = directory / name
    aside.mkdir()
    with background(words(name, port), aside):
        yield aside / "output"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of the publisher."""
    with free_port() as port, running("publish", port, tmp_path) as output:
        until(lambda: is_open(port), "the publisher listens")
        assert output.read_text("utf-8") == said("publish").replace("7000", str(port))
        yield port


def test_the_publisher_ends_quietly_at_ctrl_c(tmp_path: Path) -> None:
    with free_port() as port:
        publisher = subprocess.Popen(
            words("publish", port), cwd=tmp_path, env=environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert publisher.stdout is not None
        assert publisher.stdout.readline()
        # It says where it listens a moment before it serves: a Ctrl-C in between may be repeated.
        for _ in range(6):
            publisher.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                publisher.wait(TIME / 6)
                break
        assert publisher.communicate(timeout=TIME)[1] == b""
        assert publisher.returncode == 0


def test_each_session_is_known() -> None:
    assert {*SESSIONS} == {"publish", "slow", "fast", "both", "by-hand", "receive", "spark"}


def test_a_slow_subscriber_and_a_fast_one_do_not_hold_each_other_up(
    port: int, tmp_path: Path
) -> None:
    with running("slow", port, tmp_path) as output:

        def taken() -> int:
            return len(output.read_text("utf-8").splitlines())

        until(lambda: taken() > 0, "the slow one has an element")
        assert run("fast", port, tmp_path) == said("fast")
        before = taken()
        assert before < NUMBERS / 100
        until(lambda: taken() > before + 3, "the slow one goes on")
        assert output.read_text("utf-8").startswith(said("slow"))


@pytest.mark.parametrize("name", ["both", "by-hand"])
def test_the_other_subscribers_say_what_the_page_shows(
    name: str, port: int, tmp_path: Path
) -> None:
    assert run(name, port, tmp_path) == said(name)


def landed(spool: Path) -> dict[str, int]:
    """The elements in a spool by their publishers."""
    if not (spool / "durable").exists():
        return {}
    streams = Spool(spool).read(columns=["stream"]).to_table()["stream"]
    return {one["values"]: one["counts"] for one in streams.value_counts().to_pylist()}


@pytest.mark.timeout(400)
def test_the_streams_land_in_a_spool_and_spark_reads_typed_columns(
    port: int, tmp_path: Path
) -> None:
    spool = tmp_path / "receive" / "spool"

    def complete() -> bool:
        found = landed(spool)
        assert found.keys() <= {"numbers", "sensors/7"}
        return found.get("numbers") == NUMBERS and found.get("sensors/7", 0) >= READINGS

    with running("receive", port, tmp_path):
        until(complete, "both streams have landed", TIME)
    assert landed(spool)["numbers"] == NUMBERS
    shown, columns = run("spark", port, spool.parent, timeout=300).split("+\n\nroot\n")
    expected, expected_columns = said("spark").split("+\n\nroot\n")
    # The DOUBLE column, and the sum of all numbers.
    assert shown == expected
    # The struct's columns; times and temperatures are others each time.
    assert values_apart(columns) == values_apart(expected_columns)


def values_apart(text: str) -> list[str]:
    """The lines of a table without spaces and frame, each time and decimal number as a 0."""
    number = re.compile(r"\d+\.\d+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*")
    return [re.sub(r"[ +-]+", "", number.sub("0", line)) for line in text.rstrip().splitlines()]


def test_the_receiver_ends_in_good_order_in_the_middle_of_a_stream(
    port: int, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    receiver = subprocess.Popen(
        words("receive", port), cwd=tmp_path, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: landed(spool).get("sensors/7", 0) > 0, "a reading has landed")
    receiver.send_signal(signal.SIGTERM)
    _, told = receiver.communicate(timeout=TIME)
    assert receiver.returncode == 0, told.decode()
