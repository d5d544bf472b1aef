"""Both ends of Reactive Streams over real sockets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ackline import reactive

TIME = 20
NOW = 0.01
URL = "reactive://127.0.0.1:0"


@contextmanager
def pair(
    listens: dict[str, Any] | None = None, url: str = URL, **connects: Any
) -> Iterator[tuple[reactive.Connection, reactive.Connection]]:
    """The connector's end and the listener's end, each with its options."""
    with reactive.listen(url, **(listens or {})) as listener:
        near = reactive.connect(listener.url, **connects)
        far = listener.accept(timeout=TIME)
    try:
        yield near, far
    finally:
        near.abort()
        far.abort()
