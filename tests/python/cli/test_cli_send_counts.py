"""`ackline send` counts the events that are acknowledged and those that are not."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading

from support.commands import DEADLINE, ackline, wait_until
from support.lumberjack import ACK, write_events

from ackline import Spool, lumberjack


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


def test_send_reads_standard_input(receiver):
    running = receiver("--discard")
    sent = ackline("send", running.url, "-", given='{"a":1}\n\n{"b":2}')
    assert sent.returncode == 0, sent.stderr
    assert "2 events acknowledged" in sent.stderr
    assert running.stop() == 0
