"""The links for threads and those for asyncio have the same names and refuse the same timeouts."""

import inspect
import math
import socket
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import is_typeddict

import pytest

from ackline import AcklineError, LinkTimeout, UsageError, bpmux, lumberjack, micromsg, relink
from ackline.aio import bpmux as aio_bpmux
from ackline.aio import lumberjack as aio_lumberjack
from ackline.aio import micromsg as aio_micromsg
from ackline.aio import relink as aio_relink

TIME = 20
ORDERS = "relink://127.0.0.1:0/orders"
PLACE = "bpmux://127.0.0.1:0"
PAIRS = [
    (lumberjack, aio_lumberjack),
    (relink, aio_relink),
    (bpmux, aio_bpmux),
    (micromsg, aio_micromsg),
]
OF_ASYNCIO = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


async def done(called):
    """The result of a call in either world."""
    return await called if inspect.isawaitable(called) else called


def parameters(function):
    every = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in every]


def members(module):
    """The parameters of everything public, by name."""
    found = {}
    for name in module.__all__:
        one = getattr(module, name)
        if inspect.isfunction(one):
            found[name] = parameters(one)
        if is_typeddict(one):
            found[name] = one
        elif inspect.isclass(one):
            for own_name in dir(one):
                key = OF_ASYNCIO.get(own_name, own_name)
                if key.startswith("_") and key not in OF_ASYNCIO.values():
                    continue
                member = getattr(one, own_name)
                found[f"{name}.{key}"] = parameters(member) if callable(member) else None
    return found


@pytest.mark.parametrize(("threads", "asyncio"), PAIRS)
def test_both_worlds_have_the_same_names_and_parameters(threads, asyncio):
    assert threads.__all__ == asyncio.__all__
    assert members(threads) == members(asyncio)


@asynccontextmanager
async def lumberjack_waits(world):
    """Waits that do not end by themselves, and others."""
    listener = world.listen("lumberjack://127.0.0.1:0")
    silent = world.listen("lumberjack://127.0.0.1:0")
    writer = await done(world.connect(listener.url))
    number = writer.try_send([b"{}"])
    window = await done(listener.receive(timeout=TIME))
    waits = [
        writer.flush, partial(writer.wait_acknowledged, number), partial(writer.send, [b"{}"]),
        silent.receive, silent.receive_many,
    ]  # fmt: skip
    yield waits, [writer.close]
    window.ack()
    await done(writer.close(timeout=0))
    await done(listener.close())
    await done(silent.close())


@asynccontextmanager
async def relink_waits(world):
    """Waits that do not end by themselves, and others."""
    listener = world.listen(f"{ORDERS}?connector_transactions=true")
    link = await done(world.connect(listener.url, connector_transactions=True))
    there = await done(listener.accept(timeout=TIME))
    receipt = await done(link.send(1, b"x"))
    await done(there.receive(timeout=TIME))
    yield [
        receipt.received, receipt.consumed, receipt.committed, link.receive, link.receive_many,
        link.decision, link.flush, listener.accept, link.shutdown,
    ], [link.ping, link.hand_over]  # fmt: skip
    link.discard()
    there.discard()
    await done(listener.close())


@asynccontextmanager
async def bpmux_waits(world):
    """Waits that do not end by themselves, and others."""
    listener = world.listen(PLACE)
    near = await done(world.connect(listener.url))
    far = await done(listener.accept(timeout=TIME))
    sink = await done(near.open_sink(timeout=TIME))
    response = await done(near.request(b"x"))
    arrivals = [await done(far.accept(timeout=TIME)) for _ in range(2)]
    request = next(one for one in arrivals if isinstance(one, world.Request))
    yield [
        sink.wait_cancelled, near.stream.receive, near.stream.receive_part, near.accept,
        near.stream.receive_many, near.wait_ended, response.response, request.wait_cancelled,
        listener.accept, partial(near.call, b"x"), near.shutdown,
    ], [sink.close, near.ping, response.ping]  # fmt: skip
    near.abort()
    far.abort()
    await done(listener.close())


@asynccontextmanager
async def micromsg_waits(world):
    """Waits that do not end by themselves, and others."""
    listener = world.listen("micromsg://127.0.0.1:0", ack_policy="manual")
    near = await done(world.connect(listener.url, window=1))
    far = await done(listener.accept(timeout=TIME))
    await done(near.send(b"x"))
    yield [
        partial(near.send, b"x"), partial(near.send_some, [b"x"]), near.wait_acknowledged,
        near.receive, near.receive_some, near.receive_command, near.receive_extension,
        near.wait_ended, near.close, listener.accept,
    ], [
        partial(near.subscribe, "t"), partial(near.unsubscribe, "t"), partial(near.command, "a"),
        partial(near.send_extension, "pub-sub", b""), near.wait_connected,
        partial(far.fail, "no more"),
    ]  # fmt: skip
    near.abort()
    far.abort()
    await done(listener.close())


WAITS = [
    (lumberjack_waits, lumberjack),
    (lumberjack_waits, aio_lumberjack),
    (relink_waits, relink),
    (relink_waits, aio_relink),
    (bpmux_waits, bpmux),
    (bpmux_waits, aio_bpmux),
    (micromsg_waits, micromsg),
    (micromsg_waits, aio_micromsg),
]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(("waits", "world"), WAITS)
async def test_every_wait_refuses_a_timeout_that_is_none(waits, world, value):
    async with waits(world) as (endless, others):
        for wait in endless + others:
            with pytest.raises(UsageError, match="timeout is ") as refused:
                await done(wait(timeout=value))
            assert refused.value.code == "timeout", wait


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("waits", "world"), WAITS)
async def test_every_wait_ends_after_its_timeout(waits, world):
    async with waits(world) as (endless, _):
        for wait in endless:
            begun = time.monotonic()
            with pytest.raises(LinkTimeout):
                await done(wait(timeout=0.05))
            assert 0.05 <= time.monotonic() - begun < TIME, wait


@pytest.mark.parametrize("world", [relink, aio_relink])
async def test_a_hand_over_that_is_late_names_its_timeout(world):
    listener = world.listen(ORDERS)
    link = await done(world.connect(listener.url))
    await done(link.send(1, b"x"))
    with pytest.raises(LinkTimeout) as late:
        await done(link.hand_over(timeout=0.01))
    assert str(late.value) == "the peer does not have everything within 0.01 s"
    with suppress(AcklineError):
        link.discard()
    await done(listener.close())


@pytest.mark.parametrize("world", [lumberjack, aio_lumberjack])
async def test_the_close_of_a_listener_waits_for_its_senders(world):
    listener = world.listen("lumberjack://127.0.0.1:0")
    host, port = listener.url.removeprefix("lumberjack://").split(":")
    with socket.create_connection((host, int(port)), timeout=TIME) as peer:
        peer.sendall(b"2W\0\0\0\x012J\0\0\0\x01\0\0\0\x02{}")
        window = await done(listener.receive(timeout=TIME))
        window.ack()
        begun = time.monotonic()
        await done(listener.close(timeout=0.2))
        assert time.monotonic() - begun >= 0.2, "the sender has not ended its connection"
        assert peer.recv(6, socket.MSG_WAITALL) == b"2A\0\0\0\x01"
