"""`ackline send` with a late receiver, a late next line, or a late end."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.commands import DEADLINE

from ackline import lumberjack

AGAIN = ["--backoff-min", "50ms", "--backoff-max", "50ms"]


@contextmanager
def sending(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`ackline send` with its pipes; it ends with the block, or earlier."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "send", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with process:
            yield process
    finally:
        process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    process.stdin.write(text)
    process.stdin.flush()


def test_a_receiver_that_is_away_at_the_start_is_waited_for():
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        url = listener.url
    with sending("--timeout", "60", *AGAIN, url, "-") as process:
        waiting = "no receiver is reached yet; trying for 60 s"
        missing = {"Connection refused", waiting}
        while missing:
            line = process.stderr.readline()
            missing = {text for text in missing if text not in line}
        say(process, '{"a":1}\n')
        process.stdin.close()
        with lumberjack.listen(url) as listener:
            window = listener.receive(timeout=DEADLINE)
            assert window.events == [b'{"a":1}']
            window.ack()
            assert process.wait(DEADLINE) == 0
        rest = process.stderr.read()
        assert waiting not in rest
        assert "1 events acknowledged" in rest


def test_a_receiver_that_stays_away_is_given_up_at_the_timeout():
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        url = listener.url
    begin = time.monotonic()
    with sending("--timeout", "1", "--json", *AGAIN, url, "-") as process:
        out, err = process.communicate("{}\n{}", timeout=DEADLINE)
        assert process.returncode == 1
    assert time.monotonic() - begin >= 1
    assert "2 of 2 events not acknowledged" in err
    assert json.loads(out)["not_acked"] == 2


def test_lines_of_an_open_pipe_do_not_wait_for_a_full_window():
    with (
        lumberjack.listen("lumberjack://127.0.0.1:0") as listener,
        sending(listener.url, "-") as process,
    ):
        for begun in ("", '{"half":'):
            say(process, '{"a":1}\n\n{"b":2}\n' + begun)
            window = listener.receive(timeout=DEADLINE)
            assert window.events[-2:] == [b'{"a":1}', b'{"b":2}']
            window.ack()
        say(process, "2}")
        process.stdin.close()
        window = listener.receive(timeout=DEADLINE)
        assert window.events == [b'{"half":2}']
        window.ack()
        assert process.wait(DEADLINE) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_its_numbers(number, code):
    with (
        lumberjack.listen("lumberjack://127.0.0.1:0") as listener,
        sending("--json", "--batch-events", "2", listener.url, "-") as process,
    ):
        say(process, "{}\n" * 5)
        first = listener.receive(timeout=DEADLINE)
        first.ack()
        acked = seen = len(first.events)
        while seen < 5:
            seen += len(listener.receive(timeout=DEADLINE).events)
        process.send_signal(number)
        assert process.wait(DEADLINE) == code
        line = json.loads(process.stdout.read())
        assert line.pop("seconds") >= 0
        assert line == {
            "event": "sent",
            "events": 5,
            "acked": acked,
            "not_acked": 5 - acked,
            "possible_repeats": 0,
        }
        told = process.stderr.read()
        assert f"{5 - acked} of 5 events not acknowledged: stopped by {number.name}" in told


def test_a_long_line_of_a_pipe_is_one_line():
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        text = json.dumps({"x": "y" * 300_000})
        with sending("--max-json-bytes", "310000", listener.url, "-") as process:
            say(process, f"{text}\n{text[:-2]}{text[6:]}\n{text}")
            process.stdin.close()
            events = []
            while len(events) < 2:
                window = listener.receive(timeout=DEADLINE)
                events.extend(window.events)
                window.ack()
            assert process.wait(DEADLINE) == 1
            assert "1 of 3 events not acknowledged" in process.stderr.read()
        assert events == [text.encode()] * 2
