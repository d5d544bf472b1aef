"""Warnings about files and addresses at the start, revoked senders, and pinned requirements."""

import logging
import re
import tomllib

import pytest
from support.commands import ROOT, wait_until

import ackline


def lines(caplog, code):
    return [one.getMessage() for one in caplog.records if f"code={code}" in one.getMessage()]


def test_every_pinned_requirement_has_a_hash_and_the_tools_are_among_them():
    lock = [
        line
        for line in (ROOT / ".ci/requirements.lock").read_text().splitlines()
        if not line.startswith("#")
    ]
    pinned: dict[str, int] = {}
    last = ""
    for line in lock:
        name, hashed = line.split(" ")[0], re.fullmatch(r" +--hash=sha256:[0-9a-f]{64}( \\)?", line)
        if hashed:
            pinned[last] += 1
        else:
            assert re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; .+)? \\", line), line
            last = name
            pinned[last] = 0
    assert all(pinned.values()), "each has a hash"
    wanted = (ROOT / ".ci/requirements.txt").read_text().splitlines()
    assert {one for one in wanted if one and not one.startswith("#")} <= pinned.keys()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {one.split("==")[0] for one in pinned}
    for extra in ("spark", "cli"):
        for one in extras["optional-dependencies"][extra]:
            assert re.split(r"[<>=]", one)[0] in names, one


@pytest.mark.parametrize(
    ("host", "options", "warnings"),
    [
        ("0.0.0.0", {}, 1),
        ("127.0.0.1", {}, 0),
        ("0.0.0.0", {"allow": "127.0.0.1"}, 0),
    ],
)
def test_an_open_address_is_told_once_at_the_start(caplog, host, options, warnings):
    caplog.set_level(logging.WARNING, logger="ackline")
    with ackline.Receiver([f"lumberjack://{host}:0"], discard=True, options=options):
        wait_until(lambda: len(lines(caplog, "link.exposed")) == warnings, "it is logged")
    assert len(lines(caplog, "link.exposed")) == warnings
