"""The sessions of docs/topics-and-queues.md, each program a process of its own."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_examples import ROOT, background, environment, free_port, is_open, until
from test_publishers import SESSION

PAGE = (ROOT / "docs/topics-and-queues.md").read_text("utf-8")
SESSIONS = {name: (command, said) for name, command, said in SESSION.findall(PAGE)}
JOBS = {str(number) for number in range(100)}
TIME = 60.0


def words(name: str, port: int) -> list[str]:
    """A command of the page, with another port."""
    at = str(ROOT / "examples")
    return SESSIONS[name][0].replace("8334", str(port)).replace("examples", at).split()


def said(name: str) -> str:
    return SESSIONS[name][1]


def run(name: str, port: int, directory: Path) -> str:
    """The output of a program that ends by itself."""
    done = subprocess.run(
        words(name, port), cwd=directory, env=environment(), timeout=TIME,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


class Program:
    """A program of the page that runs in the background."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def text(self) -> str:
        return self._output.read_text("utf-8")

    def lines(self, beginning: str) -> list[str]:
        return [line for line in self.text().splitlines() if line.startswith(beginning)]


@contextmanager
def running(name: str, port: int, directory: Path, aside: str = "") -> Iterator[Program]:
    place = directory / (aside or name)
    place.mkdir(exist_ok=True)
    with background(words(name, port), place) as process:
        yield Program(process, place / "output")


@pytest.fixture
def port() -> Iterator[int]:
    with free_port() as port:
        yield port


@contextmanager
def broker(port: int, directory: Path) -> Iterator[Program]:
    with running("broker", port, directory) as program:
        until(lambda: is_open(port), "the broker listens")
        yield program


def test_each_session_is_known() -> None:
    assert {*SESSIONS} == {
        "broker", "europe", "severe", "slow", "publish", "submit", "work", "spark",
    }  # fmt: skip


def test_the_broker_filters_and_a_slow_subscriber_holds_up_nobody(
    port: int, tmp_path: Path
) -> None:
    with (
        broker(port, tmp_path),
        running("europe", port, tmp_path) as europe,
        running("severe", port, tmp_path) as severe,
        running("slow", port, tmp_path) as slow,
    ):
        for program in (europe, severe, slow):
            until(lambda one=program: "subscribed" in one.text(), "it has subscribed")
        assert run("publish", port, tmp_path) == said("publish")
        until(lambda: europe.text() == said("europe"), "the first one has those of its region")
        until(lambda: severe.text() == said("severe"), "the second one has those that match")
        # All of them take it 86 s.
        assert len(slow.lines("slow")) < 500
        until(lambda: len(slow.lines("slow")) > 3, "the slow one goes on")
        assert slow.text().startswith(said("slow"))


@pytest.mark.timeout(200)
def test_every_job_is_done_over_kills_of_the_broker_and_of_a_worker(
    port: int, tmp_path: Path
) -> None:
    with broker(port, tmp_path) as killed:
        assert run("submit", port, tmp_path) == said("submit")
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait(10)
    with (
        broker(port, tmp_path),
        running("work", port, tmp_path, "one") as one,
        running("work", port, tmp_path, "two") as two,
    ):
        until(lambda: len(one.lines("done")) > 5 and len(two.lines("done")) > 5, "both work")
        one.process.send_signal(signal.SIGKILL)

        def done() -> list[str]:
            lines = one.lines("done") + two.lines("done")
            return [line.split()[1] for line in lines if len(line.split()) == 4]

        until(lambda: {*done()} == JOBS, "every job is done", TIME)
        time.sleep(0.5)
        # At most the window of the killed worker is done twice.
        assert len(JOBS) <= len(done()) <= len(JOBS) + 5
    assert re.fullmatch(r"(done: \d+ by \d+\n){3}", said("work"))


@pytest.mark.timeout(400)
def test_the_filter_of_a_query_is_evaluated_by_the_broker(port: int, tmp_path: Path) -> None:
    with broker(port, tmp_path), running("spark", port, tmp_path) as query:
        spool = tmp_path / "spark" / "alerts"
        until((spool / "durable").exists, "the query has its spool", 120)
        # It subscribes when its receiver has started: publish until it is there.
        deadline, rounds = time.monotonic() + 240, 0
        while query.process.poll() is None and time.monotonic() < deadline:
            run("publish", port, tmp_path)
            rounds += 1
            time.sleep(5)
        assert query.process.returncode == 0, query.text()[-3000:]
        counts = query.lines("levels: ")[0]
    found = {int(level): int(count) for level, count in re.findall(r"'(\d)': (\d+)", counts)}
    assert {*found} == {3, 4, 5, 6}
    # Of the thousand of a round, 48 have one level and one region, and 143 that level.
    assert max(found.values()) <= 48 * rounds, (found, rounds)
    assert re.fullmatch(r"levels: \{.*\}\n", said("spark"))
