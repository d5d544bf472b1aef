"""Attacks on a broker with default limits: they cost its budget, and good peers are served."""

import contextlib
import os
import socket
import time
from pathlib import Path

import broker_harness
import harness
import pytest
import wire
from broker_harness import LAST_MESSAGES, Broker, Latency, Pair, Plan, broker_formula
from broker_programs import PROGRAMS
from dripping import ADDRESSES, hostile_senders
from harness import MIB

from ackline import micromsg

PLANS = [
    Plan(("stalled_subscribers",)),
    Plan(("stalled_subscribers_of_few_messages",)),
    Plan(("queue_of_few_messages",)),
    Plan(("queues_without_workers", "queues_of_few_messages")),
    Plan(("queue_without_worker", "queue_of_few_messages"), is_durable=True),
    Plan(("types_of_a_queue", "types_of_a_topic")),
    Plan(("filters",)),
    Plan(
        ("endless_fragments", "micromsg_small_fragments"),
        refused=("micromsg.limit_exceeded",),
    ),
    # Slow peers are ended after 5 s to 8 s.
    Plan(("micromsg_slow_fragments",), refused=("link.slow",), seconds=12.0),
    Plan(("churn",)),
    Plan(("half_handshakes",), is_idle=True),
    Plan(("many_keys", "queue_without_worker", "unread_acknowledgements", "micromsg_repeats")),
    Plan(("publishers_that_leave",), stays=True),
    Plan(("windows_ignored",), refused=("micromsg.window_exceeded", "micromsg.slow_subscriber")),
]

FILES = 64
"""Open files of a broker that has few."""


@pytest.mark.alone
@pytest.mark.timeout(180)
@pytest.mark.parametrize("plan", PLANS, ids=[plan.name for plan in PLANS])
def test_attacks_on_a_broker_cost_its_budget_and_nothing_more(plan: Plan, tmp_path: Path) -> None:
    """Memory below the formula, good pairs served, descriptors back, an end in order."""
    figures = broker_harness.measured(plan, tmp_path)
    assert not broker_harness.broken(figures, plan), str(figures)


def test_each_program_is_part_of_a_plan() -> None:
    assert {name for plan in PLANS for name in plan.attacks} == set(PROGRAMS)


def fragments(peer: socket.socket) -> bytes:
    """The bytes of a message in fragments that goes on: about what one connection may hold."""
    wire.micromsg_shake(peer)
    return wire.micromsg_message(1, b"d", b"x" * 15_000, continued=True) * 200


@pytest.mark.alone
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("rate", "options", "seconds"),
    [(500, (), 9), (2_000, (), 9), (500, ("--frame-timeout", "3s"), 6)],
)
def test_large_messages_of_a_good_pair_come_through(
    rate: int, options: tuple[str, ...], seconds: float, tmp_path: Path
) -> None:
    """As the test of `test_memory.py` for windows of a receiver, which explains the times."""
    with Broker(tmp_path, "--memory", "16MiB", *options) as broker, contextlib.ExitStack() as stack:
        taker, publisher = (
            stack.enter_context(micromsg.connect(broker.url, timeout=10)) for _ in range(2)
        )
        taker.subscribe("good")
        took = []
        with hostile_senders(broker.port("micromsg"), rate, fragments, others=2):
            time.sleep(1)
            end = time.monotonic() + 25
            while time.monotonic() < end:
                begun = time.monotonic()
                publisher.send(bytes(300_000), "good", timeout=60)
                taker.receive(timeout=60)
                took.append(time.monotonic() - begun)
                time.sleep(0.02)
        print(f"{len(took)} messages, the slowest in {max(took):.1f} s")
        assert max(took) < seconds, took
        assert set(harness.refused(broker)) == {"link.slow"}
        assert broker.resident() <= broker_formula(16 * MIB, ADDRESSES + 2)


@pytest.mark.alone
@pytest.mark.timeout(120)
def test_a_broker_with_few_descriptors_goes_on_serving(tmp_path: Path) -> None:
    limited = ["prlimit", f"--nofile={FILES}:{FILES}"]
    with Broker(tmp_path, through=limited) as broker, contextlib.ExitStack() as stack:
        good = Pair(broker.url, "good")
        begun = time.monotonic()
        time.sleep(1)
        crowded = time.monotonic()
        for _ in range(200):
            stack.enter_context(wire.connected(broker.port("micromsg")))
        time.sleep(2)
        assert FILES / 2 < broker.descriptors() <= FILES - FILES // 4 + 2
        assert broker.errors.read_text().count("link.accept_paused") == 1
        ended = time.monotonic()
        stack.close()
        # Later peers are served as soon as there is room, without a restart.
        later = Pair(broker.url, "queue/later")
        time.sleep(0.5)
        for pair in (good, later):
            pair.end()
            assert not pair.failures
        assert Latency(good.p99(begun, crowded), good.p99(crowded, ended)).is_short
        assert later.p99(ended, time.monotonic()) < LAST_MESSAGES
        assert broker.stop() == os.EX_OK
