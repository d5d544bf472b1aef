"""Every option that README and docs name exists, and the pages on senders name no stranger."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_examples import ROOT, environment, pages

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OTHERS = {
    # of cargo, of valgrind and of our benches
    "--release", "--bin", "--example", "--only", "--rounds", "--seconds", "--ids", "--note",
    "--events",
    # a way to write names, not a name
    "--kebab-case",
}  # fmt: skip
COMMANDS = [
    ["receive"],
    ["send"],
    ["schema", "infer"],
    *(["spool", name] for name in ("ls", "cat", "verify", "find", "adopt")),
    *(["spool", "consumers", name] for name in ("ls", "add", "rm", "seek")),
]


def options_of(command: list[str]) -> set[str]:
    beside = Path(sys.executable).with_name("ackline")
    wide = environment() | {"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [str(beside), *command, "--help"], env=wide, capture_output=True, text=True, check=True
    )
    return set(OPTION.findall(done.stdout))


@pytest.fixture(scope="module")
def known() -> set[str]:
    return set().union(*(options_of(command) for command in COMMANDS)) | OTHERS


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_an_option_that_a_page_names_exists(page: Path, known: set[str]) -> None:
    named = set(OPTION.findall(page.read_text("utf-8")))
    assert named <= known


def test_every_option_of_the_receiver_stands_on_a_page(known: set[str]) -> None:
    assert "--memory" in known
    text = "\n".join(page.read_text("utf-8") for page in pages())
    missing = {option for option in options_of(["receive"]) if f"{option}" not in text}
    assert missing <= {"--help"}
