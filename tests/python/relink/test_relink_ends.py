"""Waits on a link of Relink end with an error when the link is released at this end."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.commands import wait_until

from ackline import LinkClosed, LinkLost, LinkTimeout, UsageError, relink
from ackline.aio import relink as aio
from ackline.exceptions import Unacknowledged

TIME = 20
URL = "relink://127.0.0.1:0/orders"
LEFT = (Unacknowledged(b"\1\0\0\0", 0, (b"x",)),)

Wait = Callable[[relink.Link, relink.Receipt], object]
WAITS: dict[str, Wait] = {
    "received": lambda _, receipt: receipt.received(),
    "consumed": lambda _, receipt: receipt.consumed(),
    "committed": lambda _, receipt: receipt.committed(),
    "outcome": lambda _, receipt: receipt.outcome,
    "flush": lambda link, _: link.flush(),
    "unacknowledged": lambda link, _: link.unacknowledged,
    "shutdown": lambda link, _: link.shutdown(),
    "send": lambda link, _: link.send(1, b"y"),
}
# A send that waits for room is refused as soon as the shutdown begins.
AT_ONCE = {"outcome", "unacknowledged", "send"}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_for_an_acknowledgement_ends_when_the_link_is_closed_here(name):
    wait, told = WAITS[name], []
    with relink.listen(URL) as listener:
        link = relink.connect(listener.url, send_window=1)
        peer = listener.accept(timeout=TIME)
        receipt = link.send(1, b"x")
        begun = threading.Event()

        def waits() -> None:
            begun.set()
            try:
                told.append(wait(link, receipt))
            except LinkClosed as error:
                told.append(error)

        waiting = threading.Thread(target=waits, daemon=True)
        if name not in AT_ONCE:
            waiting.start()
            begun.wait(TIME)
        # The peer does not answer: it neither consumes nor shuts down.
        assert link.close(timeout=0.05) == list(LEFT)
        if name not in AT_ONCE:
            waiting.join(TIME)
            assert [type(one) for one in told] == [LinkLost]
            assert told[0].messages == LEFT
        with pytest.raises(LinkLost, match="closed here") as lost:
            wait(link, receipt)
        assert lost.value.messages == LEFT
        peer.close(timeout=0)


async def test_a_task_that_waits_is_told_that_the_link_was_closed_here():
    async with aio.listen(URL) as listener, aio.connect(listener.url) as link:
        peer = await listener.accept(timeout=TIME)
        receipt = await link.send(1, b"x")
        calls = [receipt.received(), receipt.consumed(), receipt.committed(), link.flush()]
        tasks = [asyncio.create_task(call) for call in calls]
        await asyncio.sleep(0)
        assert await link.close(timeout=0) == list(LEFT)
        for told in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), TIME):
            assert isinstance(told, LinkLost)
            assert told.messages == LEFT
        with pytest.raises(LinkLost):
            await receipt.consumed()
        await peer.close(timeout=0)


def test_a_link_that_is_kept_is_not_lost_when_it_is_closed_here(tmp_path: Path):
    with relink.listen(URL) as listener:
        link = relink.connect(listener.url, state=tmp_path / "state")
        receipt = link.send(1, b"x")
        assert link.close(timeout=0) == list(LEFT)
        with pytest.raises(LinkClosed, match="goes on with it") as closed:
            receipt.consumed()
        assert not isinstance(closed.value, LinkLost)


def test_an_iteration_ends_when_the_link_is_closed_here():
    with relink.listen(URL) as listener:
        link = relink.connect(listener.url)
        peer = listener.accept(timeout=TIME)
        link.send(1, b"x")
        seen: list[relink.Message] = []
        iterating = threading.Thread(target=lambda: seen.extend(link), daemon=True)
        iterating.start()
        link.close(timeout=0.05)
        iterating.join(TIME)
        assert not iterating.is_alive()
        assert seen == []
        peer.close(timeout=0)


def test_several_closes_at_once_all_return_the_unacknowledged_messages():
    with relink.listen(URL) as listener:
        link = relink.connect(listener.url)
        peer = listener.accept(timeout=TIME)
        link.send(1, b"x")
        together = threading.Barrier(6)

        def closes(_: int) -> list[Unacknowledged]:
            together.wait(TIME)
            return link.close(timeout=0.2)

        with ThreadPoolExecutor(6) as pool:
            left = list(pool.map(closes, range(6)))
        # A close after the end returns nothing.
        assert list(LEFT) in left
        assert all(one in (list(LEFT), []) for one in left)
        assert link.close() == []
        peer.close(timeout=0)


async def test_several_closes_in_tasks_all_return_the_unacknowledged_messages():
    async with aio.listen(URL) as listener, aio.connect(listener.url) as link:
        peer = await listener.accept(timeout=TIME)
        await link.send(1, b"x")
        left = await asyncio.gather(*(link.close(timeout=0.2) for _ in range(20)))
        assert list(LEFT) in left
        assert all(one in (list(LEFT), []) for one in left)
        await peer.close(timeout=0)


@pytest.mark.alone
def test_a_channel_that_is_named_several_times_waits_for_so_much_room():
    with relink.listen(URL) as listener:
        link = relink.connect(listener.url, send_window=5)
        peer = listener.accept(timeout=TIME)
        with pytest.raises(UsageError, match="send_window") as refused:
            link.send_to([7] * 6, b"")
        assert refused.value.code == "too_often"
        link.send_many(3, [b"x"] * 4)
        # One message fits on channel 3, and two are sent.
        begin = time.process_time()
        with pytest.raises(LinkTimeout):
            link.send_to([1, 2, 3, 3], b"y", timeout=1.0)
        assert time.process_time() - begin < 0.5, "it waits, and does not spin"
        peer.consume_many(peer.receive_many(1, timeout=TIME))
        receipts = link.send_to([1, 2, 3, b"\3\0\0\0"], b"y", timeout=TIME)
        assert [receipt.sequence for receipt in receipts] == [0, 0, 4, 5]
        link.close(timeout=0)
        peer.close(timeout=0)


async def test_a_task_that_names_a_channel_several_times_waits_for_so_much_room():
    async with (
        aio.listen(URL) as listener,
        aio.connect(listener.url, send_window=2, ack_delay=0.0) as link,
    ):
        peer = await listener.accept(timeout=TIME)
        await link.send(1, b"x")
        with pytest.raises(LinkTimeout):
            await link.send_to([1, 1], b"y", timeout=0.1)
        sending = asyncio.create_task(link.send_to([1, 1], b"y", timeout=TIME))
        peer.consume_many(await peer.receive_many(1, timeout=TIME))
        assert [receipt.sequence for receipt in await sending] == [1, 2]
        await link.close(timeout=0)
        await peer.close(timeout=0)


def test_decisions_that_nobody_takes_end_reading_and_the_log_says_so_once(caplog):
    url = "relink://127.0.0.1:0/n"
    options = {"connector_transactions": True, "receive_window": 200_000}
    with relink.listen(url, **options) as listener:
        link = relink.connect(listener.url, connector_transactions=True, send_window=200_000)
        peer = listener.accept(timeout=TIME)
        for number in range(66_000):
            sent = link.send(1, b"x")
            (link.rollback if number % 2 else link.commit)(1, sent.sequence)
        waiting = "relink.decisions_wait"
        wait_until(lambda: waiting in caplog.text, "the link says that it reads nothing")
        # The peer reads nothing, so not even a ping is answered.
        with pytest.raises(LinkTimeout):
            link.ping(timeout=0.3)
        assert caplog.text.count(waiting) == 1
        assert "decisions=65536" in caplog.text
        taken = [peer.decision(timeout=TIME) for _ in range(66_000)]
        assert [one.through for one in taken] == list(range(66_000))
        assert {one.operation for one in taken} == {"commit", "rollback"}
        link.ping(timeout=TIME)
        assert caplog.text.count(waiting) == 1
        link.discard()
