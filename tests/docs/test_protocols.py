"""The list in docs/architecture.md of a new protocol's files, compared with the built ones."""

import re
from pathlib import Path

import pytest
from test_examples import ROOT

ENTRIES = (ROOT / "crates/ackline/src/protocols.rs").read_text("utf-8")
PROTOCOLS = sorted(re.findall(r"(\w+)::PROTOCOL\b", ENTRIES))
NEWEST = "micromsg"
OLDEST = {
    "lumberjack": {
        "crates/NAME/src/call_error.rs",
        "crates/ackline/src/NAME/options.rs",
        "crates/ackline/src/NAME/receive.rs",
        "crates/ackline/tests/all/NAME_receiver.rs",
        "python/ackline/_NAME_core.py",
        "python/ackline/_NAME_core.pyi",
    }
}
"""The parts of the oldest protocol that are elsewhere."""
ITS_OWN = {
    ".ci/options",
    "python/ackline/_table.py",
    "python/ackline/cli/publish.py",
    "python/ackline/cli/send.py",
    "python/ackline/cli/serve.py",
    "python/ackline/cli/subscribe.py",
    "python/ackline/spark/message_columns.py",
    "python/ackline/spark/options.py",
    "python/ackline/spark/source.py",
    "python/ackline/spark/where.py",
}
"""The call `serve` that it has beside `connect` and `listen`, commands that it shares with others,
and the files that know its options of Spark."""
CODE = ["crates/*/src/**/*.rs", "python/ackline/**/*.py", ".ci/*"]
APART = ("crates/bench/", "crates/model/")


def table(title: str) -> list[str]:
    """The paths in the first column of a table."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    section = page.split("## How to add a protocol")[1]
    rows = section.split(f"| {title} |")[1].split("\n\n")[0].splitlines()[2:]
    paths = [path for row in rows for path in re.findall("`([^`]+)`", row.split("|")[1])]
    assert len(paths) > 10
    return paths


def test_the_protocols_that_are_built_are_known() -> None:
    assert NEWEST in PROTOCOLS
    assert OLDEST.keys() < set(PROTOCOLS)
    described = sorted(path.parts[-3] for path in ROOT.glob("crates/*/src/describe.rs"))
    assert described == PROTOCOLS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_has_the_files(protocol: str) -> None:
    wanted = set(table("files of its own")) - OLDEST.get(protocol, set())
    missing = {path for path in wanted if not (ROOT / path.replace("NAME", protocol)).exists()}
    assert missing == set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_has_the_entries(protocol: str) -> None:
    shared = table("entries in shared files")
    missing = [path for path in shared if protocol not in (ROOT / path).read_text("utf-8").lower()]
    assert missing == []


def test_the_newest_is_named_nowhere_else() -> None:
    known = set(table("entries in shared files")) | ITS_OWN
    elsewhere = {
        where
        for pattern in CODE
        for path in ROOT.glob(pattern)
        if path.is_file() and names_it(path)
        if (where := str(path.relative_to(ROOT))) not in known
        if NEWEST not in where and not where.startswith(APART)
    }
    assert elsewhere == set()


def names_it(path: Path) -> bool:
    """Whether it names the newest in code, or in text for users."""
    return re.search(rf"\b{NEWEST}\b|ackline[-_]{NEWEST}", path.read_text("utf-8")) is not None
