"""A signal ends a wait at any step: its handler must not wait for a lock that the wait holds."""

import subprocess
import sys

PROGRAM = """
import signal
import sys

from ackline.cli.receive import Stopping

def steps(count):
    '''A handler that runs at the `count`th step of a wait; whether it ran.'''
    stopping, left = Stopping(), count

    def at_each_step(_frame, _event, _argument):
        nonlocal left
        left -= 1
        if left == 0:
            stopping.handle(signal.SIGTERM, None)
        return at_each_step

    sys.settrace(at_each_step)
    stopping.wait(0.001)
    sys.settrace(None)
    ran = left <= 0
    if ran:
        assert stopping.wait(0) or stopping._is_asked
    return ran

count = 1
while steps(count):
    count += 1
print(count)
"""


def test_a_signal_at_any_step_of_a_wait_does_not_block_it():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 2
