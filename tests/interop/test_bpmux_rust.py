"""bpmux between Python and Rust: the programs of docs/rpc-and-streams.md, and each call by itself.

The Rust end is the example `rpc_and_streams` of crates/ackline, as a process.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import peers
import pytest
from conftest import Addresses

from ackline import LinkClosed, LinkTimeout, PeerCancelled, RequestClosed, TransportError, bpmux
from ackline.aio import bpmux as aio

TIME = 30
PYTHON = [sys.executable, str(peers.ROOT / "examples/rpc_and_streams.py")]
SAID_BY_CLIENT = """\
answer: HELLO
refused: not for everybody
no answer in time
second: SECOND
first: FIRST
number: 0
number: 1
number: 2
echo: there and back
left: 0
for ten bytes: 10 numbers
answer: HELLO
"""
SAID_BY_SERVER = [
    "given up: ",
    "given up: not needed",
    "cancelled: enough",
    "log: 3 messages of 3",
    "cancelled: ",
]


def command(language: str) -> list[str]:
    return PYTHON if language == "python" else [str(peers.rust_example("rpc_and_streams"))]


class Server:
    """The program that serves: its address, and its output."""

    def __init__(self, language: str, url: str) -> None:
        self.process = subprocess.Popen(
            [*command(language), "serve", url], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def says(self, lines: list[str], maybe: Sequence[str] = ()) -> None:
        """Waits for these lines, which may come in any order, and with some of `maybe` between."""
        assert self.process.stdout is not None
        missing, allowed = Counter(lines), Counter(maybe)
        while missing:
            line = self.process.stdout.readline().removesuffix("\n")
            left = missing if missing[line] else allowed
            assert left[line], line
            left[line] -= 1
            missing = +missing

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=TIME)


@contextmanager
def serving(language: str, url: str = "bpmux://127.0.0.1:0") -> Iterator[Server]:
    server = Server(language, url)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def rust() -> Iterator[Server]:
    """A server in Rust."""
    with serving("rust") as server:
        yield server


@pytest.mark.parametrize("over", ["tcp", "unix", "tls", "mutual"])
@pytest.mark.parametrize("client", ["python", "rust"])
@pytest.mark.parametrize("server", ["python", "rust"])
def test_the_guides_programs_talk_to_each_other(
    server: str, client: str, over: str, addresses: Addresses
) -> None:
    listens, adds = addresses.over(over, "bpmux")
    with serving(server, listens) as running:
        done = subprocess.run(
            [*command(client), "call", running.url + adds],
            capture_output=True, text=True, timeout=2 * TIME, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, SAID_BY_CLIENT), done.stderr
        if server == "rust":
            running.says(SAID_BY_SERVER)
        else:
            # A request that is given up before its thread has begun is not handled.
            given_up = [line for line in SAID_BY_SERVER if line.startswith("given up")]
            others = [line for line in SAID_BY_SERVER if line not in given_up]
            running.says(others, maybe=given_up)


def test_python_calls_rust(rust: Server) -> None:
    with bpmux.connect(rust.url) as connection:
        large = bytes(range(65, 91)) * 200_000
        assert connection.call(large.lower(), timeout=TIME) == large
        with pytest.raises(RequestClosed) as closed:
            connection.call(b"secret", timeout=TIME)
        assert closed.value.payload == b"not for everybody"
        slow = connection.request(b"slow")
        assert slow.ping(timeout=TIME) > 0
        slow.cancel("späť".encode())
        rust.says(["given up: späť"])
        many = [connection.request(b"n%d" % number) for number in range(500)]
        assert [each.response(timeout=TIME) for each in many] == [b"N%d" % n for n in range(500)]


def test_python_reads_and_writes_entities_that_it_opens_at_rust(rust: Server) -> None:
    with bpmux.connect(rust.url) as connection:
        with connection.open_stream(b"numbers") as numbers:
            assert numbers.receive(timeout=TIME) == b"0"
            numbers.cancel(b"enough", timeout=TIME)
        rust.says(["cancelled: enough"])
        with connection.open_sink(b"log") as log:
            log.send_many([b"x" * 1000] * 5000, timeout=TIME)
            log.close(b"5000", timeout=TIME)
        rust.says(["log: 5000 messages of 5000"])
        duplex = connection.open_duplex()
        for payload in (b"", b"small", bytes(3_000_000)):
            duplex.send(payload, timeout=TIME)
            assert duplex.receive(timeout=TIME) == payload
        duplex.close(timeout=TIME)
        assert duplex.receive(timeout=TIME) is None
        assert duplex.closed == b""


def test_asyncio_calls_rust(rust: Server) -> None:
    async def run() -> None:
        async with asyncio.timeout(2 * TIME), aio.connect(rust.url) as connection:
            answers = await asyncio.gather(
                *(connection.call(b"n%d" % number, timeout=TIME) for number in range(200))
            )
            assert answers == [b"N%d" % number for number in range(200)]
            with pytest.raises(LinkTimeout):
                await connection.call(b"slow", timeout=0.05)
            stream = await connection.open_stream()
            got = [await stream.receive(timeout=TIME) for _ in range(3)]
            assert got == [b"0", b"1", b"2"]
            await stream.cancel(b"enough", timeout=TIME)
            async with await connection.open_duplex() as duplex:
                await duplex.send(b"there")
                assert await duplex.receive(timeout=TIME) == b"there"

    asyncio.run(run())


def test_rust_calls_python() -> None:
    """The client's words as Python gets them, each with the payload that it ends with."""
    with bpmux.listen("bpmux://127.0.0.1:0") as listener:
        client = subprocess.Popen(
            [*command("rust"), "call", listener.url], stdout=subprocess.PIPE, text=True
        )
        try:
            far = listener.accept(timeout=TIME)
            answered(far)
            opened(far)
            far.wait_ended(timeout=TIME)
            with listener.accept(timeout=TIME) as second:
                numbers = second.accept(timeout=TIME)
                assert isinstance(numbers, bpmux.OpenedStream)
                numbers.sink.send_many([b"%d" % number for number in range(11)])
                request = second.accept(timeout=TIME)
                assert isinstance(request, bpmux.Request)
                with pytest.raises(LinkTimeout):
                    numbers.sink.flush(timeout=0.01)
                request.respond(b"HELLO")
                assert numbers.sink.wait_cancelled(timeout=TIME) == b""
                # The entity that its client closed is over.
                assert second.accept(timeout=TIME) is None
            said, _ = client.communicate(timeout=TIME)
        finally:
            client.kill()
            client.wait(TIME)
    assert (client.returncode, said) == (0, SAID_BY_CLIENT)


def answered(far: bpmux.Connection) -> None:
    """Answers the client's requests: hello, secret, slow, first, second, slow."""
    requests: list[bpmux.Request] = []

    def next_request(payload: bytes) -> bpmux.Request:
        request = far.accept(timeout=TIME)
        assert isinstance(request, bpmux.Request)
        assert request.payload == payload
        requests.append(request)
        return request

    next_request(b"hello").respond(b"HELLO")
    next_request(b"secret").close(b"not for everybody")
    assert next_request(b"slow").wait_cancelled(timeout=TIME) == b""
    first, second = next_request(b"first"), next_request(b"second")
    second.respond(b"SECOND")
    first.respond(b"FIRST")
    slow = next_request(b"slow")
    assert slow.wait_cancelled(timeout=TIME) == b"not needed"
    with pytest.raises(PeerCancelled) as cancelled:
        slow.respond(b"late")
    assert cancelled.value.payload == b"not needed"


def opened(far: bpmux.Connection) -> None:
    """Serves the client's stream, sink and duplex."""
    numbers = far.accept(timeout=TIME)
    assert isinstance(numbers, bpmux.OpenedStream)
    # The client reads three and says that they are enough, perhaps before the fourth is on its way.
    with suppress(PeerCancelled):
        numbers.sink.send_many([b"0", b"1", b"2", b"3"])
    assert numbers.payload == b"numbers"
    assert numbers.sink.wait_cancelled(timeout=TIME) == b"enough"
    log = far.accept(timeout=TIME)
    assert isinstance(log, bpmux.OpenedSink)
    assert (log.payload, list(log.stream), log.stream.closed) == (
        b"log", [b"one", b"two", b"three"], b"3",
    )  # fmt: skip
    echo = far.accept(timeout=TIME)
    assert isinstance(echo, bpmux.OpenedDuplex)
    for message in echo.duplex:
        echo.duplex.send(message)
    echo.duplex.close(timeout=TIME)


def test_a_killed_rust_end_is_noticed(rust: Server) -> None:
    connection = bpmux.connect(rust.url)
    slow = connection.request(b"slow")
    numbers = connection.open_stream(b"numbers")
    assert numbers.receive(timeout=TIME) == b"0"
    rust.process.kill()
    for wait in (slow.response, connection.accept):
        with pytest.raises((LinkClosed, TransportError)):
            wait(timeout=TIME)
    connection.wait_ended(timeout=TIME)
    with pytest.raises((LinkClosed, TransportError)):
        connection.request(b"more")


ASKED = """
from ackline import bpmux
with bpmux.listen("bpmux://127.0.0.1:0") as listener:
    print(listener.url, flush=True)
    connection = listener.accept()
    connection.accept().respond(b"HELLO")
    request = connection.accept()
    print("asked", flush=True)
    request.wait_cancelled()
"""


def test_a_killed_python_end_is_noticed_by_rust() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ASKED], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        client = subprocess.Popen(
            [*command("rust"), "call", server.stdout.readline().strip()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdout.readline() == "asked\n"
        server.kill()
        said, told = client.communicate(timeout=TIME)
    assert said.startswith("answer: HELLO\n")
    assert said != SAID_BY_CLIENT
    assert client.returncode == 1
    assert "Ended" in told, told
