"""Every example in README and docs is run; a comment before it says how: <!-- example: KIND -->.

shell   its lines, one after the other; `ackline receive` and `ackline serve` go on in the
        background, `make` must know its targets
run     a Python script that ends by itself; a receiver listens, and `spool` holds three events
serve   a Python script that listens; an event is sent to it, must be printed and acknowledged
stream  a Python script that runs until it is ended; `table` must come to hold the three events
listen  the same, but the script itself receives them
part    lines of a file of PROGRAMS, which tests/interop runs
lakehouse  a program that tests/spark/test_lakehouse.py runs, with jars or packages of its own
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pylogbeat
import pytest

ROOT = Path(__file__).resolve().parents[2]
PORT = "5044"
BLOCK = re.compile(r"(?:<!-- example: (\w+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
PROGRAMS = [*ROOT.glob("examples/*.py"), *ROOT.glob("crates/ackline/examples/*.rs")]
RUN = {"sh", "bash", "python", "rust", "console"}


class Example(NamedTuple):
    where: str
    kind: str
    text: str


def pages() -> list[Path]:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    # The readings of the specifications quote frames, and no programs.
    return [ROOT / "README.md", *(page for page in pages if page.parent.name != "specs")]


def examples() -> list[Example]:
    return [
        Example(f"{page.relative_to(ROOT)}:{number}", kind, text)
        for page in pages()
        for number, (kind, language, text) in enumerate(BLOCK.findall(page.read_text("utf-8")))
        if language in RUN
    ]


def until(condition: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.05)


@contextmanager
def free_port() -> Iterator[int]:
    """Choose a port that no other process is given before the example listens on it."""
    with socket.socket() as held:
        # A socket that is bound and does not listen lets the example listen beside it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def background(command: list[str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process whose output goes to the file `output`; end it with its children."""
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment(),
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)


def environment() -> dict[str, str]:
    beside = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{beside}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@contextmanager
def receiver(directory: Path, port: int) -> Iterator[None]:
    """Run a receiver into `spool`, which then holds three events."""
    command = shutil.which("ackline", path=environment()["PATH"])
    assert command, "the command `ackline` is not installed here: make setup"
    aside = directory / "receiver"
    aside.mkdir()
    spool = str(directory / "spool")
    url = f"lumberjack://127.0.0.1:{port}"
    with background([command, "receive", url, "--spool", spool, "--json"], aside) as process:
        until(lambda: is_open(port) or process.poll() is not None, "the receiver listens")
        with pylogbeat.PyLogBeatClient("127.0.0.1", port, timeout=10) as client:
            client.send([{"message": f"event {number}"} for number in range(3)])
        yield


def flat(text: str) -> str:
    """The text wherever it may be indented."""
    return "\n".join(line.strip() for line in text.splitlines())


def run_shell(text: str, directory: Path, port: int) -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8")))
    started: subprocess.Popen[bytes] | None = None
    try:
        for line in text.replace(PORT, str(port)).strip().splitlines():
            if line.startswith("make "):
                assert set(line.split()[1:]) <= targets
            elif line.startswith(("ackline receive", "ackline serve")):
                started = subprocess.Popen(
                    ["bash", "-c", f"exec {line}"], cwd=directory, env=environment()
                )
                until(lambda: is_open(port), line)
            else:
                subprocess.run(
                    ["bash", "-c", line], cwd=directory, env=environment(), check=True, timeout=60
                )
    finally:
        if started is not None:
            started.terminate()
            assert started.wait(20) == 0


def run_script(script: Path, directory: Path, port: int) -> None:
    with receiver(directory, port):
        subprocess.run(
            [sys.executable, str(script)], cwd=directory, env=environment(), check=True, timeout=110
        )


def run_server(script: Path, directory: Path, port: int) -> None:
    with background([sys.executable, str(script)], directory) as process:
        until(lambda: is_open(port) or process.poll() is not None, "the example listens")
        if process.poll() is not None:
            pytest.fail((directory / "output").read_text("utf-8")[-3000:])
        with pylogbeat.PyLogBeatClient("127.0.0.1", port, timeout=10) as client:
            client.send([{"message": "seen by the example"}])  # returns when acknowledged
        output = directory / "output"
        until(lambda: "seen by the example" in output.read_text("utf-8"), "the event is printed")
        assert process.poll() is None


def has_landed(process: subprocess.Popen[bytes], directory: Path) -> bool:
    import pyarrow.parquet as pq

    if process.poll() is not None:
        pytest.fail((directory / "output").read_text("utf-8")[-3000:])
    table = directory / "table"
    # The sink's log names only committed files.
    if not (table / "_spark_metadata" / "0").exists():
        return False
    return sum(pq.read_metadata(path).num_rows for path in table.glob("*.parquet")) == 3


def run_stream(script: Path, directory: Path, port: int) -> None:
    with receiver(directory, port), background([sys.executable, str(script)], directory) as process:
        until(lambda: has_landed(process, directory), "the table holds what was sent", 100)


def run_listening_stream(script: Path, directory: Path, port: int) -> None:
    with background([sys.executable, str(script)], directory) as process:
        until(lambda: is_open(port) or process.poll() is not None, "the query listens", 100)
        with pylogbeat.PyLogBeatClient("127.0.0.1", port, timeout=60) as client:
            # Returns when acknowledged: the batch that holds them is committed.
            client.send([{"message": f"event {number}"} for number in range(3)])
        until(lambda: has_landed(process, directory), "the table holds what was sent", 100)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.where)
def test_example(example: Example, tmp_path: Path) -> None:
    assert example.kind, "say before the block how it is run: <!-- example: KIND -->"
    if example.kind == "part":
        assert any(flat(example.text) in flat(program.read_text("utf-8")) for program in PROGRAMS)
        return
    if example.kind == "lakehouse":
        assert example.where.startswith(("docs/spark-delta.md", "docs/spark-iceberg.md"))
        return
    with free_port() as port:
        run(example, tmp_path, port)


def run(example: Example, tmp_path: Path, port: int) -> None:
    if example.kind == "shell":
        listens = re.search("^ackline (receive|serve)", example.text, re.MULTILINE)
        if "spool" in example.text and not listens:
            with receiver(tmp_path, port):
                run_shell(example.text, tmp_path, port)
        else:
            run_shell(example.text, tmp_path, port)
        return
    script = tmp_path / "example.py"
    script.write_text(example.text.replace(PORT, str(port)), "utf-8")
    kinds = {
        "run": run_script,
        "serve": run_server,
        "stream": run_stream,
        "listen": run_listening_stream,
    }
    kinds[example.kind](script, tmp_path, port)


def test_every_page_of_the_docs_is_linked() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    for page in pages()[1:]:
        assert str(page.relative_to(ROOT / "docs")) in navigation


def test_make_help_names_every_target() -> None:
    targets = re.findall(r"(?m)^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text("utf-8"))
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.findall(r"(?m)^  make (\S+) +\S", listed.stdout) == targets
