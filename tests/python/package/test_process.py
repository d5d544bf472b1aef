"""Forks, signals and imports, each in a process of its own."""

import signal
import subprocess
import sys
import time

import pytest
from support.commands import DEADLINE, python, wait_until

FORK = """
import os, warnings
warnings.simplefilter("ignore")  # the interpreter warns of forks beside threads: that is the test
from ackline import ForkError, lumberjack
listener = lumberjack.listen("lumberjack://127.0.0.1:0")
writer = lumberjack.connect(listener.url)
number = writer.send_window([b"{}"])
window = listener.receive(timeout=20)
pid = os.fork()
if pid == 0:
    code = 1
    try:
        for use in (lambda: listener.receive(timeout=1), window.ack, lambda: writer.send([b"{}"])):
            try:
                use()
            except ForkError:
                continue
            os._exit(2)
        del listener, writer, window, use  # forgotten, not dropped
        with lumberjack.listen("lumberjack://127.0.0.1:0") as own:
            with lumberjack.connect(own.url) as other:
                sent = other.send_window([b"[]"])
                own.receive(timeout=20).ack()
                other.wait_acknowledged(sent, timeout=20)
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert window.ack()
writer.wait_acknowledged(number, timeout=20)
sent = writer.send_window([b"{}"])
listener.receive(timeout=20).ack()
writer.wait_acknowledged(sent, timeout=20)
print("alive")
"""

BLOCKED = {
    "receive": "listener.receive()",
    "iteration": "list(listener)",
    "send": "lumberjack.connect(listener.url).send([b'{}'])",
    "next_line": "[None for _ in iter(receiver.next_line, None)]",
}

CTRL_C = """
import signal
# A test run in the background inherits an ignored SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ackline import Receiver, lumberjack
listener = lumberjack.listen("lumberjack://127.0.0.1:0")
receiver = Receiver(["lumberjack://127.0.0.1:0"], discard=True)
try:
    print("ready", flush=True)
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    import os
    os._exit(0)
"""


def test_a_forked_child_gets_errors_and_its_own_links_and_the_parents_live():
    run = python(FORK)
    assert (run.returncode, run.stdout) == (0, "alive\n"), run.stderr


@pytest.mark.alone
@pytest.mark.parametrize("call", BLOCKED.values(), ids=BLOCKED.keys())
def test_ctrl_c_ends_a_blocking_call_within_300_ms(call):
    # The system may suspend either process for longer: one success in a few tries is enough.
    assert any(seconds_to_an_end(call) < 0.3 for _ in range(5))


def seconds_to_an_end(call) -> float:
    process = subprocess.Popen(
        [sys.executable, "-c", CTRL_C.format(call=call)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        # Sent while it is on its way into the call or inside: both must end.
        wait_until(lambda: is_waiting(process.pid), "the process waits")
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        took = time.monotonic() - started
        process.communicate(timeout=DEADLINE)
        return took
    finally:
        process.kill()


SPOOL_FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
from ackline import ForkError, Receiver, Spool
with Receiver(["lumberjack://127.0.0.1:0"], spool=sys.argv[1]) as receiver:
    spool = Spool(sys.argv[1])
    pid = os.fork()
    if pid == 0:
        for use in (spool.durable, receiver.stats, receiver.stop):
            try:
                use()
            except ForkError:
                continue
            os._exit(1)
        os._exit(Spool(sys.argv[1]).durable())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert receiver.stats()["connections"] == 0
print("alive")
"""


def test_spools_and_receivers_are_the_parents_but_a_child_may_open_its_own(tmp_path):
    run = python(SPOOL_FORK, str(tmp_path / "spool"))
    assert (run.returncode, run.stdout) == (0, "alive\n"), run.stderr


def is_waiting(pid: int) -> bool:
    """Whether the main thread sleeps in the kernel."""
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 (a file of the kernel)
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"


@pytest.mark.parametrize(
    ("module", "foreign"),
    [
        ("ackline", ["pyarrow", "pyspark", "pandas", "typer", "rich", "asyncio"]),
        ("ackline.lumberjack", ["pyarrow", "pyspark", "asyncio"]),
        ("ackline.cli.app", ["pyarrow", "pyspark", "pandas"]),
    ],
)
def test_an_import_is_light(module, foreign):
    run = python(
        "import importlib, sys\nimportlib.import_module(sys.argv[1])\n"
        "print([name for name in sys.argv[2:] if name in sys.modules])",
        module,
        *foreign,
    )
    assert run.stdout == "[]\n", run.stderr


def test_an_object_dropped_at_the_end_of_the_process_ends_quietly():
    run = python(
        "from ackline import lumberjack\n"
        "listener = lumberjack.listen('lumberjack://127.0.0.1:0')\n"
        "writer = lumberjack.connect(listener.url)\n"
        "writer.send_window([b'{}'])\n"
    )
    assert (run.returncode, run.stderr) == (0, "")
