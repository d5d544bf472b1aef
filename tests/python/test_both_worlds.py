"""The links for threads and those for asyncio have the same names and refuse the same timeouts."""

import inspect
import math
from contextlib import suppress

import pytest

from ackline import AcklineError, LinkTimeout, UsageError, bpmux, lumberjack, relink
from ackline.aio import bpmux as aio_bpmux
from ackline.aio import lumberjack as aio_lumberjack
from ackline.aio import relink as aio_relink

TIME = 20
ORDERS = "relink://127.0.0.1:0/orders"
PLACE = "bpmux://127.0.0.1:0"
PAIRS = [(lumberjack, aio_lumberjack), (relink, aio_relink), (bpmux, aio_bpmux)]
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
        if inspect.isclass(one):
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


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("world", [relink, aio_relink])
async def test_every_wait_of_relink_refuses_a_timeout_that_is_none(world, value):
    listener = world.listen(ORDERS)
    link = await done(world.connect(listener.url))
    receipt = await done(link.send(1, b"x"))
    waits = [
        receipt.received, receipt.consumed, receipt.committed, link.receive, link.receive_many,
        link.decision, link.ping, link.flush, link.shutdown, link.hand_over, listener.accept,
    ]  # fmt: skip
    for wait in waits:
        with pytest.raises(UsageError, match="timeout is ") as refused:
            await done(wait(timeout=value))
        assert refused.value.code == "timeout", wait
    link.discard()
    await done(listener.close())


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("world", [bpmux, aio_bpmux])
async def test_every_wait_of_bpmux_refuses_a_timeout_that_is_none(world, value):
    listener = world.listen(PLACE)
    near = await done(world.connect(listener.url))
    far = await done(listener.accept(timeout=TIME))
    sink = await done(near.open_sink(timeout=TIME))
    response = await done(near.request(b"x"))
    request = await done(far.accept(timeout=TIME))
    if not isinstance(request, world.Request):
        request = await done(far.accept(timeout=TIME))
    waits = [
        sink.wait_cancelled, sink.close, near.stream.receive, near.stream.receive_part,
        near.stream.receive_many, near.accept, near.wait_ended, near.shutdown, near.ping,
        response.response, response.ping, request.wait_cancelled, listener.accept,
    ]  # fmt: skip
    for wait in waits:
        with pytest.raises(UsageError, match="timeout is ") as refused:
            await done(wait(timeout=value))
        assert refused.value.code == "timeout", wait
    near.abort()
    far.abort()
    await done(listener.close())


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
