"""The short form of `blocks.py`: large blocks, small batches, workers that may not grow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_a_backlog_of_large_blocks_is_drained_in_bounded_memory() -> None:
    # ACKLINE_BACKLOG_MIB=2048 is the long form, a minute more.
    backlog = os.environ.get("ACKLINE_BACKLOG_MIB", "400")
    script = Path(__file__).with_name("blocks.py")
    done = subprocess.run(
        [sys.executable, str(script), "--events", backlog, "--window", "100"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=580,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "largest block 100 MiB; worker 1024 MiB" in done.stdout
