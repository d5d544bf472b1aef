"""pylogbeat 2.1.0: cumulative sequence numbers, and only the last one of a window completes it."""

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pylogbeat
import pytest

Receive = Callable[..., Any]
EventsOf = Callable[[Path], list[dict[str, Any]]]


def dicts(batch: int, number: int) -> list[dict[str, Any]]:
    return [
        {"message": f"ligne {number}.{n} - ü", "n": n, "nested": {"a": [1, None]}}
        for n in range(batch)
    ]


def texts(batch: int, number: int) -> list[bytes]:
    return [f'{{"m": "{number}.{n} \u00e4\\u0000", "n":{n}}}'.encode() for n in range(batch)]


@pytest.mark.parametrize("build", [dicts, texts])
@pytest.mark.parametrize("batch", [1, 25, 2048])
def test_every_event_arrives_byte_for_byte(
    receive: Receive,
    spool: Path,
    events_of: EventsOf,
    batch: int,
    build: Callable[[int, int], list[Any]],
) -> None:
    receiver = receive("--spool", str(spool))
    batches = [build(batch, number) for number in range(4)]
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=10) as client:
        for each in batches:
            client.send(each)
    # Acknowledged is durable: the spool is read while the receiver still runs.
    events = events_of(spool)

    sent = [event for each in batches for event in each]
    expected = [json.dumps(event).encode() if isinstance(event, dict) else event for event in sent]
    assert [event["payload"].encode() for event in events] == expected
    assert [event["sequence"] for event in events] == list(range(1, len(sent) + 1))
    assert {event["protocol"] for event in events} == {"lumberjack"}
    assert len({event["link"] for event in events}) == 1
    assert not any(event.get("repeat") for event in events)
    assert receiver.stop() == 0


def test_payloads_that_are_no_text_are_kept(
    receive: Receive, spool: Path, events_of: EventsOf
) -> None:
    receiver = receive("--spool", str(spool))
    payloads = [b"\xff\xfe", bytes(range(256)), b"plain"]
    with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=10) as client:
        client.send(payloads)
    first, second, third = events_of(spool)
    assert base64.b64decode(first["payload_base64"]) == payloads[0]
    assert base64.b64decode(second["payload_base64"]) == payloads[1]
    assert third["payload"] == "plain"


def test_several_clients_at_once_each_keep_their_order(
    receive: Receive, spool: Path, events_of: EventsOf
) -> None:
    receiver = receive("--spool", str(spool))

    def send(name: str) -> None:
        with pylogbeat.PyLogBeatClient("127.0.0.1", receiver.port, timeout=10) as client:
            for number in range(10):
                client.send([f"{name} {number} {n}" for n in range(100)])

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    payloads = [event["payload"] for event in events_of(spool)]
    for name in "abcd":
        expected = [f"{name} {number} {n}" for number in range(10) for n in range(100)]
        assert [text for text in payloads if text.startswith(name)] == expected
