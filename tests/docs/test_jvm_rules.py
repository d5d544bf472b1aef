"""The table of the JVM specification's rules: every rule once, with the tests of its number."""

import re

from test_examples import ROOT

# The rules of each kind: publisher, subscriber, subscription, processor.
RULES = {1: 11, 2: 13, 3: 17, 4: 2}
ROW = re.compile(r"^\| (\d+\.\d+) \| (.+) \| (.+) \|(.*)\|$", re.MULTILINE)
TEST = re.compile(r"^/// JVM ([\d., ]+)\n#\[test\]\nfn (\w+)\(\)", re.MULTILINE)
PAGE = ROOT / "docs/protocols/jvm-rules.md"
TESTS = ROOT / "crates/reactive/tests/all/jvm_rules"


def rows() -> list[tuple[str, str, set[str]]]:
    """Each row's rule, its words about the wire, and its tests."""
    return [
        (rule, wire, set(re.findall(r"`(\w+)`", tests)))
        for rule, _, wire, tests in ROW.findall(PAGE.read_text("utf-8"))
    ]


def source() -> str:
    files = [TESTS.with_suffix(".rs"), *sorted(TESTS.glob("*.rs"))]
    return "\n".join(file.read_text("utf-8") for file in files)


def test_every_rule_stands_in_the_table_once() -> None:
    every = [f"{kind}.{each}" for kind, most in RULES.items() for each in range(1, most + 1)]
    assert [rule for rule, _, _ in rows()] == every


def test_a_rule_has_tests_or_a_reason_why_not() -> None:
    for rule, wire, tests in rows():
        assert bool(tests) != wire.startswith("No: "), rule


def test_the_table_and_the_tests_have_the_same_numbers() -> None:
    told = {(rule, test) for rule, _, tests in rows() for test in tests}
    found = {(rule, test) for rules, test in TEST.findall(source()) for rule in rules.split(", ")}
    assert told == found


def test_every_test_has_the_number_of_a_rule() -> None:
    assert len(TEST.findall(source())) == source().count("#[test]")
    assert source().count("/// JVM ") == len(TEST.findall(source()))
