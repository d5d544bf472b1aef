"""Locks end with the process that took them, also when a child that it forked lives on."""

import contextlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commands import DEADLINE, wait_until

from ackline import Receiver, Spool, SpoolError

PARENT = """
    import os, signal, sys, time
    from ackline import Receiver, Spool

    receiver = Receiver(["lumberjack://127.0.0.1:0"], spool=sys.argv[1])
    spool = Spool(sys.argv[1])
    lease = spool.lease("lake", create_at=0)
    {fork}
    if child == 0:
        time.sleep(600)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
    # No finalizer lets go of anything: the kernel does.
    os._exit(0)
"""
FORKS = {
    "os.fork": "child = os.fork()",
    "multiprocessing": (
        "import multiprocessing; "
        "process = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,)); "
        "process.start(); child = process.pid"
    ),
}


def end(pid: int) -> None:
    subprocess.run(["kill", "-9", str(pid)], check=False)


def has_locks(pid: int) -> bool:
    """Return whether a process has a file open through a locked open file description."""
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        # A descriptor that was closed since the folder was read is not open.
        with contextlib.suppress(FileNotFoundError):
            if "lock:" in entry.read_text():
                return True
    return False


@pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)
def test_a_forked_child_keeps_no_lock_of_its_parent(tmp_path: Path, fork: str) -> None:
    path = tmp_path / "spool"
    program = textwrap.dedent(PARENT).format(fork=fork)
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = 0
    try:
        assert parent.stdin is not None
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert has_locks(parent.pid)
        with pytest.raises(SpoolError) as locked:
            Receiver(["lumberjack://127.0.0.1:0"], spool=path)
        assert locked.value.code == "spool.locked"
        with pytest.raises(SpoolError) as busy:
            Spool(path).lease("lake")
        assert busy.value.code == "spool.consumer_busy"
        parent.stdin.close()
        parent.wait(DEADLINE)
        # A child that the kernel has not run yet still holds everything.
        wait_until(lambda: not has_locks(child), "the child lets go of the locks")
        assert Path("/proc", str(child)).exists(), "the child lives on"
        with Receiver(["lumberjack://127.0.0.1:0"], spool=path), Spool(path).lease("lake"):
            pass
    finally:
        parent.kill()
        if child:
            end(child)
        # Not earlier, because the child has the other end of the pipe.
        parent.__exit__(None, None, None)


def test_a_child_that_was_forked_while_other_threads_take_locks_ends(tmp_path: Path) -> None:
    program = """
        import os, sys, threading
        from ackline import Receiver, Spool

        with Receiver(["lumberjack://127.0.0.1:0"], spool=sys.argv[1]):
            ended = threading.Event()
            spool = Spool(sys.argv[1])

            def take():
                while not ended.is_set():
                    with spool.lease("lake", create_at=0):
                        pass

            takers = [threading.Thread(target=take)]
            for taker in takers:
                taker.start()
            for _ in range(50):
                child = os.fork()
                if child == 0:
                    Spool(sys.argv[1]).durable()
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            ended.set()
            for taker in takers:
                taker.join()
    """
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(tmp_path / "spool")],
        check=True,
        timeout=DEADLINE,
    )
