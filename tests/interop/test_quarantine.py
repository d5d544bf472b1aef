"""Windows of a real sender that were damaged on their way are set aside, and it goes on."""

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogbeat
import pytest
from conftest import ackline_command

ADLER = -1
"""The last byte of an envelope lies in the checksum of its zlib stream."""


class Damaging(pylogbeat.PyLogBeatClient):
    """pylogbeat on a machine whose memory or network flips a bit now and then."""

    from_one = True
    """Each window is numbered from 1, as Beats does; pylogbeat itself goes on counting."""

    def send(self, elements: list[Any], *, damaged: bool = False) -> None:
        self._damaged = damaged
        if self.from_one:
            self._sequence = 0
        super().send(elements)

    def _compress_payload(self, payload: bytes) -> bytes:
        frame = bytearray(super()._compress_payload(payload))
        if self._damaged:
            frame[ADLER] ^= 0x10
        self.frame = bytes(frame)
        return self.frame


class Counting(Damaging):
    from_one = False


def rows(directory: Path) -> list[dict[str, Any]]:
    command = [ackline_command(), "spool", "cat", str(directory), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, timeout=60).stdout
    return [json.loads(line) for line in output.splitlines()]


def test_a_damaged_window_is_set_aside_and_acknowledged(
    receive: Callable[..., Any], spool: Path, events_of: Callable[[Path], list[dict[str, Any]]]
) -> None:
    receiver = receive("--spool", str(spool), "--on-invalid", "quarantine")
    with Damaging("127.0.0.1", receiver.port, timeout=10) as client:
        client.send([{"n": n} for n in range(25)])
        client.send([{"n": n} for n in range(7)], damaged=True)
        frame = client.frame
        client.send([{"n": 100}])
    told = receiver.wait("quarantined")
    assert (told["code"], told["events"], told["protocol"]) == ("lumberjack.zlib", 7, "lumberjack")
    assert told["offset"] > 0
    assert "zlib" in told["message"]

    # Each connection shows for itself how it numbers: its first window is refused.
    with (
        Damaging("127.0.0.1", receiver.port, timeout=10) as client,
        pytest.raises((pylogbeat.ConnectionException, OSError)),
    ):
        client.send([{"n": n} for n in range(3)], damaged=True)
    assert receiver.wait("refused")["code"] == "lumberjack.zlib"
    with Damaging("127.0.0.1", receiver.port, timeout=10) as client:
        client.send([{"n": 101}])
        client.send([{"n": n} for n in range(3)], damaged=True)

    stats = receiver.newer_stats()
    assert (stats["landed"], stats["quarantined"], stats["acked_events"]) == (27, 10, 37)
    assert (stats["refused"], stats["unacked"], stats["events"]) == (1, 0, 37)
    assert len(events_of(spool)) == 27
    first, second = rows(spool / "quarantine")
    payload = first.get("payload", "").encode() or base64.b64decode(first["payload_base64"])
    assert payload == frame
    assert first["attributes"] == {
        "code": "lumberjack.zlib",
        "message": told["message"],
        "lumberjack.events": "7",
        "lumberjack.version": "2",
        "lumberjack.window": "2",
        "receiver.url": receiver.url,
    }
    assert second["attributes"]["lumberjack.window"] == "2"
    assert receiver.stop() == 0


@pytest.mark.parametrize(
    ("client", "arguments"), [(Counting, ["--on-invalid", "quarantine"]), (Damaging, [])]
)
def test_where_the_number_is_not_known_or_by_default_it_is_refused(
    receive: Callable[..., Any], spool: Path, client: type[Damaging], arguments: list[str]
) -> None:
    receiver = receive("--spool", str(spool), *arguments)
    with client("127.0.0.1", receiver.port, timeout=10) as sender:
        for _ in range(2):
            sender.send([{"n": n} for n in range(25)])
        with pytest.raises((pylogbeat.ConnectionException, OSError)):
            sender.send([{"n": n} for n in range(25)], damaged=True)
    assert receiver.wait("refused")["code"] == "lumberjack.zlib"
    assert not receiver.seen("quarantined")
    assert not (spool / "quarantine").exists()
    stats = receiver.newer_stats()
    assert (stats["quarantined"], stats["refused"], stats["acked_events"]) == (0, 1, 50)
