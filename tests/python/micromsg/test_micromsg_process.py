"""MicroMsg2 in processes of their own: forks and signals."""

import signal
import subprocess
import sys
import time

FORKED = """
import os
from ackline import ForkError, micromsg

with micromsg.listen("micromsg://127.0.0.1:0", ack_policy="manual") as listener:
    near = micromsg.connect(listener.url)
    far = listener.accept(timeout=20)
    near.send(b"1")
    message = far.receive(timeout=20)
    broker = micromsg.serve("micromsg://127.0.0.1:0")
    child = os.fork()
    if not child:
        calls = [
            lambda: near.send(b"x"), near.receive, near.stats, near.wait_ended, far.abort,
            near.close, lambda: near.fail("x"), message.ack, lambda: listener.accept(timeout=0),
            broker.stats, broker.close,
        ]
        for call in calls:
            try:
                call()
            except ForkError:
                continue
            os._exit(3)
        del near, far, message, listener, broker, calls, call
        # A child makes its own.
        with micromsg.listen("micromsg://127.0.0.1:0") as own:
            micromsg.connect(own.url).send(b"1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    message.ack()
    near.wait_acknowledged(timeout=20)
    near.send(b"2", timeout=20)
    assert far.receive(timeout=20).payload == b"2"
    broker.close(timeout=20)
    print("the parent goes on")
"""

WAITING = """
import signal

from ackline import micromsg

# Whoever runs the tests in the background may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

with micromsg.listen("micromsg://127.0.0.1:0") as listener:
    near = micromsg.connect(listener.url)
    try:
        print("waits", flush=True)
        for message in near:
            pass
    except KeyboardInterrupt:
        print("interrupted", near.is_ended)
"""


def test_a_child_refuses_its_parents_objects_and_does_not_disturb_them() -> None:
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "the parent goes on\n"), done.stderr


def test_a_signal_ends_a_wait_at_once() -> None:
    command = [sys.executable, "-c", WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted False\n"
        assert process.wait(20) == 0
        assert time.monotonic() - begun < 10
