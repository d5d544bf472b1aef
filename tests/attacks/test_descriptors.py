"""A process with few descriptors: connections leave some of them to the spool and journals."""

import contextlib
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
import wire

FILES = 256


@pytest.fixture
def few_files() -> Iterator[None]:
    """Limits processes that start in this block to 256 open files, and not this one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The command raises its soft limit up to the hard one.
    start = harness.subprocess.Popen

    def limited(*arguments: object, **options: object) -> object:
        return start(["prlimit", f"--nofile={FILES}:{FILES}", *arguments[0]], **options)

    harness.subprocess.Popen = limited
    yield
    harness.subprocess.Popen = start
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def errors(receiver: harness.Receiver) -> str:
    """Returns its standard error."""
    return (receiver.spool.parent / "errors").read_text()


@pytest.mark.usefixtures("few_files")
@pytest.mark.timeout(120)
def test_connections_leave_descriptors_to_the_spool(tmp_path: Path) -> None:
    with harness.Receiver(tmp_path) as receiver, contextlib.ExitStack() as stack:
        good = harness.Good(receiver.port("lumberjack"))
        time.sleep(1)
        for _ in range(2 * FILES):
            peer = socket.socket()
            stack.enter_context(peer)
            peer.connect(("127.0.0.1", receiver.port("lumberjack")))
        time.sleep(3)
        begun = time.monotonic()
        assert FILES / 2 < receiver.descriptors() <= FILES - FILES // 4 + 16
        assert errors(receiver).count("link.accept_paused") == len(harness.URLS)
        time.sleep(2)
        beside = good.between(begun, time.monotonic())
        assert len(beside) > 20, "windows are acknowledged all the time"
        stack.close()
        # Later peers are served as soon as there is room, without a restart.
        with socket.create_connection(("127.0.0.1", receiver.port("lumberjack"))) as later:
            later.settimeout(20)
            later.sendall(wire.window([b"{}"]))
            assert later.recv(6) == b"2A\0\0\0\1"
        good.goes_on = False
        good.join(15)
        assert not good.failures
        assert "spool.write_failed" not in errors(receiver)
        assert receiver.stop() == os.EX_OK


@pytest.mark.usefixtures("few_files")
@pytest.mark.timeout(180)
def test_links_that_are_left_take_no_descriptors_and_a_restart_knows_them(tmp_path: Path) -> None:
    for life in range(2):
        with harness.Receiver(tmp_path) as receiver:
            good = harness.Good(receiver.port("lumberjack"))
            for _ in range(2 * FILES):
                with socket.create_connection(("127.0.0.1", receiver.port("relink"))) as peer:
                    wire.relink_shake(peer)
                    peer.sendall(wire.relink_message(1, [b"x"]))
            time.sleep(1)
            assert receiver.descriptors() < FILES // 2
            good.goes_on = False
            good.join(15)
            assert not good.failures
            said = errors(receiver)
            assert not any(code in said for code in ("state_failed", "write_failed", "paused"))
            journals = list(receiver.spool.glob("**/link-*.journal"))
            assert len(journals) == (life + 1) * 2 * FILES
            assert receiver.stop() == os.EX_OK
