"""Warnings of the command line on standard error: each kind bounded, all counted."""

import contextlib
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from support.commands import DEADLINE, ROOT, ackline, wait_until
from support.lumberjack import a_window, connect, fill, full_spool

import ackline as package
from ackline import Spool, bpmux
from ackline.cli.live import LiveLine
from ackline.cli.notices import Bound, Notices
from ackline.cli.output import TextOutput
from ackline.cli.show import table
from ackline.exceptions import LinkTimeout

ACK = b"2A\0\0\0\1"
HIDDEN = re.compile(
    r"(\d+) more like this in \d+ s are not shown: (?:code=|refused: )"
    r"lumberjack\.unknown_version"
)


def test_lines_of_a_kind_are_bounded_in_time_and_counted():
    now = 0.0
    bound = Bound(2, 10.0, clock=lambda: now)
    assert [bound.admits("a") for _ in range(5)] == [True, True, False, False, False]
    assert bound.admits("b")
    assert bound.passed() == []
    now = 10.0
    assert not bound.admits("a"), "what is hidden is told first"
    now = 12.0
    assert bound.passed() == ["4 more like this in 12 s are not shown: a"]
    assert bound.passed() == []
    assert bound.admits("a")
    assert bound.admits("b")
    assert not bound.is_hiding()
    now = 30.0
    assert [bound.admits("a") for _ in range(3)] == [True, True, False], "a new time begins"
    assert bound.passed(all_of_them=True) == ["1 more like this in 0 s are not shown: a"]


def test_suppressed_warnings_are_counted_when_their_interval_ends(capsys):
    notices = Notices(Bound(1, 1.0))
    warning = logging.makeLogRecord({"levelno": logging.WARNING, "msg": "x code=a.b"})
    for _ in range(5):
        notices.handle(warning)
    shown = ""

    def is_told() -> bool:
        nonlocal shown
        shown += capsys.readouterr().err
        return "4 more" in shown

    wait_until(is_told, "the rest is told")
    assert shown.count("x code=a.b") == 1
    debug = logging.makeLogRecord({"levelno": logging.DEBUG, "msg": "y code=a.b"})
    for _ in range(5):
        notices.handle(debug)
    assert capsys.readouterr().err.count("y code=a.b") == 5, "who asks for them gets them"
    notices.close()


def test_nothing_a_terminal_would_act_on_is_shown_as_it_is(capsys):
    hostile, shown = "no \x1b[2J\n\x9b\u202e :a: [b]", r"no \u001b[2J\n\u009b\u202e :a: [b]"
    refused = {"event": "refused", "peer": "[::1]:2", "code": "a.b", "offset": 7}
    refused |= {"message": hostile}
    warning = {"levelno": logging.WARNING, "levelname": "WARNING", "msg": hostile}
    Notices().handle(logging.makeLogRecord(warning))
    assert capsys.readouterr().err == f"ackline: WARNING: {shown}\n"
    TextOutput().say(**refused)
    where = "(at byte 7 of the peer's bytes)"
    assert capsys.readouterr().err == f"ackline: refused [::1]:2: a.b: {shown} {where}\n"
    live = LiveLine(is_kept=False)
    live.line(json.dumps(refused))
    live.end()
    assert f"refused [::1]:2: a.b: {shown}\n" in capsys.readouterr().err


def test_a_table_shows_addresses_as_they_are(capsys):
    peers = ["[fe80::1]:5044", "fe80:a:b", "no \x1b[2J"]
    table("blocks", ["peer"], [{"peer": peer} for peer in peers])
    shown = capsys.readouterr().out
    assert [peer in shown for peer in (*peers[:2], r"no \u001b[2J")] == [True] * 3, shown


def test_warnings_are_shown_beside_the_json_lines(tmp_path, receiver):
    running = receiver(*full_spool(tmp_path))
    Spool(tmp_path / "spool").add_consumer("lake", 0)
    peers = fill(running)
    running.process.send_signal(signal.SIGTERM)
    running.process.send_signal(signal.SIGINT)
    _, err = running.process.communicate(timeout=DEADLINE)
    assert "WARNING: a new spool was created" in err
    (stalled,) = [line for line in err.splitlines() if "code=spool.stalled_budget" in line]
    assert stalled.startswith("ackline: WARNING: ")
    assert "lake" in stalled
    assert "ackline spool consumers" in stalled
    for peer in peers:
        peer.close()


def fill_by_bpmux(running) -> list[bpmux.Connection]:
    """As `fill`, of one sender that has no credit left."""
    link = bpmux.connect(running.url)
    sink = link.open_sink()
    while running.next("stats")["paused"] is None:
        with contextlib.suppress(LinkTimeout):
            sink.send_many([os.urandom(1_000)] * 400, timeout=0.05)
    return [link]


@pytest.mark.parametrize(
    ("url", "fills"),
    [("lumberjack://127.0.0.1:0", fill), ("bpmux://127.0.0.1:0", fill_by_bpmux)],
)
@pytest.mark.parametrize("drain", ["300s", "1s"])
def test_a_stop_at_a_full_budget_is_no_error(tmp_path, receiver, url, fills, drain):
    running = receiver(*full_spool(tmp_path), "--drain-timeout", drain, url=url)
    has_reader = drain == "1s"
    if has_reader:
        Spool(tmp_path / "spool").add_consumer("lake", 0)
    peers = fills(running)
    running.process.send_signal(signal.SIGTERM)
    # If no consumer can make room, it does not wait for room.
    out, err = running.process.communicate(timeout=DEADLINE)
    assert running.process.returncode == 4
    assert json.loads(out.splitlines()[-1])["unacked_windows"] > 0
    assert "ERROR" not in err
    assert "spool_failed" not in err
    (waits,) = [line for line in err.splitlines() if "code=receiver.stop_waits" in line]
    assert "state=stalled_budget" in waits
    assert ("no consumer exists" in waits) is not has_reader
    for peer in peers:
        getattr(peer, "abort", peer.close)()


def refuse(url: str, count: int) -> None:
    for _ in range(count):
        with connect(url) as bad:
            bad.sendall(b"x" * 10)
            bad.recv(1)


def told(text: str) -> int:
    """The number of refusals in a text, shown or counted."""
    hidden = HIDDEN.findall(text)
    assert hidden, text
    shown = [line for line in text.splitlines() if "refused" in line and not HIDDEN.search(line)]
    assert len(shown) <= 10 * (len(hidden) + 1)
    return len(shown) + sum(int(count) for count in hidden)


def test_a_flood_of_refusals_is_bounded_and_counted(receiver):
    running = receiver("--discard")
    refuse(running.url, 300)
    while running.next("stats")["refused"] < 300:
        pass
    running.process.send_signal(signal.SIGTERM)
    out, err = running.process.communicate(timeout=DEADLINE)
    assert told(err) == 300
    lines = [*(line["event"] for line in running.lines), *re.findall('"event":"(\\w+)"', out)]
    assert lines.count("refused") == 300, "standard output has each"


def without_json(*options: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "receive", "lumberjack://127.0.0.1:0", *options],
        stderr=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("listening on "):
            return process, line.removeprefix("listening on ").strip()
    raise AssertionError("it does not listen")


def test_beside_the_live_line_a_refusal_stands_once():
    process, url = without_json("--discard")
    refuse(url, 1)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE)
    assert err.count("lumberjack.unknown_version") == 1
    process, url = without_json("--discard")
    refuse(url, 300)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE)
    assert told(err) == 300


def is_blocked(status: Path) -> bool:
    # The receiver may write it again in between.
    try:
        status.unlink(missing_ok=True)
        (status / "x").mkdir(parents=True)
    except OSError:
        return status.is_dir()
    return True


def test_warnings_stand_beside_the_live_line_unless_they_are_not_wanted(tmp_path):
    for level, is_shown in (("WARNING", True), ("ERROR", False)):
        spool = tmp_path / level
        spool.mkdir(mode=0o700)
        process, url = without_json("--spool", str(spool), ACKLINE_LOG=level)
        # A directory in its place makes the status file unwritable.
        wait_until(partial(is_blocked, spool / "status.json"), "it stands there")
        refuse(url, 1)
        assert process.stderr is not None
        wait_until((spool / "status.json.tmp").exists, "the status cannot be replaced")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=DEADLINE)
        assert ("WARNING: the stats lack" in err) is is_shown
        assert err.count("lumberjack.unknown_version") == 1


def test_the_page_on_json_has_each_member_of_the_lines(receiver):
    page = ROOT.joinpath("docs", "operations", "json.md").read_text()
    running = receiver("--discard")
    members = set(running.next("stats"))
    assert running.stop() == 0
    members |= set(running.lines[-1])
    assert "uncommitted_windows" in running.lines[-1]
    assert {name for name in members if f"`{name}`" not in page} == set()


def test_a_disk_that_fails_under_a_running_receiver_ends_it_with_74(tmp_path, receiver):
    running = receiver("--spool", str(tmp_path / "spool"))
    with connect(running.url) as sender:
        sender.sendall(a_window(b"kept"))
        assert sender.recv(6) == ACK
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (50, 50))
        sender.sendall(a_window(b"not kept"))
        assert sender.recv(6) == b""
        failed = running.next("failed")
        assert failed["code"] == "spool.failed"
        assert "File too large" in failed["message"]
        _, err = running.process.communicate(timeout=DEADLINE)
    assert running.process.returncode == 74
    assert "code=spool.failed" in err
    assert ackline("spool", "cat", str(tmp_path / "spool")).stdout == "kept\n"


def test_a_spool_without_consumers_has_an_age_in_stats_and_in_ls(tmp_path, receiver):
    path = tmp_path / "spool"
    running = receiver("--spool", str(path))
    stats = running.next("stats")
    while stats["oldest_uncommitted_age_s"] is None:
        stats = running.next("stats")
    assert stats["oldest_uncommitted_age_s"] == 0, "nothing is kept"
    with connect(running.url) as sender:
        sender.sendall(a_window(b"kept"))
        assert sender.recv(6) == ACK
    while not stats["oldest_uncommitted_age_s"]:
        stats = running.next("stats")
    assert stats["consumers"] == []
    listed = ackline("spool", "ls", str(path), "--json").stdout
    found = re.search(r'"oldest_uncommitted_age_s":([\d.]+)', listed)
    assert found
    assert float(found[1]) >= stats["oldest_uncommitted_age_s"] > 0
    assert running.stop() == 0


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--budget", "0", "--budget is 0; it is at least 65536 bytes"),
        ("--max-pairs", "0", "--max-pairs is 0; it is a whole number from 1 to"),
        (
            "--max-window-events",
            "4294967296",
            "--max-window-events is 4294967296; it is a whole",
        ),
    ],
)
def test_a_refused_option_is_spelled_as_it_was_given(option, value, text, tmp_path):
    spool = str(tmp_path / "spool")
    run = ackline("receive", "lumberjack://127.0.0.1:0", "--spool", spool, option, value)
    assert run.returncode == 2
    assert run.stderr.startswith(f"ackline: {text}")
    name = option.removeprefix("--").replace("-", "_")
    with pytest.raises(package.UsageError, match=f"^{text.removeprefix('--').replace('-', '_')}"):
        package.Receiver(["lumberjack://127.0.0.1:0"], spool=spool, options={name: int(value)})


LUMBERJACK = ("receive", "lumberjack://127.0.0.1:0", "--discard")
RELINK = ("receive", "--connect", "relink://127.0.0.1:1/n", "--discard")
BPMUX = ("receive", "bpmux://127.0.0.1:0", "--discard")
KEEPING = ("receive", "lumberjack://127.0.0.1:0", "--spool", "spool")
SENDING = ("send", "lumberjack://127.0.0.1:1", __file__)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (KEEPING, "--retain-max"),
        (LUMBERJACK, "--max-connection-age"),
        (LUMBERJACK, "--keepalive"),
        (LUMBERJACK, "--stall-timeout"),
        (LUMBERJACK, "--idle-timeout"),
        (LUMBERJACK, "--first-byte-timeout"),
        (LUMBERJACK, "--tail-idle"),
        (RELINK, "--lost-after"),
        (RELINK, "--ping-after"),
        (RELINK, "--pong-timeout"),
        (RELINK, "--packet-receive-timeout"),
        (BPMUX, "--chunk-receive-timeout"),
        (SENDING, "--read-timeout"),
        (SENDING, "--progress-timeout"),
        (SENDING, "--ttl"),
    ],
)
def test_no_time_at_all_is_not_taken_for_off(arguments, option):
    for text in ("0s", "0.4ms"):
        run = ackline(*arguments, option, text)
        assert run.returncode == 2, run.stderr
        # The message is in a frame that breaks its lines.
        told = " ".join(run.stderr.replace("│", " ").split())
        assert f"{option} is {text}; it is a time such as" in told
        assert told.endswith("at least 1ms, or off")


def test_a_port_out_of_range_is_called_that():
    run = ackline("receive", "lumberjack://127.0.0.1:99999", "--discard")
    assert run.returncode == 2
    assert "out of range: ports go from 0 to 65535" in run.stderr


def test_the_version_has_a_name():
    assert ackline("--version").stdout == f"ackline {package.__version__}\n"
