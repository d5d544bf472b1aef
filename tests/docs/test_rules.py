"""The table of rules on a protocol's page: every rule by its number, and existing files."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from test_examples import ROOT

# Each kind of number, and how many there are: the text, its reading, decisions of the vectors.
RULES = {
    "bpmux": {"REQ-BPMUX": 34, "R-BPM": 32, "R-BPMUX-V": 17},
    # R-REL-37 is about the text's spelling.
    "relink": {"REQ-RELINK": 61, "R-REL": 36, "R-RELINK-V": 25},
    # R-RS-30 is about the text's page.
    "reactive": {"REQ-RS": 32, "R-RS": 29, "R-RS-V": 14},
    "micromsg": {"REQ-MM": 36, "R-MM": 36, "R-MM-V": 16},
}
ROW = re.compile(r"^\|([^|]+)\|([^|]+)\|([^|]+)\|$", re.MULTILINE)
NAMED = re.compile(r"(?:(REQ-[A-Z]+|R-[A-Z]+)-|(V))?(\d+)(?: to V?(\d+))?")
CITED = re.compile(r"(REQ-[A-Z]+|R-[A-Z]+|R-[A-Z]+-V)-?(\d+)(?: to \1-?(\d+))?")


class Row(NamedTuple):
    rule: str
    numbers: set[str]
    files: list[Path]


def all_between(kind: str, first: str, last: str | None) -> set[str]:
    return {f"{kind} {each}" for each in range(int(first), int(last or first) + 1)}


def numbers(protocol: str, cell: str) -> set[str]:
    """Every number of a cell such as `REQ-BPMUX-5, 10 to 25; R-BPM-1; V2`."""
    found: set[str] = set()
    for group in cell.split(";"):
        kind = ""
        for part in group.split(","):
            named = NAMED.fullmatch(part.strip())
            assert named, part
            kind = named[1] or ([*RULES[protocol]][-1] if named[2] else kind)
            found |= all_between(kind, named[3], named[4])
    return found


def rows(protocol: str) -> list[Row]:
    page = (ROOT / f"docs/protocols/{protocol}.md").read_text("utf-8")
    table = page.split("## The rules, and where they live")[1].split("\n## ")[0]
    source = ROOT / f"crates/{protocol}/src"
    return [
        Row(rule.strip(), numbers(protocol, cell), places(source, where))
        for rule, cell, where in ROW.findall(table)[2:]
    ]


def places(source: Path, where: str) -> list[Path]:
    """Files and folders, in the protocol's crate unless they say where."""
    names = re.findall("`(.+?)`", where)
    return [ROOT / name if name.startswith("crates/") else source / name for name in names]


def cited(place: Path) -> set[str]:
    """The rules that a file, or those of a folder, name."""
    files = place.glob("*.rs") if place.is_dir() else [place]
    text = "\n".join(file.read_text("utf-8") for file in files)
    text = re.sub(r"\n\s*//[/!]?", "", text)
    return set().union(*(all_between(*found) for found in CITED.findall(text)))


@pytest.mark.parametrize("protocol", RULES)
def test_every_rule_stands_on_the_page(protocol: str) -> None:
    told = set().union(*(row.numbers for row in rows(protocol)))
    all_of_them = set().union(
        *(all_between(kind, "1", str(most)) for kind, most in RULES[protocol].items())
    )
    assert told == all_of_them


@pytest.mark.parametrize(
    "row", [row for protocol in RULES for row in rows(protocol)], ids=lambda row: row.rule[:40]
)
def test_every_rule_stands_where_the_page_says(row: Row) -> None:
    assert sorted(row.numbers - set().union(*map(cited, row.files))) == []
    # And each file that is named has one of them.
    assert all(cited(place) & row.numbers for place in row.files)
