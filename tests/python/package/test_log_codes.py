"""docs/operations/log-codes.md and the sources name the same codes."""

import re
from collections.abc import Iterator

import pytest
from support.commands import ROOT

PAGE = ROOT / "docs" / "operations" / "log-codes.md"
CODE = r"[a-z]+\.[a-z0-9_]+"


def rust() -> Iterator[tuple[str, str]]:
    """Each source file with its text before its tests."""
    for path in sorted((ROOT / "crates").glob("*/src/**/*.rs")):
        name = str(path.relative_to(ROOT))
        if "tests" not in path.parts and path.name != "tests.rs":
            yield name, path.read_text().split("#[cfg(test)]\nmod tests")[0]


def calls(text: str, call: str) -> Iterator[str]:
    """The arguments of each call, to its closing parenthesis."""
    for match in re.finditer(call, text):
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        yield text[match.end() : at - 1]


def logged() -> set[str]:
    """The codes of all lines that the crates and the package log."""
    codes = set()
    for name, text in rust():
        for line in calls(text, r"tracing::(?:trace|debug|info|warn|error)!\("):
            literal = re.search(rf'\bcode = "({CODE})"', line)
            # The code of a refusal, which stands where it is made.
            assert literal or re.search(r"\bcode( = one\.code)?,", line), f"{name}: {line}"
            codes |= {literal[1]} if literal else set()
        codes |= set(re.findall(rf'\bcode=({CODE})"', text))
    for path in sorted((ROOT / "python").glob("**/*.py")):
        for line in calls(path.read_text(), r"\b_log\.(?:debug|info|warning|error|exception)\("):
            literal = re.search(rf"\bcode=({CODE})", line)
            assert literal, f"{path}: {line}"
            codes.add(literal[1])
    return codes


def raised() -> set[str]:
    """The codes of refusals and errors."""
    codes = set()
    for _, text in rust():
        codes |= set(re.findall(rf'=> "({CODE})"', text))
        codes |= set(re.findall(rf'\bcode(?::| =) "({CODE})"', text))
        # The code of the line that is logged when a listener's socket breaks.
        codes |= set(re.findall(rf'Listening::start\([^"]*"({CODE})"', text))
        codes |= set(re.findall(rf'"code": "({CODE})"', text))
        for line in calls(text, r"\b(?:Refused|Refusal|Self|Thrown)::new\("):
            codes |= set(re.findall(rf'"({CODE})"', line))
        # A protocol's codes for errors of connecting and listening (`OpenError::code`).
        for line in calls(text, r"\bSelf::Open\(error\) => error\.code\("):
            codes |= set(re.findall(rf'"({CODE})"', line))
        for line in calls(text, r"\berrors::(?:spool|usage)\("):
            codes |= set(re.findall(r'"(spool\.[a-z_]+)"', line))
    for path in sorted((ROOT / "jvm").glob("**/*.java")):
        for line in calls(path.read_text(), r"\bnew AcklineException\("):
            codes |= set(re.findall(rf'^\s*"({CODE})"', line))
    for path in sorted((ROOT / "python").glob("**/*.py")):
        text = path.read_text()
        for line in calls(text, r"\bSpoolError\("):
            if "code=" in line:
                codes |= set(re.findall(rf'"({CODE})"', line.split("code=")[1]))
    return codes


def listed() -> list[str]:
    """The first cell of each row of the page."""
    cells = re.findall(r"^\| (`.*?`) \|", PAGE.read_text(), re.MULTILINE)
    return [code for cell in cells for code in re.findall(rf"`({CODE})`", cell)]


def test_every_code_is_listed_with_cause_and_cure_and_no_other():
    codes = listed()
    assert sorted(set(codes)) == sorted(codes), "a code is listed twice"
    known = logged() | raised()
    assert len(known) > 80, "the sources were not understood"
    assert set(codes) - known == set(), "nothing says these"
    assert known - set(codes) == set(), "these are not listed"
    for row in re.findall(r"^\| `.*$", PAGE.read_text(), re.MULTILINE):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) in {3, 4}, row
        assert all(cells), row


@pytest.mark.parametrize(
    ("protocol", "title"), [("reactive", "Reactive Streams"), ("micromsg", "MicroMsg2")]
)
def test_every_refused_call_is_listed(protocol, title):
    source = (ROOT / "crates" / protocol / "src" / "error.rs").read_text()
    refusals = source.split("pub mod refusal")[1]
    codes = re.findall(r'UsageError::new\(\s*"(\w+)"', refusals)
    for path in (ROOT / "crates" / "python" / "src" / protocol).glob("*.rs"):
        codes += re.findall(r'errors::usage\("(\w+)"', path.read_text())
    section = PAGE.read_text().split(f"## Connections of {title}\n")[1]
    table = section.split("| code of a refused call |")[1].split("\n\n")[0]
    # The waits of the package itself name their interests.
    expected = sorted(set(codes) - {"interest"})
    cells = re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE)
    assert sorted(code for cell in cells for code in re.findall(r"`(\w+)`", cell)) == expected
