"""`ackline serve micromsg://…` as a process, and peers of MicroMsg2 in this process."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ackline import micromsg
from ackline.exceptions import AcklineError
from support.commands import DEADLINE, RunningReceiver

Broker = Callable[..., RunningReceiver]
ANY = "micromsg://127.0.0.1:0"
"""A URL to listen on."""


@contextmanager
def listening(serve: Callable[[micromsg.Connection], object], **options: object) -> Iterator[str]:
    """A listener in this process that serves one connection after the other; its URL."""

    def run() -> None:
        for connection in listener:
            # A peer may leave at any time.
            with suppress(AcklineError), connection:
                connection.wait_connected(timeout=DEADLINE)
                serve(connection)

    with micromsg.listen(ANY, **options) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield listener.url
        listener.close()
        thread.join(DEADLINE)
    assert not thread.is_alive()


@contextmanager
def taking(**options: object) -> Iterator[tuple[str, list[micromsg.Message]]]:
    """A listener in this process that takes all messages; its URL, and the messages."""
    taken: list[micromsg.Message] = []

    def take(connection: micromsg.Connection) -> None:
        while messages := connection.receive_some(timeout=DEADLINE):
            taken.extend(messages)

    with listening(take, **options) as url:
        yield url, taken
