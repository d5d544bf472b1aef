"""`ackline publish` and `ackline subscribe` as processes."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from ackline import reactive
from ackline.exceptions import AcklineError
from support.commands import (
    DEADLINE,
    ROOT,
    RunningReceiver,
    ackline_bytes,
)

Publisher = Callable[..., RunningReceiver]
Start = Callable[..., subprocess.Popen[bytes]]
ANYWHERE = "reactive://127.0.0.1:0/numbers"
COMMAND = [sys.executable, "-m", "ackline.cli"]
PAGE = ROOT / "docs" / "operations" / "json.md"


def subscribe(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Runs `ackline subscribe` to its end, in bytes."""
    return ackline_bytes("subscribe", *arguments)


def lines_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    """The standard output of a process."""
    assert process.stdout is not None
    return process.stdout


def feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Writes to the standard input of a process."""
    assert process.stdin is not None
    process.stdin.write(data)


@contextmanager
def serving(serve: Callable[[reactive.Connection], object]) -> Iterator[str]:
    """A listener in this process that serves one connection; its URL with a publisher."""

    def run() -> None:
        # A peer may leave at any time.
        with suppress(AcklineError), listener.accept(timeout=DEADLINE) as connection:
            serve(connection)

    with reactive.listen("reactive://127.0.0.1:0") as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield f"{listener.url}/numbers"
        thread.join(DEADLINE)
    assert not thread.is_alive()


def accepted(connection: reactive.Connection, size: int = 0) -> reactive.Publication:
    request = connection.accept(timeout=DEADLINE)
    assert request is not None
    return request.accept(size)
