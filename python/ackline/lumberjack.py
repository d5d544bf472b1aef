# Written by `make sync` from ackline/aio/lumberjack.py: change that file.
"""Lumberjack v1 and v2 for threads: a listener that yields windows of events, and a writer.

For asyncio see `ackline.aio.lumberjack`.
"""

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Literal, Self

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
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = [
    "ArrowArray",
    "Event",
    "Events",
    "Listener",
    "Unacked",
    "Window",
    "WindowReceipt",
    "Writer",
    "connect",
    "listen",
]


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
    proxy_from: str | None = None,
    allow: str | None = None,
    max_connections: int = 10_000,
    max_connections_per_address: int | None = None,
    max_connection_age: float | None = None,
    accept_rate: int | None = 1000,
    max_bytes_per_second: int | None = None,
    handshake_timeout: float = 10.0,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    client_auth: Literal["none", "optional", "required"] | None = None,
    identity: Literal["subject", "san", "fingerprint"] | None = None,
    tokens_file: str | PathLike[str] | None = None,
) -> "Listener":
    """Listens for senders of Lumberjack v1 and v2.

    Returns at once; use it with ``with``.

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
        proxy_from: Networks of proxies, such as ``10.0.0.0/8,127.0.0.1``: a PROXY header is
            required from them and refused from everybody else.
        allow: Networks of senders, by their own addresses; None is everybody.
        max_connections: Connections at once.
        max_connections_per_address: Connections of one address (IPv6: of its /64), or of one
            user on a Unix socket, at once; None is all but an eighth of `max_connections`, 0 is
            all.
        max_connection_age: Seconds (± 20 %) after which a connection ends, when the window that has
            begun is acknowledged; None is off.
        accept_rate: Connections accepted in a second; None is off.
        max_bytes_per_second: Bytes that one sender may send: above it reading waits; None is off.
        handshake_timeout: Seconds for a PROXY header, and for a handshake of TLS.
        ca: A PEM file of certificates that issue the senders'. For ``+tls``, as all below, where
            the URL's query leaves them open; the files are read again when they change.
        crl: A PEM file of revocation lists, at most 1 MiB; each certificate of the other end then
            needs one of its issuer that has not expired.
        cert: A PEM file with this listener's certificate, then those between it and its root.
        key: A PEM file with its key.
        client_auth: Whether senders must have a certificate: required with `ca`, else none.
        identity: The part of a certificate that its owner is known by: the subject with its issuer
            (``subject``, the default), the alternative names (``san``) or the ``fingerprint``.
        tokens_file: A file with a name and a token in each line: only peers that begin with one of
            these tokens (`token_file`) are served, and are known by its name.

    Raises:
        UsageError: The URL is not understood, or an option or file is wrong.
        TransportError: The address cannot be listened on.
    """
    options = {name: value for name, value in locals().items() if name != "url"}
    return Listener(LumberjackListener(url, options))


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


def connect(  # noqa: PLR0913 (each is an option of its own)
    url: str | Sequence[str],
    *,
    timeout: float = 10.0,
    version: Literal[1, 2] = 2,
    compression: int | None = 3,
    batch_events: int = 2048,
    batch_bytes: int = 4 << 20,
    buffer_events: int = 65_536,
    buffer_bytes: int = 64 << 20,
    max_in_flight: int = 2,
    max_in_flight_events: int | None = None,
    max_in_flight_bytes: int | None = None,
    slow_start: int | None = None,
    cumulative: bool = False,
    accept_count_acks: bool = False,
    read_timeout: float | None = 30.0,
    progress_timeout: float | None = 300.0,
    backoff_min: float = 1.0,
    backoff_max: float = 60.0,
    ttl: float | None = None,
    receipts: int = 0,
    ca: str | PathLike[str] | None = None,
    crl: str | PathLike[str] | None = None,
    cert: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    server_name: str | None = None,
    token_file: str | PathLike[str] | None = None,
) -> "Writer":
    """Connects to one receiver or several.

    Args:
        url: Such as ``lumberjack://127.0.0.1:5044``, also ``+tls`` or ``+unix``; several as a list
            or separated by commas, like several hosts of one URL. Events go to any host that takes
            them.
        timeout: Seconds that one attempt to connect may take.
        version: The protocol's version.
        compression: The zlib level, 0 to 9; 0 and None send plain frames.
        batch_events: Events in a window.
        batch_bytes: Bytes in a window, before compression; a larger event goes alone.
        buffer_events: Events accepted and not acknowledged, over all hosts.
        buffer_bytes: Bytes of these events.
        max_in_flight: Windows sent to a host and not acknowledged.
        max_in_flight_events: Events sent to a host and not acknowledged; None is off.
        max_in_flight_bytes: Bytes of these events; None is off.
        slow_start: Events in the first window, from which windows grow by half with each one that
            is acknowledged and shrink to half with each connection lost (10 is usual); None is off.
        cumulative: Whether events are numbered continuously instead of from 1 in each window.
        accept_count_acks: Whether, with `cumulative`, the count of a window's events also
            acknowledges it.
        read_timeout: Seconds without a byte while something is in flight; None is off.
        progress_timeout: Seconds without a growing acknowledgement; None is off.
        backoff_min: The longest first wait, in seconds, before a failed host is tried again.
        backoff_max: The longest of all these waits, in seconds.
        ttl: Seconds (± 20 %) after which a connection is drained and made anew, so that names are
            resolved again; None keeps it.
        receipts: Windows whose receipts are kept until `Writer.receipts` takes them.
        ca: A PEM file of certificates to trust; the system's without it. For ``+tls``, as below.
        crl: A PEM file of revocation lists, at most 1 MiB; each certificate of the other end then
            needs one of its issuer that has not expired.
        cert: A PEM file with a certificate of our own.
        key: A PEM file with its key.
        server_name: The name in the server's certificate, if it is not the URL's host.
        token_file: A file with the token that this end is known by, one line of 16 to 255 visible
            characters, for a listener with ``tokens_file``; read again when it changes.

    Raises:
        UsageError: A URL or an option is not understood.
        TransportError: No host could be reached.
    """
    options = {name: value for name, value in locals().items() if name not in {"url", "timeout"}}
    writer = Writer(LumberjackSender(urls(url), {"connect_timeout": timeout} | options))
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
