"""Relink's links across forks and the deaths of processes, each in a process of its own."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import DEADLINE, python, wait_until

from ackline import LinkLost, LinkTimeout, UsageError, relink

TIME = 20

FORK = """
import os, warnings
warnings.simplefilter("ignore")  # the interpreter warns of forks beside threads: that is the test
from ackline import ForkError, relink
listener = relink.listen("relink://127.0.0.1:0/x")
link = relink.connect(listener.url)
peer = listener.accept(timeout=20)
receipt = link.send(1, b"x")
message = peer.receive(timeout=20)
pid = os.fork()
if pid == 0:
    code = 1
    try:
        uses = [
            lambda: listener.accept(timeout=1), lambda: link.send(1, b"y"), lambda: link.state,
            lambda: peer.receive(timeout=1), lambda: receipt.consumed(timeout=1), link.close,
            lambda: peer.consume(1, 0),
        ]
        for use in uses:
            try:
                use()
            except ForkError:
                continue
            os._exit(2)
        del listener, link, peer, receipt, message, uses, use  # forgotten, not dropped
        with relink.listen("relink://127.0.0.1:0/x") as own:
            other = relink.connect(own.url)
            sent = other.send(1, b"z")
            third = own.accept(timeout=20)
            third.consume_many([third.receive(timeout=20)])
            sent.consumed(timeout=20)
        code = 0
    finally:
        os._exit(code)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
peer.consume(1, message.sequence)
receipt.consumed(timeout=20)
sent = link.send(1, b"y")
peer.consume_many([peer.receive(timeout=20)])
sent.consumed(timeout=20)
print("alive")
"""

CTRL_C = """
import signal
# A test run in the background inherits an ignored SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ackline import relink
listener = relink.listen("relink://127.0.0.1:0/x")
link = relink.connect(listener.url)
try:
    print("ready", flush=True)
    link.receive()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    import os
    os._exit(0)
"""

# Prints each payload, then consumes it if told to.
LISTENER = """
import sys
from ackline import relink
url, state, consumes = sys.argv[1:4]
with relink.listen(url, state=state or None, ack_delay=0.0) as listener:
    print(listener.url, flush=True)
    for link in listener:
        try:
            for message in link:
                print(message.payload.decode(), flush=True)
                if consumes == "yes":
                    link.consume(message.channel, message.sequence)
        except Exception as error:
            print(type(error).__name__, flush=True)
"""

# Sends the numbers of a range, then prints when all are consumed.
CONNECTOR = """
import sys
from ackline import relink
url, state, first, last = sys.argv[1:5]
link = relink.connect(url, state=state or None, reconnect_max=0.1)
print(*link.key, flush=True)
link.send_many(1, [b"%d" % number for number in range(int(first), int(last))])
link._core.wait("kept", None)
print("sent", flush=True)
link.flush()
print("consumed", flush=True)
link.shutdown(timeout=0.01) if not state else None
"""


class Process:
    """A program and the lines that it prints."""

    def __init__(self, code: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[type[Process]]:
    made: list[Process] = []

    def make(code: str, *arguments: str) -> Process:
        made.append(Process(code, *arguments))
        return made[-1]

    yield make
    for one in made:
        if one.process.poll() is None or not one.process.stdout.closed:
            one.kill()


def test_a_forked_child_gets_errors_and_its_own_links_and_the_parents_live():
    done = python(FORK)
    assert done.stdout == "alive\n", done.stderr
    assert done.returncode == 0


def test_ctrl_c_ends_a_receive(start):
    running = start(CTRL_C)
    assert running.line() == "ready"
    running.process.send_signal(signal.SIGINT)
    assert running.line() == "interrupted"
    assert running.process.wait(DEADLINE) == 0


def test_a_killed_listener_without_state_has_lost_the_link(start):
    first = start(LISTENER, "relink://127.0.0.1:0/x", "", "no")
    url = first.line()
    link = relink.connect(url, reconnect_max=0.1)
    link.send_many(1, [b"a", b"b"])
    assert [first.line(), first.line()] == ["a", "b"]
    first.kill()
    start(LISTENER, url, "", "no").line()
    with pytest.raises(LinkLost) as lost:
        link.receive(timeout=TIME)
    assert [one.parts for one in lost.value.messages] == [(b"a",), (b"b",)]


def test_a_killed_listener_with_state_goes_on_where_it_was(start, tmp_path):
    state = str(tmp_path / "state")
    first = start(LISTENER, "relink://127.0.0.1:0/x", state, "no")
    url = first.line()
    link = relink.connect(url, reconnect_max=0.1)
    key = link.key
    link.send_many(1, [b"a", b"b"])
    assert [first.line(), first.line()] == ["a", "b"]
    state_of_link = (tmp_path / "state").glob
    wait_until(lambda: any(state_of_link("link-*.journal")), "the link is on the disk")
    first.kill()
    link.send(1, b"c")
    second = start(LISTENER, url, state, "yes")
    assert second.line() == url
    # Unconsumed messages are delivered again.
    assert [second.line(), second.line(), second.line()] == ["a", "b", "c"]
    link.flush(timeout=TIME)
    second.kill()
    third = start(LISTENER, url, state, "yes")
    third.line()
    link.send(1, b"d").consumed(timeout=TIME)
    assert third.line() == "d"
    assert link.key == key
    assert link.state == "up"


def test_a_killed_connector_with_state_sends_unconsumed_messages_again(start, tmp_path):
    state = str(tmp_path / "state")
    with relink.listen("relink://127.0.0.1:0/x", ack_delay=0.0) as listener:
        first = start(CONNECTOR, listener.url, state, "0", "100")
        key = first.line()
        assert first.line() == "sent"
        first.kill()
        peer = listener.accept(timeout=TIME)
        assert f"{peer.key[0]} {peer.key[1]}" == key
        second = start(CONNECTOR, listener.url, state, "100", "150")
        assert second.line() == key
        assert second.line() == "sent"
        got: list[int] = []
        while len(got) < 150:
            messages = peer.receive_many(timeout=TIME)
            got += [int(one.payload) for one in messages]
            peer.consume_many(messages)
        assert got == list(range(150))
        assert second.line() == "consumed"
        assert listener.try_accept() is None


def test_a_killed_connector_without_state_leaves_an_orphan_that_is_lost(start):
    with relink.listen("relink://127.0.0.1:0/x", orphan_after=0.3) as listener:
        first = start(CONNECTOR, listener.url, "", "0", "3")
        first.line()
        assert first.line() == "sent"
        peer = listener.accept(timeout=TIME)
        peer.send(1, b"answer")
        assert len(peer.receive_many(timeout=TIME)) <= 3
        first.kill()
        with pytest.raises(LinkLost) as lost:
            list(peer)
        assert [one.parts for one in lost.value.messages] == [(b"answer",)]
        wait_until(lambda: listener.links == 0, "the link is forgotten")


def test_a_state_directory_has_one_owner(tmp_path):
    state = tmp_path / "state"
    with relink.listen("relink://127.0.0.1:0/x") as listener:
        link = relink.connect(listener.url, state=state)
        with pytest.raises(UsageError) as refused:
            relink.connect(listener.url, state=state)
        assert refused.value.code == "state"
        key = link.key
        link.send(1, b"x")
        assert [one.parts for one in link.close(timeout=0.05)] == [(b"x",)]
        again = reopened(listener.url, state)
        assert again.key == key
        peer = listener.accept(timeout=TIME)
        assert peer.receive(timeout=TIME).payload == b"x"
        assert [one.parts for one in again.unacknowledged] == [(b"x",)]
        with pytest.raises(LinkTimeout):
            again.flush(timeout=0.05)
        again.discard()
        with pytest.raises(LinkLost):
            again.send(1, b"y")
        again.close()
    with pytest.raises(UsageError):
        relink.connect(listener.url, state=tmp_path / "no" / "such" / "parent")


def reopened(url: str, state: Path) -> relink.Link:
    """The link of a state directory that another process is about to release."""
    found: list[relink.Link] = []

    def is_free() -> bool:
        try:
            found.append(relink.connect(url, state=state))
        except UsageError:
            return False
        return True

    wait_until(is_free, "the directory is free")
    return found[0]


SENDS_ON = """
import os, sys
from ackline import relink

url, state, end, stage = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
link = relink.connect(url, state=state, timeout=20)
last = link.last_receipt(1)
begin = 0 if last is None else last.sequence + 1
for number in range(begin, end):
    last = link.send(1, b"%d" % number)
if stage == "receipt" and begin < end:
    last.kept(timeout=20)
    assert last.is_kept
elif stage == "link":
    link.kept(timeout=20)
print(begin, flush=True)
os.kill(os.getpid(), 9)
"""


def sent_on(url: str, state: Path, end: int, stage: str) -> int:
    """First number of a process that was killed after `send` had returned for all to `end`."""
    done = python(SENDS_ON, url, str(state), str(end), stage)
    assert done.returncode == -9, done.stderr
    return int(done.stdout)


def test_kept_messages_outlive_a_kill_and_the_next_process_knows_where_to_go_on(tmp_path):
    state = tmp_path / "state"
    seen: list[bytes] = []
    with relink.listen("relink://127.0.0.1:0/x") as listener:
        begin = sent_on(listener.url, state, 300, "receipt")
        assert begin == 0
        peer = listener.accept(timeout=TIME)

        def consume(count: int) -> None:
            while len(seen) < count:
                messages = peer.receive_many(timeout=TIME)
                seen.extend(message.payload for message in messages)
                peer.consume_many(messages)

        # The next process delivers all kept messages, also if it sends no more.
        assert sent_on(listener.url, state, 301, "link") == 300
        # A message that `send` took and nobody waited for may be gone: then it is sent again.
        begin = sent_on(listener.url, state, 5_000, "none")
        assert begin == 301
        begin = sent_on(listener.url, state, 5_000, "receipt")
        assert 301 <= begin <= 5_000
        with relink.connect(listener.url, state=state, timeout=TIME) as link:
            assert link.last_receipt(1).sequence == 4_999
            consume(5_000)
            link.flush(timeout=TIME)
            link.kept(timeout=TIME)
        # Everything is consumed, and the number is still known.
        begin = sent_on(listener.url, state, 5_001, "receipt")
        assert begin == 5_000
        with relink.connect(listener.url, state=state, timeout=TIME) as link:
            last = link.last_receipt(1)
            assert last.sequence == 5_000
            assert last.is_kept
            assert link.last_receipt(2) is None
            consume(5_001)
            last.consumed(timeout=TIME)
            assert link.send(1, b"5001").sequence == 5_001
            consume(5_002)
            link.discard()
        peer.close(timeout=0)
    assert seen == [b"%d" % number for number in range(5_002)]


FILLS_THE_DISK = """
import resource, signal, sys, time
from ackline import StateError, relink

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with relink.listen("relink://127.0.0.1:0/x") as listener:
    link = relink.connect(listener.url, state=sys.argv[1])
    accepted = listener.accept(timeout=20)
    first = link.send(1, b"kept")
    first.kept(timeout=20)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    last = link.send(1, bytes(100_000))
    for call in (
        lambda: last.kept(timeout=20),
        lambda: last.consumed(timeout=20),
        lambda: link.kept(timeout=20),
        lambda: link.flush(timeout=20),
        lambda: link.send(1, b"late"),
    ):
        try:
            call()
        except StateError as error:
            assert sys.argv[1] in str(error) and "os error 27" in str(error), error
        else:
            raise AssertionError
    assert first.is_kept and not last.is_kept
    until = time.monotonic() + 20
    while (link.state, link.is_connected) != ("closed", False):
        # Its connection ends a moment later.
        assert time.monotonic() < until, (link.state, link.is_connected)
        time.sleep(0.01)
    same = link.last_receipt(1)
    assert same.sequence == last.sequence and not same.is_kept
    try:
        same.kept(timeout=20)
    except StateError:
        pass
    else:
        raise AssertionError
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    link.close(timeout=0)
print("told", flush=True)
"""


def test_a_disk_that_takes_no_more_is_no_misuse(tmp_path):
    state = tmp_path / "state"
    done = python(FILLS_THE_DISK, str(state))
    assert (done.returncode, done.stdout) == (0, "told\n"), done.stderr


def test_a_link_without_state_keeps_nothing():
    with relink.listen("relink://127.0.0.1:0/x") as listener:
        link = relink.connect(listener.url)
        receipt = link.send(1, b"x")
        assert not receipt.is_kept
        for wait in (receipt.kept, link.kept):
            with pytest.raises(UsageError, match="not kept on disk") as refused:
                wait()
            assert refused.value.code == "not_kept"
        link.discard()
