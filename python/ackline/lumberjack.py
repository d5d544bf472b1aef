# Written by `make sync` from ackline/aio/lumberjack.py: change that file.
"""Lumberjack v1 and v2 for threads: a listener that yields windows of events, and a writer.

For asyncio see `ackline.aio.lumberjack`.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Self, Unpack

from ackline._block import Closing
from ackline._closing import CLOSING_SECONDS, tell_loss
from ackline._core import LumberjackBatch, LumberjackListener, LumberjackSender
from ackline._deadline import deadline_in, left_until
from ackline._lumberjack import (
    ArrowArray,
    Event,
    Events,
    ListenerBase,
    Unacked,
    Window,
    WindowReceipt,
    WriterBase,
    lost_at_end,
    urls,
)
from ackline._lumberjack_options import LumberjackConnectOptions as ConnectOptions
from ackline._lumberjack_options import LumberjackListenOptions as ListenOptions
from ackline._table import known, signed
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = [
    "ArrowArray",
    "ConnectOptions",
    "Event",
    "Events",
    "ListenOptions",
    "Listener",
    "Unacked",
    "Window",
    "WindowReceipt",
    "Writer",
    "connect",
    "listen",
]


@signed("lumberjack.listen")
def listen(url: str, **options: Unpack[ListenOptions]) -> "Listener":
    """Listens for senders of Lumberjack v1 and v2.

    Returns at once; use it with ``with``.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``, ``lumberjack+tls://0.0.0.0:5044`` or
            ``lumberjack+unix:///run/x.sock``; port 0 is allowed.
        options: See `ListenOptions`.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    return Listener(LumberjackListener(url, known("lumberjack.listen", options)))


class Listener(Closing, ListenerBase):
    """Yields the windows of all its connections, in the order they were completed.

    A window is acknowledged by `Window.ack`, when its events are safe: until then its sender keeps
    them. Windows that are not acknowledged when the listener closes are sent again.

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
        """Accepts no more, sends the acknowledgements that were given, and ends every connection.

        Args:
            timeout: Seconds to wait for the senders to end; then they are cut off.
        """
        deadline = deadline_in(timeout)
        self._core.close()
        self._core.wait("ended", left_until(deadline))
        self._core.abort()


@signed("lumberjack.connect")
def connect(url: str | Sequence[str], **options: Unpack[ConnectOptions]) -> "Writer":
    """Connects to one receiver or several.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``, also ``+tls`` or ``+unix``; several as a list
            or separated by commas, as are the hosts of one. Events go to whichever takes them.
        options: See `ConnectOptions`.

    Raises:
        UsageError: A URL or an option is not understood.
        TransportError: No host could be reached.
    """
    writer = Writer(LumberjackSender(urls(url), known("lumberjack.connect", options)))
    return writer._connected()  # noqa: SLF001 (its own other half)


class Writer(Closing, WriterBase):
    """Sends events, keeps them until they are acknowledged, and connects again by itself.

    The end of a `with` block closes it and raises `LinkLost` with the number of events that are not
    acknowledged then, unless `close` was called inside.

    Example:
        >>> with connect("lumberjack://127.0.0.1:5044") as writer:  # doctest: +SKIP
        ...     writer.send([{"message": "kept when this returns"}])
        ...     number = writer.try_send([{"message": "on its way"}])
        ...     rest = writer.close(timeout=10)
        ...     print(len(rest), "events are not acknowledged:", rest.ranges)
    """

    def send(self, events: Events, *, timeout: float | None = None) -> None:
        """Sends events and returns when all of them are acknowledged.

        Args:
            events: Each JSON text as bytes or str, a dict to be encoded as JSON, or a sequence of
                pairs to be sent as a key-value event; or all as one Arrow array of JSON texts.
            timeout: Seconds; None waits for ever, also while no host can be reached.

        Raises:
            LinkTimeout: Not all were acknowledged in time. The events accepted by then, all or
                some, are still sent: send none of them again before `close` returns the rest.
            LinkLost: The writer was closed first.
            UsageError: An event cannot be sent; the batches of `batch_events` before its own may
                have been accepted.
        """
        deadline = deadline_in(timeout)
        numbers = [self._send(batch, deadline) for batch in self._batches(events)]
        for number in numbers:
            self._wait_acknowledged(number, deadline)

    def send_window(self, events: Events, *, timeout: float | None = None) -> int:
        """Accepts a window once there is room; returns its number for `wait_acknowledged`."""
        return self._send(self._window(events), deadline_in(timeout))

    def wait_acknowledged(self, number: int, *, timeout: float | None = None) -> None:
        """Waits until the events with this number are acknowledged; raises like `send`."""
        self._wait_acknowledged(number, deadline_in(timeout))

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until all events accepted before are acknowledged; raises like `send`."""
        deadline, last = deadline_in(timeout), self._core.last_batch
        while not self._core.is_flushed(last):
            self._wait("flushed", deadline, last)

    def close(self, *, timeout: float = CLOSING_SECONDS) -> Unacked:
        """Accepts no more events, and ends once all are acknowledged or after `timeout` seconds.

        Returns:
            Exactly the events that are not acknowledged.
        """
        if self._core.unacked() is None:
            self._core.finish(timeout)
            self._core.wait("ended", None)
        return Unacked(self._core)

    def _leave(self, *, failed: bool) -> None:
        if not self._is_closed and len(left := self.close()):
            tell_loss(lost_at_end(left), failed=failed)

    def _connected(self) -> Self:
        self._core.wait("connected", None)
        self._core.check_connected()
        return self

    def _send(self, batch: LumberjackBatch, deadline: float | None) -> int:
        while (number := self._accept(batch)) is None:
            self._wait("room", deadline)
        return number

    def _wait_acknowledged(self, number: int, deadline: float | None) -> None:
        while not self._core.is_acknowledged(number):
            self._wait("batch", deadline, number)

    def _wait(
        self, interest: Literal["room", "batch", "flushed"], deadline: float | None, number: int = 0
    ) -> None:
        if not self._core.wait(interest, left_until(deadline), batch=number):
            raise self._too_late()
