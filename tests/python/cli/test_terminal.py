"""Foreign text on a terminal: escapes, C1 and marks of direction never reach it as they are."""

import json
import logging
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.commands import DEADLINE, wait_until

from ackline import Receiver, bpmux, lumberjack
from ackline._terminal import escaped, lines_escaped
from ackline.spark.logs import QueryLines

COMMAND = [sys.executable, "-m", "ackline.cli"]
ACTS = (
    "\x1b[2J\x1b]0;owned\x07\r\x08\x7f\x9b31m\x85\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e"
)
ACTS += "\u2066\u2067\u2068\u2069\u2028\u2029\ufeff\U000e0041"
"""Control characters, and marks that reverse the direction of text."""
FORBIDDEN = set(ACTS) - set("[2J]0;owned31m")


def on_terminal(arguments: Sequence[str], **environment: str) -> tuple[int, str]:
    """Exit code of a command, and all that it writes on its terminal, output and errors."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=its, stderr=its,
        env=os.environ | {"TERM": "dumb", "COLUMNS": "200", "PYTHONUTF8": "1"} | environment,
    )  # fmt: skip
    os.close(its)
    written, deadline = b"", time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 0.1)[0]:
            continue
        try:
            chunk = os.read(ours, 1 << 16)
        except OSError:
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    # The terminal's own ends of lines.
    return process.wait(DEADLINE), written.decode(errors="surrogateescape").replace("\r\n", "\n")


def into_pipe(*arguments: str) -> bytes:
    run = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, timeout=DEADLINE, check=False,
        env=os.environ | {"PYTHONUTF8": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


def check_harmless(text: str) -> None:
    found = FORBIDDEN & set(text)
    assert not found, f"{sorted(map(ascii, found))} in {text!r}"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spool of events with all of these characters in names and in values."""
    directory = tmp_path_factory.mktemp("terminal") / "spool"
    # JSON forbids raw C0 in strings; all other characters may be unescaped.
    raw = "".join(one for one in ACTS if one >= " ")
    event = json.dumps({"name" + raw: raw, "x\u001by": ACTS}, ensure_ascii=False).encode()
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=directory) as receiver,
        lumberjack.connect(receiver.urls[0]) as writer,
    ):
        writer.send([event, f"not JSON: {ACTS}".encode(), b"\xff" + ACTS.encode()], timeout=20)
    return directory


@pytest.mark.parametrize(
    "arguments",
    [
        ["spool", "cat"],
        ["spool", "cat", "--json"],
        ["spool", "ls"],
        ["spool", "ls", "--json"],
        ["spool", "verify"],
        ["schema", "infer"],
        ["schema", "infer", "--json"],
    ],
    ids=" ".join,
)
def test_no_command_on_a_spool_writes_control_characters_to_a_terminal(hostile, arguments):
    code, text = on_terminal([*arguments, str(hostile)])
    assert code == 0, text
    assert text
    # The bar of `verify` is the command's own.
    check_harmless(text if arguments != ["spool", "verify"] else text.replace("\r", ""))
    if arguments[1] in {"cat", "infer"}:
        assert "\\u202e" in text


def test_an_event_is_one_line_on_a_terminal(tmp_path):
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver,
        lumberjack.connect(receiver.urls[0]) as writer,
    ):
        writer.send([b"first\nsecond", "grüße\u3000漢字".encode()], timeout=20)
    assert on_terminal(["spool", "cat", str(tmp_path / "spool")])[1] == (
        "first\\nsecond\ngrüße\u3000漢字\n"
    )
    assert into_pipe("spool", "cat", str(tmp_path / "spool")) == (
        "first\nsecond\ngrüße\u3000漢字\n".encode()
    )


def test_payloads_are_data_in_a_pipe_and_lines_of_json_are_escaped_there_too(hostile):
    lines = into_pipe("spool", "cat", str(hostile))
    assert f"not JSON: {ACTS}\n".encode() in lines
    lines = into_pipe("spool", "cat", "--json", str(hostile))
    check_harmless(lines.decode())
    payloads = [json.loads(line).get("payload") for line in lines.decode().splitlines()]
    assert payloads[1] == f"not JSON: {ACTS}"
    columns = into_pipe("schema", "infer", str(hostile))
    assert "\u202e".encode() in columns


def test_names_of_files_are_escaped_in_errors(tmp_path):
    name = f"{tmp_path}/x\x1b[2J\u202e"
    for arguments in (
        ["spool", "ls", name],
        ["decode", "--protocol", "bpmux", name],
        ["call", "bpmux://x", f"@{name}"],
    ):
        code, text = on_terminal(arguments)
        assert code != 0
        assert "\\u202e" in text
        check_harmless(text)


def test_the_status_file_of_a_spool_is_printed_escaped(tmp_path, receiver):
    spool = tmp_path / "spool"
    running = receiver("--spool", str(spool))
    status = spool / "status.json"
    wait_until(status.exists, "the receiver writes its status")
    # It would replace the file within a second.
    running.process.send_signal(signal.SIGSTOP)
    os.waitpid(running.process.pid, os.WUNTRACED)
    members = json.loads(status.read_bytes()) | {"state": ACTS, "budget": ACTS}
    status.write_text(json.dumps(members))
    _, text = on_terminal(["spool", "ls", str(spool)])
    check_harmless(text)
    assert "\\u202e" in text


def test_a_response_is_escaped_on_a_terminal_and_data_in_a_pipe():
    payload = f"two\nlines\t{ACTS}".encode() + b"\xff"
    with bpmux.listen("bpmux://127.0.0.1:0") as listener:

        def serve() -> None:
            for _ in range(2):
                connection = listener.accept(timeout=DEADLINE)
                connection.serve(on_request=lambda _: payload)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        code, text = on_terminal(["call", listener.url, "x"])
        assert code == 0
        check_harmless(text)
        assert text.startswith("two\nlines\t\\u001b[2J")
        assert text.endswith("\\xff")
        assert into_pipe("call", listener.url, "x") == payload
        serving.join(DEADLINE)


def test_escaped_text_can_be_read_back():
    text = f'"{escaped(ACTS)}"'
    assert text.isascii()
    assert json.loads(text) == ACTS
    assert escaped("plain, grüße, 漢字, 🪓") == "plain, grüße, 漢字, 🪓"
    assert escaped("a\nb\tc\ud800") == "a\\nb\\tc\\ud800"
    assert lines_escaped("a\nb\tc\ud800") == "a\nb\tc\\ud800"
    every = "".join(map(chr, range(0x110000)))
    assert not FORBIDDEN & set(escaped(every))
    assert not set(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) & set(escaped(every))


def test_a_log_line_of_a_query_is_escaped():
    record = logging.LogRecord("ackline", logging.WARNING, "x", 1, "of %s", (ACTS,), None)
    check_harmless(QueryLines().format(record))
    error = ValueError(ACTS)
    record.exc_info = (ValueError, error, None)
    text = QueryLines().format(record)
    check_harmless(text)
    assert "\nValueError: \\u001b[2J" in text
