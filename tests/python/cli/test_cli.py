import contextlib
import inspect
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, ackline, wait_until

from ackline import Spool, lumberjack
from ackline.cli import values
from ackline.cli.send import send
from ackline.exceptions import LinkTimeout

STATS = {
    "connections", "windows", "events", "bytes", "acked_events", "unacked_windows", "durable",
    "spool_bytes", "memory_bytes", "compared", "repeats", "refused", "paused",
}  # fmt: skip


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("lumberjack://").split(":")
    return socket.create_connection((host, int(port)))


def write_events(path, count: int) -> list[str]:
    lines = [f'{{"n":{n},"text":"ä"}}' for n in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return lines


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


def a_window(payload: bytes) -> bytes:
    return b"2W\0\0\0\1" + b"2J\0\0\0\1" + struct.pack(">I", len(payload)) + payload


def full_spool(tmp_path) -> list[str]:
    return ["--spool", str(tmp_path / "spool"), "--budget", "512KiB", "--segment-bytes", "64KiB"]


def fill(running) -> list[socket.socket]:
    """Two senders at a spool whose budget is full: each has windows that are not acknowledged."""
    event = json.dumps({"x": os.urandom(30_000).hex()}).encode()
    peers = [connect(running.url) for _ in range(2)]
    stats = running.next("stats")
    while stats["paused"] is None:
        for peer in peers:
            peer.sendall(a_window(event) * 4)
        stats = running.next("stats")
    assert stats["paused"] == "budget"
    # Events on their way when it stopped reading are counted by now.
    while (newer := running.next("stats"))["unacked_windows"] != stats["unacked_windows"]:
        stats = newer
    return peers


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


def test_send_counts_unacknowledged_events(tmp_path):
    write_events(tmp_path / "events.jsonl", 7)
    with lumberjack.listen("lumberjack://127.0.0.1:0") as listener:
        process = subprocess.Popen(
            [sys.executable, "-m", "ackline.cli", "send", "--batch-events", "2", "--timeout", "5",
             listener.url, str(tmp_path / "events.jsonl")],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        listener.receive(timeout=20).ack()
        listener.receive(timeout=20)
        wait_until(lambda: bool(listener._core.connections), "it is connected")
    _, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert "5 of 7 events not acknowledged" in err


ACK = b"2A\0\0\0"


def a_receiver_that(answers: bytes) -> tuple[str, socket.socket]:
    """A peer that answers the first window with these bytes and holds the connection."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        try:
            peer, _ = server.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(answers)
                while peer.recv(65536):
                    pass
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    return f"lumberjack://127.0.0.1:{server.getsockname()[1]}", server


def test_send_counts_a_partial_acknowledgement_and_keeps_its_time(tmp_path):
    write_events(tmp_path / "events.jsonl", 3)
    url, server = a_receiver_that(ACK + b"\1")
    with server:
        sent = ackline("send", "--json", "--timeout", "5", url, str(tmp_path / "events.jsonl"))
    assert sent.returncode == 1
    assert "2 of 3 events not acknowledged" in sent.stderr
    line = json.loads(sent.stdout)
    assert 5 <= line.pop("seconds") < 9, "it was 5 s more than the timeout"
    assert line == {
        "event": "sent", "events": 3, "acked": 1, "not_acked": 2, "possible_repeats": 0,
    }  # fmt: skip


def test_send_does_not_wait_long_for_the_end_of_a_peer_that_acknowledged_all(tmp_path):
    write_events(tmp_path / "events.jsonl", 3)
    url, server = a_receiver_that(ACK + b"\3")
    with server:
        sent = ackline("send", "--json", url, str(tmp_path / "events.jsonl"))
    assert sent.returncode == 0, sent.stderr
    line = json.loads(sent.stdout)
    assert (line["events"], line["acked"], line["not_acked"]) == (3, 3, 0)
    assert line["seconds"] < 4, "it was 5 s"


def test_a_line_that_cannot_be_sent_is_named_and_the_rest_is_sent(tmp_path, receiver):
    spool = str(tmp_path / "spool")
    running = receiver("--spool", spool)
    file = tmp_path / "events.jsonl"
    long = '{"long":"' + "x" * 9000 + '"}'
    lines = ['{"n":0}', long, '{"n":1}', "not json", "", '{"n":NaN}', '{"n":2}', '"\udcff"']
    file.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    sent = ackline(
        "send", "--json", "--batch-events", "2", "--max-json-bytes", "1KiB", running.url, str(file)
    )
    assert running.stop() == 0
    assert sent.returncode == 1
    line = json.loads(sent.stdout)
    assert (line["events"], line["acked"], line["not_acked"]) == (7, 3, 4)
    first, *others = [x for x in sent.stderr.splitlines() if "not sent:" in x]
    assert f"{file}, line 2: not sent: {len(long) + 1} bytes, the limit is 1024" in first
    assert "--max-json-bytes" in first
    numbers = [int(re.search(r"line (\d+): not sent: not JSON", x)[1]) for x in others]
    assert numbers == [4, 6, 8]
    assert "4 of 7 events not acknowledged: 4 lines were not sent" in sent.stderr
    kept = ackline("spool", "cat", spool).stdout.splitlines()
    assert kept == ['{"n":0}', '{"n":1}', '{"n":2}']


def test_a_line_of_the_longest_length_is_sent_and_one_byte_more_is_not(receiver):
    running = receiver("--discard")
    fits, exceeds = '{"a":"' + "x" * 92 + '"}', '{"a":"' + "x" * 93 + '"}'
    limit = ["--max-json-bytes", str(len(fits))]
    assert ackline("send", *limit, running.url, "-", given=fits).returncode == 0
    sent = ackline("send", *limit, running.url, "-", given=exceeds)
    assert sent.returncode == 1
    assert f"standard input, line 1: not sent: {len(exceeds)} bytes" in sent.stderr
    assert running.stop() == 0


def test_send_cuts_windows_that_receivers_would_refuse(receiver):
    running = receiver("--discard", "--max-window-bytes", "12MiB")
    big = '{"a":"' + "x" * (1 << 20) + '"}\n'
    sent = ackline("send", "--compression", "0", running.url, "-", given=big * 20)
    assert sent.returncode == 0, sent.stderr
    assert running.stop() == 0
    assert running.lines[-1] | {"time": ""} == {
        "event": "stopped", "time": "", "unacked_windows": 0, "uncommitted_windows": 0,
    }  # fmt: skip


def test_send_counts_the_lines_of_a_file_that_it_did_not_reach(tmp_path):
    write_events(tmp_path / "events.jsonl", 50)
    url, server = a_receiver_that(b"3")
    with server:
        file = str(tmp_path / "events.jsonl")
        sent = ackline("send", "--json", "--batch-events", "1", "--timeout", "1", url, file)
    assert sent.returncode == 1
    line = json.loads(sent.stdout)
    assert (line["events"], line["acked"], line["not_acked"]) == (50, 0, 50)
    assert "50 of 50 events not acknowledged" in sent.stderr


def test_send_does_not_wait_for_the_end_of_a_pipe_when_the_link_is_lost():
    url, server = a_receiver_that(b"3")
    process = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "send", "--batch-events", "1", "--timeout", "1",
         "--json", url, "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with server:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(b"{}\n{}\n{}\n" * 10_000)
            process.stdin.flush()
        assert process.wait(DEADLINE) == 1
    line = json.loads(process.stdout.read())
    assert line["acked"] == 0
    assert line["not_acked"] == line["events"] > 0
    for pipe in (process.stdout, process.stderr):
        pipe.close()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def test_bad_lines_beyond_the_first_twenty_are_counted(receiver):
    running = receiver("--discard")
    sent = ackline("send", running.url, "-", given="bad\n" * 23 + "{}")
    assert sent.returncode == 1
    assert sent.stderr.count("not JSON") == 20
    assert "3 more lines were not sent" in sent.stderr
    assert "23 of 24 events not acknowledged" in sent.stderr
    assert running.stop() == 0


def test_the_timeout_holds_for_the_connection_too(tmp_path):
    write_events(tmp_path / "events.jsonl", 3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        # Two connections fill the backlog: a third is not answered.
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        url = f"lumberjack://127.0.0.1:{server.getsockname()[1]}"
        file = str(tmp_path / "events.jsonl")
        sent = ackline("send", "--json", "--timeout", "1", url, file)
        for one in waiting:
            one.close()
    assert sent.returncode == 1
    assert "cannot connect" in sent.stderr
    line = json.loads(sent.stdout)
    assert (line["events"], line["acked"], line["not_acked"]) == (3, 0, 3)
    assert 1 <= line["seconds"] < 9


def test_send_goes_on_across_a_restart_of_the_receiver(tmp_path, receiver):
    lines = write_events(tmp_path / "events.jsonl", 400)
    spool = str(tmp_path / "spool")
    first = receiver("--spool", spool)
    process = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "send", "--json", "--batch-events", "1",
         first.url, "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdin.write("\n".join(lines[:200]) + "\n")
    process.stdin.flush()
    wait_until(lambda: Spool(spool).durable() == 200, "the first half is kept")
    assert first.stop() == 0
    second = receiver("--spool", spool, url=first.url)
    out, err = process.communicate("\n".join(lines[200:]) + "\n", timeout=DEADLINE)
    assert process.returncode == 0, err
    line = json.loads(out)
    assert (line["events"], line["acked"], line["not_acked"]) == (400, 400, 0)
    assert second.stop() == 0
    kept = ackline("spool", "cat", spool).stdout.splitlines()
    assert sorted(set(kept), key=lines.index) == lines
    assert len(kept) - 400 <= line["possible_repeats"]


def test_send_takes_several_urls_and_options_of_the_writer(tmp_path, receiver):
    file = tmp_path / "events.jsonl"
    write_events(file, 500)
    one, two = receiver("--discard"), receiver("--discard")
    options = ["--batch-events", "10", "--batch-bytes", "1KiB", "--slow-start", "2", "--ttl", "1m"]
    sent = ackline("send", *options, "--max-in-flight", "1", f"{one.url},{two.url}", str(file))
    assert sent.returncode == 0, sent.stderr
    assert one.stop() == 0
    assert two.stop() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--batch-bytes", "x"], ["--batch-bytes", "0"], ["--ttl", "soon"], ["--ca", "/no"],
        ["--buffer-events", "1"], ["--buffer-bytes", "1MiB"], ["--batch-events", "0"],
        ["--read-timeout", "x"],
        ["--backoff-min", "off"], ["--backoff-max", "1ms"], ["--max-in-flight-bytes", "0"],
    ],
)  # fmt: skip
def test_send_names_a_wrong_option(wrong, tmp_path):
    file = tmp_path / "events.jsonl"
    write_events(file, 1)
    sent = ackline("send", *wrong, "lumberjack+tls://127.0.0.1:1", str(file))
    assert sent.returncode == 2, sent.stderr
    assert wrong[0] in sent.stderr


def test_send_reads_standard_input(receiver):
    running = receiver("--discard")
    sent = ackline("send", running.url, "-", given='{"a":1}\n\n{"b":2}')
    assert sent.returncode == 0, sent.stderr
    assert "2 events acknowledged" in sent.stderr
    assert running.stop() == 0


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


def test_send_speaks_tls_with_the_options_that_the_url_leaves_open(tmp_path, receiver):
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "DNS:logs.example")
    own_cert, own_key = pki.issue("web", "web", "DNS:web.example")
    running = receiver(
        "--discard", "--ca", pki.ca, "--cert", cert, "--key", key,
        url="lumberjack+tls://127.0.0.1:0",
    )  # fmt: skip
    tls = ["--ca", pki.ca, "--server-name", "logs.example", "--cert", own_cert, "--key", own_key]
    sent = ackline("send", *tls, running.url, "-", given='{"a":1}\n')
    assert sent.returncode == 0, sent.stderr
    sent = ackline("send", *tls[:2], "--timeout", "1", running.url, "-", given='{"a":1}\n')
    assert sent.returncode == 1
    assert "cannot connect to lumberjack+tls://127.0.0.1" in sent.stderr
    sent = ackline("send", *tls[:2], "lumberjack://127.0.0.1:1", "-", given="{}")
    assert sent.returncode == 2
    assert "ca is an option of TLS" in sent.stderr
    assert running.stop() == 0


def test_send_has_every_option_of_connect_by_its_name():
    of_connect = set(inspect.signature(lumberjack.connect).parameters)
    # A command reads no receipts; its url and its timeout for connecting are its own.
    assert of_connect - {"receipts", "connect_timeout"} <= set(inspect.signature(send).parameters)


def test_send_numbers_events_as_it_is_told(tmp_path, receiver):
    write_events(tmp_path / "events.jsonl", 5)
    spool = str(tmp_path / "spool")
    running = receiver("--spool", spool)
    file = str(tmp_path / "events.jsonl")
    for options in (["--version", "1"], ["--cumulative"]):
        sent = ackline("send", "--batch-events", "2", *options, running.url, file)
        assert sent.returncode == 0, sent.stderr
    assert running.stop() == 0
    lines = [json.loads(x) for x in ackline("spool", "cat", spool, "--json").stdout.splitlines()]
    shown = [(line["attributes"]["lumberjack.version"], line["sequence"]) for line in lines]
    assert shown[:5] == [("1", 1), ("1", 2), ("1", 1), ("1", 2), ("1", 1)]
    assert shown[5:] == [("2", 1), ("2", 2), ("2", 3), ("2", 4), ("2", 5)]


@contextlib.contextmanager
def a_host_that(answers: bytes) -> Iterator[tuple[str, list[float]]]:
    """A peer that answers all input with these bytes, and the times of its connections."""
    times: list[float] = []

    def serve(peer: socket.socket) -> None:
        times.append(time.monotonic())
        with peer, contextlib.suppress(OSError):
            while peer.recv(65536):
                peer.sendall(answers)

    def accept(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, args=(server,), daemon=True).start()
        yield f"lumberjack://127.0.0.1:{server.getsockname()[1]}", times
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "options", [["--read-timeout", "200ms"], ["--progress-timeout", "200ms"], []], ids=" ".join
)
def test_send_leaves_a_host_that_is_silent_or_makes_no_progress(options):
    waits = ["--backoff-min", "10ms", "--backoff-max", "20ms", "--timeout", "5"]
    keepalive = ACK + b"\0" if "--progress-timeout" in options else b""
    with a_host_that(keepalive) as (url, times):
        sent = ackline("send", *options, *waits, url, "-", given="{}")
    assert sent.returncode == 1
    connections = len(times)
    assert 3 <= connections <= 26 if options else connections == 1, connections


def test_send_waits_longer_between_attempts_as_it_is_told():
    options = ["--read-timeout", "10ms", "--timeout", "2"]
    with a_host_that(b"") as (url, often):
        ackline("send", *options, "--backoff-min", "1ms", "--backoff-max", "1ms", url, "-",
                given="{}")  # fmt: skip
    with a_host_that(b"") as (url, seldom):
        ackline("send", *options, "--backoff-min", "1h", "--backoff-max", "1h", url, "-",
                given="{}")  # fmt: skip
    assert len(often) > 5
    assert len(seldom) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--buffer-events", "2"],
        ["--buffer-bytes", "90", "--batch-bytes", "90"],
        ["--max-in-flight-events", "2"],
        ["--max-in-flight-bytes", "90"],
    ],
    ids=" ".join,
)
def test_send_holds_the_limits_of_its_buffer_and_in_flight(options):
    event = json.dumps({"text": "x" * 20})
    writing = ["send", "--json", "--batch-events", "1", "--compression", "0", "--timeout", "20"]
    with (
        lumberjack.listen("lumberjack://127.0.0.1:0") as listener,
        subprocess.Popen(
            [sys.executable, "-m", "ackline.cli", *writing, "--max-in-flight", "9", *options,
             listener.url, "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(f"{event}\n" * 5)
        process.stdin.flush()
        first, second = (listener.receive(timeout=DEADLINE) for _ in range(2))
        with pytest.raises(LinkTimeout):
            listener.receive(timeout=0.3)
        first.ack()
        second.ack()
        for _ in range(3):
            listener.receive(timeout=20).ack()
        out, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    assert json.loads(out)["acked"] == 5


def test_send_takes_the_number_of_events_for_an_acknowledgement(tmp_path):
    write_events(tmp_path / "events.jsonl", 4)
    options = ["--cumulative", "--batch-events", "2", "--max-in-flight", "1", "--compression", "0"]
    file = str(tmp_path / "events.jsonl")
    with a_host_that(ACK + b"\2") as (url, _):
        sent = ackline("send", *options, "--accept-count-acks", url, file)
        assert sent.returncode == 0, sent.stderr
    with a_host_that(ACK + b"\2") as (url, _):
        sent = ackline("send", *options, "--timeout", "1", url, file)
        assert sent.returncode == 1


def test_defaults_stand_in_the_help():
    wide = os.environ | {"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"}
    text = ackline("receive", "--help", env=wide).stdout
    lines = {line.split()[1]: line for line in text.splitlines() if line.startswith("│ --")}
    for option, default in (("retain-committed", "1d"), ("accept-rate", "1000")):
        assert f"[default: ({default})]" in lines[f"--{option}"]
