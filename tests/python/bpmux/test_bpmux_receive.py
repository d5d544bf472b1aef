"""`ackline receive` over bpmux: real processes, killed and started again."""

import contextlib
import inspect
import logging
import os
import random
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from support.certificates import Pki
from support.commands import DEADLINE, RunningReceiver, rows, wait_until

from ackline import Receiver, Spool, bpmux
from ackline.cli.options import receiver_options
from ackline.cli.receive import receive
from ackline.exceptions import AcklineError, UsageError

URL = "bpmux://127.0.0.1:0"


def sent(link: bpmux.Connection, texts: list[bytes], opening: bytes = b"") -> None:
    """A sink with these messages, closed with their count and acknowledged."""
    sink = link.open_sink(opening, timeout=DEADLINE)
    sink.send_many(texts, timeout=DEADLINE)
    sink.close(str(len(texts)).encode(), timeout=DEADLINE)


def attributes(directory: Path) -> list[dict[str, str]]:
    spool = Spool(directory)
    table = pa.table(spool.read(spool.first_kept(), spool.durable()))
    return [dict(row) for row in table["attributes"].to_pylist()]


def test_each_message_is_a_row_and_the_lines_count_it(tmp_path):
    spool = tmp_path / "spool"
    receiver = RunningReceiver(URL, "--spool", str(spool))
    try:
        assert receiver.url.startswith("bpmux://127.0.0.1:")
        assert not receiver.url.endswith(":0")
        with bpmux.connect(receiver.url) as link:
            sent(link, [b"one", b"", b"\xff"], b"orders")
            sent(link, [b"again"])
            assert link.call(b"asked", timeout=DEADLINE) == b""
        stats = receiver.next("stats")
        while stats["acked_events"] < 5:
            stats = receiver.next("stats")
        assert (stats["landed"], stats["durable"], stats["unacked"]) == (5, 5, 0)
        assert (stats["events"], stats["bytes"], stats["refused"]) == (5, 14, 0)
    finally:
        assert receiver.stop() == 0
    assert receiver.lines[-1]["event"] == "stopped"
    found = rows(spool)
    assert [row[1:] for row in found] == [
        ("0", 0, b"one"), ("0", 1, b""), ("0", 2, b"\xff"), ("0.2", 0, b"again"),
        (None, 0, b"asked"),
    ]  # fmt: skip
    assert len({row[0] for row in found}) == 1, "one connection"
    listener = {"receiver.url": receiver.url}
    assert attributes(spool) == [
        *[listener | {"bpmux.kind": "sink", "bpmux.opening": "orders"}] * 3,
        listener | {"bpmux.kind": "sink"},
        listener | {"bpmux.kind": "request"},
    ]


class Sender:
    """Sends batches, each on a sink of its own, until it has `count` acknowledged."""

    def __init__(self, url: str, name: str, count: int, seed: int) -> None:
        self.url, self.sender, self.count = url, name, count
        self.chance = random.Random(f"{seed}-{name}")
        self.kept: dict[str, int] = {}
        """How many messages are in each sink whose close was acknowledged."""
        self.answered: list[bytes] = []

    def run(self) -> None:
        deadline, attempt = time.monotonic() + 4 * DEADLINE, 0
        while len(self.kept) < self.count:
            assert time.monotonic() < deadline, f"{len(self.kept)} of {self.count}"
            attempt += 1
            try:
                self.send(attempt)
            except AcklineError:
                time.sleep(0.01)  # it is being started again

    def send(self, attempt: int) -> None:
        with bpmux.connect(self.url, connect_timeout=5.0) as link:
            for number in range(1_000):
                if len(self.kept) >= self.count:
                    return
                name = f"{self.sender}.{attempt}.{number}"
                messages = self.chance.randrange(1, 40)
                size = self.chance.choice([10, 300, 30_000])
                texts = [f"{name}/{at}/".encode() + b"x" * size for at in range(messages)]
                sent(link, texts, name.encode())
                self.kept[name] = messages
                asked = f"request of {name}".encode()
                link.call(asked, timeout=DEADLINE)
                self.answered.append(asked)


def killed_again_and_again(tmp_path: Path, *, kills: int, count: int) -> None:
    seed = int(os.environ.get("ACKLINE_SEED", "0")) or random.randrange(1 << 32)
    print(f"ACKLINE_SEED={seed}")
    chance = random.Random(seed)
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    arguments = (f"bpmux+unix://{socket}", "--spool", str(spool))
    receiver = RunningReceiver(*arguments)
    senders = [Sender(receiver.url, str(at), count, seed) for at in range(3)]
    pool = ThreadPoolExecutor(len(senders))
    try:
        running = [pool.submit(one.run) for one in senders]
        for killing in range(1, kills + 1):
            # Each of them acknowledges some messages of every sender.
            least = killing * count // (2 * kills)
            wait_until(lambda: all(len(one.kept) >= least for one in senders), "some are kept")  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.05))  # any moment will do
            receiver.process.send_signal(signal.SIGKILL)
            receiver.process.communicate()
            receiver = RunningReceiver(*arguments)
        for one in running:
            one.result()
    finally:
        pool.shutdown(wait=False)
        assert receiver.stop() == 0
    found = rows(spool)
    names = [row.get("bpmux.opening") for row in attributes(spool)]
    landed: dict[str | None, list[bytes]] = defaultdict(list)
    places = defaultdict(set)
    for name, (link, stream, sequence, payload) in zip(names, found, strict=True):
        assert payload is not None
        if name is not None:
            assert payload.startswith(f"{name}/{sequence}/".encode())
            assert sequence == len(landed[name]), "in order, each once"
            places[name].add((link, stream))
        landed[name].append(payload)
    requests = set(landed.pop(None, []))
    assert all(len(one) == 1 for one in places.values())
    assert len({place for one in places.values() for place in one}) == len(places)
    for one in senders:
        for name, messages in one.kept.items():
            assert len(landed[name]) == messages, f"{name} was acknowledged"
        assert set(one.answered) <= requests, "what was answered is kept"


def test_a_sink_whose_close_was_acknowledged_is_whole_however_the_receiver_dies(tmp_path):
    killed_again_and_again(tmp_path, kills=4, count=60)


def test_with_committed_acks_the_close_waits_for_the_commit(tmp_path):
    spool = tmp_path / "spool"
    receiver = RunningReceiver(URL, "--spool", str(spool), "--ack", "committed=lake")
    try:
        with bpmux.connect(receiver.url) as link:
            sink = link.open_sink()
            sink.send_many([b"a", b"b"])
            closing = threading.Thread(target=sink.close, args=(b"2",))
            closing.start()
            stats = receiver.next("stats")
            while stats["uncommitted"] < 2:
                stats = receiver.next("stats")
            assert (stats["durable"], stats["acked_events"]) == (2, 0)
            link.ping(timeout=DEADLINE)
            assert closing.is_alive()
            Spool(spool).commit_mark("lake", 2)
            closing.join(DEADLINE)
            assert not closing.is_alive()
    finally:
        assert receiver.stop() == 0


def test_bad_senders_are_refused_by_line_and_others_go_on(tmp_path):
    receiver = RunningReceiver(URL, "--spool", str(tmp_path / "s"), "--max-opening-bytes", "16")
    try:
        with bpmux.connect(receiver.url) as link, bpmux.connect(receiver.url) as other:
            sink = link.open_sink(b"x" * 17)
            reason = sink.wait_cancelled(timeout=DEADLINE)
            assert b"--max-opening-bytes" in reason
            line = receiver.next("refused")
            assert (line["code"], line["protocol"]) == ("bpmux.opening_too_large", "bpmux")
            assert (line["value"], line["limit"]) == (17, 16)
            assert line["option"] == "--max-opening-bytes"
            sent(link, [b"it goes on"])
            wrong = link.open_sink()
            wrong.send(b"one")
            with pytest.raises(AcklineError):
                wrong.close(b"2", timeout=DEADLINE)
            line = receiver.next("refused")
            assert line["code"] == "bpmux.count_differs"
            assert "the count 2, and 1 messages" in line["message"]
            sent(other, [b"another"])
        assert bpmux.connect(receiver.url).call(b"third", timeout=DEADLINE) == b""
    finally:
        assert receiver.stop() == 0
    payloads = [row[3] for row in rows(tmp_path / "s")]
    assert sorted(payloads) == [b"another", b"it goes on", b"one", b"third"]


def test_many_senders_over_plain_tls_and_unix_beside_another_protocol(tmp_path):
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "localhost", "DNS:localhost,IP:127.0.0.1")
    own = pki.issue("client", "sender", "DNS:sender")
    spool, socket = tmp_path / "spool", tmp_path / "x.sock"
    urls = [URL, f"bpmux+tls://127.0.0.1:0?cert={cert}&key={key}&ca={pki.ca}"]
    urls += [f"bpmux+unix://{socket}", "lumberjack://127.0.0.1:0"]
    with Receiver(urls, spool=spool) as receiver:
        assert "?" not in receiver.urls[1]
        places = [(url, {}) for url in receiver.urls[:3]]
        places[1] = (places[1][0], {"ca": pki.ca, "cert": own[0], "key": own[1]})
        links = [bpmux.connect(url, **options) for url, options in places for _ in range(5)]
        threads = [
            threading.Thread(target=sent, args=(link, [f"{at}".encode()] * 100))
            for at, link in enumerate(links)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
        assert receiver.stats()["landed"] == 1_500
        for link in links:
            link.shutdown(timeout=DEADLINE)
    found = rows(spool)
    by_link = defaultdict(list)
    for link, _stream, sequence, payload in found:
        by_link[link].append((sequence, payload))
    assert len(by_link) == 15
    for one in by_link.values():
        assert [sequence for sequence, _ in one] == list(range(100))
        assert len({payload for _, payload in one}) == 1
    subjects = [one.get("tls.subject") for one in attributes(spool)]
    assert len([subject for subject in subjects if subject]) == 500


def test_an_embedded_receiver_connects_out_and_opens_a_stream(tmp_path):
    with bpmux.listen(URL) as listener:
        options = {"reconnect_max_ms": 50}
        with Receiver(
            [], connect=[f"{listener.url}?stream=orders"], spool=tmp_path, options=options
        ) as receiver:
            for text in (b"one", b"two"):
                with listener.accept(timeout=DEADLINE) as link:
                    opened = link.accept(timeout=DEADLINE)
                    assert isinstance(opened, bpmux.OpenedStream)
                    assert opened.payload == b"orders"
                    opened.sink.send(text)
                    opened.sink.close(b"1", timeout=DEADLINE)
            assert receiver.stats()["landed"] == 2
    assert [row[1:] for row in rows(tmp_path)] == [("own.0", 0, b"one"), ("own.0", 0, b"two")]


OPTIONS = {
    "credit_floor": 1_000, "credit_ceiling": 2_000, "credit_budget": 3_000,
    "max_payload_bytes": 4_000, "max_opening_bytes": 50, "max_entities": 60, "max_requests": 70,
    "ping_after_ms": 8_000, "pong_timeout_ms": 9_000, "chunk_receive_timeout_ms": 0,
    "connect_timeout_ms": 1_000, "reconnect_max_ms": 2_000,
}  # fmt: skip


def test_options_are_taken_by_name_and_wrong_ones_are_named():
    with Receiver([URL], discard=True, options=OPTIONS) as receiver:
        assert receiver.urls
    for name, value, says in [
        ("credit_floor", 0, "credit_floor is 0; it is a whole number from 1"),
        (
            "max_opening_bytes",
            65_537,
            "is 65537; it is a whole number from 1 to 65536",
        ),
        ("max_entities", 1 << 32, "max_entities is 4294967296"),
        ("chunk_receive_timeout", 5, "it is chunk_receive_timeout_ms, or a text with a unit"),
        ("reconnect_max_ms", 0, "reconnect_max_ms is 0ms; it is a time such as"),
        ("max_payload_bytes", "x", "max_payload_bytes"),
    ]:
        with pytest.raises(UsageError, match=says):
            Receiver([URL], discard=True, options={name: value})


@pytest.mark.parametrize(
    ("options", "code", "option"),
    [
        ({"max_payload_bytes": 100}, "bpmux.limit_exceeded", "--max-payload-bytes"),
        ({"max_entities": 2}, "bpmux.limit_exceeded", "--max-entities"),
    ],
)
def test_a_limit_that_is_hit_is_told_with_its_option(options, code, option):
    with Receiver([URL], discard=True, options=options) as receiver:
        link = bpmux.connect(receiver.urls[0])
        sinks = []  # one that is dropped is closed
        with contextlib.suppress(AcklineError):
            for _ in range(3):
                sinks.append(link.open_sink(timeout=DEADLINE))
                sinks[-1].send(b"x" * 101, timeout=DEADLINE)
        found = (line for line in receiver.events(timeout=DEADLINE) if line["event"] == "refused")
        line = next(found)
        assert (line["code"], line["option"]) == (code, option)
        with pytest.raises(AcklineError):
            link.ping(timeout=DEADLINE)


def test_credit_follows_the_options(tmp_path):
    options = {"credit_floor": 1_000, "credit_ceiling": 1_000, "ack": "committed=lake"}
    with (
        Receiver([URL], spool=tmp_path, options=options) as receiver,
        bpmux.connect(receiver.urls[0], send_bytes=10) as link,
    ):
        sink = link.open_sink()
        # Ten windows of credit: it comes back without a commit, for which the close alone waits.
        for _ in range(20):
            sink.send(b"x" * 500, timeout=DEADLINE)
        sink.flush(timeout=DEADLINE)
        wait_until(lambda: receiver.stats()["uncommitted_windows"] > 0, "some is durable")
        wait_until(lambda: receiver.stats()["uncommitted"] == 20, "all is durable")
        Spool(tmp_path).commit_mark("lake", 20)
        sink.close(b"20", timeout=DEADLINE)


def test_a_protocol_that_there_is_not_is_told_with_those_that_there_are():
    with pytest.raises(UsageError, match="built are: lumberjack, relink, bpmux"):
        Receiver(["bpmx://127.0.0.1:0"], discard=True)


def test_a_reason_of_a_close_is_logged_with_its_beginning(caplog):
    with (
        caplog.at_level(logging.INFO, logger="ackline"),
        Receiver([URL], discard=True) as receiver,
        bpmux.connect(receiver.urls[0]) as link,
    ):
        sink = link.open_sink()
        sink.send(b"x")
        sink.close(b"gave up: " + b"\n" * 300, timeout=DEADLINE)
        wait_until(lambda: "closed_with" in caplog.text, "it is logged")
        assert receiver.stats()["refused"] == 0
    (line,) = [line for line in caplog.messages if "code=bpmux.closed_with" in line]
    assert "gave up: " + "\\n" * 247 in line.replace("\\\\", "\\")
    assert "\\n" * 248 not in line.replace("\\\\", "\\")
    assert "stream=0" in line
    assert "bytes=309" in line
    assert "\n" not in line


def test_every_receiver_option_exists_on_the_command_line_and_by_name():
    own = {option.name for option in receiver_options() if "bpmux" in option.sections}
    assert own <= set(inspect.signature(receive).parameters)
    assert {name.removesuffix("_ms") for name in OPTIONS} == own
