"""python-logstash-async 4.1.0 as a logging handler: windows of 25, a socket timeout of 5 s."""

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import until
from logstash_async.constants import constants
from logstash_async.formatter import LogstashFormatter
from logstash_async.handler import AsynchronousLogstashHandler
from logstash_async.transport import BeatsTransport


class NotingFormatter(LogstashFormatter):
    """The handler's own formatter; its output is kept to compare."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def format(self, record: logging.LogRecord) -> str:
        text: str = super().format(record)
        self.made.append(text)
        return text


class NotingTransport(BeatsTransport):
    """The handler's own transport; `send` returns when everything was acknowledged."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.acked = 0
        self.failures: list[Exception] = []

    def send(self, events: list[bytes], use_logging: bool = False) -> None:  # noqa: FBT001, FBT002
        try:
            super().send(events, use_logging=use_logging)
        except Exception as error:
            self.failures.append(error)
            raise
        self.acked += len(events)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the handler's thread look every 50 ms, and end that thread with the test."""
    monkeypatch.setattr(constants, "QUEUE_CHECK_INTERVAL", 0.05)
    yield
    worker = AsynchronousLogstashHandler._worker_thread
    if worker is not None:
        worker.shutdown()
        worker.join(10)
        AsynchronousLogstashHandler._worker_thread = None


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("database", [False, True])
def test_every_record_arrives_byte_for_byte(
    receive: Callable[..., Any],
    spool: Path,
    events_of: Callable[[Path], list[dict[str, Any]]],
    tmp_path: Path,
    *,
    database: bool,
) -> None:
    receiver = receive("--spool", str(spool))
    handler = AsynchronousLogstashHandler(
        "127.0.0.1",
        receiver.port,
        database_path=str(tmp_path / "handler.db") if database else None,
        transport=NotingTransport,
        ssl_enable=False,
    )
    formatter = NotingFormatter()
    handler.setFormatter(formatter)
    logger = logging.getLogger(f"interop.{database}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    for number in range(333):
        logger.info("record %d - ü", number, extra={"number": number})
    handler.flush()
    transport = handler._transport

    def all_acked() -> bool:
        handler.flush()
        return bool(transport.acked >= 333)

    until(all_acked, "every record acknowledged", 60)
    logger.removeHandler(handler)

    assert not transport.failures
    events = events_of(spool)
    # The handler ends each event with a line feed; its cache does not keep their order.
    assert sorted(event["payload"] for event in events) == sorted(f"{t}\n" for t in formatter.made)
    numbers = [json.loads(event["payload"])["extra"]["number"] for event in events]
    assert sorted(numbers) == list(range(333))
    assert not any(event.get("repeat") for event in events)
