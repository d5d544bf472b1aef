"""bpmux between processes: over every transport, through signals and deaths."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, wait_until

from ackline import LinkClosed, ProtocolError, RequestClosed, TransportError, bpmux
from ackline.aio import bpmux as aio

TIME = 20
URL = "bpmux://127.0.0.1:0"
OVER = (LinkClosed, ProtocolError, TransportError)

# Answers requests, echoes duplexes, counts messages of sinks, and fills streams until nobody reads.
THREADS = """
import sys, threading
from ackline import bpmux

def answer(payload):
    if payload == b"wait":
        threading.Event().wait()
    if payload == b"raise":
        raise ValueError("refused")
    return payload.upper()

def drain(stream, payload):
    print(payload.decode(), sum(1 for _ in stream), flush=True)

def fill(sink, payload):
    while True:
        sink.send(payload)

def echo(duplex, payload):
    for message in duplex:
        duplex.send(message)

with bpmux.listen(sys.argv[1]) as listener:
    print(listener.url, flush=True)
    for connection in listener:
        serving = dict(on_request=answer, on_sink=drain, on_stream=fill, on_duplex=echo)
        threading.Thread(target=connection.serve, kwargs=serving, daemon=True).start()
"""

ASYNCIO = """
import asyncio, sys
from ackline.aio import bpmux

async def answer(payload):
    if payload == b"wait":
        await asyncio.Event().wait()
    if payload == b"raise":
        raise ValueError("refused")
    return payload.upper()

async def drain(stream, payload):
    print(payload.decode(), len([message async for message in stream]), flush=True)

async def fill(sink, payload):
    while True:
        await sink.send(payload)

async def echo(duplex, payload):
    async for message in duplex:
        await duplex.send(message)

async def main():
    async with bpmux.listen(sys.argv[1]) as listener:
        print(listener.url, flush=True)
        tasks = set()
        async for connection in listener:
            serving = dict(on_request=answer, on_sink=drain, on_stream=fill, on_duplex=echo)
            tasks.add(asyncio.create_task(connection.serve(**serving)))

asyncio.run(main())
"""


class Process:
    """A program and the lines that it prints."""

    def __init__(self, code: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=DEADLINE)


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[Process] = []

    def begin(code: str, *arguments: str) -> Process:
        made.append(Process(code, *arguments))
        return made[-1]

    yield begin
    for one in made:
        one.kill()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    pki.issue("server", "server", "DNS:localhost,IP:127.0.0.1")
    pki.issue("client", "client", "DNS:client.example")
    return pki


@pytest.fixture(params=["tcp", "unix", "tls"])
def place(request: pytest.FixtureRequest, site: Pki, tmp_path: Path) -> tuple[str, str]:
    """The listener's URL, and the connector's addition to it; with TLS both prove themselves."""
    if request.param == "unix":
        return f"bpmux+unix://{tmp_path}/s", ""
    if request.param == "tcp":
        return URL, ""

    def query(name: str) -> str:
        pair = {"cert": site.path(f"{name}.pem"), "key": site.path(f"{name}.key")}
        return "?" + urlencode({"ca": site.ca, **pair})

    return "bpmux+tls://127.0.0.1:0" + query("server"), query("client")


LARGE = bytes(range(256)) * 5000


@pytest.mark.parametrize("server", [THREADS, ASYNCIO], ids=["threads", "asyncio"])
def test_threads_talk_to_another_process(start: Start, place: tuple[str, str], server: str) -> None:
    running = start(server, place[0])
    with bpmux.connect(running.line() + place[1]) as near:
        assert near.call(b"question", timeout=TIME) == b"QUESTION"
        with pytest.raises(RequestClosed) as closed:
            near.call(b"raise", timeout=TIME)
        assert closed.value.payload == b"refused"
        with near.open_sink(b"log") as sink:
            sink.send_many([b"x" * 100] * 5000, timeout=TIME)
        assert running.line() == "log 5000"
        with near.open_duplex() as duplex:
            for payload in (b"", b"small", LARGE):
                duplex.send(payload, timeout=TIME)
                assert duplex.receive(timeout=TIME) == payload
        stream = near.open_stream(b"again")
        assert [stream.receive(timeout=TIME) for _ in range(3)] == [b"again"] * 3
        stream.cancel(b"enough", timeout=TIME)


@pytest.mark.parametrize("server", [THREADS, ASYNCIO], ids=["threads", "asyncio"])
def test_asyncio_talks_to_another_process(
    start: Start, place: tuple[str, str], server: str
) -> None:
    running = start(server, place[0])
    url = running.line() + place[1]

    async def run() -> None:
        async with asyncio.timeout(2 * TIME), aio.connect(url) as near:
            answers = await asyncio.gather(*(near.call(b"n%d" % number) for number in range(100)))
            assert answers == [b"N%d" % number for number in range(100)]
            async with await near.open_sink(b"log") as sink:
                await sink.send_many([b"x" * 100] * 5000, timeout=TIME)
            assert await asyncio.to_thread(running.line) == "log 5000"
            async with await near.open_duplex() as duplex:
                await duplex.send(LARGE, timeout=TIME)
                assert await duplex.receive(timeout=TIME) == LARGE
            stream = await near.open_stream(b"again")
            assert await stream.receive(timeout=TIME) == b"again"
            await stream.cancel(b"enough", timeout=TIME)

    asyncio.run(run())


INTERRUPTED = """
import os, signal, sys
# A test run in the background inherits an ignored SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from ackline import bpmux

listener = bpmux.listen("bpmux://127.0.0.1:0", credit="manual")
near = bpmux.connect(listener.url, send_bytes=10)
far = listener.accept(timeout=20)
stream, response = near.open_stream(), near.request(b"")
opened, request = far.accept(timeout=20), far.accept(timeout=20)
sink = near.open_sink()
near.sink.send(bytes(10))
waits = {
    "listener": listener.accept, "accept": near.accept, "receive": stream.receive,
    "iterate": lambda: list(stream), "response": response.response,
    "call": lambda: near.call(b""), "send": lambda: near.sink.send(b"x"),
    "flush": near.sink.flush, "open": lambda: near.open_sink(b"x"),
    "request": lambda: [near.request(bytes(10)), near.request(b"x")],
    "cancelled": sink.wait_cancelled, "requested": request.wait_cancelled,
    "shutdown": near.shutdown, "ended": near.wait_ended,
    "serve": lambda: far.serve(on_stream=lambda sink, _: sink.wait_cancelled()),
}
try:
    print("ready", flush=True)
    waits[sys.argv[1]]()
except KeyboardInterrupt:
    # Everything goes on after it, but for a connection whose handlers might wait on it.
    if sys.argv[1] not in ("shutdown", "serve"):
        far.stream.grant_credit(100)
        request.respond(b"")
        assert response.response(timeout=20) == b""
    print("interrupted", flush=True)
    os._exit(0)
"""
WAITS = [
    "listener", "accept", "receive", "iterate", "response", "call", "send", "flush", "open",
    "request", "cancelled", "requested", "shutdown", "ended", "serve",
]  # fmt: skip


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_a_wait(start: Start, wait: str) -> None:
    running = start(INTERRUPTED, wait)
    assert running.line() == "ready"
    running.signal(signal.SIGINT)
    assert running.line() == "interrupted"
    assert running.process.wait(DEADLINE) == 0


INTERRUPTED_LOOP = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from ackline.aio import bpmux

async def main():
    async with bpmux.listen("bpmux://127.0.0.1:0") as listener, bpmux.connect(listener.url) as near:
        far = await listener.accept(timeout=20)
        stream = await near.open_stream()
        print("ready", flush=True)
        await asyncio.gather(stream.receive(), near.accept(), far.wait_ended())

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_loop_and_its_blocks(start: Start) -> None:
    running = start(INTERRUPTED_LOOP)
    assert running.line() == "ready"
    running.signal(signal.SIGINT)
    assert running.line() == "interrupted"
    assert running.process.wait(DEADLINE) == 0


def test_a_killed_server_ends_every_wait(start: Start) -> None:
    running = start(THREADS, URL)
    near = bpmux.connect(running.line(), send_bytes=1000)
    response, stream = near.request(b"wait"), near.open_stream(b"x" * 1000)
    sink, watched, duplex = near.open_sink(b"log"), near.open_sink(b"log"), near.open_duplex()
    assert stream.receive(timeout=TIME) == b"x" * 1000
    waits: list[Callable[[], object]] = [
        response.response,
        near.accept,
        duplex.receive,
        lambda: sink.close() or list(stream),
        lambda: near.call(b"wait"),
        lambda: [near.sink.send(bytes(500)) for _ in range(1_000_000)],
        near.wait_ended,
        watched.wait_cancelled,
    ]
    with ThreadPoolExecutor(len(waits)) as threads:
        waiting = [threads.submit(wait) for wait in waits]
        running.signal(signal.SIGKILL)
        for number, wait in enumerate(waiting[:-2]):
            with pytest.raises(OVER):
                pytest.fail(f"wait {number} returned {wait.result(timeout=TIME)!r}")
        for wait in waiting[-2:]:
            assert wait.result(timeout=TIME) is None
    assert near.is_ended
    with pytest.raises(OVER):
        near.open_sink()


def test_a_killed_server_ends_every_task(start: Start) -> None:
    running = start(ASYNCIO, URL)
    url = running.line()

    async def run() -> None:
        near = await aio.connect(url)
        stream, duplex = await near.open_stream(b"x"), await near.open_duplex()
        assert await stream.receive(timeout=TIME) == b"x"

        async def read() -> list[bytes]:
            return [message async for message in stream]

        waits: list[Coroutine[Any, Any, object]] = [
            near.call(b"wait"), near.accept(), duplex.receive(), read(), near.shutdown(),
        ]  # fmt: skip
        tasks = [asyncio.create_task(wait) for wait in waits]
        await asyncio.sleep(0)
        running.signal(signal.SIGKILL)
        done, pending = await asyncio.wait(tasks, timeout=TIME)
        assert not pending
        assert all(isinstance(task.exception(), OVER) for task in tasks), done

    asyncio.run(run())


# Sends for ever on one sink, and waits for a response.
CLIENT = """
import sys
from ackline import bpmux
near = bpmux.connect(sys.argv[1])
response = near.request(b"question")
sink = near.open_sink(b"log")
number = 0
while True:
    sink.send(b"%d" % number)
    number += 1
"""


def test_a_killed_client_is_noticed_once_all_that_came_is_read(start: Start) -> None:
    with bpmux.listen(URL) as listener:
        running = start(CLIENT, listener.url)
        far = listener.accept(timeout=TIME)
        request, opened = far.accept(timeout=TIME), far.accept(timeout=TIME)
        assert isinstance(request, bpmux.Request)
        assert isinstance(opened, bpmux.OpenedSink)
        got = [opened.stream.receive(timeout=TIME)]
        running.signal(signal.SIGKILL)
        far.wait_ended(timeout=TIME)
        with pytest.raises(OVER):
            got.extend(opened.stream)
        assert got == [b"%d" % number for number in range(len(got))]
        with pytest.raises(OVER):
            request.respond(b"answer")
        with pytest.raises(OVER):
            far.accept(timeout=TIME)
        # Others are served as before.
        other = bpmux.connect(listener.url)
        other.sink.send(b"x")
        assert listener.accept(timeout=TIME).stream.receive(timeout=TIME) == b"x"


def test_a_server_outlives_its_clients(start: Start) -> None:
    with bpmux.listen(URL) as listener, ThreadPoolExecutor(1) as threads:
        running = start(CLIENT, listener.url)
        far = listener.accept(timeout=TIME)
        served = threads.submit(
            far.serve, on_request=lambda payload: payload, on_sink=lambda stream, _: list(stream)
        )
        wait_until(lambda: far.stats()["payloads_received"] > 100, "it sends")
        running.signal(signal.SIGKILL)
        # In good order or by a reset: it ends, and so do its handlers.
        try:
            served.result(timeout=TIME)
        except OVER:
            assert far.is_ended


def test_a_peer_that_stands_still_is_given_up(start: Start) -> None:
    running = start(THREADS, URL)
    near = bpmux.connect(running.line(), ping_after=0.5, pong_timeout=1)
    response = near.request(b"wait")
    running.signal(signal.SIGSTOP)
    with pytest.raises(OVER) as told:
        response.response(timeout=TIME)
    assert "pong" in str(told.value)
    running.signal(signal.SIGCONT)


def resident() -> int:
    """Bytes of this process in memory."""
    status = Path(f"/proc/{os.getpid()}/status").read_text("ascii")
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


# Takes no message, and gives credit for none.
DEAF = """
import sys
from ackline import bpmux
with bpmux.listen("bpmux://127.0.0.1:0", credit="manual") as listener:
    print(listener.url, flush=True)
    kept = list(listener)
"""


@pytest.mark.alone
def test_memory_that_waited_for_a_killed_peer_is_freed(start: Start) -> None:
    """The handles are kept, and the messages that waited in them are not."""
    kept: list[bpmux.Connection] = []

    def kill_one() -> int:
        running = start(DEAF)
        url = running.line()
        round_of_it = [bpmux.connect(url, send_bytes=8 << 20) for _ in range(8)]
        for near in round_of_it:
            near.sink.send_many([bytes(1 << 20)] * 8, timeout=TIME)
            assert near.stats()["waiting_bytes"] == 8 << 20
        running.signal(signal.SIGKILL)
        for near in round_of_it:
            near.wait_ended(timeout=TIME)
            assert near.stats()["waiting_bytes"] == 0
        kept.extend(round_of_it)
        return resident()

    first = kill_one()
    for _ in range(3):
        last = kill_one()
    assert last - first < 96 << 20, "each round had 64 MiB"
