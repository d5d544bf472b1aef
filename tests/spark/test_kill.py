"""The short form of `kill_test.py`; `make` has the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_no_acked_event_is_lost_and_no_position_doubled_over_kills() -> None:
    script = Path(__file__).with_name("kill_test.py")
    done = subprocess.run(
        [sys.executable, str(script), "--rounds", "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=580,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
