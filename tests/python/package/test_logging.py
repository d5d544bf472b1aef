"""Log records of the native crates arrive in Python's logging."""

import logging
import os
import socket

import pytest
from support.commands import python, wait_until

from ackline import Receiver


def test_log_records_of_the_receiver_reach_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, logger="ackline"),
        Receiver(["lumberjack://127.0.0.1:0"], discard=True) as receiver,
    ):
        host, port = receiver.urls[0].removeprefix("lumberjack://").split(":")
        with socket.create_connection((host, int(port))) as bad:
            bad.sendall(b"3")
            wait_until(lambda: "refused" in caplog.text, "the refusal is logged")
    (record,) = [record for record in caplog.records if "refused" in record.getMessage()]
    assert (record.name, record.levelname) == ("ackline", "WARNING")
    assert "code=lumberjack.unknown_version" in record.getMessage()
    assert "peer=127.0.0.1:" in record.getMessage()


FORKED = """
import logging, os, sys, time
from ackline import Receiver
Receiver(["lumberjack://127.0.0.1:0"], discard=True).stop()
child = os.fork()
if child == 0:
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logging.getLogger("ackline").addHandler(handler)
    logging.getLogger("ackline").setLevel("INFO")
    Receiver(["lumberjack://127.0.0.1:0"], spool=sys.argv[1]).stop()
    deadline = time.monotonic() + 20
    while not any("spool created" in line for line in seen) and time.monotonic() < deadline:
        time.sleep(0.005)
    os._exit(0 if seen else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_logging_of_its_own(tmp_path) -> None:
    run = python(FORKED, str(tmp_path / "spool"))
    assert run.returncode == 0, run.stderr


LAST_LINES = """
import logging, sys
from ackline import Receiver
logging.basicConfig(level="DEBUG", stream=sys.stdout)
Receiver(["lumberjack://127.0.0.1:0"], spool=sys.argv[1]).stop()
"""


def test_the_end_of_the_interpreter_waits_for_the_last_lines(tmp_path):
    for number in range(5):
        run = python(LAST_LINES, str(tmp_path / f"spool{number}"))
        assert run.returncode == 0, run.stderr
        assert "spool created" in run.stdout
