"""Fixtures of every interop test: `ackline receive` as a process, and its spool's content."""

import contextlib
import json
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import peers
import pytest
import trustme
from imitation import Answer, Imitation

Line = dict[str, Any]

CORPUS = [
    *(json.dumps({"n": n, "text": "ä - " + "x" * n}) for n in range(100)),
    '{"escaped": "\\u0000\\u001b[31m\\n\\t\\"\\\\", "raw": "żółć 漢字 🪓 \u2028"}',
    '{ "spaces" :  [ 1 ,2.50, -0, 1e3 ] , "null":null}',
    '{"nested":{"a":{"b":{"c":[{"d":[[]]},{}]}}},"@metadata":{"beat":"filebeat","_id":null}}',
    '{"twice":1,"twice":2}',
    '{"integer":9007199254740993,"log.level":"info","log":{"level":"warn"}}',
    json.dumps({"large": "0123456789abcdef" * 100_000}),
    json.dumps({f"key {n}": n for n in range(5000)}),
]
"""Events whose bytes reveal any change on the way: escapes, spaces, order, duplicate keys."""


def ackline_command() -> str:
    beside = Path(sys.executable).with_name("ackline")
    found = str(beside) if beside.exists() else shutil.which("ackline")
    assert found, "the command `ackline` is not installed here: make setup"
    return found


def until(condition: Callable[[], Any], what: str, timeout: float = 20.0) -> Any:
    """Wait for a condition; its first true value is returned."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)


MEMORY = 64 << 20
"""Bytes of `--memory`, unless a test sets it."""

SLACK = 64_000_000
"""Bytes that a process may grow by above its budget."""


class Receiver:
    """`ackline receive … --json`, its lines as they come, its memory as the system sees it.

    When it ends, its memory must never have been above `ceiling`.
    """

    def __init__(
        self, *arguments: str, url: str = "lumberjack://127.0.0.1:0", memory: int = MEMORY
    ) -> None:
        self.lines: list[Line] = []
        budget = ("--memory", f"{memory >> 20}MiB")
        self.process = subprocess.Popen(
            [ackline_command(), "receive", url, *arguments, *budget, "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()
        urls = self.wait("listening")["urls"]
        self.url = urls[0]
        self.port = int(self.url.rsplit(":", 1)[1].partition("/")[0])
        self.idle_rss = self.rss()
        self.ceiling = self.idle_rss + memory + SLACK

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def seen(self, event: str) -> list[Line]:
        return [line for line in self.lines if line["event"] == event]

    def wait(
        self, event: str, where: Callable[[Line], bool] = lambda _: True, timeout: float = 60.0
    ) -> Line:
        found: list[Line] = until(
            lambda: [line for line in self.seen(event) if where(line)], f"line {event}", timeout
        )
        return found[0]

    def newer_stats(self) -> Line:
        """Wait for a line of statistics that is younger than this call."""
        # Two, for the first may have been on its way.
        before = len(self.seen("stats"))
        until(lambda: len(self.seen("stats")) >= before + 2, "two more lines of statistics")
        return self.seen("stats")[-1]

    def rss(self) -> int:
        """Resident bytes of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def peak_rss(self) -> int:
        """Return the highest number of resident bytes so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    def stop(self) -> int:
        peak = self.peak_rss() if self.process.poll() is None else 0
        self.process.terminate()
        try:
            code = self.process.wait(20)
        finally:
            self.process.kill()
            self._reader.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()
        assert peak < self.ceiling, f"memory: {self.idle_rss} bytes when idle, {peak} at the most"
        return code


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Start receivers; each is ended with the test, and its memory is checked."""
    with contextlib.ExitStack() as started:

        def start(*arguments: str, **options: Any) -> Receiver:
            receiver = Receiver(*arguments, **options)
            started.callback(receiver.stop)
            return receiver

        yield start


@pytest.fixture
def small() -> Iterator[Callable[[int], None]]:
    """The test's own process may grow by 64 MB, and by as many bytes as the test says it holds."""
    own = Path("/proc/self")
    # The highest number of resident bytes begins anew.
    (own / "clear_refs").write_text("5", encoding="ascii")

    def resident(name: str) -> int:
        status = (own / "status").read_text(encoding="ascii")
        return 1024 * int(status.split(f"{name}:")[1].split()[0])

    ceiling = resident("VmRSS") + SLACK

    def holds(count: int) -> None:
        nonlocal ceiling
        ceiling += count

    yield holds
    assert resident("VmHWM") < ceiling


class Peer:
    """A server that others wrote: it prints `listening PORT`, then a line for each event."""

    def __init__(self, command: list[str], patience: float) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()
        try:
            until(lambda: self.lines, "the peer listens", patience)
        except AssertionError:
            self.stop()
            raise
        self.port = int(self.lines.pop(0).removeprefix("listening "))

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.removesuffix("\n"))

    def take(self, count: int) -> list[str]:
        """Return the lines of `count` events; there must be no more."""
        until(lambda: len(self.lines) >= count, f"{count} events")
        assert len(self.lines) == count
        return self.lines

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(20)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def imitate() -> Iterator[Callable[[Answer], Imitation]]:
    started: list[Imitation] = []

    def start(answer: Answer) -> Imitation:
        started.append(Imitation(answer))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def serve() -> Iterator[Callable[..., Peer]]:
    """Start servers of others; each is ended with the test."""
    started: list[Peer] = []

    def start(command: list[str], patience: float = 20.0) -> Peer:
        started.append(Peer(command, patience))
        return started[-1]

    yield start
    for peer in started:
        peer.stop()


def free_port() -> int:
    """For a server that cannot choose one: none that the system gives to others meanwhile."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    for _ in range(100):
        port = random.randrange(10_000, max(first, 10_001))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port below those that the system gives is free")


class Tls(NamedTuple):
    """An authority, a server's certificate for localhost and 127.0.0.1, and a client's."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path

    def listen_url(self, **options: object) -> str:
        """Where to receive with this certificate."""
        given = {"cert": self.cert, "key": self.key} | options
        query = urlencode({name: str(value) for name, value in given.items()}, quote_via=quote)
        return f"lumberjack+tls://127.0.0.1:0?{query}"


def issue(authority: trustme.CA, folder: Path, name: str, **subject: Any) -> tuple[Path, Path]:
    """Write a certificate with its chain, and its key."""
    issued = authority.issue_cert(*subject.pop("names", ()), **subject)
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return cert, key


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def tls(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    ca = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    server = issue(authority, folder, "server", names=("localhost", "127.0.0.1"))
    client = issue(authority, folder, "client", names=("beat-7.example",), common_name="beat-7")
    return Tls(ca, *server, *client)


@pytest.fixture(scope="session")
def golumber() -> Path:
    """Build the program of go-lumber: its client and its server."""
    return Path(peers.golumber_command()[0])


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def events_of() -> Callable[[Path], list[Line]]:
    """Read the events of a spool by the command line, and prove that its positions are dense."""

    def read(directory: Path) -> list[Line]:
        command = [ackline_command(), "spool", "cat", str(directory), "--json"]
        output = subprocess.run(command, check=True, capture_output=True, timeout=120).stdout
        events = [json.loads(line) for line in output.splitlines()]
        assert [event["position"] for event in events] == list(range(len(events)))
        return events

    return read


class Addresses(NamedTuple):
    """The URLs of two ends: TCP, a Unix socket, TLS, or TLS with certificates of both."""

    tls: Tls
    folder: Path

    def over(self, kind: str, scheme: str) -> tuple[str, str]:
        """The URL to listen on, and the addition of the other end to the printed URL."""
        own = {"cert": self.tls.cert, "key": self.tls.key}
        trust = {"ca": self.tls.ca, "server_name": "localhost"}
        client = {"cert": self.tls.client_cert, "key": self.tls.client_key}
        listens = f"{scheme}+tls://127.0.0.1:0?"
        both = urlencode(own | {"ca": self.tls.ca})
        return {
            "tcp": (f"{scheme}://127.0.0.1:0", ""),
            "unix": (f"{scheme}+unix://{self.folder}/s", ""),
            "tls": (listens + urlencode(own), "?" + urlencode(trust)),
            "mutual": (listens + both, "?" + urlencode(trust | client)),
        }[kind]


@pytest.fixture
def addresses(tls: Tls, tmp_path: Path) -> Addresses:
    return Addresses(tls, tmp_path)
