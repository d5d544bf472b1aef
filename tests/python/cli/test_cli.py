"""`ackline receive` and `ackline spool` from the outside: output, exit codes and signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from support.commands import DEADLINE, ackline, wait_until
from support.lumberjack import ACK, a_window, connect, fill, full_spool, write_events

from ackline import Spool, lumberjack
from ackline.cli import values

STATS = {
    "connections", "windows", "events", "bytes", "acked_events", "unacked_windows", "durable",
    "spool_bytes", "memory_bytes", "compared", "repeats", "refused", "paused",
}  # fmt: skip


def test_sent_events_are_kept_and_printed(tmp_path, receiver):
    running = receiver("--spool", str(tmp_path / "spool"))
    lines = write_events(tmp_path / "events.jsonl", 5000)
    before = datetime.now(UTC)
    sent = ackline("send", running.url, str(tmp_path / "events.jsonl"))
    assert sent.returncode == 0, sent.stderr
    assert running.stop() == 0
    assert running.lines[-1]["event"] == "stopped"

    spool = str(tmp_path / "spool")
    events = [json.loads(x) for x in ackline("spool", "cat", spool, "--json").stdout.splitlines()]
    assert [event["payload"] for event in events] == lines
    assert [event["position"] for event in events] == list(range(5000))
    first = events[0]
    assert first["protocol"] == "lumberjack"
    assert first["spool"] == Spool(spool).uuid
    assert first["attributes"]["lumberjack.version"] == "2"
    assert first["received_at"].endswith("Z")
    assert before <= datetime.fromisoformat(first["received_at"]) <= datetime.now(UTC)

    some = ackline("spool", "cat", spool, "--from", "10", "--to", "12")
    assert some.stdout.splitlines() == lines[10:12]
    verified = ackline("spool", "verify", spool, "--json")
    probed = ackline("spool", "verify", spool, "--fsync-probe", "--json")
    probe = json.loads(probed.stdout)
    assert probe["event"] == "fsync_probe"
    assert 0 < probe["p50_us"] <= probe["p99_us"]
    assert isinstance(probe["suspicious"], bool)
    assert "p50" in ackline("spool", "verify", spool, "--fsync-probe").stdout
    assert verified.returncode == 0
    assert json.loads(verified.stdout)["events"] == 5000
    listed = [json.loads(x) for x in ackline("spool", "ls", spool, "--json").stdout.splitlines()]
    assert listed[0]["durable"] == 5000
    assert sum(block["count"] for block in listed[1:]) == 5000


def test_payloads_that_are_not_text_are_base64_and_pairs_are_parts(tmp_path, receiver):
    running = receiver("--spool", str(tmp_path / "spool"))
    with lumberjack.connect(running.url) as writer:
        writer.send([b"\xff\xfe\x00", [(b"key", b"value")]], timeout=20)
    assert running.stop() == 0
    printed = ackline("spool", "cat", str(tmp_path / "spool"), "--json").stdout.splitlines()
    binary, pairs = map(json.loads, printed)
    assert binary["payload_base64"] == "//4A"
    assert "payload" not in binary
    assert pairs["parts"] == ["key", "value"]


def test_json_lines_keep_their_contract(receiver):
    running = receiver("--discard")
    assert running.lines[0]["event"] == "listening"
    assert re.fullmatch(r"lumberjack://127\.0\.0\.1:\d+", running.url)
    with connect(running.url) as bad:
        bad.sendall(bytes.fromhex("3257ffffffff"))
        assert bad.recv(1) == b""
    refused = running.next("refused")
    assert refused["peer"].startswith("127.0.0.1:")
    assert refused["protocol"] == "lumberjack"
    assert refused["code"] == "lumberjack.window_too_large"
    assert (refused["offset"], refused["value"], refused["limit"]) == (0, 2**32 - 1, 65536)
    assert refused["option"] == "--max-window-events"
    assert refused["message"]
    stats = running.next("stats")
    assert stats.keys() >= STATS
    assert stats["refused"] == 1
    assert running.stop(signal.SIGINT) == 0


def test_limits_can_be_set(receiver):
    running = receiver("--discard", "--max-window-events", "2", "--idle-timeout", "off")
    with connect(running.url) as bad:
        bad.sendall(bytes.fromhex("325700000003"))
        assert bad.recv(1) == b""
    assert running.next("refused")["limit"] == 2
    assert running.stop() == 0


def test_a_slow_reader_of_the_lines_never_delays_acknowledgements(receiver):
    running = receiver("--discard")
    # Nobody reads standard output from here on; each refused connection is a line.
    for _ in range(300):
        with connect(running.url) as bad:
            bad.sendall(b"x" * 10)
            bad.recv(1)
    with lumberjack.connect(running.url) as writer:
        writer.send([b"{}"] * 5000, timeout=20)
    assert running.stop() == 0


def test_a_closed_standard_output_does_not_end_the_receiver(receiver):
    running = receiver("--discard")
    running.process.stdout.close()
    running.process.stdout = None
    for _ in range(3):
        with connect(running.url) as bad:
            bad.sendall(b"x")
            bad.recv(1)
    with lumberjack.connect(running.url) as writer:
        writer.send([b"{}"] * 100, timeout=20)
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(DEADLINE) == 0


def is_refused(url: str) -> bool:
    try:
        connect(url).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # caught while the listener was closing
        return False
    return False


def test_a_second_signal_ends_at_once_with_4(receiver, tmp_path):
    running = receiver(*full_spool(tmp_path), "--drain-timeout", "60s")
    # The consumer may make room, so the stop waits for that.
    Spool(tmp_path / "spool").add_consumer("lake", 0)
    peers = fill(running)
    unacked = running.next("stats")["unacked_windows"]
    running.process.send_signal(signal.SIGTERM)
    wait_until(lambda: is_refused(running.url), "it accepts no more")
    assert running.process.poll() is None
    running.process.send_signal(signal.SIGINT)
    out, err = running.process.communicate(timeout=DEADLINE)
    assert running.process.returncode == 4
    assert f"{unacked} windows are not acknowledged" in err
    assert json.loads(out.splitlines()[-1])["unacked_windows"] == unacked > 0
    for peer in peers:
        peer.close()


def test_a_drain_that_passes_ends_with_4_and_the_number(receiver, tmp_path):
    running = receiver(*full_spool(tmp_path), "--drain-timeout", "1s")
    Spool(tmp_path / "spool").add_consumer("lake", 0)
    peers = fill(running)
    unacked = running.next("stats")["unacked_windows"]
    begin = time.monotonic()
    assert running.stop() == 4
    assert time.monotonic() - begin >= 1
    assert running.lines[-1]["event"] == "stopped"
    assert running.lines[-1]["unacked_windows"] == unacked > 0
    for peer in peers:
        peer.close()


@pytest.mark.alone
def test_a_stop_does_not_wait_long_for_a_peer_that_does_not_end(receiver):
    running = receiver("--discard")
    with connect(running.url) as peer:
        peer.sendall(a_window(b"{}"))
        assert peer.recv(6) == ACK + b"\1"
        begin = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - begin < 5
        assert peer.recv(1) == b""


@pytest.mark.parametrize(
    "option",
    ["--spool", "--budget", "--memory", "--drain-timeout", "--max-json-bytes", "--max-data-bytes",
     "--max-compressed-bytes", "--max-inflated-bytes", "--max-field-bytes", "--max-window-bytes",
     "--keepalive", "--stall-timeout", "--idle-timeout", "--first-byte-timeout", "--tail-idle",
     "--segment-bytes", "--segment-age", "--no-window", "--max-pairs"],
)  # fmt: skip
def test_an_empty_value_is_refused_by_its_option(option, tmp_path):
    run = ackline("receive", "lumberjack://127.0.0.1:0", "--discard", option, "", cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert option in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_log_lines_of_the_receiver_follow_the_log_level(tmp_path):
    url, level = "lumberjack://127.0.0.1:0", {**os.environ, "ACKLINE_LOG": "info"}
    process = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "receive", url, "--spool", str(tmp_path / "spool")],
        stderr=subprocess.PIPE, text=True, env=level,
    )  # fmt: skip
    assert any("INFO: spool created" in line for line in process.stderr)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE)
    wrong = ackline("spool", "--help", env={**os.environ, "ACKLINE_LOG": "loud"})
    assert wrong.returncode == 2
    assert "ACKLINE_LOG" in wrong.stderr


def test_a_spool_has_one_receiver(tmp_path, receiver):
    receiver("--spool", str(tmp_path / "spool"))
    second = ackline("receive", "lumberjack://127.0.0.1:0", "--spool", str(tmp_path / "spool"))
    assert second.returncode == 1
    assert "spool.locked" in second.stderr


def test_a_restarted_receiver_reports_its_recovery(tmp_path, receiver):
    first = receiver("--spool", str(tmp_path / "spool"))
    with lumberjack.connect(first.url) as writer:
        writer.send([b"{}"] * 10, timeout=20)
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(DEADLINE)
    second = receiver("--spool", str(tmp_path / "spool"))
    recovered = next((x for x in second.lines if x["event"] == "recovered"), None)
    assert (recovered or second.next("recovered"))["position"] == 10
    assert second.lines[0]["event"] == "listening"
    assert second.stop() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["receive", "lumberjack://127.0.0.1:0"],
        ["receive", "lumberjack://127.0.0.1:0", "--discard", "--spool", "x"],
        ["receive", "--discard"],
        ["receive", "nonsense", "--discard"],
        ["receive", "kafka://127.0.0.1:0", "--discard"],
        ["receive", "lumberjack://127.0.0.1:0", "--discard", "--memory", "much"],
        ["receive", "lumberjack://127.0.0.1:0", "--discard", "--memory", "1"],
        ["receive", "lumberjack://127.0.0.1:0", "--discard", "--memory", "99999999999TB"],
        ["receive", "lumberjack://127.0.0.1:0", "--spool", "unused", "--budget", "1"],
        [
            "receive",
            "lumberjack://127.0.0.1:0",
            "--discard",
            "--idle-timeout",
            "99999999999999999999d",
        ],
        ["receive", "lumberjack://127.0.0.1:0", "--discard", "--drain-timeout", "soon"],
        ["receive", "lumberjack://127.0.0.1:0", "--discard", "--no-window", "perhaps"],
        ["send", "lumberjack://127.0.0.1:1", "/does/not/exist"],
        ["send", "nonsense", "-"],
        ["spool", "dance"],
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments, tmp_path):
    run = ackline(*arguments, cwd=tmp_path)
    assert run.returncode == 2, (run.stdout, run.stderr)
    assert run.stderr


def test_discard_says_so_loudly(receiver):
    running = receiver("--discard")
    running.process.send_signal(signal.SIGTERM)
    _, err = running.process.communicate(timeout=DEADLINE)
    assert "THROWN AWAY" in err


def test_consumers_are_listed_and_removed(tmp_path, receiver):
    spool = str(tmp_path / "spool")
    running = receiver("--spool", spool)
    with lumberjack.connect(running.url) as writer:
        writer.send([b"{}"] * 10, timeout=20)
    assert running.stop() == 0
    Spool(spool).commit_mark("table", 4)
    (line,) = ackline("spool", "consumers", "ls", spool, "--json").stdout.splitlines()
    mark = json.loads(line)
    assert (mark["event"], mark["name"], mark["committed"]) == ("consumer", "table", 4)
    assert (mark["lag"], mark["lag_events"], mark["state"]) == (6, 6, "idle")
    assert ackline("spool", "consumers", "rm", spool, "table").returncode == 0
    assert ackline("spool", "consumers", "rm", spool, "table").returncode == 1
    assert Spool(spool).consumers() == []


def test_a_directory_that_is_no_spool_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    run = ackline("spool", "ls", str(tmp_path))
    assert run.returncode == 1
    assert "spool.not_a_spool" in run.stderr


def test_sizes_and_times_are_read_as_people_write_them():
    assert values.size("4GiB") == 4 << 30
    assert values.size("10MB") == 10_000 * values.size("1KB") == 10_000_000
    assert values.size("2K") == values.size("2KiB") == 2048
    assert values.size("65536") == 65536
    assert values.size("1.5 kib") == 1536
    assert values.size("9007199254740993") == 9007199254740993
    assert values.milliseconds("10s") == 10_000
    assert values.milliseconds("500ms") == 500
    assert values.milliseconds("1.5 s") == 1500
    assert values.milliseconds("15m") == 900_000
    assert values.milliseconds("off") == 0


def test_defaults_stand_in_the_help():
    wide = os.environ | {"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"}
    text = ackline("receive", "--help", env=wide).stdout
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("│ --")}
    for option, default in (("retain-committed", "1d"), ("accept-rate", "1000")):
        assert f"[default: ({default})]" in lines[f"--{option}"]
