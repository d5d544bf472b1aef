"""A name that gets other addresses while a writer is open: each connection resolves it anew."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import DEADLINE

from ackline import lumberjack

SENDS = """
import sys
from ackline import lumberjack

with lumberjack.connect(sys.argv[1], backoff_min=0.05, backoff_max=0.1) as writer:
    for line in sys.stdin:
        writer.send([line.strip()], timeout=20)
"""


@pytest.fixture
def resolver(tmp_path):
    """A resolver in front of the system's: its answers are lines of a file."""
    library = tmp_path / "resolver.so"
    source = Path(__file__).with_name("resolver.c")
    build = ["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(build, check=True, capture_output=True, timeout=DEADLINE)
    addresses = tmp_path / "addresses"
    return addresses, os.environ | {"LD_PRELOAD": str(library), "RESOLVES_TO": str(addresses)}


def test_a_name_is_resolved_at_each_connect_and_all_its_addresses_are_tried(resolver):
    addresses, env = resolver
    with lumberjack.listen("lumberjack://127.0.0.1:0") as first:
        port = first.url.rsplit(":", 1)[1]
        addresses.write_text("127.0.0.1\n")
        command = [sys.executable, "-c", SENDS, f"lumberjack://receiver.test:{port}"]
        sending = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, text=True)
        write(sending, '{"n":1}')
        take(first, b'{"n":1}')
        second = lumberjack.listen(f"lumberjack://127.0.0.2:{port}")
        # Nobody listens on the first two.
        addresses.write_text("::1\n127.0.0.3\n127.0.0.2\n")
    with second:
        write(sending, '{"n":2}')
        take(second, b'{"n":2}')
        sending.communicate(timeout=DEADLINE)
    assert sending.returncode == 0


def write(sending, event):
    sending.stdin.write(event + "\n")
    sending.stdin.flush()


def take(listener, event):
    window = listener.receive(timeout=DEADLINE)
    assert window.events == [event]
    window.ack()
