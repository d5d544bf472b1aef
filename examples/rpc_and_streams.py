"""Requests, sinks, streams and duplexes over bpmux, as docs/rpc-and-streams.md tells.

`python examples/rpc_and_streams.py serve bpmux://127.0.0.1:0` prints where it listens, and
`... call URL` is its client. crates/ackline/examples/rpc_and_streams.rs is the same in Rust, and
either talks to the other.
"""

import itertools
import sys

from ackline import LinkTimeout, PeerCancelled, RequestClosed, bpmux

SOON = 10.0


def serve(url: str) -> None:
    """Listen, and serve every client until Ctrl-C."""
    with bpmux.listen(url) as listener:
        print(listener.url, flush=True)
        listener.serve(on_request=answer, on_sink=drain, on_stream=count, on_duplex=echo)


def answer(asked: bytes, context: bpmux.Context) -> bytes:
    """Return the response; the text of an exception tells the client why there is none."""
    if asked == b"secret":
        raise PermissionError("not for everybody")
    if asked == b"slow" and context.wait_cancelled(timeout=30):
        say(f"given up: {(context.reason or b'').decode()}")
    return asked.upper()


def drain(stream: bpmux.Stream, opening: bytes) -> None:
    """Read a sink of the client's to its end."""
    count = sum(1 for _ in stream)
    told = (stream.closed or b"").decode()
    say(f"{opening.decode()}: {count} messages of {told}")


def count(sink: bpmux.Sink, _opening: bytes) -> None:
    """Write a stream of the client's until it wants no more."""
    try:
        for number in itertools.count():
            sink.send(b"%d" % number)
    except PeerCancelled as cancelled:
        say(f"cancelled: {cancelled.payload.decode()}")


def echo(duplex: bpmux.Duplex, _opening: bytes) -> None:
    """Send everything back."""
    for message in duplex:
        duplex.send(message)


def say(line: str) -> None:
    """Print a line in one go: handlers run side by side."""
    print(line + "\n", end="", flush=True)


def call(url: str) -> None:
    """Talk to a server."""
    with bpmux.connect(url) as connection:
        requests(connection)
        streams(connection)
    by_hand(url)


def requests(connection: bpmux.Connection) -> None:
    """Ask, in several ways."""
    answer = connection.call(b"hello", timeout=SOON)
    print("answer:", answer.decode())

    try:
        connection.call(b"secret", timeout=SOON)
    except RequestClosed as closed:
        print("refused:", closed.payload.decode())

    # Out of time: the request is cancelled.
    try:
        connection.call(b"slow", timeout=0.1)
    except LinkTimeout:
        print("no answer in time")

    # Many at once: responses may be awaited in any order.
    first = connection.request(b"first")
    second = connection.request(b"second")
    print("second:", second.response(timeout=SOON).decode())
    print("first:", first.response(timeout=SOON).decode())

    # Given up, with a word about why.
    slow = connection.request(b"slow")
    slow.ping(timeout=SOON)
    slow.cancel(b"not needed")


def streams(connection: bpmux.Connection) -> None:
    """Open a stream, a sink and a duplex."""
    # The peer writes.
    with connection.open_stream(b"numbers") as numbers:
        for number in itertools.islice(numbers, 3):
            print("number:", number.decode())
        numbers.cancel(b"enough", timeout=SOON)

    # The peer reads; `close` returns when it has everything.
    with connection.open_sink(b"log") as log:
        log.send_many([b"one", b"two", b"three"])
        log.close(b"3", timeout=SOON)

    # Both.
    with connection.open_duplex(b"echo") as duplex:
        duplex.send(b"there and back")
        print("echo:", duplex.receive(timeout=SOON).decode())
        duplex.close(timeout=SOON)
        print("left:", len(list(duplex)))


def by_hand(url: str) -> None:
    """Take so many bytes as one asked for."""
    with bpmux.connect(url, credit="manual") as connection:
        numbers = connection.open_stream(b"numbers")
        numbers.grant_credit(10)  # ten bytes: the ten numbers of one digit, and no more
        print("for ten bytes:", len(list(itertools.islice(numbers, 10))), "numbers")

        # A response needs credit too: the top-level's.
        connection.stream.grant_credit(5)
        print("answer:", connection.call(b"hello", timeout=SOON).decode())
        numbers.cancel(timeout=SOON)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", url]:
            serve(url)
        case ["call", url]:
            call(url)
        case _:
            sys.exit("usage: rpc_and_streams.py serve URL | call URL")
