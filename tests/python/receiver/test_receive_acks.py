"""`ackline receive` from the outside: acks by commit, disks that fail, the live view."""

import contextlib
import json
import resource
import socket
import struct
import subprocess
import sys

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline, wait_until

from ackline import Receiver, Spool, lumberjack
from ackline.exceptions import UsageError

STATS = {
    "time", "connections", "windows", "events", "bytes", "acked_events", "landed", "quarantined",
    "accepted", "unacked", "unacked_windows", "uncommitted_windows", "spool", "durable",
    "first_kept", "spool_bytes", "budget", "memory_bytes", "refused", "state", "paused",
    "fsync_p99_ms", "groups", "fsyncs", "oldest_uncommitted_age_s", "consumers", "event",
    "landed_unacked", "quarantined_unacked", "uncommitted", "compared", "repeats",
}  # fmt: skip
CONSUMER = {
    "name", "committed", "lag_events", "lag_bytes", "lag_s", "state", "last_seen_s",
}  # fmt: skip


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("lumberjack://").split(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE)


def window(*payloads: bytes) -> bytes:
    frames = [
        b"2J" + struct.pack(">II", number, len(payload)) + payload
        for number, payload in enumerate(payloads, 1)
    ]
    return b"2W" + struct.pack(">I", len(payloads)) + b"".join(frames)


def lines(path) -> list[dict]:
    shown = ackline("spool", "ls", str(path), "--json")
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_acks_come_with_the_commit_and_the_rest_ends_with_4(tmp_path, receiver):
    path = tmp_path / "spool"
    running = receiver(
        "--spool",
        str(path),
        "--ack",
        "committed=lake",
        "--keepalive",
        "100ms",
        "--drain-timeout",
        "300ms",
    )
    with connect(running.url) as sender:
        sender.sendall(window(b"{}", b"{}") + window(b"{}"))
        assert sender.recv(6, socket.MSG_WAITALL) == b"2A\0\0\0\0"
        spool = Spool(path)
        spool.wait_durable(3, timeout=DEADLINE)
        spool.commit_mark("lake", 2)
        while (frame := sender.recv(6, socket.MSG_WAITALL)) == b"2A\0\0\0\0":
            pass
        assert frame == b"2A\0\0\0\2"
        assert running.stop() == 4
    stopped = running.lines[-1]
    assert stopped["event"] == "stopped"
    assert (stopped["unacked_windows"], stopped["uncommitted_windows"]) == (1, 1)


def test_version_1_is_refused_by_the_option_that_takes_it(tmp_path, receiver):
    running = receiver("--spool", str(tmp_path / "a"), "--ack", "committed=lake")
    frames = b"1W\0\0\0\1" + b"1J" + struct.pack(">II", 1, 2) + b"{}"
    with connect(running.url) as sender:
        sender.sendall(frames)
        assert sender.recv(6) == b""
    refused = running.next("refused")
    assert refused["code"] == "lumberjack.v1_needs_durable_ack"
    assert refused["option"] == "--v1-ack"
    options = ("--ack", "committed=lake", "--v1-ack", "durable")
    running = receiver("--spool", str(tmp_path / "b"), *options)
    with connect(running.url) as sender:
        sender.sendall(frames)
        assert sender.recv(6, socket.MSG_WAITALL) == b"1A\0\0\0\1"


def test_the_live_view_and_the_end_of_a_receiver(tmp_path, receiver):
    path = tmp_path / "spool"
    running = receiver("--spool", str(path), "--budget", "100MiB")
    Spool(path).add_consumer("lake", 0)
    with lumberjack.connect(running.url) as writer:
        writer.send([b"{}"] * 5, timeout=DEADLINE)
    stats = running.next("stats")
    while not (stats["consumers"] and stats["durable"] == 5 and stats["consumers"][0]["lag_s"]):
        stats = running.next("stats")
    assert stats.keys() >= STATS
    (lake,) = stats["consumers"]
    assert lake.keys() == CONSUMER
    assert (lake["name"], lake["lag_events"], lake["state"]) == ("lake", 5, "idle")
    assert stats["oldest_uncommitted_age_s"] == lake["lag_s"]
    assert (stats["spool"], stats["budget"]) == (Spool(path).uuid, 100 << 20)
    assert (stats["accepted"], stats["landed"], stats["state"]) == (5, 5, "ok")
    assert stats["bytes"] > 0  # as received
    assert stats["spool_bytes"] == Spool(path).bytes()
    # The same numbers without a call to the receiver, only while it runs.
    seen = lines(path)[0]
    assert (seen["state"], seen["accepted"], seen["budget"]) == ("ok", 5, 100 << 20)
    assert seen["bytes"] == stats["spool_bytes"]
    assert running.stop() == 0
    assert lines(path)[0]["state"] is None


def limited(url: str, path) -> subprocess.Popen:
    """A receiver whose files the system does not let grow above 200 kB."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    return subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "receive", url, "--spool", str(path),
         "--budget", "1MiB", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=limit,  # noqa: PLW1509 (this process has no threads that matter)
    )  # fmt: skip


def test_a_disk_that_fails_ends_the_receiver_with_74(tmp_path):
    process = limited("lumberjack://127.0.0.1:0", tmp_path / "spool")
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["urls"][0]
        with connect(url) as sender, connect(url) as idle:
            sender.sendall(window(b"kept"))
            assert sender.recv(6, socket.MSG_WAITALL) == b"2A\0\0\0\1"
            sender.sendall(window(b"x" * 400_000))
            with contextlib.suppress(ConnectionResetError):  # it did not read all of it
                assert sender.recv(6) == b""
            out, err = process.communicate(timeout=DEADLINE)
            assert idle.recv(6) == b""
        told = [json.loads(line) for line in out.splitlines()]
        (failed,) = [line for line in told if line["event"] == "failed"]
        assert failed["code"] == "spool.failed"
        assert failed["message"]
        assert told[-1]["event"] == "stopped"
        assert process.returncode == 74
        assert "spool.failed" in err
    finally:
        process.kill()
        process.communicate()
    # The acknowledged events are there, and nothing else.
    kept = ackline("spool", "cat", str(tmp_path / "spool"))
    assert kept.stdout == "kept\n"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--ack", "committed"),
        ("--ack", "committed=no name"),
        ("--ack", "later"),
        ("--v1-ack", "later"),
        ("--on-invalid", "drop"),
        ("--quarantine-budget", "much"),
        ("--quarantine-age", "old"),
        ("--retain-committed", "long"),
        ("--retain-max", "long"),
    ],
)
def test_a_wrong_value_names_its_option(option, value, tmp_path):
    url = "lumberjack://127.0.0.1:0"
    run = ackline("receive", url, "--spool", str(tmp_path / "spool"), option, value)
    assert run.returncode == 2
    assert option in run.stderr
    assert not (tmp_path / "spool").exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--ack", "committed=lake"), ("--on-invalid", "quarantine")]
)
def test_options_that_need_a_spool_say_so(option, value):
    run = ackline("receive", "lumberjack://127.0.0.1:0", "--discard", option, value)
    assert run.returncode == 2
    assert option in run.stderr
    assert "--spool" in run.stderr


@pytest.mark.parametrize("command", ["receive", "send"])
def test_a_password_in_a_url_is_refused_and_not_shown(command, tmp_path):
    url = "lumberjack://me:hunter2@127.0.0.1:5044"
    arguments = ["--spool", str(tmp_path / "spool")] if command == "receive" else ["-"]
    run = ackline(command, url, *arguments)
    assert run.returncode == 2
    assert "password" in run.stderr
    assert "hunter2" not in run.stderr + run.stdout
    assert not (tmp_path / "spool").exists()


def test_the_class_takes_the_same_options(tmp_path):
    options = {
        "ack": "committed=lake", "v1_ack": "durable", "on_invalid": "quarantine", "group": True,
        "quarantine_budget": 1 << 20, "quarantine_age_ms": 60_000, "retain_committed_ms": 1000,
        "retain_max_ms": 60_000, "allow_unsafe_filesystem": True,
    }  # fmt: skip
    url = "lumberjack://127.0.0.1:0"
    with Receiver([url], spool=tmp_path / "spool", options=options) as receiver:
        assert receiver.failure() is None
        wait_until(lambda: bool(receiver.stats()["consumers"]), "the consumer is seen")
        assert receiver.stats()["consumers"][0]["name"] == "lake"
    assert (tmp_path / "spool").stat().st_mode & 0o777 == 0o770
    for name in ("ack", "v1_ack", "on_invalid", "group", "allow_unsafe_filesystem"):
        with pytest.raises(UsageError, match=name):
            Receiver([url], spool=tmp_path / "other", options={name: "perhaps"})


def test_a_receiver_of_the_group_makes_files_of_the_group(tmp_path, receiver):
    running: RunningReceiver = receiver("--spool", str(tmp_path / "spool"), "--group")
    wait_until((tmp_path / "spool" / "status.json").exists, "the status is written")
    assert (tmp_path / "spool" / "status.json").stat().st_mode & 0o777 == 0o660
    assert running.stop() == 0
