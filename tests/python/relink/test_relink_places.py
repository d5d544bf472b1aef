"""The directory of a receiver's links, from the operator's view."""

import subprocess
import sys

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline

from ackline import relink


def test_links_that_nothing_serves_are_named_at_the_start(tmp_path):
    spool = str(tmp_path / "spool")
    receiver = RunningReceiver("relink://127.0.0.1:0/orders", "--spool", spool)
    state = str(tmp_path / "state")
    with relink.connect(receiver.url, state=state) as link:
        link.send(1, b"one").consumed(timeout=DEADLINE)
    assert receiver.stop() == 0
    other = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "receive", "relink://127.0.0.1:0/other",
         "--spool", spool, "--json"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with other:
        try:
            assert any("relink.state_unused" in line and "orders" in line for line in other.stderr)
        finally:
            other.terminate()
    again = RunningReceiver(receiver.url, "--spool", spool)
    with relink.connect(again.url, state=state) as link:
        assert link.send(1, b"two").sequence == 1
        link.flush(timeout=DEADLINE)
    assert again.stop() == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("relink://127.0.0.1:1,127.0.0.1:2/n", "names 2 hosts: a link lives at one listener"),
        ("relink://127.0.0.1:1/n?window=2", 'no option "window": a URL of relink takes endpoint,'),
    ],
)
def test_a_wrong_url_is_wrong_usage(url, says, tmp_path):
    file = tmp_path / "file"
    file.write_text("x\n")
    for run in (ackline("send", url, str(file)), ackline("receive", url, "--discard")):
        assert (run.returncode, says in run.stderr) == (2, True), run.stderr
