"""A spool that is removed under its receiver, and commands on missing files and positions."""

import contextlib
import shutil
import socket
import struct
from pathlib import Path

import pytest
from support.commands import DEADLINE, ackline

from ackline import Receiver, Spool, UsageError, lumberjack

DISK = 74
ACK = b"2A\0\0\0\1"


def window(payload: bytes) -> bytes:
    return b"2W\0\0\0\1" + b"2J" + struct.pack(">II", 1, len(payload)) + payload


@pytest.fixture
def spool(tmp_path):
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver,
        lumberjack.connect(receiver.urls[0]) as writer,
    ):
        writer.send([b"{}"] * 10, timeout=DEADLINE)
    return Spool(tmp_path / "spool")


def move(path: Path) -> None:
    path.rename(path.with_suffix(".b"))


SEGMENT = "segments/" + "0" * 20 + ".arrows"


@pytest.mark.parametrize(
    ("take_away", "of", "missed"),
    [
        (shutil.rmtree, ".", SEGMENT),
        (move, ".", SEGMENT),
        (shutil.rmtree, "segments", SEGMENT),
        (Path.unlink, SEGMENT, SEGMENT),
        (Path.unlink, "durable", "durable"),
        (Path.unlink, "spool.json", "spool.json"),
    ],
)
def test_events_for_a_removed_spool_are_not_acknowledged_and_the_receiver_ends(
    tmp_path, receiver, take_away, of, missed
):
    path = tmp_path / "spool"
    running = receiver("--spool", str(path))
    host, port = running.url.removeprefix("lumberjack://").split(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as sender:
        sender.sendall(window(b"{}"))
        assert sender.recv(6, socket.MSG_WAITALL) == ACK
        take_away(path / of)
        sender.sendall(window(b"{}"))
        with contextlib.suppress(ConnectionResetError):
            assert sender.recv(6) == b""
    failed = running.next("failed")
    assert failed["code"] == "spool.failed"
    assert failed["message"].startswith(f"{path / missed} is gone: it was removed, moved away")
    assert running.process.wait(DEADLINE) == DISK


def test_verify_reports_segments_removed_by_hand_until_they_are_noted(spool):
    spool.add_consumer("lake", 4)
    assert spool.verify().problems == []
    for part in Path(spool.path, "segments").iterdir():
        part.unlink()
    run = ackline("spool", "verify", spool.path)
    assert run.returncode == 1
    assert "1 problems" in run.stdout
    assert "positions 0 to 10 are missing" in run.stderr
    mended = Spool.mend(spool.path)
    assert mended.position == 10
    assert [(step.what, step.start, step.end) for step in mended.steps] == [("loss_noted", 0, 10)]
    report = Spool(spool.path).verify()
    assert report.problems == []
    assert [(loss.start, loss.end) for loss in report.losses] == [(0, 10)]
    with Receiver(["lumberjack://127.0.0.1:0"], spool=spool.path):
        assert Spool(spool.path).durable() == 10


def test_a_position_above_the_end_is_told_as_that(spool):
    text = f"position 50 is above the end 10 of {spool.path}"
    for arguments in (
        ["consumers", "add", spool.path, "b", "--at", "50"],
        ["cat", spool.path, "--from", "50"],
        ["cat", spool.path, "--from", "50", "--to", "60", "--json"],
    ):
        run = ackline("spool", *arguments)
        assert (run.returncode, run.stdout) == (1, "")
        assert text in run.stderr
    assert list(Path(spool.path, "consumers").iterdir()) == []
    assert ackline("spool", "cat", spool.path, "--from", "10").returncode == 0


def test_events_skipped_for_an_ack_by_commit_are_reported(spool):
    def said(verb: str, *arguments: str) -> str:
        run = ackline("spool", "consumers", verb, spool.path, "lake", *arguments)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def skips(count: int) -> str:
        return (
            f"a receiver with --ack committed=lake takes these {count} events as committed and "
            "acknowledges them\n"
        )

    assert said("add", "--at", "3") == "lake: at position 3\n" + skips(3)
    assert said("seek", "--to", "7").endswith("4 events are skipped\n" + skips(4))
    assert "acknowledges" not in said("seek", "--to", "earliest")
    assert said("rm") == (
        "lake: removed\n10 events that it had not committed are not kept for it any more; "
        "a receiver with --ack committed=lake acknowledges nothing until it is added again\n"
    )
    assert said("add", "--at", "earliest") == "lake: at position 0\n"
    assert said("seek", "--to", "latest").endswith(skips(10))
    assert said("rm") == "lake: removed\n"


@pytest.mark.parametrize("name", [".", "..", "-a", "_a"])
def test_a_name_begins_with_a_letter_or_a_digit(spool, name):
    run = ackline("spool", "consumers", "add", spool.path, "--", name)
    assert run.returncode == 2
    assert "spool.consumer_name" in run.stderr
    assert "beginning with a letter or digit" in run.stderr


def test_a_budget_below_the_smallest_is_refused_by_name(tmp_path):
    url = "lumberjack://127.0.0.1:0"
    run = ackline("receive", url, "--spool", str(tmp_path / "spool"), "--budget", "63KiB")
    assert run.returncode == 2
    assert "--budget is 63KiB; it is at least 65536 bytes (64KiB)" in run.stderr
    with pytest.raises(UsageError, match="budget is 1; it is at least 65536 bytes"):
        Receiver([url], spool=tmp_path / "spool", options={"budget": 1})
