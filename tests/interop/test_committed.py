"""Acks by commit through a micro-batch of 40 s: senders that give up after 5 or 10 s wait."""

import json
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogbeat
from conftest import until
from logstash_async.transport import BeatsTransport

from ackline import Spool

BATCH = 40.0
"""Seconds that a micro-batch takes."""
KEEPALIVE = b"2A\0\0\0\0"

Send = Callable[[int], None]


def by_pylogbeat(port: int) -> None:
    with pylogbeat.PyLogBeatClient("127.0.0.1", port, timeout=5) as client:
        client.send([{"by": "pylogbeat", "n": n} for n in range(25)])


def by_logstash_async(port: int) -> None:
    transport = BeatsTransport(
        "127.0.0.1", port, timeout=5, ssl_enable=False, ssl_verify=False,
        ssl_verify_flags=None, keyfile=None, certfile=None, ca_certs=None,
    )  # fmt: skip
    transport.send([f'{{"by":"logstash-async","n":{n}}}'.encode() for n in range(25)])
    transport.close()


def by_golumber(program: Path, in_flight: int) -> Send:
    def send(port: int) -> None:
        lines = "".join(f'{{"by":"go-lumber-{in_flight}","n":{n}}}\n' for n in range(25))
        # Three windows in flight, or one after the other: each of these waits for a batch.
        batch = "10" if in_flight else "25"
        done = subprocess.run(
            [program, "-addr", f"127.0.0.1:{port}", "-batch", batch, "-async", str(in_flight)],
            input=lines.encode(), capture_output=True, timeout=3 * BATCH, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, b"25\n"), done.stderr

    return send


class Watcher:
    """A raw sender that notes every frame it gets until its acknowledgement."""

    def __init__(self) -> None:
        self.keepalives = 0

    def __call__(self, port: int) -> None:
        payload = b'{"by":"raw","n":0}'
        with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
            peer.sendall(b"2W\0\0\0\1" + b"2J" + struct.pack(">II", 1, len(payload)) + payload)
            while (frame := self._frame(peer)) == KEEPALIVE:
                self.keepalives += 1
        assert frame == b"2A\0\0\0\1"

    @staticmethod
    def _frame(peer: socket.socket) -> bytes:
        frame = b""
        while len(frame) < 6:
            piece = peer.recv(6 - len(frame))  # the socket's 5 s would end a silent wait
            assert piece
            frame += piece
        return frame


class Running(threading.Thread):
    """A sender in a thread: its exception is raised where it is waited for."""

    def __init__(self, send: Send, port: int) -> None:
        super().__init__()
        self._work = lambda: send(port)
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 (told by the thread that waits)
            self.error = error

    def end(self) -> None:
        self.join(60)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


def test_nobody_gives_up_while_a_micro_batch_takes_40_s(
    receive: Callable[..., Any],
    spool: Path,
    events_of: Callable[[Path], list[dict[str, Any]]],
    golumber: Path,
) -> None:
    receiver = receive("--spool", str(spool), "--ack", "committed=lake")
    watcher = Watcher()
    sends = [by_pylogbeat, by_logstash_async, by_golumber(golumber, 0), by_golumber(golumber, 3)]
    running = [Running(send, receiver.port) for send in [*sends, watcher]]
    reader = Spool(spool)
    until(lambda: reader.durable() == 101, "every event is durable")

    # The micro-batch: it reads, takes its time, and commits.
    with reader.lease("lake") as lease:
        assert sum(batch.num_rows for batch in reader.read(0, 101)) == 101
        time.sleep(BATCH)
        stats = receiver.newer_stats()
        assert (stats["acked_events"], stats["unacked"], stats["refused"]) == (0, 101, 0)
        assert stats["connections"] == len(running)
        assert stats["consumers"][0]["state"] == "live"
        lease.commit(101)
    for one in running:
        one.end()
    assert 12 <= watcher.keepalives <= 25

    stats = receiver.newer_stats()
    assert (stats["acked_events"], stats["landed"], stats["unacked"]) == (101, 101, 0)
    assert stats["oldest_uncommitted_age_s"] == 0
    events = events_of(spool)
    assert len(events) == 101
    assert not any(event["repeat"] for event in events)
    names = [json.loads(event["payload"])["by"] for event in events]
    assert {name: names.count(name) for name in names} == {
        "pylogbeat": 25, "logstash-async": 25, "go-lumber-0": 25, "go-lumber-3": 25, "raw": 1,
    }  # fmt: skip
    assert receiver.stop() == 0
