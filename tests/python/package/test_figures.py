"""The structure stays within the figures that it has reached."""

import importlib.util
from importlib.machinery import SourceFileLoader

import pytest
from support.commands import ROOT

MOST = {"bpmux": 1.0, "relink": 1.0, "lumberjack": 0.8}
"""The most lines outside a protocol's crate, for each line inside."""
STUB = "python/ackline/_core.pyi"
WIDE = {
    "crates/ackline/src/landing.rs: Shared has 13 fields",
    "crates/ackline/src/landing/report.rs: ReceiverStats has 33 fields",
    "crates/ackline/src/landing/report.rs: Report has 18 fields",
    "crates/python/src/spool.rs: read takes two bools",
    "crates/python/src/spool.rs: spool_mend takes two bools",
    "crates/spool/src/block.rs: Block has 13 fields",
    "crates/spool/src/block.rs: BlockInfo has 13 fields",
    "crates/spool/src/block.rs: StoredBlock has 15 fields",
    "crates/spool/src/group.rs: Columns has 16 fields",
    "crates/spool/src/queue.rs: WriterStats has 14 fields",
}
"""The structs and functions that are still too wide: none may join them."""


@pytest.fixture(scope="module")
def figures():
    loader = SourceFileLoader("figures", str(ROOT / ".ci/figures"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("figures", loader))
    loader.exec_module(module)
    return module


def test_a_protocol_costs_no_more_outside_its_crate_than_inside(figures):
    files = figures.sources()
    assert sorted(figures.PROTOCOLS) == sorted(MOST)
    for protocol, most in MOST.items():
        own = ROOT / "crates" / protocol
        inside = sum(figures.code(path) for path in files if own in path.parents)
        outside = sum(
            figures.code(path)
            for path in files
            if own not in path.parents and protocol in str(path.relative_to(ROOT))
        )
        assert inside > 1_000
        assert outside <= most * inside, protocol


def test_no_function_is_above_sixty_lines(figures):
    sizes = [
        (lines, name, path) for path in figures.sources() for name, lines in figures.functions(path)
    ]
    assert len(sizes) > 5_000
    assert [one for one in sizes if one[0] > 60] == []


def test_no_file_is_above_six_hundred_lines_but_a_stub(figures):
    assert set(figures.longest()) <= {STUB}


def test_no_struct_or_function_becomes_too_wide(figures):
    found = {
        text for path in figures.sources() if path.suffix == ".rs" for text in figures.wide(path)
    }
    assert found - WIDE == set()
