"""MicroMsg2 between Python and Rust: the programs `send_and_subscribe` of both languages.

The Rust end and the proxy are examples of crates/ackline, as processes.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import peers
import pytest
from conftest import Addresses, Tls

TIME = 30
PYTHON = [sys.executable, str(peers.ROOT / "examples/send_and_subscribe.py")]
PROPERTIES = "level:N{};region:Tus%20%C3%A9;share:N{};at:D{};"
LAST = PROPERTIES.format(9, "249.75", "1000000999.5")
MATCHES = {
    "level>=N8": f'200 readings, sum 100700, last 200 of 3 bytes to "readings": {LAST}\n',
    "region<Tus;level=N9": f'100 readings, sum 50400, last 100 of 3 bytes to "readings": {LAST}\n',
    "at>D1000000998.5": f'1 readings, sum 999, last 1 of 3 bytes to "readings": {LAST}\n',
    "share<N0": "0 readings, sum 0, last \n",
}
SENT = [
    '1 of 0 bytes to "": ',
    '2 of 1 bytes to "readings": ' + PROPERTIES.format(7, "1.75", "1000000007.5"),
    f'3 of {3 << 20} bytes to "large": ',
]


def command(language: str, *arguments: str) -> list[str]:
    program = PYTHON if language == "python" else [str(peers.rust_example("send_and_subscribe"))]
    return [*program, *arguments]


def running(
    language: str, *arguments: str
) -> AbstractContextManager[tuple[subprocess.Popen[str], str]]:
    return listening(command(language, *arguments))


@contextmanager
def listening(program: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program that listens; kill it at the end. The process, and its address."""
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        yield process, line(process)
    finally:
        process.kill()
        process.communicate(timeout=TIME)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().removesuffix("\n")


def run(language: str, *arguments: str) -> str:
    done = subprocess.run(
        command(language, *arguments),
        capture_output=True, text=True, timeout=2 * TIME, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("over", ["tcp", "unix", "tls", "mutual"])
@pytest.mark.parametrize("subscriber", ["python", "rust"])
@pytest.mark.parametrize("publisher", ["python", "rust"])
def test_a_subscriber_gets_the_messages_that_its_filter_matches(
    publisher: str, subscriber: str, over: str, addresses: Addresses
) -> None:
    listens, adds = addresses.over(over, "micromsg")
    with running(publisher, "publish", listens) as (process, url):
        for text, said in MATCHES.items():
            assert run(subscriber, "subscribe", url + adds, text) == said
            assert line(process) == f"acknowledged: {said.split()[0]}"


@pytest.mark.parametrize("over", ["tcp", "unix", "tls", "mutual"])
@pytest.mark.parametrize("ends", [("python", "rust"), ("rust", "python")])
def test_a_proxy_joins_both_ends_and_keeps_subscriptions_filters_and_acknowledgements(
    ends: tuple[str, str], over: str, addresses: Addresses, tls: Tls, tmp_path: Path
) -> None:
    publisher, subscriber = ends
    (tmp_path / "proxy").mkdir()
    listens, adds = addresses.over(over, "micromsg")
    at_proxy, _ = Addresses(tls, tmp_path / "proxy").over(over, "micromsg")
    with running(publisher, "publish", listens) as (process, server):
        proxy = [str(peers.rust_example("micromsg_proxy")), at_proxy, server + adds]
        with listening(proxy) as (joining, url):
            for text, said in MATCHES.items():
                assert run(subscriber, "subscribe", url + adds, text) == said
                assert line(process) == f"acknowledged: {said.split()[0]}"
                assert line(joining) == "ended"


@pytest.mark.parametrize("receiver", ["python", "rust"])
@pytest.mark.parametrize("sender", ["python", "rust"])
def test_messages_of_every_size_arrive_and_are_acknowledged(sender: str, receiver: str) -> None:
    with running(receiver, "receive", "micromsg://127.0.0.1:0") as (process, url):
        assert run(sender, "send", url) == "acknowledged: 3\n"
        assert [line(process) for _ in SENT] == SENT
        assert process.wait(TIME) == 0
