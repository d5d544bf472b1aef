"""The structure stays within the figures that it has reached."""

import importlib.util
from importlib.machinery import SourceFileLoader

import pytest
from support.commands import ROOT

MOST = {"bpmux": 1.0, "relink": 1.0, "lumberjack": 0.8, "reactive": 1.0, "micromsg": 1.0}
"""The most lines outside a protocol's crate, for each line inside."""
STUB = "python/ackline/_core.pyi"


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


def test_no_struct_has_above_twelve_fields_and_no_function_two_bools(figures):
    sources = [path for path in figures.sources() if path.suffix == ".rs"]
    assert [text for path in sources for text in figures.wide(path)] == []
