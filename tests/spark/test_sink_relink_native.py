"""Transactions of the sink without Spark: tasks prepare them, the driver decides."""

from __future__ import annotations

import json
import pickle
import socket
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from harness import until
from ledger import Ledger
from queries import durable
from sinks import events, ids, listening, url_of
from tap import Tap

from ackline import _core
from ackline.exceptions import LinkLost, UsageError
from ackline.spark import transactions
from ackline.spark.sink_options import check_sink_options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness import Receiver

    Receive = Callable[..., Receiver]

OPTIONS: dict[str, Any] = {"timeout": 20}


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(range(first, first + count), pa.int64())})


def prepare(url: str, first: int, count: int, **options: Any) -> bytes:
    """Send rows as a task does; return its commit message for the driver."""
    sink = _core.RelinkSink(url, OPTIONS | options)
    sink.write(rows(first, count))
    sent, state = sink.finish()
    assert sent == count
    assert state is not None
    return state


def commit(url: str, *states: bytes, **options: Any) -> None:
    _core.RelinkSink.commit(url, OPTIONS | options, list(enumerate(states)))


def test_nothing_is_visible_before_the_commit_and_all_of_it_is_afterwards(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool")
    states = [prepare(url_of(receiver), first, 5_000) for first in (0, 5_000, 10_000)]
    assert max(len(state) for state in states) < 150
    assert durable(receiver.spool) == 0
    commit(url_of(receiver), *states)
    assert ids(events(receiver.spool)) == list(range(15_000))
    until(lambda: not list(receiver.spool.glob("relink/at-*/link-*.journal")), "the links end")


def test_a_task_and_the_driver_name_its_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    class Task:
        @staticmethod
        def partitionId() -> int:  # noqa: N802 - Spark's
            return 7

    monkeypatch.setattr(transactions, "task", Task)
    with Ledger() as ledger:
        options = check_sink_options({"url": ledger.url, "timeout": "5"})
        prepared = transactions.prepare(options, "query", 3, iter([rows(0, 5)]))
        assert (prepared.partition, prepared.rows) == (7, 5)
    with pytest.raises(LinkLost, match="partition 7 cannot be"):
        transactions.commit(options, [prepared])
    with pytest.raises(LinkLost, match=r"refused .*; no row of partition 7 is committed"):
        transactions.prepare(options, "query", 3, iter([rows(0, 5)]))


def test_more_rows_than_a_window_of_the_receivers_fit_into_a_transaction(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool")
    state = prepare(url_of(receiver), 0, 70_000)
    commit(url_of(receiver), state)
    assert ids(events(receiver.spool)) == list(range(70_000))


def test_no_rows_are_no_connection() -> None:
    sink = _core.RelinkSink("relink://127.0.0.1:1/nobody", OPTIONS)
    sink.write(rows(0, 0))
    assert sink.finish() == (0, None)


def test_rolled_back_messages_are_never_seen_and_their_memory_is_freed() -> None:
    with Ledger() as ledger:
        state = prepare(ledger.url, 0, 300)
        assert _core.RelinkSink.roll_back(ledger.url, OPTIONS, [(0, state)]) == 1
        until(lambda: ledger.rolled_back == 300, "it is rolled back")
        sink = _core.RelinkSink(ledger.url, OPTIONS)
        sink.write(rows(0, 20))
        sink.abort()
        until(lambda: ledger.rolled_back == 320, "it is rolled back")
        assert ledger.rows() == []
        # Its link is over.
        with pytest.raises(LinkLost, match="partition 0 cannot be: the link is lost"):
            commit(ledger.url, state)


def test_a_receiver_that_lost_one_partition_gets_none_committed(
    receive: Receive, tmp_path: Path
) -> None:
    receiver = listening(receive, tmp_path / "spool")
    lost = prepare(url_of(receiver), 0, 100)
    receiver.kill()
    receiver.start()
    there = prepare(url_of(receiver), 100, 100)
    with pytest.raises(LinkLost) as error:
        commit(url_of(receiver), lost, there)
    assert "the batch is not committed as a whole, 0 of 2 partitions are" in str(error.value)
    assert "partition 0 cannot be: the link is lost" in str(error.value)
    assert durable(receiver.spool) == 0
    # The other one is still there, and can be rolled back or, as here, committed.
    commit(url_of(receiver), there)
    assert ids(events(receiver.spool)) == list(range(100, 200))


def test_a_refusal_and_a_receiver_that_ends_are_told_apart() -> None:
    def answer(_link: int, messages: list[bytes]) -> bool | None:
        first = json.loads(messages[0])["id"]
        return {0: True, 100: False, 200: None}[first]

    with Ledger(answer) as ledger:
        states = [prepare(ledger.url, first, 10) for first in (0, 100, 200)]
        with pytest.raises(LinkLost) as error:
            commit(ledger.url, *states)
        text = str(error.value)
        assert "partition 1 was refused by the receiver, whose log says why; whether" in text
        assert "whether partition 2 is committed is not known: the link is lost" in text
        assert ids(ledger.rows()) == list(range(10))
        assert pickle.loads(pickle.dumps(error.value)).args == error.value.args


def test_without_an_answer_the_commit_fails_in_time() -> None:
    with Ledger() as ledger:
        state = prepare(ledger.url, 0, 10)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"relink://127.0.0.1:{silent.getsockname()[1]}/ledger"
        with pytest.raises(LinkLost, match=r"partition 0 cannot be: not connected within 200ms"):
            commit(url, state, timeout=0.2)
        sink = _core.RelinkSink(url, {"timeout": 0.2})
        with pytest.raises(LinkLost, match=r"no link: not connected within 200ms .*did not answer"):
            sink.write(rows(0, 1))
    with pytest.raises(LinkLost, match="refused"):
        _core.RelinkSink(url, {"timeout": 0.2}).write(rows(0, 1))


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ("ping", r"the receiver has not answered for 3 s.* no row is committed"),
        ("message", r"nothing was received for 3 s.* none of the 10 rows is committed"),
    ],
)
def test_rows_that_do_not_arrive_fail_the_task_in_time(held: str, text: str) -> None:
    with Ledger() as ledger:
        port = int(ledger.url.rsplit(":", 1)[1].partition("/")[0])
        with Tap(port, lambda _, frame: frame["type"] == held) as tap:
            url = tap.url.replace("/t", "/ledger")
            with pytest.raises(LinkLost, match=text):
                prepare(url, 0, 10, timeout=3)
        assert ledger.rows() == []


@pytest.mark.parametrize("size", [0, 1, 12])
def test_ids_of_any_size_name_the_channel(size: int) -> None:
    query = f"connector_channel_id_size={size}"
    with Ledger(url=f"relink://127.0.0.1:0/l?{query}") as ledger:
        url = f"{ledger.url}?{query}"
        commit(url, prepare(url, 0, 10))
        assert ids(ledger.rows()) == list(range(10))


@pytest.mark.parametrize(
    ("url", "options", "text"),
    [
        ("relink://h:1/n?connector_transactions=false", {}, "in transactions only"),
        ("relink://h:1,g:2/n", {}, "a link lives at one listener"),
        ("relink://h:0/n", {}, "port 0"),
        ("relink+tls://h:1/n", {"ca": "/none.pem"}, "/none.pem"),
        ("relink://h:1/n", {"batch_events": 1 << 31}, "batch_events is 2147483648; it is a"),
        ("relink://h:1/n", {"compression": 3}, "compression"),
    ],
)
def test_invalid_options_are_refused_without_a_connection(
    url: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError, match=text.replace("(", r"\(")):
        _core.RelinkSink.check(url, OPTIONS | options, rows(0, 1).schema)
