"""Random attacks, one to three at once, round after round.

``python storm.py SECONDS [SEED]``. Each round has a receiver of its own and is checked as the tests
check theirs. The first round that breaks a promise ends the run; its seed repeats it.
"""

import random
import sys
import tempfile
import time
from pathlib import Path

import harness
from programs import PROGRAMS, WITHIN

MEMORY = 64 * harness.MIB
ROUND = 10.0
"""Seconds for which the programs of a round attack."""


def drawn(seed: int) -> list[tuple[str, str, int]]:
    """One to three programs, each a name, its protocol and a seed of its own."""
    chance = random.Random(seed)
    names = chance.sample(sorted(PROGRAMS), chance.randint(1, 3))
    return [(name, PROGRAMS[name][0], chance.randrange(1 << 30)) for name in names]


def within(attacks: list[tuple[str, str, int]]) -> float:
    """Seconds for the good sender's p99 in any case: up to three programs keep both cores busy."""
    return max(0.5, *(2 * WITHIN.get(name, 0) for name, _, _ in attacks))


def main() -> int:
    """Runs rounds until the time is over; 1 if one of them broke a promise."""
    until = time.monotonic() + float(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    rounds = 0
    while time.monotonic() < until:
        attacks = drawn(seed)
        with tempfile.TemporaryDirectory() as directory:
            options = ("--memory", str(MEMORY))
            with harness.Receiver(Path(directory), *options) as receiver:
                figures = harness.run(receiver, MEMORY, attacks, ROUND)
        names = " + ".join(name for name, _, _ in attacks)
        print(f"seed {seed}: {names}: {' | '.join(figures.row())}", flush=True)
        try:
            harness.check(figures, within=within(attacks))
        except AssertionError as error:
            print(f"seed {seed} broke a promise: {error}", flush=True)
            return 1
        seed, rounds = seed + 1, rounds + 1
    print(f"{rounds} rounds, every promise held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
