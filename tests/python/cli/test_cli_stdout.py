"""Commands whose standard output is closed, full or read by nobody, or whose input is closed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from support.commands import DEADLINE

from ackline import AcklineError, bpmux

CLOSED = 'exec "$0" "$@" >&-'
FULL = 'exec "$0" "$@" >/dev/full'
LEFT = 'exec "$0" "$@"'
COMMAND = [sys.executable, "-m", "ackline.cli"]


def told(arguments: Sequence[str], where: str) -> tuple[int, bytes]:
    """Exit code and standard error of a command with this for its standard output.

    Where the shell does not redirect it, it is a pipe whose reader has left.
    """
    reader, writer = os.pipe()
    os.close(reader)
    try:
        run = subprocess.run(
            ["/bin/sh", "-c", where, *COMMAND, *arguments],
            stdout=writer, stderr=subprocess.PIPE, timeout=DEADLINE, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    return run.returncode, run.stderr


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (CLOSED, b"it is closed"),
        (FULL, b"No space left on device"),
        (LEFT, b"its reader has left"),
    ],
)
@pytest.mark.parametrize("extra", [[], ["--json"]], ids=["bytes", "json"])
def test_a_response_that_cannot_be_written_is_told(
    where: str, why: bytes, extra: list[str]
) -> None:
    line = b"ackline: standard output cannot be written: " + why + b"\n"
    with bpmux.listen("bpmux://127.0.0.1:0") as listener, ThreadPoolExecutor(1) as threads:

        def serve() -> None:
            connection = listener.accept(timeout=DEADLINE)
            # Longer than one write.
            with suppress(AcklineError):
                connection.serve(on_request=lambda _: b"x" * 300_000)

        serving = threads.submit(serve)
        assert told(["call", listener.url, "x", *extra], where) == (74, line)
        serving.result(timeout=DEADLINE)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=repr)
def test_other_commands_tell_it_too(arguments: list[str]) -> None:
    line = b"ackline: standard output cannot be written: No space left on device\n"
    assert told(arguments, FULL) == (74, line)


@pytest.mark.parametrize(
    "arguments",
    [
        ["call", "bpmux://127.0.0.1:1", "-"],
        ["send", "bpmux://127.0.0.1:1", "-"],
        ["decode", "--protocol", "bpmux", "-"],
        ["decode", "--protocol", "bpmux", "--hex", "-"],
    ],
    ids=repr,
)
def test_a_closed_standard_input_is_wrong_usage(arguments: list[str]) -> None:
    line = b"ackline: standard input is closed\n"
    assert told(arguments, 'exec "$0" "$@" <&-') == (2, line)


def test_no_file_becomes_a_closed_standard_output(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from ackline.cli.standard import guard\n"
        "guard()\n"
        "print(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), file=sys.stderr)\n"
    )
    path = str(tmp_path / "file")
    for closed in ("<&-", ">&-", "<&- >&-"):
        run = subprocess.run(
            ["/bin/sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", code, path],
            capture_output=True, timeout=DEADLINE, check=False, text=True,
        )  # fmt: skip
        assert int(run.stderr) > 2, run.stderr


@pytest.mark.parametrize("seconds", ["inf", "1e300"])
def test_a_timeout_that_is_none_is_named(seconds: str) -> None:
    run = subprocess.run(
        [*COMMAND, "call", "bpmux://127.0.0.1:1", "x", "--timeout", seconds],
        capture_output=True, timeout=DEADLINE, check=False, text=True,
    )  # fmt: skip
    assert run.returncode == 2
    assert run.stderr == (
        f"ackline: --timeout is {float(seconds):g}; it is in seconds, from 0 to 1e+09\n"
    )
