"""Calls and streams from Python, beside grpcio and rsocket-py: `run.py --only bpmux-python`.

A server and a client, each a process of its own, over one TCP connection on this machine. None has
a codec: all carry raw bytes. Calls are 64 bytes there and back: one after the other, or many at
once on one connection, by 64 tasks or 16 threads that each wait for their own. Of streamed messages
of 1 KiB the client has every payload as `bytes`. All are counted for some seconds after the first
ones. rsocket-py has asyncio alone, so that it stands beside threads too. `bare-asyncio` is no
protocol at all: the time that an event loop itself needs to write, learn of the answer and go on,
with a task for each request, which all of them have.
"""

import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from relink import Meter, processor_seconds

ASKED = bytes(64)
STREAMED = bytes(1024)
BATCH = 256
"""Messages that a sender hands over at once, or that a reader asks for."""
TASKS = 64
THREADS = 16
"""Calls at once."""
CASES = [
    ("calls", "bpmux-sync", ["grpc-sync", "rsocket-asyncio"], 3.0),
    ("calls", "bpmux-asyncio", ["grpc-asyncio", "rsocket-asyncio"], 3.0),
    ("calls", "bpmux-asyncio", ["bare-asyncio"], None),
    ("many", "bpmux-sync", ["grpc-sync", "rsocket-asyncio"], 3.0),
    ("many", "bpmux-asyncio", ["grpc-asyncio", "rsocket-asyncio"], 3.0),
    ("stream", "bpmux-sync", ["grpc-sync", "rsocket-asyncio"], 10.0),
    ("stream", "bpmux-asyncio", ["grpc-asyncio", "rsocket-asyncio"], 10.0),
]
"""Subject, our side, the others, and the goal: a multiple of their rate, if there is one."""
URL = "bpmux://127.0.0.1:0"


def said(url: str) -> None:
    """Print where the server listens."""
    print(url, flush=True)


def by_threads(call: Callable[[bytes], object], meter: Meter) -> None:
    """Call from as many threads at once."""
    counting = threading.Lock()

    def calls() -> None:
        enough = False
        while not enough:
            call(ASKED)
            with counting:
                enough = meter.saw(1)

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(THREADS):
            threads.submit(calls)


async def by_tasks(call: Callable[[], Awaitable[object]], meter: Meter) -> None:
    """Call from as many tasks at once."""

    async def calls() -> None:
        while not meter.saw(1):
            await call()

    await asyncio.gather(*(calls() for _ in range(TASKS)))


# ---- bpmux ----


def bpmux_sync_serve() -> None:
    """Serve with threads."""
    from ackline import bpmux

    batch = [STREAMED] * BATCH

    def stream(sink: bpmux.Sink, _payload: bytes) -> None:
        while True:
            sink.send_many(batch)

    with bpmux.listen(URL) as listener:
        said(listener.url)
        listener.serve(on_request=lambda payload: payload, on_stream=stream)


def bpmux_sync_calls(url: str, meter: Meter) -> None:
    """Call with a thread that waits."""
    from ackline import bpmux

    with bpmux.connect(url) as connection:
        while not meter.saw(1):
            connection.call(ASKED)


def bpmux_sync_many(url: str, meter: Meter) -> None:
    """Call with threads that wait."""
    from ackline import bpmux

    with bpmux.connect(url) as connection:
        by_threads(connection.call, meter)


def bpmux_sync_stream(url: str, meter: Meter) -> None:
    """Read with a thread that waits."""
    from ackline import bpmux

    with bpmux.connect(url) as connection, connection.open_stream() as stream:
        while not meter.saw(len(stream.receive_many())):
            pass


def bpmux_asyncio_serve() -> None:
    """Serve in an event loop."""
    from ackline.aio import bpmux

    batch = [STREAMED] * BATCH

    async def request(payload: bytes) -> bytes:
        return payload

    async def stream(sink: bpmux.Sink, _payload: bytes) -> None:
        while True:
            await sink.send_many(batch)

    async def serve() -> None:
        async with bpmux.listen(URL) as listener:
            said(listener.url)
            await listener.serve(on_request=request, on_stream=stream)

    asyncio.run(serve())


def bpmux_asyncio_calls(url: str, meter: Meter) -> None:
    """Call in an event loop."""
    from ackline.aio import bpmux

    async def call() -> None:
        async with bpmux.connect(url) as connection:
            while not meter.saw(1):
                await connection.call(ASKED)

    asyncio.run(call())


def bpmux_asyncio_many(url: str, meter: Meter) -> None:
    """Call with tasks of an event loop."""
    from ackline.aio import bpmux

    async def call() -> None:
        async with bpmux.connect(url) as connection:
            await by_tasks(lambda: connection.call(ASKED), meter)

    asyncio.run(call())


def bpmux_asyncio_stream(url: str, meter: Meter) -> None:
    """Read in an event loop."""
    from ackline.aio import bpmux

    async def read() -> None:
        async with bpmux.connect(url) as connection:
            stream = await connection.open_stream()
            while not meter.saw(len(await stream.receive_many())):
                pass
            await stream.cancel()

    asyncio.run(read())


# ---- grpcio, without serializers ----


def grpc_handlers(grpc: Any, call: Any, stream: Any) -> Any:
    """Return a handler of both methods."""
    methods = {
        "calls": grpc.unary_unary_rpc_method_handler(call),
        "stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    return grpc.method_handlers_generic_handler("bench", methods)


def grpc_sync_serve() -> None:
    """Serve with threads."""
    import grpc

    def stream(_request: bytes, _context: Any) -> Iterator[bytes]:
        while True:
            yield STREAMED

    server = grpc.server(ThreadPoolExecutor(2))
    handlers = grpc_handlers(grpc, lambda request, _context: request, stream)
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    said(f"127.0.0.1:{port}")
    server.wait_for_termination()


def grpc_sync_calls(url: str, meter: Meter) -> None:
    """Call with a thread that waits."""
    import grpc

    with grpc.insecure_channel(url) as channel:
        call = channel.unary_unary("/bench/calls")
        while not meter.saw(1):
            call(ASKED)


def grpc_sync_many(url: str, meter: Meter) -> None:
    """Call with threads that wait."""
    import grpc

    with grpc.insecure_channel(url) as channel:
        by_threads(channel.unary_unary("/bench/calls"), meter)


def grpc_sync_stream(url: str, meter: Meter) -> None:
    """Read with a thread that waits."""
    import grpc

    with grpc.insecure_channel(url) as channel:
        messages = channel.unary_stream("/bench/stream")(ASKED)
        for _ in messages:
            if meter.saw(1):
                messages.cancel()
                return


def grpc_asyncio_serve() -> None:
    """Serve in an event loop."""
    import grpc

    async def call(request: bytes, _context: Any) -> bytes:
        return request

    async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while True:
            yield STREAMED

    async def serve() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc_handlers(grpc, call, stream),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        said(f"127.0.0.1:{port}")
        await server.wait_for_termination()

    asyncio.run(serve())


def grpc_asyncio_calls(url: str, meter: Meter) -> None:
    """Call in an event loop."""
    import grpc

    async def calls() -> None:
        async with grpc.aio.insecure_channel(url) as channel:
            call = channel.unary_unary("/bench/calls")
            while not meter.saw(1):
                await call(ASKED)

    asyncio.run(calls())


def grpc_asyncio_many(url: str, meter: Meter) -> None:
    """Call with tasks of an event loop."""
    import grpc

    async def calls() -> None:
        async with grpc.aio.insecure_channel(url) as channel:
            call = channel.unary_unary("/bench/calls")
            await by_tasks(lambda: call(ASKED), meter)

    asyncio.run(calls())


def grpc_asyncio_stream(url: str, meter: Meter) -> None:
    """Read in an event loop."""
    import grpc

    async def read() -> None:
        async with grpc.aio.insecure_channel(url) as channel:
            messages = channel.unary_stream("/bench/stream")(ASKED)
            async for _ in messages:
                if meter.saw(1):
                    messages.cancel()
                    return

    asyncio.run(read())


# ---- asyncio by itself ----


def bare_asyncio_serve() -> None:
    """Send each message back, with a task for each."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            self.transport = transport
            self.tasks: set[asyncio.Task[None]] = set()

        def data_received(self, data: bytes) -> None:
            task = asyncio.get_running_loop().create_task(self.answer(data))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

        async def answer(self, asked: bytes) -> None:
            self.transport.write(asked)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        said(str(server.sockets[0].getsockname()[1]))
        await server.serve_forever()

    asyncio.run(serve())


def bare_asyncio_calls(url: str, meter: Meter) -> None:
    """Write, and wait for the answer."""

    class Caller(asyncio.Protocol):
        answered: asyncio.Future[bytes]

        def data_received(self, data: bytes) -> None:
            self.answered.set_result(data)

    async def calls() -> None:
        loop = asyncio.get_running_loop()
        transport, caller = await loop.create_connection(Caller, "127.0.0.1", int(url))
        while not meter.saw(1):
            caller.answered = loop.create_future()
            transport.write(ASKED)
            await caller.answered

    asyncio.run(calls())


# ---- rsocket-py, which has asyncio alone ----

READ_BYTES = 65_536
"""Bytes that rsocket-py reads at once; its default is 1,024."""


def rsocket_server(streamed: bytes) -> None:
    """Serve in an event loop; every streamed message has this payload."""
    from rsocket.helpers import create_future
    from rsocket.payload import Payload
    from rsocket.request_handler import BaseRequestHandler
    from rsocket.rsocket_server import RSocketServer
    from rsocket.streams.stream_from_generator import StreamFromGenerator
    from rsocket.transports.tcp import TransportTCP

    def messages() -> Iterator[tuple[Any, bool]]:
        while True:
            yield Payload(streamed), False

    class Handler(BaseRequestHandler):
        async def request_response(self, payload: Any) -> Any:
            return create_future(Payload(payload.data))

        async def request_stream(self, payload: Any) -> Any:
            del payload
            return StreamFromGenerator(messages)

    async def serve() -> None:
        def session(*connection: Any) -> None:
            transport = TransportTCP(*connection, read_buffer_size=READ_BYTES)
            RSocketServer(transport, handler_factory=Handler)

        server = await asyncio.start_server(session, "127.0.0.1", 0)
        said(str(server.sockets[0].getsockname()[1]))
        await server.serve_forever()

    asyncio.run(serve())


def rsocket_asyncio_serve() -> None:
    """Serve in an event loop."""
    rsocket_server(STREAMED)


@contextlib.asynccontextmanager
async def rsocket_client(url: str) -> AsyncIterator[Any]:
    """Yield a client that is connected."""
    from rsocket.helpers import single_transport_provider
    from rsocket.rsocket_client import RSocketClient
    from rsocket.transports.tcp import TransportTCP

    connection = await asyncio.open_connection("127.0.0.1", int(url))
    transport = TransportTCP(*connection, read_buffer_size=READ_BYTES)
    async with RSocketClient(single_transport_provider(transport)) as client:
        yield client


def rsocket_asyncio_calls(url: str, meter: Meter) -> None:
    """Call in an event loop."""
    from rsocket.payload import Payload

    async def call() -> None:
        async with rsocket_client(url) as client:
            while not meter.saw(1):
                await client.request_response(Payload(ASKED))

    asyncio.run(call())


def rsocket_asyncio_many(url: str, meter: Meter) -> None:
    """Call with tasks of an event loop."""
    from rsocket.payload import Payload

    async def calls() -> None:
        async with rsocket_client(url) as client:
            await by_tasks(lambda: client.request_response(Payload(ASKED)), meter)

    asyncio.run(calls())


def rsocket_asyncio_stream(url: str, meter: Meter) -> None:
    """Read in an event loop, half a batch asked for before the other half has come."""
    from reactivestreams.subscriber import Subscriber
    from rsocket.payload import Payload

    over = asyncio.Event()

    class Counting(Subscriber):
        def __init__(self) -> None:
            self.left = BATCH

        def on_subscribe(self, subscription: Any) -> None:
            self.subscription = subscription

        def on_next(self, value: Any, is_complete: bool = False) -> None:  # noqa: FBT001, FBT002 (its interface)
            del value, is_complete
            self.left -= 1
            if self.left <= BATCH // 2:
                self.left += BATCH // 2
                self.subscription.request(BATCH // 2)
            if not over.is_set() and meter.saw(1):
                over.set()

        def on_complete(self) -> None:
            raise AssertionError

        def on_error(self, exception: Exception) -> None:
            # Its own end of the connection.
            del exception
            over.set()

    async def read() -> None:
        async with rsocket_client(url) as client:
            stream = client.request_stream(Payload(ASKED)).initial_request_n(BATCH)
            stream.subscribe(Counting())
            await over.wait()

    asyncio.run(read())


SERVERS: dict[str, Callable[[], None]] = {
    "bpmux-sync": bpmux_sync_serve,
    "bpmux-asyncio": bpmux_asyncio_serve,
    "grpc-sync": grpc_sync_serve,
    "grpc-asyncio": grpc_asyncio_serve,
    "bare-asyncio": bare_asyncio_serve,
    "rsocket-asyncio": rsocket_asyncio_serve,
}
CLIENTS: dict[tuple[str, str], Callable[[str, Meter], None]] = {
    ("calls", "bpmux-sync"): bpmux_sync_calls,
    ("many", "bpmux-sync"): bpmux_sync_many,
    ("stream", "bpmux-sync"): bpmux_sync_stream,
    ("calls", "bpmux-asyncio"): bpmux_asyncio_calls,
    ("many", "bpmux-asyncio"): bpmux_asyncio_many,
    ("stream", "bpmux-asyncio"): bpmux_asyncio_stream,
    ("calls", "grpc-sync"): grpc_sync_calls,
    ("many", "grpc-sync"): grpc_sync_many,
    ("stream", "grpc-sync"): grpc_sync_stream,
    ("calls", "grpc-asyncio"): grpc_asyncio_calls,
    ("many", "grpc-asyncio"): grpc_asyncio_many,
    ("stream", "grpc-asyncio"): grpc_asyncio_stream,
    ("calls", "bare-asyncio"): bare_asyncio_calls,
    ("calls", "rsocket-asyncio"): rsocket_asyncio_calls,
    ("many", "rsocket-asyncio"): rsocket_asyncio_many,
    ("stream", "rsocket-asyncio"): rsocket_asyncio_stream,
}


def rate(what: str, side: str, seconds: float, script: Path) -> tuple[float, float]:
    """Return one round's calls or messages per second, and CPU microseconds of each."""
    me = [sys.executable, str(script.resolve())]
    environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
    piped: Any = {"stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([*me, "serve", side], **piped) as server:
        url = server.stdout.readline().strip()
        with subprocess.Popen([*me, what, side, url, str(seconds)], **piped) as client:
            client.stdout.readline()
            before = processor_seconds(server, client)
            measured, count = map(float, client.stdout.readline().split())
            spent = processor_seconds(server, client) - before
            client.send_signal(signal.SIGKILL)
        server.send_signal(signal.SIGKILL)
    return measured, 1e6 * spent / count


def measure(rounds: int, seconds: float) -> list[str]:
    """Return a table: all sides in interleaved rounds, and the ratios."""
    lines = [
        "| | bpmux, each second (CPU us) | beside | its (CPU us) | ratio: median (range) | goal |",
        "|---|---|---|---|---|---|",
    ]
    for what, side, others, goal in CASES:
        sides = [side, *others]
        found = [
            [rate(what, each, seconds, Path(__file__)) for each in sides] for _ in range(rounds)
        ]
        cells = []
        for column in zip(*found, strict=True):
            each, used = (statistics.median(values) for values in zip(*column, strict=True))
            cells.append(f"{each:,.0f} ({used:,.1f})")
        for at, other in enumerate(others, start=1):
            ratios = sorted(row[0][0] / row[at][0] for row in found)
            spread = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})"
            lines.append(
                f"| {what}, {side.split('-')[1]} | {cells[0]} | {other} | {cells[at]} "
                f"| {spread} | {f'{goal:.0f}' if goal else ''} |"
            )
    return lines


def main(arguments: list[str]) -> None:
    """Run one side."""
    with contextlib.suppress(KeyboardInterrupt):
        if arguments[0] == "serve":
            SERVERS[arguments[1]]()
        else:
            what, side, url, seconds = arguments
            CLIENTS[what, side](url, Meter(float(seconds)))


if __name__ == "__main__":
    main(sys.argv[1:])
