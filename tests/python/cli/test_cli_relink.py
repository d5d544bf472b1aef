"""Refusals of the commands for Relink: wrong forms of a URL, options without effect."""

import inspect
import json
import signal
from pathlib import Path

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline, rows

from ackline import relink
from ackline.cli import needs
from ackline.cli.receive import receive

ANY = "relink://127.0.0.1:0/n"
LUMBERJACK = "lumberjack://127.0.0.1:0"
BPMUX = "bpmux://127.0.0.1:0"


def lines(directory: Path, *texts: str) -> str:
    path = directory / "lines"
    path.write_text("".join(f"{text}\n" for text in texts))
    return str(path)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("relink://127.0.0.1", "such as relink://127.0.0.1:5100/NAME\n"),
        ("relink+unix://x.sock", "such as relink+unix:///run/relink.sock?endpoint=NAME\n"),
        ("relink://me:secret@h:1/n", "write relink://host:port/NAME (and %40 for an @)\n"),
    ],
)
def test_a_hint_shows_the_whole_form_of_a_url(url, says, tmp_path):
    for run in (ackline("send", url, lines(tmp_path, "x")), ackline("receive", url, "--discard")):
        assert run.returncode == 2
        assert run.stderr.endswith(says), run.stderr
    run = ackline("receive", "--discard")
    assert run.stderr.endswith("127.0.0.1:5044 or relink://127.0.0.1:5100/NAME\n"), run.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([ANY, "--reconnect-max", "3s"], "is an option of --connect"),
        ([ANY, "--connect-timeout", "3s"], "is an option of --connect"),
        ([ANY, "--lost-after", "3s"], "is an option of --connect"),
        (["--connect", "relink://h:1/n", "--orphan-after", "1m"], "needs a URL of Relink"),
        (["--connect", "relink://h:1/n", "--no-bind-identity"], "needs a URL of Relink to listen"),
        (["--connect", "relink://h:1/n", "--allow", "10.0.0.0/8"], "needs a URL to listen on"),
        ([LUMBERJACK, "--max-links", "5"], "needs a URL of Relink to listen on"),
        ([LUMBERJACK, "--ping-after", "5s"], "is an option of Relink and bpmux, and no URL is"),
        ([LUMBERJACK, "--credit-floor", "1"], "is an option of bpmux, and no URL is of it"),
        ([BPMUX, "--max-channels", "5"], "is an option of Relink, and no URL is of it"),
        (["--connect", BPMUX, "--lost-after", "5s"], "is an option of Relink, and no URL is"),
        (["--connect", "bpmux://h:1", "--max-pairs", "5"], "is an option of Lumberjack"),
        ([LUMBERJACK, "--no-durable-links"], "is an option of Relink, and no URL is of it"),
        ([ANY, "--max-pairs", "5"], "is an option of Lumberjack, and no URL is of it"),
        ([ANY, "--on-invalid", "quarantine"], "is an option of Lumberjack, and no URL is of it"),
        ([LUMBERJACK, "--quarantine-age", "5d"], "needs --on-invalid quarantine"),
        ([LUMBERJACK, "--v1-ack", "durable"], "needs --ack committed=NAME"),
    ],
)
def test_an_option_without_effect_is_refused_and_its_requirement_named(arguments, says, tmp_path):
    run = ackline("receive", *arguments, "--spool", str(tmp_path / "spool"))
    option = next(text for text in reversed(arguments) if text.startswith("--"))
    option = option.replace("--no-", "--")
    assert run.stderr.startswith(f"ackline: {option} {says}"), run.stderr
    assert (run.returncode, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.parametrize(
    ("url", "option", "value"),
    [
        (ANY, "--durable-links", None),
        (ANY, "--budget", "1GiB"),
        (LUMBERJACK, "--retain-max", "1d"),
        (LUMBERJACK, "--group", None),
    ],
)
def test_an_option_of_a_spool_is_refused_without_one(url, option, value):
    run = ackline("receive", url, "--discard", option, *([value] if value else []))
    assert run.returncode == 2
    assert run.stderr.startswith(f"ackline: {option} needs --spool DIR"), run.stderr
    assert run.stderr.count("\n") == 1


def test_options_that_have_an_effect_are_taken_together():
    receiver = RunningReceiver(
        ANY, LUMBERJACK, BPMUX, "--connect", "relink://127.0.0.1:1/n", "--discard",
        "--no-durable-links", "--ping-after", "5s", "--max-entities", "7", "--credit-floor", "1KiB",
        "--connect", "bpmux://127.0.0.1:1?stream=x",
        "--reconnect-max", "1s", "--orphan-after", "1m", "--max-pairs", "9", "--max-links", "3",
    )  # fmt: skip
    assert receiver.stop(signal.SIGINT) == 0


def test_every_option_that_needs_something_is_one():
    groups = [value for name, value in vars(needs).items() if isinstance(value, tuple)]
    named = {option for group in groups for option in group}
    assert len(groups) > 5
    assert named <= set(inspect.signature(receive).parameters)


@pytest.mark.parametrize(
    "arguments",
    [
        ["relink://127.0.0.1:1/n", "--channel", "xyz"],
        ["relink://127.0.0.1:1/n?window=1"],
        ["relink://127.0.0.1"],
        ["lumberjack://127.0.0.1:1?window=1"],
        ["lumberjack://127.0.0.1:1", "--ca", "x.pem"],
    ],
)
def test_wrong_usage_of_send_is_its_message_and_nothing_else(arguments, tmp_path):
    url, *rest = arguments
    run = ackline("send", url, lines(tmp_path, "{}"), *rest)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("ackline: "), run.stderr
    assert run.stderr.count("\n") == 1, run.stderr


@pytest.mark.parametrize("limit", [["--memory", "1MiB"], ["--max-message-bytes", "200000"]])
def test_a_message_that_never_can_be_admitted_ends_the_sending_with_its_size(limit, tmp_path):
    receiver = RunningReceiver(ANY, "--spool", str(tmp_path / "spool"), *limit)
    try:
        file = lines(tmp_path, "small", "x" * 600_000, "behind it")
        # Long before --timeout, and with short waits.
        more = ("--json", "--timeout", "3600", "--backoff-max", "50ms")
        run = ackline("send", receiver.url, file, *more)
        told = json.loads(run.stdout)
        assert (run.returncode, told["acked"], told["not_acked"]) == (1, 1, 2), run.stderr
        assert "2 of 3 events not acknowledged: " in run.stderr
        assert "8 connections in a row have ended with nothing done" in run.stderr
        assert "is number 1 of channel 00000000 with 600000 bytes" in run.stderr
        sizes = "its --max-part-bytes, its --max-message-bytes or a quarter of its memory"
        assert sizes in run.stderr
        refused = receiver.next("refused")
        assert refused["code"] in {"link.memory", "relink.limit_exceeded"}
        # Behind the handshake and the frames before it.
        assert refused["offset"] > 32
    finally:
        assert receiver.stop() == 0


def test_an_endpoint_may_have_no_name(tmp_path):
    directory, state = tmp_path / "spool", str(tmp_path / "state")
    first = RunningReceiver("relink://127.0.0.1:0", "--spool", str(directory))
    url = first.url.removesuffix("/")
    assert first.url == f"{url}/"
    run = ackline("send", "--json", url, lines(tmp_path, "one", "two"))
    assert run.returncode == 0, run.stderr
    # The bar keeps its last state.
    assert " 2 acked" in run.stderr
    with relink.connect(first.url, state=state) as link:
        key = link.key
        link.send(7, b"three").consumed(timeout=DEADLINE)
    assert first.stop() == 0
    second = RunningReceiver(url, "--spool", str(directory))
    with relink.connect(url, state=state) as link:
        assert (link.key, link.send(7, b"four").sequence) == (key, 1)
        link.flush(timeout=DEADLINE)
    assert second.stop() == 0
    found = [(link.split("/")[0], payload) for link, _, _, payload in rows(directory)]
    assert found == [("", b"one"), ("", b"two"), ("", b"three"), ("", b"four")]
