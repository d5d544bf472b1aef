"""Handlers of bpmux learn from their context who calls, and that the call is given up."""

import threading
from concurrent.futures import Future

import pytest
from support.serving import NOW, TIME, URL, URLS, Serve, adapted, both, by_tasks, by_threads

from ackline import UsageError, bpmux
from ackline.aio import bpmux as aio


@both
def test_a_handler_with_a_parameter_context_is_given_one(serve: Serve) -> None:
    found: list[tuple[str | None, float | None, bool, bytes | None]] = []

    def note(context: bpmux.Context | aio.Context) -> None:
        peer = None if context.peer is None else context.peer.name
        found.append((peer, context.deadline, context.cancelled, context.reason))

    def answer(asked: bytes, context: bpmux.Context) -> bytes:
        note(context)
        return asked

    async def answer_in_a_task(asked: bytes, *, context: aio.Context) -> bytes:
        note(context)
        return asked

    def end(*_: object, context: bpmux.Context) -> None:
        note(context)

    async def end_in_a_task(_half: object, _: bytes, context: aio.Context) -> None:
        note(context)

    in_threads = serve is by_threads
    ending = end if in_threads else end_in_a_task
    handlers = {f"on_{kind}": ending for kind in ("sink", "stream", "duplex")}
    with serve(on_request=answer if in_threads else answer_in_a_task, **handlers) as near:
        assert near.call(b"asked", timeout=TIME) == b"asked"
        sink = near.open_sink()
        stream = near.open_stream()
        duplex = near.open_duplex()
        assert (stream.receive(timeout=TIME), stream.closed) == (None, b"")
        assert (duplex.receive(timeout=TIME), duplex.closed) == (None, b"")
        assert sink.wait_cancelled(timeout=TIME) == b""
        duplex.wait_cancelled(timeout=TIME)
    assert len(found) == 4
    for peer, *rest in found:
        assert peer is not None
        assert peer.startswith("127.0.0.1:")
        assert rest == [None, False, None]


@both
def test_a_handler_without_that_parameter_is_called_as_ever(serve: Serve) -> None:
    def answer(asked: bytes, scale: int = 2, **more: object) -> bytes:
        return asked * scale + b"%d" % len(more)

    with serve(on_request=adapted(serve, answer)) as near:
        assert near.call(b"a", timeout=TIME) == b"aa0"


@both
def test_a_context_that_can_be_given_by_position_alone_is_refused(serve: Serve) -> None:
    del serve

    def answer(asked: bytes, context: object, /) -> bytes:
        del context
        return asked

    with (
        bpmux.listen(URL) as listener,
        bpmux.connect(listener.url) as near,
        pytest.raises(UsageError, match="on_request takes context by position alone"),
    ):
        near.serve(on_request=answer)  # type: ignore[arg-type]


def test_a_handler_in_a_thread_sees_that_its_call_is_given_up() -> None:
    seen: Future[tuple[bool, bool, bytes | None]] = Future()
    early: list[bool] = []

    def answer(_: bytes, context: bpmux.Context) -> None:
        early.append(context.wait_cancelled(timeout=NOW))
        begun.set()
        seen.set_result((context.wait_cancelled(timeout=TIME), context.cancelled, context.reason))

    begun = threading.Event()
    with by_threads(on_request=answer) as near:
        response = near.request(b"asked")
        assert begun.wait(TIME)
        response.cancel(b"no more")
        assert seen.result(timeout=TIME) == (True, True, b"no more")
    assert early == [False]


@pytest.mark.parametrize("kind", ["request", "sink", "stream", "duplex"])
def test_a_handler_in_a_thread_sees_that_its_peer_is_gone(kind: str) -> None:
    seen: Future[tuple[bool, bytes | None]] = Future()
    begun = threading.Event()

    def handle(*_: object, context: bpmux.Context) -> None:
        begun.set()
        seen.set_result((context.wait_cancelled(timeout=TIME), context.reason))

    with by_threads(**{f"on_{kind}": handle}) as near, bpmux.connect(URLS[near]) as gone:
        held = gone.request(b"") if kind == "request" else getattr(gone, f"open_{kind}")()
        assert begun.wait(TIME)
        gone.abort()
        assert seen.result(timeout=TIME) == (True, None)
        del held


def test_a_handler_in_a_task_can_wait_for_its_reader() -> None:
    seen: Future[tuple[bool, bool, bytes | None]] = Future()

    async def echo(_duplex: aio.Duplex, _: bytes, context: aio.Context) -> None:
        early = await context.wait_cancelled(timeout=NOW)
        begun.set()
        late = await context.wait_cancelled(timeout=TIME)
        seen.set_result((early, late, context.reason))

    begun = threading.Event()
    with by_tasks(on_duplex=echo) as near:
        duplex = near.open_duplex()
        assert begun.wait(TIME)
        duplex.cancel(b"enough", timeout=TIME)
        assert seen.result(timeout=TIME) == (False, True, b"enough")
