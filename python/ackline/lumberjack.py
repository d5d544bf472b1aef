"""Lumberjack v1 and v2 for threads: a listener that yields windows of events, and a writer.

For asyncio see `ackline.aio.lumberjack`.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Literal, Self

from ackline._core import LumberjackClient, LumberjackListener
from ackline._lumberjack import (
    Event,
    ListenerBase,
    Window,
    WriterBase,
    deadline_in,
    left_until,
)
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = ["Event", "Listener", "Window", "Writer", "connect", "listen"]


def listen(  # noqa: PLR0913 (each is a limit of its own)
    url: str,
    *,
    memory: int = 256 << 20,
    max_window_events: int = 65_536,
    max_json_bytes: int = 16 << 20,
    max_data_bytes: int = 16 << 20,
    max_compressed_bytes: int = 32 << 20,
    max_inflated_bytes: int = 100 << 20,
    max_pairs: int = 1024,
    max_field_bytes: int = 1 << 20,
    max_window_bytes: int = 256 << 20,
    max_unacked_windows: int = 64,
    keepalive: float | None = 3.0,
    tail_idle: float | None = None,
    stall_timeout: float | None = 30.0,
    idle_timeout: float | None = 900.0,
    first_byte_timeout: float | None = 10.0,
    no_window: Literal["accept", "refuse"] = "accept",
    ca: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
) -> "Listener":
    """Listens for senders of Lumberjack v1 and v2.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``, ``lumberjack+tls://0.0.0.0:5044`` or
            ``lumberjack+unix:///run/x.sock``; port 0 is allowed.
        memory: Bytes of unacknowledged input over all connections: above it reading waits.
        max_window_events: Events in a window.
        max_json_bytes: Bytes of a JSON event.
        max_data_bytes: Bytes of a key-value event.
        max_compressed_bytes: Bytes of a compressed frame.
        max_inflated_bytes: Bytes that a compressed frame may inflate to.
        max_pairs: Pairs in a key-value event.
        max_field_bytes: Bytes of a key or value.
        max_window_bytes: Bytes of a window on the wire.
        max_unacked_windows: Windows of one connection that wait for `Window.ack`: above it reading
            waits.
        keepalive: Seconds between keepalives to a v2 sender whose window waits; None is off.
        tail_idle: Seconds of silence after which a part of a v1 window is handed on; None is off.
        stall_timeout: Seconds without a byte inside a frame or window; None is off.
        idle_timeout: Seconds between windows after which a connection is ended; None is off.
        first_byte_timeout: Seconds until a new connection's first byte; None is off.
        no_window: Whether events before any window frame are accepted, each as a window of its own.
        ca: A PEM file of certificates that issue the senders'. For ``+tls``, as all below, where
            the URL's query leaves them open; the files are read again when they change.
        cert: A PEM file with this listener's certificate, then those between it and its root.
        key: A PEM file with its key.
        client_auth: Whether senders must have a certificate: required with `ca`, else none.

    Raises:
        UsageError: The URL is not understood, or an option or file of TLS is wrong.
        TransportError: The address cannot be listened on.
    """
    options = {name: value for name, value in locals().items() if name != "url"}
    return Listener(LumberjackListener(url, options))


class Listener(ListenerBase):
    """Yields the windows of all its connections, in the order they were completed.

    A window is acknowledged by `Window.ack`, when its events are safe: until then its sender keeps
    them. Closing the listener leaves what was not acknowledged to be sent again.

    Example:
        >>> with listen("lumberjack://127.0.0.1:5044") as listener:  # doctest: +SKIP
        ...     for window in listener:
        ...         print(window.peer, window.events)
        ...         window.ack()
    """

    def receive_many(self, max_windows: int = 64, *, timeout: float | None = None) -> list[Window]:
        """Waits for at least one window.

        Args:
            max_windows: Windows taken at the most.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No window came in time.
            LinkClosed: The listener was closed and nothing is left.
        """
        deadline = deadline_in(timeout)
        while True:
            if windows := self._take(max_windows):
                return windows
            if not self._core.wait("receive", left_until(deadline)):
                raise LinkTimeout(f"no window arrived within {timeout} s")

    def receive(self, *, timeout: float | None = None) -> Window:
        """Waits for one window; like `receive_many`."""
        return self.receive_many(1, timeout=timeout)[0]

    def __iter__(self) -> Iterator[Window]:
        try:
            while True:
                yield self.receive()
        except LinkClosed:
            return

    def close(self, *, timeout: float = 1.0) -> None:
        """Accepts no more, sends the acknowledgements that were given, ends every connection.

        Args:
            timeout: Seconds to wait for the senders to end; then they are cut off.
        """
        self._core.close()
        self._core.wait("ended", timeout)
        self._core.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def connect(
    url: str,
    *,
    timeout: float = 10.0,
    version: Literal[1, 2] = 2,
    compression: int | None = 3,
    max_in_flight: int = 2,
    max_window: int = 2048,
    read_timeout: float | None = 30.0,
    progress_timeout: float | None = 300.0,
) -> "Writer":
    """Connects to a receiver.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``.
        timeout: Seconds until the connection must stand.
        version: The protocol's version.
        compression: The zlib level, 0 to 9; None sends plain frames.
        max_in_flight: Windows sent and not acknowledged.
        max_window: Events in a window.
        read_timeout: Seconds without a byte while something is in flight; None is off.
        progress_timeout: Seconds without a growing acknowledgement; None is off.

    Raises:
        UsageError: The URL is not understood.
        TransportError: The connection could not be made.
    """
    core = LumberjackClient(
        url,
        {
            "connect_timeout": timeout,
            "version": version,
            "compression": compression,
            "max_in_flight": max_in_flight,
            "max_window": max_window,
            "read_timeout": read_timeout,
            "progress_timeout": progress_timeout,
        },
    )
    core.wait("connected", None)
    core.check()
    return Writer(core)


class Writer(WriterBase):
    """A connection that sends windows of events. It does not reconnect.

    Example:
        >>> with connect("lumberjack://127.0.0.1:5044") as writer:  # doctest: +SKIP
        ...     writer.send([{"message": "kept when this returns"}])
    """

    def send(self, events: Sequence[Event], *, timeout: float | None = None) -> None:
        """Sends events and returns when all of them are acknowledged.

        Args:
            events: JSON text as bytes or str, a dict to be encoded as JSON, or a sequence of pairs
                to be sent as a key-value event.
            timeout: Seconds; None waits for ever (the link's own deadlines still hold).

        Raises:
            LinkTimeout: Not all were acknowledged in time; they may still be.
            LinkLost: The link ended first; `unacknowledged` of the events may or may not be kept.
        """
        deadline = deadline_in(timeout)
        windows = [self._send_window(window, deadline) for window in self._windows(events)]
        for window in windows:
            self._wait_window(window, deadline)

    def send_window(self, events: Sequence[Event], *, timeout: float | None = None) -> int:
        """Sends one window as soon as it may go; returns its number for `wait_acknowledged`."""
        deadline = deadline_in(timeout)
        return self._send_window(events, deadline)

    def wait_acknowledged(self, window: int, *, timeout: float | None = None) -> None:
        """Waits until a window is acknowledged; raises like `send`."""
        self._wait_window(window, deadline_in(timeout))

    def close(self, *, timeout: float = 5.0) -> None:
        """Sends no more and ends when everything is acknowledged, or after `timeout` seconds."""
        if not self._core.closed:
            self._core.finish()
            self._core.wait("ended", timeout)
            self._core.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _send_window(self, events: Sequence[Event], deadline: float | None) -> int:
        encoded = self._encoded(events)
        while (window := self._core.try_send_window(encoded)) is None:
            self._wait("room", deadline)
        return window

    def _wait_window(self, window: int, deadline: float | None) -> None:
        while not self._core.is_acknowledged(window):
            self._wait("window", deadline, window)

    def _wait(
        self, interest: Literal["room", "window"], deadline: float | None, window: int = 0
    ) -> None:
        if not self._core.wait(interest, left_until(deadline), window):
            raise self._too_late()
