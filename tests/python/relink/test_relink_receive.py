"""`ackline receive` and `ackline send` over Relink: real processes, killed and started again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline, python, rows, wait_until

from ackline import Spool, lumberjack, relink

CHANNEL = bytes.fromhex("00000000")


def lines_file(path: Path, count: int, begin: int = 0) -> Path:
    path.write_text("".join(f"line {number}\n" for number in range(begin, begin + count)))
    return path


def sent(*arguments: str | Path) -> dict[str, object]:
    run = ackline("send", *map(str, arguments), "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_each_line_is_a_message_of_its_channel_and_acknowledged_as_consumed(tmp_path):
    spool = tmp_path / "spool"
    receiver = RunningReceiver("relink://127.0.0.1:0/orders", "--spool", str(spool))
    try:
        assert receiver.url.startswith("relink://127.0.0.1:")
        assert receiver.url.endswith("/orders")
        mixed = tmp_path / "mixed"
        mixed.write_bytes(b"one\r\n\n not JSON \n\xff\xfe\nlast")
        line = sent(receiver.url, mixed, "--channel", "000000ff")
        assert (line["events"], line["acked"], line["not_acked"]) == (5, 5, 0)
        line = sent(receiver.url, lines_file(tmp_path / "many", 5_000))
        assert (line["acked"], line["possible_repeats"]) == (5_000, 0)
        stats = receiver.next("stats")
        while stats["acked_events"] < 5_005:
            stats = receiver.next("stats")
        assert (stats["landed"], stats["durable"], stats["unacked"]) == (5_005, 5_005, 0)
    finally:
        assert receiver.stop() == 0
    found = rows(spool)
    assert [row[3] for row in found[:5]] == [b"one\r", b"", b" not JSON ", b"\xff\xfe", b"last"]
    assert {row[1] for row in found[:5]} == {"000000ff"}
    assert [row[2] for row in found[5:]] == list(range(5_000))
    name, epoch, link = found[5][0].split("/")
    assert (name, int(epoch) > 0, int(link) > 0) == ("orders", True, True)
    places = Spool(spool).read(0, 5_005, columns=["endpoint", "listener"]).to_table().to_pylist()
    listener = receiver.url.removesuffix("/orders")
    assert places == [{"listener": listener, "endpoint": "orders"}] * 5_005


class Sending:
    """`ackline send`, beside the test."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ackline.cli", "send", *map(str, arguments), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(self) -> tuple[int, dict[str, object], str]:
        out, error = self.process.communicate(timeout=2 * DEADLINE)
        return self.process.returncode, json.loads(out or "{}"), error


def killed(receiver: RunningReceiver) -> None:
    receiver.process.send_signal(signal.SIGKILL)
    receiver.process.communicate()


def sent_over_kills(arguments, source, count, *, window, kills, pause):
    """The rows of a file that was sent while its receiver was killed: each once, on one link."""
    url, _, spool, *_ = arguments
    seed = int(os.environ.get("ACKLINE_SEED", "0")) or random.randrange(1 << 32)
    print(f"ACKLINE_SEED={seed}")
    chance = random.Random(seed)
    receiver = RunningReceiver(*arguments)
    sending = Sending(url, source, "--batch-events", str(window), "--backoff-max", "100ms")
    killings = 0
    try:
        while sending.process.poll() is None and killings < kills:
            time.sleep(chance.uniform(0.0, pause))  # any moment will do
            killed(receiver)
            killings += 1
            receiver = RunningReceiver(*arguments)
        code, line, error = sending.end()
        assert (code, line.get("acked")) == (0, count), error
    finally:
        sending.process.kill()
        assert receiver.stop() == 0
    found = rows(spool)
    assert killings > 0
    assert len({row[0] for row in found}) == 1, "one link"
    assert [row[2] for row in found] == list(range(count))
    return found


def test_a_receiver_killed_again_and_again_lands_every_message_once(tmp_path):
    """With its links beside the spool no message on its way is lost or lands twice."""
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n"
    count = 60_000
    source = lines_file(tmp_path / "lines", count)
    arguments = (url, "--spool", str(spool))
    found = sent_over_kills(arguments, source, count, window=64, kills=8, pause=0.15)
    assert [row[3] for row in found] == [f"line {number}".encode() for number in range(count)]


def test_a_sender_killed_again_and_again_goes_on_with_its_file(tmp_path):
    """With --state no message on its way is lost, and none that was sent is sent again."""
    spool, count = tmp_path / "spool", 20_000
    # So slow that the file takes some ten seconds.
    slow = ("--max-bytes-per-second", "64KiB")
    receiver = RunningReceiver("relink://127.0.0.1:0/n", "--spool", str(spool), *slow)
    source = lines_file(tmp_path / "lines", count)
    arguments = (receiver.url, source, "--state", tmp_path / "state", "--batch-events", "64")
    acked = 0
    try:
        for _ in range(3):
            sending = Sending(*arguments)
            begun, acked = acked, receiver.next("stats")["acked_events"]
            while acked <= begun:
                acked = receiver.next("stats")["acked_events"]
            assert acked < count, "it is killed on its way"
            sending.process.kill()
            assert sending.end()[0] == -signal.SIGKILL
        line = sent(*arguments)
        assert (line["events"], line["acked"]) == (count, count)
        # No line is left until the file grows.
        assert sent(*arguments)["acked"] == count
        with source.open("a") as more:
            more.writelines(f"line {number}\n" for number in range(count, count + 10))
        assert sent(*arguments)["acked"] == count + 10
        shorter = lines_file(tmp_path / "shorter", 7)
        run = ackline("send", receiver.url, str(shorter), "--state", str(tmp_path / "state"))
        assert run.returncode == 1
        assert f"{count + 10} lines were sent with this --state, and the file has 7" in run.stderr
    finally:
        assert receiver.stop() == 0
    found = rows(spool)
    assert len({row[0] for row in found}) == 1, "one link"
    assert [row[2] for row in found] == list(range(count + 10))
    assert [row[3] for row in found] == [f"line {number}".encode() for number in range(count + 10)]


def test_a_state_needs_an_input_that_can_be_read_again():
    for arguments, says in [
        (("relink://127.0.0.1:1/n", "-"), "--state needs a file"),
        (
            ("relink://127.0.0.1:1/n?connector_transactions=true", __file__),
            "connector_transactions",
        ),
        (("lumberjack://127.0.0.1:1", __file__), "--state is an option of Relink"),
    ]:
        run = ackline("send", *arguments, "--state", "x")
        assert run.returncode == 2
        assert says in run.stderr, run.stderr


@pytest.mark.parametrize("transactions", [False, True], ids=["plain", "transactions"])
def test_a_receiver_killed_again_and_again_lands_every_channel_once(tmp_path, transactions):
    """The same with a link of several channels, whose messages are committed or rolled back."""
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n"
    if transactions:
        url += "&connector_transactions=true"
    channels, rounds, batch = 5, 60, 20
    kept: dict[int, list[bytes]] = {channel: [] for channel in range(channels)}
    receiver = RunningReceiver(url, "--spool", str(spool))
    try:
        with relink.connect(url, reconnect_max=0.05) as link:
            commits = []
            for number in range(rounds):
                for channel, own in kept.items():
                    texts = [b"%d-%d-%d" % (channel, number, at) for at in range(batch)]
                    last = link.send_many(channel, texts, timeout=DEADLINE)
                    assert last is not None
                    if not transactions:
                        own.extend(texts)
                    elif number % 3 == channel % 3:
                        link.rollback(channel, last.sequence)
                    else:
                        link.commit(channel, last.sequence)
                        commits.append(last)
                        own.extend(texts)
                if number % 10 == 5:
                    # In the middle of the round's messages.
                    killed(receiver)
                    receiver = RunningReceiver(url, "--spool", str(spool))
            assert [last.committed(timeout=DEADLINE) for last in commits] == ["committed"] * len(
                commits
            )
            link.flush(timeout=DEADLINE)
    finally:
        assert receiver.stop() == 0
    found = rows(spool)
    assert len({row[0] for row in found}) == 1, "one link"
    for channel, own in kept.items():
        stream = channel.to_bytes(4, "little").hex()
        assert [row[3] for row in found if row[1] == stream] == own


def test_without_durable_links_the_sender_learns_the_unacknowledged_messages(tmp_path):
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n"
    arguments = (url, "--spool", str(spool), "--no-durable-links", "--ack", "committed=lake")
    receiver = RunningReceiver(*arguments)
    sending = Sending(url, lines_file(tmp_path / "lines", 10))
    try:
        wait_until(lambda: Spool(spool).durable() == 10, "all are durable")
        killed(receiver)
        receiver = RunningReceiver(*arguments)
        code, line, error = sending.end()
        assert (code, line["acked"], line["not_acked"]) == (1, 0, 10), error
        assert "10 of 10 events not acknowledged" in error
    finally:
        sending.process.kill()
        receiver.process.kill()
        receiver.process.communicate()


def test_a_receiver_that_connects_out_lands_the_messages_of_the_listener(tmp_path):
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n"
    with relink.listen(url) as listener:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ackline.cli", "receive", "--json"),
                *("--connect", url, "--spool", str(spool)),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            link = listener.accept(timeout=DEADLINE)
            last = link.send_many(CHANNEL, [b"%d" % number for number in range(1_000)])
            assert last is not None
            last.consumed(timeout=DEADLINE)
            process.send_signal(signal.SIGTERM)
            out, error = process.communicate(timeout=DEADLINE)
            assert process.returncode == 0, error
            assert json.loads(out.splitlines()[0]) == {"event": "listening", "urls": []}
        finally:
            process.kill()
    assert [row[3] for row in rows(spool)] == [b"%d" % number for number in range(1_000)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["relink://127.0.0.1:1/n", "-", "--compression", "3"], "--compression is an option of"),
        (["lumberjack://127.0.0.1:1", "-", "--channel", "00"], "--channel is an option of Relink"),
        (["relink://127.0.0.1:1/n", "-", "--channel", "xyz"], "--channel is the id in hex"),
        (
            ["relink://127.0.0.1:1/n?connector_channel_id_size=1", "-", "--channel", "0000"],
            "--channel has 2 bytes; connector_channel_id_size is 1\n",
        ),
        (
            ["relink://127.0.0.1:1/n", "-", "--channel", "07"],
            "--channel has 1 bytes; connector_channel_id_size is 4, where the URL",
        ),
    ],
)
def test_options_that_relink_lacks_are_refused(arguments, says):
    run = ackline("send", *arguments, given="")
    assert (run.returncode, says in run.stderr) == (2, True), run.stderr


def test_nobody_there_is_told_in_time(tmp_path):
    run = ackline(
        "send", f"relink+unix://{tmp_path}/x.sock?endpoint=n", str(lines_file(tmp_path / "f", 3)),
        "--timeout", "1",
    )  # fmt: skip
    assert run.returncode == 1
    assert "3 of 3 events not acknowledged" in run.stderr


TRANSACTIONS = """
import sys
from ackline import Spool, relink
link = relink.connect(sys.argv[1])
for text in (b"one", b"two"):
    link.send(bytes(4), text)
kept = link.send(bytes(4), b"three")
link.commit(bytes(4), kept.sequence)
dropped = link.send(bytes(4), b"four")
link.rollback(bytes(4), dropped.sequence)
print(kept.committed(timeout=20), dropped.consumed(timeout=20))
link.close()
"""


def test_only_committed_messages_are_seen(tmp_path):
    spool = tmp_path / "spool"
    url = "relink://127.0.0.1:0/n?connector_transactions=true"
    receiver = RunningReceiver(url, "--spool", str(spool))
    try:
        at = f"{receiver.url}?connector_transactions=true"
        run = python(TRANSACTIONS, at)
        assert (run.returncode, run.stdout) == (0, "committed None\n"), run.stderr
        assert sent(at, lines_file(tmp_path / "f", 300), "--batch-events", "7")["acked"] == 300
    finally:
        assert receiver.stop() == 0
    assert [row[3] for row in rows(spool)][:4] == [b"one", b"two", b"three", b"line 0"]
    assert len(rows(spool)) == 303


TRANSACTIONAL = "connector_transactions=true"


def test_a_killed_receiver_gets_a_window_of_transactions_again_whatever_its_memory_is(tmp_path):
    """A window is 24 times the limit of undecided bytes: decisions come again in between."""
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n&{TRANSACTIONAL}"
    arguments = (url, "--spool", str(spool), "--memory", "8MiB")
    transactions, each = 600, 10
    receiver = RunningReceiver(*arguments)
    try:
        with relink.connect(url, reconnect_max=0.1) as link:
            first = link.send(1, b"first")
            link.commit(1)
            first.committed(timeout=DEADLINE)
            # From here on nothing is received.
            receiver.process.send_signal(signal.SIGSTOP)
            receipts = []
            for number in range(transactions):
                lines = [b"%d %d " % (number, line) + b"x" * 4096 for line in range(each)]
                receipts.append(link.send_many(1, lines))
                link.commit(1, receipts[-1].sequence)
            assert len(link.unacknowledged) >= transactions * each
            killed(receiver)
            receiver = RunningReceiver(*arguments)
            outcomes = {receipt.committed(timeout=DEADLINE) for receipt in receipts}
            assert outcomes == {"committed"}
            assert link.stats()["resumes"] >= 1
    finally:
        assert receiver.stop() == 0
    found = rows(spool)
    assert len({row[0] for row in found}) == 1, "one link"
    assert [row[2] for row in found] == list(range(transactions * each + 1))
    texts = [row[3].rpartition(b" ")[0].decode() for row in found[1:]]
    assert texts == [f"{number} {line}" for number in range(transactions) for line in range(each)]


def test_transactions_of_long_lines_survive_a_receiver_that_is_killed_at_any_moment(tmp_path):
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n&{TRANSACTIONAL}"
    arguments = (url, "--spool", str(spool), "--memory", "8MiB")
    count = 6_000
    source = tmp_path / "lines"
    source.write_text("".join(f"{number} {'x' * 4096}\n" for number in range(count)))
    found = sent_over_kills(arguments, source, count, window=20, kills=5, pause=0.3)
    assert [row[3].partition(b" ")[0] for row in found] == [b"%d" % at for at in range(count)]


def test_a_transaction_that_finds_no_room_ends_the_sending_and_says_so_at_both_ends(tmp_path):
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    url = f"relink+unix://{socket}?endpoint=n&{TRANSACTIONAL}"
    source = tmp_path / "lines"
    source.write_text(("x" * 4096 + "\n") * 1_500)
    receiver = RunningReceiver(url, "--spool", str(spool), "--memory", "8MiB")
    try:
        # About 1 MiB may be undecided: 500 lines are 2 MiB.
        sending = Sending(url, source, "--batch-events", "500", "--channel", "0000002a")
        code, line, error = sending.end()
        assert (code, line["acked"], line["not_acked"]) == (1, 0, line["events"]), error
        assert "the receiver has not committed" in error
        refused = receiver.next("refused")
        names = ("code", "option", "limit", "value")
        assert [refused[name] for name in names] == [
            "relink.transaction_refused",
            "--memory",
            (2 << 20) // 2 + (32 << 10) // 2,
            500 * (4096 + 64),
        ]
        assert "channel 0000002a: a transaction of 500 messages" in refused["message"]
        # None of its messages has landed, and smaller ones land.
        assert sent(url, source, "--batch-events", "100")["acked"] == 1_500
    finally:
        assert receiver.stop() == 0
    assert {row[1] for row in rows(spool)} == {"00000000"}


def test_multicasts_that_fill_the_memory_come_to_their_end_and_others_are_served(tmp_path):
    """Two honest senders: with an endless loop the receiver would answer no peer any more."""
    beside = f"lumberjack+unix://{tmp_path}/l.sock"
    spool = ("--spool", str(tmp_path / "spool"))
    receiver = RunningReceiver("relink://127.0.0.1:0/orders", beside, *spool)

    def send(link: relink.Link) -> None:
        for _ in range(3):
            link.send_to(range(120), bytes(500_000))
        link.flush(timeout=2 * DEADLINE)
        link.close()

    try:
        links = [relink.connect(receiver.url) for _ in range(2)]
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(send, links))
        with lumberjack.connect(beside) as writer:
            writer.send([b'{"message":"still there"}'])
            writer.flush(timeout=DEADLINE)
    finally:
        assert receiver.stop() == 0
