"""Each program of `programs.py` against a receiver with default limits: it costs its budget."""

import json
from pathlib import Path

import harness
import pytest
from programs import PROGRAMS, WITHIN
from storm import MEMORY, drawn, within

OPTIONS: dict[str, tuple[str, ...]] = {
    "one_address_fills_the_spool": ("--budget", "64MiB"),
}
"""Options that an attack needs to reach its limit in seconds."""

FIGURES = Path(__file__).parents[2] / "target" / "attacks"


@pytest.mark.alone
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_an_attack_costs_its_budget_and_nothing_more(name: str, tmp_path: Path) -> None:
    """Memory below the formula, a good sender served, descriptors back, an end in order."""
    scheme, program = PROGRAMS[name]
    options = ("--memory", str(MEMORY), *OPTIONS.get(name, ()))
    limit = WITHIN.get(name, 0.05)
    figures = harness.measured(tmp_path, options, MEMORY, [(name, scheme, 1)], limit)
    FIGURES.mkdir(parents=True, exist_ok=True)
    row = [name.replace("_", " "), (program.__doc__ or "").rstrip("."), *figures.row()]
    (FIGURES / f"{name}.json").write_text(json.dumps(row))
    harness.check(figures, within=limit)


@pytest.mark.alone
@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [seed for seed in range(20) if len(drawn(seed)) > 2][:2])
def test_attacks_together_cost_their_budget_and_nothing_more(seed: int, tmp_path: Path) -> None:
    """The first rounds of `make attack`, which goes on with other seeds."""
    attacks = drawn(seed)
    options = ("--memory", str(MEMORY))
    figures = harness.measured(tmp_path, options, MEMORY, attacks, within(attacks))
    harness.check(figures, within=within(attacks))


def test_the_page_on_security_has_a_row_of_each_attack() -> None:
    """`make attack-table` writes the figures of the page."""
    page = (FIGURES.parents[1] / "docs" / "security.md").read_text()
    for name, (_, program) in PROGRAMS.items():
        told = (program.__doc__ or "").rstrip(".")
        assert f"| {name.replace('_', ' ')} | {told} |" in page
