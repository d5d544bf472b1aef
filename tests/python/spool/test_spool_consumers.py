"""Consumers across processes, times, adopted spools and rights, as users meet them."""

import json
import os
import pickle
import shutil
import signal
import socket
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.commands import DEADLINE, ackline, python, wait_until

from ackline import Receiver, Spool, SpoolError, UsageError, lumberjack

HOLD = """
import sys
from ackline import Spool
lease = Spool(sys.argv[1]).lease("prod", holder="the first", create_at=0)
print(lease.generation, flush=True)
sys.stdin.readline()
lease.commit(int(sys.argv[2]))
lease.release()
"""


@pytest.fixture
def spool(tmp_path):
    with (
        Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver,
        lumberjack.connect(receiver.urls[0], batch_events=10) as writer,
    ):
        writer.send([b'{"n":%d}' % n for n in range(100)], timeout=20)
    return Spool(tmp_path / "spool")


class Other:
    """Another process that holds the consumer `prod`."""

    def __init__(self, spool: Spool, position: int = 50) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, spool.path, str(position)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.generation = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def end(self) -> None:
        self.process.communicate("\n", timeout=DEADLINE)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=DEADLINE)


@pytest.fixture
def other(spool):
    process = Other(spool)
    yield process
    if process.process.poll() is None:
        process.kill()


def refusal(call, code: str) -> str:
    with pytest.raises(SpoolError) as error:
        call()
    assert error.value.code == code
    return str(error.value)


def test_a_second_process_is_refused_naming_the_first(spool, other):
    text = refusal(lambda: spool.lease("prod", wait=0.2), "spool.consumer_busy")
    assert f"process {other.pid} " in text
    assert socket.gethostname() in text
    assert "(the first)" in text
    (consumer,) = spool.consumers()
    assert (consumer.state, consumer.live, consumer.generation) == ("live", True, 1)
    assert consumer.holder.pid == other.pid
    other.end()
    with spool.lease("prod") as lease:
        assert (lease.generation, lease.committed()) == (2, 50)


def test_a_killed_reader_frees_its_consumer_and_its_mark_stays(spool, other):
    other.kill()
    (consumer,) = spool.consumers()
    assert (consumer.state, consumer.holder.pid) == ("idle", other.pid)
    with spool.lease("prod", wait=5) as lease:
        assert (lease.generation, lease.committed()) == (2, 0)
        lease.commit(100)
    (consumer,) = spool.consumers()
    assert (consumer.committed, consumer.generation, consumer.holder) == (100, 2, None)


def test_a_stopped_reader_still_holds_its_consumer(spool, other):
    os.kill(other.pid, signal.SIGSTOP)
    refusal(lambda: spool.lease("prod"), "spool.consumer_busy")
    os.kill(other.pid, signal.SIGCONT)
    other.end()


def test_a_reader_whose_lock_is_lost_cannot_move_the_mark(spool):
    lost = spool.lease("prod", create_at=0)
    Path(spool.path, "consumers", "prod.lock").unlink()
    newer = Other(spool)
    assert newer.generation == 2
    text = refusal(lambda: lost.commit(100), "spool.stale_generation")
    assert f"process {newer.pid}" in text
    lost.release()
    newer.end()
    assert spool.consumers()[0].committed == 50


def test_marks_without_a_lease_are_refused_while_another_process_reads(spool, other):
    text = refusal(lambda: spool.commit_mark("prod", 10), "spool.consumer_busy")
    assert str(other.pid) in text
    other.end()
    spool.commit_mark("prod", 10)
    assert spool.consumers()[0].committed == 10


CONTEND = """
import os, sys, time
from ackline import Spool, SpoolError
spool, flag, held = Spool(sys.argv[1]), sys.argv[2], 0
deadline = time.monotonic() + 25
def unless_busy(call):
    try:
        return call()
    except SpoolError as error:
        assert error.code == "spool.consumer_busy", error
while held < 30 and time.monotonic() < deadline:
    lease = unless_busy(lambda: spool.lease("prod", create_at=0))
    if lease is not None:
        os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
        os.unlink(flag)
        lease.release()
        held += 1
    unless_busy(lambda: spool.remove_consumer("prod"))
print(held)
"""


def test_a_consumer_that_comes_and_goes_has_one_reader_at_a_time(spool, tmp_path):
    arguments = [sys.executable, "-c", CONTEND, spool.path, str(tmp_path / "flag")]
    running = [
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in running:
        out, error = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, error
        assert int(out) == 30


FORK = """
import os, sys
from ackline import ForkError, Spool, SpoolError
spool = Spool(sys.argv[1])
lease = spool.lease("prod", create_at=0)
child = os.fork()
if child == 0:
    code = 1
    try:
        lease.commit(10)
    except ForkError:
        try:
            Spool(sys.argv[1]).lease("prod")
        except SpoolError as error:
            busy = error.code == "spool.consumer_busy" and str(os.getppid()) in str(error)
            code = 0 if busy else 2
    os._exit(code)
_, status = os.waitpid(child, 0)
assert status == 0, status
# The child's end took nothing along.
lease.commit(20)
other = "from ackline import Spool; import sys; Spool(sys.argv[1]).lease('prod')"
import subprocess
run = subprocess.run([sys.executable, "-c", other, sys.argv[1]], capture_output=True, text=True)
assert "spool.consumer_busy" in run.stderr or "is held by process" in run.stderr, run.stderr
"""


def test_a_forked_child_does_not_hold_its_parents_consumer(spool):
    run = python(FORK, spool.path)
    assert run.returncode == 0, run.stderr
    assert spool.consumers()[0].committed == 20


def test_a_released_lease_is_over(spool):
    lease = spool.lease("prod", create_at=0)
    lease.seen()
    lease.release()
    lease.release()
    with pytest.raises(UsageError) as error:
        lease.commit(10)
    assert error.value.code == "spool.lease_released"


WAIT = """
import signal
import sys
from ackline import Spool
# A shell that starts the tests in the background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
print(1, flush=True)
Spool(sys.argv[1]).lease("prod", wait=600)
"""


def test_waiting_for_a_consumer_ends_with_ctrl_c(spool, other):
    waiting = subprocess.Popen(
        [sys.executable, "-c", WAIT, spool.path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    _, error = waiting.communicate(timeout=DEADLINE)
    assert "KeyboardInterrupt" in error
    other.end()


def test_a_torn_mark_is_an_error_that_names_the_file(spool):
    spool.add_consumer("prod", 10)
    path = Path(spool.path, "consumers", "prod.json")
    os.truncate(path, 20)
    for call in (spool.consumers, lambda: spool.lease("prod")):
        assert str(path) in refusal(call, "spool.corrupt")
    run = ackline("spool", "consumers", "ls", spool.path)
    assert run.returncode == 1
    assert str(path) in run.stderr
    assert ackline("spool", "consumers", "rm", spool.path, "prod").returncode == 0
    assert spool.consumers() == []


def times(spool: Spool) -> list[datetime]:
    return spool.read(columns=["received_at"]).to_table()["received_at"].to_pylist()


def test_a_time_is_found_as_walking_finds_it(spool):
    received = times(spool)
    for at in {*received, received[0] - timedelta(hours=1), received[-1] + timedelta(hours=1)}:
        for near in (at, at - timedelta(microseconds=1), at + timedelta(microseconds=1)):
            assert spool.find(near) == sum(time < near for time in received)
    with pytest.raises(UsageError, match="zone"):
        spool.find(datetime(2026, 11, 21))  # noqa: DTZ001 (that is the point)


def test_a_lag_ends_at_the_durable_position(spool):
    whole = spool.lag(0)
    assert (whole.events, whole.oldest) == (100, times(spool)[0])
    assert 0 < whole.bytes < spool.bytes()
    nothing = spool.lag(100)
    assert (nothing.events, nothing.bytes, nothing.oldest) == (0, 0, None)


def test_find_prints_a_position(spool):
    at = times(spool)[50]
    found = ackline("spool", "find", spool.path, "--at", at.isoformat())
    assert (found.returncode, found.stdout) == (0, f"{spool.find(at)}\n")
    line = json.loads(
        ackline("spool", "find", spool.path, "--at", "2020-01-01T00:00:00Z", "--json").stdout
    )
    assert line == {"event": "found", "at": "2020-01-01T00:00:00Z", "position": 0, "durable": 100}
    for wrong in ("yesterday", "2026-11-21T10:00:00", "50", "2026-13-21T10:00:00Z"):
        run = ackline("spool", "find", spool.path, "--at", wrong)
        assert run.returncode == 2, wrong
        assert wrong in run.stderr


def test_consumers_are_added_at_positions_and_times(spool):
    received = times(spool)
    later = (received[-1] + timedelta(seconds=1)).isoformat()
    places = {"earliest": 0, "latest": 100, "40": 40, "2020-01-01T00:00:00Z": 0, later: 100}
    for number, (place, position) in enumerate(places.items()):
        run = ackline("spool", "consumers", "add", spool.path, f"c{number}", "--at", place)
        assert run.returncode == 0
        assert run.stdout.startswith(f"c{number}: at position {position}\n")
    assert ackline("spool", "consumers", "add", spool.path, "plain").returncode == 0
    marks = {consumer.name: consumer.committed for consumer in spool.consumers()}
    assert marks == {"c0": 0, "c1": 100, "c2": 40, "c3": 0, "c4": 100, "plain": 0}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["add", "prod", "--at", "101"], 1, "spool.behind_checkpoint"),
        (["add", "there"], 1, "spool.consumer_exists"),
        (["add", "a/b"], 2, "spool.consumer_name"),
        (["add", "prod", "--at", "soon"], 2, "'soon' is none of earliest, latest"),
        (["seek", "there", "--to", "101"], 1, "spool.behind_checkpoint"),
        (["seek", "prod", "--to", "latest"], 1, "spool.no_consumer"),
        (["seek", "there"], 2, "--to"),
        (["rm", "prod"], 1, "spool.no_consumer"),
    ],
)
def test_an_invalid_change_of_a_consumer_is_refused(spool, arguments, code, text):
    spool.add_consumer("there", 5)
    verb, *rest = arguments
    run = ackline("spool", "consumers", verb, spool.path, *rest)
    assert (run.returncode, run.stdout) == (code, "")
    assert text in run.stderr
    assert [(c.name, c.committed) for c in spool.consumers()] == [("there", 5)]


def test_a_seek_prints_how_many_events_are_skipped_and_repeated(spool):
    spool.add_consumer("prod", 10)

    def seek(*to: str) -> str:
        run = ackline("spool", "consumers", "seek", spool.path, "prod", "--to", *to)
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines(keepends=True)[0]

    assert seek("latest") == "prod: from position 10 to 100, 90 events are skipped\n"
    assert seek("2020-01-01T00:00:00Z") == "prod: from position 100 to 0, 100 events are repeated\n"
    assert seek("earliest") == "prod: from position 0 to 0, nothing changes\n"
    assert json.loads(seek("7", "--json")) == {
        "event": "sought", "name": "prod", "from": 0, "to": 7, "skipped": 7, "repeated": 0,
    }  # fmt: skip


def test_seek_and_rm_are_refused_while_a_reader_is_live(spool, other):
    for verb in (["seek", spool.path, "prod", "--to", "latest"], ["rm", spool.path, "prod"]):
        run = ackline("spool", "consumers", *verb)
        assert run.returncode == 1
        assert "spool.consumer_busy" in run.stderr
        assert str(other.pid) in run.stderr
    other.end()
    assert spool.consumers()[0].committed == 50


def test_ls_shows_lag_and_reader(spool, other):
    spool.add_consumer("audit", 100)
    lines = ackline("spool", "consumers", "ls", spool.path, "--json").stdout.splitlines()
    audit, prod = (json.loads(line) for line in lines)
    assert list(prod)[:8] == [
        "event", "name", "committed", "lag_events", "lag_bytes", "lag_s", "state", "last_seen_s",
    ]  # fmt: skip
    assert (audit["lag_events"], audit["lag_bytes"], audit["lag_s"]) == (0, 0, 0.0)
    assert (audit["state"], audit["holder"]) == ("idle", None)
    assert (prod["lag_events"], prod["state"], prod["generation"]) == (100, "live", 1)
    assert prod["lag_s"] > 0
    assert prod["lag_bytes"] > 0
    assert prod["holder"]["pid"] == other.pid
    shown = ackline("spool", "consumers", "ls", spool.path).stdout
    assert "audit" in shown
    assert "live" in shown
    other.end()


def test_a_spool_without_a_receiver_shows_its_own_numbers(spool):
    spool.add_consumer("prod", 40)
    status = Path(spool.path, "status.json")
    status.write_text(json.dumps({"spool": spool.uuid, "state": "ok", "connections": 3}))
    line = json.loads(ackline("spool", "ls", spool.path, "--json").stdout.splitlines()[0])
    assert (line["spool"], line["durable"], line["first_kept"]) == (spool.uuid, 100, 0)
    assert line["bytes"] == spool.bytes()
    assert line["oldest_uncommitted_age_s"] > 0
    running = ("budget", "state", "fsync_p99_ms", "accepted", "refused", "quarantined", "unacked")
    assert {line[name] for name in (*running, "connections")} == {None}, "nobody runs"
    (consumer,) = line["consumers"]
    assert (consumer["name"], consumer["committed"], consumer["lag_events"]) == ("prod", 40, 60)
    shown = ackline("spool", "ls", spool.path)
    assert shown.returncode == 0
    assert "no receiver runs" in shown.stdout


def test_a_running_receivers_numbers_come_from_its_status(tmp_path, receiver):
    running = receiver("--spool", str(tmp_path / "spool"))
    spool = Spool(tmp_path / "spool")
    assert spool.writer() == running.process.pid
    status = tmp_path / "spool" / "status.json"

    def line() -> dict[str, object]:
        return json.loads(ackline("spool", "ls", spool.path, "--json").stdout.splitlines()[0])

    # A stopped receiver does not write its own status.
    os.kill(running.process.pid, signal.SIGSTOP)
    state = Path(f"/proc/{running.process.pid}/stat")
    wait_until(lambda: ") T " in state.read_text(), "every thread of the receiver stands still")
    status.write_text(json.dumps({"spool": spool.uuid, "state": "draining", "connections": 7}))
    found = line()
    assert (found["state"], found["connections"], found["budget"]) == ("draining", 7, None)
    status.write_text(json.dumps({"spool": "another", "state": "draining", "connections": 7}))
    assert line()["state"] is None
    status.write_text("{")
    assert line()["state"] is None
    os.kill(running.process.pid, signal.SIGCONT)
    assert running.stop() == 0
    assert spool.writer() is None


def test_an_adopted_copy_is_a_spool_of_its_own(spool, tmp_path, receiver):
    spool.add_consumer("prod", 40)
    copy = tmp_path / "copy"
    shutil.copytree(spool.path, copy)
    (slice_,) = Spool(copy).slices(0, 100, max_slices=1)
    run = ackline("spool", "adopt", str(copy))
    assert run.returncode == 0, run.stderr
    new = Spool(copy).uuid
    assert run.stdout == f"{copy}: was {spool.uuid}, is {new}\n"
    assert new != spool.uuid
    # The original and its positions are unchanged.
    refusal(lambda: Spool.adopt(tmp_path), "spool.not_a_spool")
    running = receiver("--spool", str(copy))
    with lumberjack.connect(running.url) as writer:
        writer.send([b"{}"] * 10, timeout=20)
    assert running.stop() == 0
    table = Spool(copy).read(columns=["spool", "position"]).to_table()
    assert table["position"].to_pylist() == list(range(110))
    assert set(table["spool"].to_pylist()) == {new}
    assert Spool(copy).verify().problems == []
    assert Spool(copy).consumers()[0].committed == 40
    assert slice_.uuid == spool.uuid
    assert Spool(spool.path).durable() == 100


def test_the_quarantine_is_adopted_with_its_spool(spool):
    inside = Path(spool.path, "quarantine")
    shutil.copytree(spool.path, inside)
    lines = ackline("spool", "adopt", spool.path, "--json").stdout.splitlines()
    adopted = [json.loads(line) for line in lines]
    assert [line["path"] for line in adopted] == [spool.path, str(inside)]
    assert [line["new"] for line in adopted] == [Spool(spool.path).uuid, Spool(inside).uuid]
    assert {line["old"] for line in adopted} == {spool.uuid}
    assert len({line["new"] for line in adopted}) == 2


def test_adopting_is_refused_while_somebody_uses_the_spool(tmp_path, receiver, spool, other):
    run = ackline("spool", "adopt", spool.path)
    assert (run.returncode, run.stdout) == (1, "")
    assert "spool.consumer_busy" in run.stderr
    other.end()
    running = receiver("--spool", str(tmp_path / "live"))
    run = ackline("spool", "adopt", str(tmp_path / "live"))
    assert run.returncode == 1
    assert "spool.locked" in run.stderr
    assert running.stop() == 0


def every_file(spool: Spool) -> list[Path]:
    return [Path(spool.path), *Path(spool.path).rglob("*")]


def all_positions(spool):
    return [*spool.read(columns=["position"]).json_lines()]


def test_each_file_that_is_wider_is_refused_by_name(spool):
    spool.lease("prod", create_at=0).release()
    files = every_file(spool)
    assert len(files) >= 10
    for path in files:
        before = stat.S_IMODE(path.stat().st_mode)
        path.chmod(before | 0o040)
        # A reader opens a segment when it reaches it: there may be many.
        text = refusal(lambda: all_positions(Spool(spool.path)), "spool.rights")
        assert text.startswith(f"{path}: its mode is ")
        assert f"chmod -R go= {spool.path}" in text
        assert Spool(spool.path, group=True).durable() == 100
        path.chmod(before | 0o004)
        refusal(lambda: all_positions(Spool(spool.path, group=True)), "spool.rights")
        path.chmod(before)
    Spool(spool.path)


def test_every_command_refuses_a_wide_spool_and_takes_the_group_option(spool):
    spool.add_consumer("prod", 0)
    Path(spool.path, "durable").chmod(0o640)
    commands = [
        ["ls"], ["verify"], ["cat"], ["find", "--at", "2020-01-01T00:00:00Z"], ["consumers", "ls"],
        ["consumers", "add", "more"], ["consumers", "seek", "prod", "--to", "5"],
        ["consumers", "rm", "prod"], ["mend"], ["adopt"],
    ]  # fmt: skip
    for command in commands:
        verbs = command[:2] if command[0] == "consumers" else command[:1]
        arguments = ["spool", *verbs, spool.path, *command[len(verbs) :]]
        run = ackline(*arguments)
        assert run.returncode == 1, command
        assert "spool.rights" in run.stderr
        run = ackline(*arguments, "--group")
        assert run.returncode == 0, (command, run.stderr)


OPEN_AS = """
import os, sys
from ackline import Spool, SpoolError
# Inside, because the directories above are the tests' own.
os.chdir(sys.argv[1])
os.seteuid(54321)
try:
    print(Spool(".", group=sys.argv[2] == "group").durable())
except SpoolError as error:
    print(error.code, error)
"""


def test_a_spool_of_another_user_is_refused_outside_its_group(spool):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for path in every_file(spool):
        os.chown(path, 54321, 54321)
    assert python(OPEN_AS, spool.path, "owner").stdout == "100\n"
    os.chown(Path(spool.path, "consumers"), 12345, 12345)
    text = python(OPEN_AS, spool.path, "owner").stdout
    assert text.startswith("spool.rights ./consumers: it belongs to user 12345"), text
    assert "this process is user 54321" in text
    os.chown(Path(spool.path, "consumers"), 12345, -1)
    Path(spool.path, "consumers").chmod(0o775)
    text = python(OPEN_AS, spool.path, "group").stdout
    assert "wider than 0770" in text, text
    Path(spool.path, "consumers").chmod(0o770)
    os.chown(Path(spool.path, "consumers"), 12345, 0)
    assert python(OPEN_AS, spool.path, "group").stdout == "100\n"


def test_files_that_root_makes_belong_to_the_spools_owner(spool):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for path in every_file(spool):
        os.chown(path, 12345, 12345)
    spool.add_consumer("prod", 5)
    Spool.adopt(spool.path)
    assert {path.stat().st_uid for path in every_file(spool)} == {12345}


def test_a_spool_keeps_its_group_when_it_is_pickled(spool):
    Path(spool.path, "lock").chmod(0o640)
    shared = Spool(spool.path, group=True)
    assert pickle.loads(pickle.dumps(shared)).durable() == 100


def test_a_live_reader_is_seen(spool):
    before = datetime.now(UTC) - timedelta(seconds=1)
    with spool.lease("prod", create_at=0) as lease:
        lease.commit(10)
        (consumer,) = spool.consumers()
        assert datetime.fromisoformat(consumer.seen) >= before
        assert consumer.last_seen_s < DEADLINE
    wait_until(lambda: not spool.consumers()[0].live, "the reader is gone")
