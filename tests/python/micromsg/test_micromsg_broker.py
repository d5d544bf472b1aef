"""The broker of MicroMsg2: topics, queues, filters, restarts with a spool."""

import gc
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from support.commands import wait_until
from support.micromsg_pair import MANUAL, NOW, TIME, URL

from ackline import LinkClosed, LinkTimeout, PeerFailed, TransportError, UsageError, micromsg
from ackline.aio import micromsg as aio
from ackline.micromsg import where


@pytest.fixture
def broker() -> Iterator[micromsg.Broker]:
    running = micromsg.serve(URL)
    yield running
    running.abort()


def subscribed(
    broker: micromsg.Broker, topic: str, chosen: micromsg.Filter | None = None
) -> micromsg.Connection:
    """A subscriber that the broker knows."""
    known = broker.stats()["subscriptions"]
    connection = micromsg.connect(broker.url, **MANUAL)
    connection.subscribe(topic, chosen)
    wait_until(lambda: broker.stats()["subscriptions"] > known, "it is subscribed")
    return connection


def test_a_topic_goes_to_every_subscriber_whose_filter_matches(broker: micromsg.Broker) -> None:
    every = subscribed(broker, "readings")
    high = subscribed(broker, "readings", where("level") >= 8)
    other = subscribed(broker, "other")
    with micromsg.connect(broker.url) as publisher:
        publisher.send_some(
            [(b"%d" % it, "readings", {"level": it % 10}) for it in range(100)], timeout=TIME
        )
    assert broker.stats()["published"] == 100
    for subscriber, expected in [
        (every, range(100)),
        (high, (it for it in range(100) if it % 10 > 7)),
    ]:
        for number in expected:
            message = subscriber.receive(timeout=TIME)
            assert message is not None
            assert (message.payload, message.destination) == (b"%d" % number, "readings")
            assert message.properties == {"level": number % 10}
    with pytest.raises(LinkTimeout):
        other.receive(timeout=NOW)
    for subscriber in [every, high, other]:
        subscriber.abort()


def test_a_queue_gives_each_message_to_one_receiver_and_takes_it_back(
    broker: micromsg.Broker,
) -> None:
    first = subscribed(broker, "queue/jobs")
    with ThreadPoolExecutor(1) as pool, micromsg.connect(broker.url) as publisher:
        publisher.send_some([(b"%d" % number, "queue/jobs") for number in range(3)])
        taken = first.receive(timeout=TIME)
        assert taken is not None
        assert taken.payload == b"0"
        taken.ack()
        assert first.receive(timeout=TIME) is not None
        second = pool.submit(subscribed, broker, "queue/jobs").result(TIME)
        first.abort()
        rest = [second.receive(timeout=TIME) for _ in range(2)]
        assert [it.payload for it in rest if it] == [b"1", b"2"]
        second.ack(2)
        publisher.wait_acknowledged(timeout=TIME)
        second.close(timeout=TIME)


def test_a_spool_keeps_queues_over_a_restart(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with (
        micromsg.serve(URL, spool=spool, queues=["jobs", "work/*"]) as broker,
        micromsg.connect(broker.url) as publisher,
    ):
        publisher.send_some([(b"1", "jobs"), (b"2", "work/a"), (b"3", "queue/b"), (b"4", "topic")])
        publisher.wait_acknowledged(timeout=TIME)
    with micromsg.serve(URL, spool=str(spool), queues=["jobs", "work/*"]) as broker:
        for queue, payload in [("jobs", b"1"), ("work/a", b"2"), ("queue/b", b"3")]:
            with micromsg.connect(broker.url) as receiver:
                receiver.subscribe(queue)
                message = receiver.receive(timeout=TIME)
                assert message is not None
                assert (message.payload, message.destination) == (payload, queue)


def test_wrong_arguments_of_a_broker_are_named(broker: micromsg.Broker) -> None:
    with pytest.raises(UsageError, match=r"did you mean max_queues\?"):
        micromsg.serve(URL, max_queue=5)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="max_queues is 0"):
        micromsg.serve(URL, max_queues=0)
    with pytest.raises(UsageError, match="it is a sequence of names"):
        micromsg.serve(URL, queues="jobs")
    for name in ("", "a;b", "x" * 256):
        with pytest.raises(UsageError, match="a name has 1 to 255 characters"):
            micromsg.serve(URL, queues=["jobs", name])
    with pytest.raises(UsageError):
        micromsg.serve("bpmux://127.0.0.1:0")
    with pytest.raises(TransportError):
        micromsg.serve(broker.url)


def test_a_queue_that_a_spool_cannot_keep_is_refused_at_the_start(tmp_path: Path) -> None:
    long = "queue/" + "x" * 60
    with pytest.raises(UsageError, match=f'queues has "{long}", which a spool cannot keep'):
        micromsg.serve(URL, spool=tmp_path / "spool", queues=[long])
    assert not (tmp_path / "spool").exists()
    with micromsg.serve(URL, queues=[long]) as broker, micromsg.connect(broker.url) as connection:
        connection.subscribe(long)
        connection.send(b"1", long)
        message = connection.receive(timeout=TIME)
        assert message is not None
        assert message.payload == b"1"


@pytest.mark.parametrize("topic", ["caf\N{LATIN SMALL LETTER E WITH ACUTE}", "t" * 256])
def test_a_topic_that_no_message_can_have_is_refused(broker: micromsg.Broker, topic: str) -> None:
    with micromsg.connect(broker.url) as connection:
        connection.command("subscribe", {"topic": topic})
        with pytest.raises(PeerFailed, match="no message can have this topic"):
            connection.receive(timeout=TIME)
    wait_until(lambda: broker.stats()["refused"] == 1, "it is refused")
    (refused,) = broker.refusals()
    assert refused["code"] == "micromsg.topic_name"


def test_messages_that_end_with_a_broker_without_a_spool_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with micromsg.serve(URL) as broker:
        connection = micromsg.connect(broker.url)
        connection.send_some([(b"%d" % number, "queue/jobs") for number in range(7)])
        wait_until(lambda: broker.stats()["waiting"] == 7, "all have come")
    connection.abort()

    def lines() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        return [text for text in texts if "queues_dropped" in text]

    # Lines are handed over by a thread.
    wait_until(lambda: bool(lines()), "it is told")
    (line,) = lines()
    assert "messages=7" in line


def test_refused_connections_and_errors_of_clients_are_told(
    broker: micromsg.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    assert broker.refusals() == []
    micromsg.connect(broker.url).fail("no 'more' of it")
    wait_until(lambda: "micromsg.error_received" in caplog.text, "the ERROR frame is logged")
    assert broker.refusals() == []
    assert broker.stats()["refused"] == 0
    many = subscribed(broker, "t")
    condition = where("n") == 1
    for _ in range(6):
        condition = condition & condition
    many.subscribe("t", condition & (where("n") == 1))
    wait_until(lambda: broker.stats()["refused"] == 1, "it is refused")
    (refused,) = broker.refusals()
    assert (refused["event"], refused["code"]) == ("refused", "micromsg.too_many_conditions")
    assert broker.refusals() == []


@pytest.mark.parametrize(
    ("left", "codes"),
    [(3, ["micromsg.queue_moved"]), (120, ["micromsg.queue_stays", "micromsg.queues_full"])],
)
def test_the_log_names_a_queue_that_keeps_much_of_the_spool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int, codes: list[str]
) -> None:
    caplog.set_level(logging.INFO, logger="ackline")
    broker = micromsg.serve(URL, spool=tmp_path, budget="16MiB", retain_committed=0)
    publisher = micromsg.connect(broker.url)
    for _ in range(left):
        publisher.send(b"x" * 10_000, "queue/left")
    publisher.wait_acknowledged(left, timeout=TIME)
    worker = subscribed(broker, "queue/busy")

    def told() -> bool:
        lines = [one.getMessage() for one in caplog.records]
        return all(any(code in line and "queue/left" in line for line in lines) for code in codes)

    def publish() -> None:
        with suppress(LinkClosed):
            while True:
                publisher.send(b"x" * 20_000, "queue/busy")

    def work() -> None:
        with suppress(LinkClosed):
            for message in worker:
                message.ack()

    with ThreadPoolExecutor() as pool:
        running = [pool.submit(publish), pool.submit(work)]
        wait_until(told, "the log names it")
        broker.abort()
        for one in running:
            one.result(TIME)


def test_a_broker_ends_its_connections(broker: micromsg.Broker) -> None:
    subscriber = subscribed(broker, "t")
    assert broker.stats()["connections"] == 1
    broker.close(timeout=TIME)
    assert subscriber.receive(timeout=TIME) is None
    with pytest.raises(TransportError):
        micromsg.connect(broker.url)
    assert broker.stats()["connections"] == 0
    dropped = micromsg.serve(URL)
    subscriber = subscribed(dropped, "t")
    del dropped
    gc.collect()
    subscriber.wait_ended(timeout=TIME)


def test_a_message_that_a_receiver_has_holds_up_the_end_of_a_broker(
    broker: micromsg.Broker,
) -> None:
    receiver = subscribed(broker, "queue/jobs")
    publisher = micromsg.connect(broker.url)
    publisher.send(b"1", "queue/jobs")
    assert receiver.receive(timeout=TIME) is not None
    with pytest.raises(LinkTimeout, match="not everything was acknowledged or sent"):
        broker.close(timeout=0.1)
    receiver.wait_ended(timeout=TIME)
    with pytest.raises(LinkClosed):
        publisher.wait_acknowledged(timeout=TIME)


async def test_a_broker_serves_asyncio_too() -> None:
    async with aio.serve(URL) as broker:
        async with aio.connect(broker.url) as subscriber, aio.connect(broker.url) as publisher:
            await subscriber.subscribe("t")
            while not broker.stats()["subscriptions"]:
                await publisher.send(b"0", "elsewhere", timeout=TIME)
                await publisher.wait_acknowledged(timeout=TIME)
            await publisher.send(b"1", "t")
            message = await subscriber.receive(timeout=TIME)
            assert message is not None
            assert message.payload == b"1"
        await broker.close(timeout=TIME)
    with pytest.raises(ZeroDivisionError):
        async with aio.serve(URL) as broker:
            _ = 1 // 0
