"""Streams of elements from Python: `run.py --only reactive-python`.

A publisher and a subscriber, each a process of its own, over one TCP connection on this machine,
beside request_stream of rsocket-py, streams of grpcio and do_get of Arrow Flight. Elements have 256
bytes or 64 KiB, and are counted for some seconds after the first ones. Numbers of 8 bytes arrive as
NumPy arrays. All have their defaults, except: grpcio has no serializers, rsocket-py has larger read
buffers, and the subscriber of numbers requests a MiB of them.

Every subscriber has the bytes of its elements as `bytes`, one by one, except those of Arrow Flight:
its elements stay in the record batch that holds them, of which `flight-bytes` alone makes `bytes`.
`reactive-each` publishes by a generator of single elements, as rsocket-py must; the others publish
in batches.
"""

import asyncio
import contextlib
import logging
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bpmux import BATCH, rate, rsocket_client, rsocket_server, said
from relink import Meter

URL = "reactive://127.0.0.1:0"
NUMBERS = 131_072
"""Numbers of an array, and of the demand of its subscriber: 1 MiB."""
TABLE_BATCHES = 20_000
"""Record batches of one do_get of Arrow Flight; then the subscriber asks again."""
SIZES = {"small": 256, "large": 65_536}
"""Bytes of an element."""
OFTEN = {"small": 64, "large": 1}
"""Elements after which a subscriber looks at the clock."""
CASES: list[tuple[str, str, list[tuple[str, float | None]]]] = [
    ("numbers", "reactive-sync", [("flight", None)]),
    ("numbers", "reactive-asyncio", [("flight", None)]),
    ("small", "reactive-sync", [("rsocket", 10.0)]),
    ("small", "reactive-asyncio", [("rsocket", 10.0)]),
    ("small", "reactive-each", [("rsocket", 10.0)]),
    ("large", "reactive-sync", [("flight", 1.0), ("flight-bytes", None), ("grpc-sync", None)]),
    ("large", "reactive-asyncio", [("flight", 1.0), ("grpc-asyncio", None)]),
]
"""Subject, our side, and the others with their goals: multiples of their rates."""
NUMBERS_GOAL = 50e6


def batch(what: str) -> list[bytes]:
    """Return the elements that are handed over at once, of 256 KiB at the most."""
    size = SIZES[what]
    return [bytes(size)] * min(BATCH, (256 << 10) // size)


def counted(elements: Iterator[Any], meter: Meter, often: int) -> None:
    """Count elements until the time is over."""
    for number, _ in enumerate(elements, start=1):
        if number % often == 0 and meter.saw(often):
            return


async def counted_async(elements: AsyncIterator[Any], meter: Meter, often: int) -> None:
    """Count elements until the time is over."""
    number = 0
    async for _ in elements:
        number += 1
        if number % often == 0 and meter.saw(often):
            return


# ---- Reactive Streams ----


def reactive_sync_serve() -> None:
    """Publish with threads."""
    import numpy as np

    from ackline import AcklineError, reactive

    array = memoryview(np.arange(NUMBERS, dtype="<f8")).cast("B")

    def publish(request: reactive.SubscribeRequest) -> None:
        what = request.publisher
        if what == "numbers":
            publication = request.accept(element_size=8)
            while True:
                publication.send_packed(array)
        publication, elements = request.accept(), batch(what)
        while True:
            publication.send_many(elements)

    with reactive.listen(URL) as listener, contextlib.suppress(AcklineError):
        said(listener.url)
        with listener.accept() as connection:
            request = connection.accept()
            assert request
            publish(request)


def reactive_sync_numbers(url: str, meter: Meter) -> None:
    """Read arrays with a thread that waits."""
    from ackline import reactive

    with (
        reactive.connect(url) as connection,
        connection.subscribe("numbers", demand=NUMBERS) as numbers,
    ):
        for array in numbers.arrays("<f8"):
            if meter.saw(len(array)):
                return


def reactive_sync_elements(what: str, url: str, meter: Meter) -> None:
    """Read elements with a thread that waits."""
    from ackline import reactive

    with reactive.connect(url) as connection, connection.subscribe(what) as elements:
        counted(iter(elements), meter, OFTEN[what])


def reactive_asyncio_serve() -> None:
    """Publish in an event loop."""
    import numpy as np

    from ackline import AcklineError
    from ackline.aio import reactive

    array = memoryview(np.arange(NUMBERS, dtype="<f8")).cast("B")

    async def publish(request: reactive.SubscribeRequest) -> None:
        what = request.publisher
        if what == "numbers":
            publication = request.accept(element_size=8)
            while True:
                await publication.send_packed(array)
        publication, elements = request.accept(), batch(what)
        while True:
            await publication.send_many(elements)

    async def serve() -> None:
        async with reactive.listen(URL) as listener:
            said(listener.url)
            connection = await listener.accept()
            request = await connection.accept()
            assert request
            with contextlib.suppress(AcklineError):
                await publish(request)

    asyncio.run(serve())


def reactive_each_serve() -> None:
    """Publish single elements of a generator in an event loop."""
    from ackline.aio import reactive

    def elements(what: str) -> Iterator[bytes]:
        element = bytes(SIZES[what])
        while True:
            yield element

    async def serve() -> None:
        async with reactive.listen(URL) as listener:
            said(listener.url)
            await listener.serve({"*": elements})

    asyncio.run(serve())


def reactive_asyncio_numbers(url: str, meter: Meter) -> None:
    """Read arrays in an event loop."""
    from ackline.aio import reactive

    async def read() -> None:
        async with (
            reactive.connect(url) as connection,
            connection.subscribe("numbers", demand=NUMBERS) as numbers,
        ):
            async for array in numbers.arrays("<f8"):
                if meter.saw(len(array)):
                    return

    asyncio.run(read())


def reactive_asyncio_elements(what: str, url: str, meter: Meter) -> None:
    """Read elements in an event loop."""
    from ackline.aio import reactive

    async def read() -> None:
        async with reactive.connect(url) as connection, connection.subscribe(what) as elements:
            await counted_async(aiter(elements), meter, OFTEN[what])

    asyncio.run(read())


# ---- rsocket-py, which has asyncio alone ----


def rsocket_serve() -> None:
    """Publish single elements of a generator."""
    rsocket_server(bytes(SIZES["small"]))


def rsocket_elements(what: str, url: str, meter: Meter) -> None:
    """Read elements, half a batch requested before the other half has come."""
    from reactivestreams.subscriber import Subscriber
    from rsocket.payload import Payload

    over = asyncio.Event()
    often = OFTEN[what]
    # It warns of each element that arrives behind its own end.
    logging.getLogger("pyrsocket").setLevel(logging.ERROR)

    class Counting(Subscriber):
        def __init__(self) -> None:
            self.number = 0

        def on_subscribe(self, subscription: Any) -> None:
            self.subscription = subscription

        def on_next(self, value: Any, is_complete: bool = False) -> None:  # noqa: FBT001, FBT002 (its interface)
            del value, is_complete
            self.number += 1
            if self.number % (BATCH // 2) == 0:
                self.subscription.request(BATCH // 2)
            if self.number % often == 0 and not over.is_set() and meter.saw(often):
                over.set()

        def on_complete(self) -> None:
            raise AssertionError

        def on_error(self, exception: Exception) -> None:
            # Its own end of the connection.
            del exception
            over.set()

    async def read() -> None:
        async with rsocket_client(url) as client:
            stream = client.request_stream(Payload(b"")).initial_request_n(BATCH)
            stream.subscribe(Counting())
            await over.wait()

    asyncio.run(read())


# ---- grpcio, without serializers ----


def grpc_sync_serve() -> None:
    """Publish with threads."""
    import grpc

    element = bytes(SIZES["large"])

    def stream(_request: bytes, _context: Any) -> Iterator[bytes]:
        while True:
            yield element

    server = grpc.server(ThreadPoolExecutor(2))
    methods = {"stream": grpc.unary_stream_rpc_method_handler(stream)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    said(f"127.0.0.1:{port}")
    server.wait_for_termination()


def grpc_sync_elements(what: str, url: str, meter: Meter) -> None:
    """Read elements with a thread that waits."""
    import grpc

    with grpc.insecure_channel(url) as channel:
        elements = channel.unary_stream("/bench/stream")(b"")
        counted(elements, meter, OFTEN[what])
        elements.cancel()


def grpc_asyncio_serve() -> None:
    """Publish in an event loop."""
    import grpc

    element = bytes(SIZES["large"])

    async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
        while True:
            yield element

    async def serve() -> None:
        server = grpc.aio.server()
        methods = {"stream": grpc.unary_stream_rpc_method_handler(stream)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        said(f"127.0.0.1:{port}")
        await server.wait_for_termination()

    asyncio.run(serve())


def grpc_asyncio_elements(what: str, url: str, meter: Meter) -> None:
    """Read elements in an event loop."""
    import grpc

    async def read() -> None:
        async with grpc.aio.insecure_channel(url) as channel:
            elements = channel.unary_stream("/bench/stream")(b"")
            await counted_async(aiter(elements), meter, OFTEN[what])
            elements.cancel()

    asyncio.run(read())


# ---- Arrow Flight, whose loops are C++ ----


def flight_serve() -> None:
    """Serve record batches of one element, or of as many numbers as are handed over at once."""
    import pyarrow as pa
    from pyarrow import flight

    element = pa.array([bytes(SIZES["large"])], pa.binary())
    columns = {"large": element, "numbers": pa.array(range(NUMBERS), pa.float64())}

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, _context: Any, ticket: Any) -> Any:
            one = pa.record_batch([columns[ticket.ticket.decode()]], ["element"])
            return flight.RecordBatchStream(pa.Table.from_batches([one] * TABLE_BATCHES))

    server = Server("grpc://127.0.0.1:0")
    said(f"grpc://127.0.0.1:{server.port}")
    server.serve()


def flight_columns(what: str, url: str) -> Iterator[Any]:
    """Yield the column of every record batch."""
    from pyarrow import flight

    client = flight.connect(url)
    while True:
        for chunk in client.do_get(flight.Ticket(what.encode())):
            yield chunk.data.column(0)


def flight_numbers(url: str, meter: Meter) -> None:
    """Read arrays."""
    for column in flight_columns("numbers", url):
        if meter.saw(len(column.to_numpy())):
            return


def flight_elements(what: str, url: str, meter: Meter) -> None:
    """Read elements, as buffers of their record batches."""
    elements = (column[0].as_buffer() for column in flight_columns(what, url))
    counted(elements, meter, OFTEN[what])


def flight_bytes(what: str, url: str, meter: Meter) -> None:
    """Read elements, as `bytes`."""
    elements = (column[0].as_py() for column in flight_columns(what, url))
    counted(elements, meter, OFTEN[what])


SERVERS: dict[str, Callable[[], None]] = {
    "reactive-sync": reactive_sync_serve,
    "reactive-asyncio": reactive_asyncio_serve,
    "reactive-each": reactive_each_serve,
    "rsocket": rsocket_serve,
    "grpc-sync": grpc_sync_serve,
    "grpc-asyncio": grpc_asyncio_serve,
    "flight": flight_serve,
    "flight-bytes": flight_serve,
}
READERS: dict[str, Callable[[str, str, Meter], None]] = {
    "reactive-sync": reactive_sync_elements,
    "reactive-asyncio": reactive_asyncio_elements,
    "reactive-each": reactive_asyncio_elements,
    "rsocket": rsocket_elements,
    "grpc-sync": grpc_sync_elements,
    "grpc-asyncio": grpc_asyncio_elements,
    "flight": flight_elements,
    "flight-bytes": flight_bytes,
}
NUMBER_READERS: dict[str, Callable[[str, Meter], None]] = {
    "reactive-sync": reactive_sync_numbers,
    "reactive-asyncio": reactive_asyncio_numbers,
    "flight": flight_numbers,
}


def amount(what: str, rate: float, used: float) -> str:
    """Return a rate and the processors' time in words."""
    if what == "large":
        size = SIZES[what]
        return f"{rate * size / 1e9:.2f} GB/s ({used * 1e6 / size:,.0f} us/MB)"
    return f"{rate / 1e6:,.3f} M/s ({used * 1e3:,.1f} ns)"


def measure(rounds: int, seconds: float) -> list[str]:
    """Return a table: all sides in interleaved rounds, and the ratios."""
    lines = [
        "| | ours (CPU of each) | beside | its (CPU of each) | ratio: median (range) | goal |",
        "|---|---|---|---|---|---|",
    ]
    for what, side, others in CASES:
        sides = [side, *(other for other, _ in others)]
        found = [
            [rate(what, each, seconds, Path(__file__)) for each in sides] for _ in range(rounds)
        ]
        cells = []
        for column in zip(*found, strict=True):
            each, used = (statistics.median(values) for values in zip(*column, strict=True))
            cells.append(amount(what, each, used))
        for at, (other, goal) in enumerate(others, start=1):
            ratios = sorted(row[0][0] / row[at][0] for row in found)
            spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
            said_goal = f"{NUMBERS_GOAL / 1e6:.0f} M/s" if what == "numbers" else ""
            lines.append(
                f"| {what}, {side.split('-')[1]} | {cells[0]} | {other} | {cells[at]} "
                f"| {spread} | {f'{goal:.0f} times' if goal else said_goal} |"
            )
    return lines


def main(arguments: list[str]) -> None:
    """Run one side."""
    with contextlib.suppress(KeyboardInterrupt):
        if arguments[0] == "serve":
            SERVERS[arguments[1]]()
            return
        what, side, url, seconds = arguments
        meter = Meter(float(seconds))
        if what == "numbers":
            NUMBER_READERS[side](url, meter)
        else:
            READERS[side](what, url, meter)


if __name__ == "__main__":
    main(sys.argv[1:])
