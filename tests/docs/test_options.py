"""Every option in README and docs exists, and every option is on a page."""

import contextlib
import inspect
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from test_examples import ROOT, environment, pages

from ackline import lumberjack
from ackline.cli import values
from ackline.cli.options import options_of as table_of
from ackline.cli.options import receiver_options
from ackline.cli.send import send

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
OTHERS = {
    # of mypy, of cargo, of valgrind and of our benches
    "--strict", "--release", "--bin", "--example", "--only", "--shape", "--rounds", "--seconds",
    "--ids", "--note", "--events", "--rows", "--rates", "--profile", "--eager-filebeat", "--kill",
    # of spark-submit
    "--packages", "--jars",
    # a way to write names, not a name
    "--kebab-case",
}  # fmt: skip
COMMANDS = [
    ["receive"],
    ["send"],
    ["call"],
    ["serve"],
    ["publish"],
    ["subscribe"],
    ["decode"],
    ["schema", "infer"],
    *(["spool", name] for name in ("ls", "cat", "verify", "mend", "find", "adopt")),
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


@pytest.mark.parametrize(
    "command", ["receive", "send", "call", "serve", "publish", "subscribe", "decode"]
)
def test_every_option_of_a_command_stands_on_a_page(command: str) -> None:
    text = "\n".join(page.read_text("utf-8") for page in pages())
    own = options_of([command])
    assert len(own) > 7
    assert own - set(OPTION.findall(text)) <= {"--help"}


LIMITS = re.compile(r"(?m)^\| (`--[a-z`, -]+`) \| ([^|]+) \|")


def same(shown: str, default: str) -> bool:
    """Whether two texts are one value, such as 60s and 1m."""
    if shown == default:
        return True
    for read in (values.milliseconds, values.size):
        with contextlib.suppress(typer.BadParameter):
            if read(shown) == read(default):
                return True
    return False


def test_the_page_on_limits_has_the_defaults_of_the_tables():
    tables: dict[str, list[Any]] = {}
    calls = [table_of(f"{one}.listen") for one in ("bpmux", "micromsg", "reactive", "relink")]
    for option in itertools.chain(receiver_options(), *calls):
        tables.setdefault(option.name, []).append(option)
    page = (ROOT / "docs" / "operations" / "limits.md").read_text("utf-8")
    compared = 0
    for names, cell in LIMITS.findall(page):
        options = [name.strip("` -").replace("-", "_") for name in names.split(",")]
        shown = [text.strip() for text in cell.replace(" each", "").split(",")]
        if len(shown) == 1:
            shown *= len(options)
        for name, text in zip(options, shown, strict=True):
            defaults = {option.default for option in tables[name]}
            # Some defaults are sentences, or nothing at all.
            if any(option.kind in {"text", "path", "word"} for option in tables[name]):
                continue
            if any(" " in default for default in defaults):
                continue
            # Protocols may differ.
            assert any(same(text, one) or (text, one) == ("0", "off") for one in defaults), name
            compared += 1
    assert compared > 30


class Row(NamedTuple):
    command: str
    default: str


def rows_of_the_writer() -> dict[str, Row]:
    """The options of the page on sending, by their names."""
    page = (ROOT / "docs" / "sending.md").read_text("utf-8")
    row = re.compile(r"(?m)^\| `(\w+)` \| (?:`(--[a-z-]+)`)? ?\| `([^`]+)` \|")
    return {name: Row(command, default) for name, command, default in row.findall(page)}


def meaning(default: str, like: object) -> object:
    """The default of an option in Python, where the page says `like` another one."""
    if default == "off":
        return None
    if isinstance(like, bool):
        return default == "true"
    if isinstance(like, float):
        return values.milliseconds(default) / 1000
    return values.size(default)


def test_the_page_on_sending_has_the_options_and_defaults_of_connect() -> None:
    options = dict(inspect.signature(lumberjack.connect).parameters)
    del options["url"]
    rows = rows_of_the_writer()
    assert set(rows) == set(options)
    for name, option in options.items():
        assert meaning(rows[name].default, option.default) == option.default, name


def test_the_page_on_sending_has_the_options_and_defaults_of_the_command() -> None:
    table = {option.name: option for option in table_of("lumberjack.connect")}
    for name, row in rows_of_the_writer().items():
        if not row.command:
            assert name in {"connect_timeout", "receipts"}
            continue
        assert row.command == values.option_of(name)
        assert name in inspect.signature(send).parameters
        if name not in {"buffer_events", "buffer_bytes"}:  # they follow from others
            default = table[name].default or "off"
            assert same(row.default, default), name
