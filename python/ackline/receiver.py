"""The receiver: listens, keeps what arrives in a spool, acknowledges what is durable."""

import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ackline import _core
from ackline.exceptions import UsageError

__all__ = ["OPTION_NAMES", "Receiver", "unknown_option"]

OPTION_NAMES: Final = (
    "accept_rate",
    "ack",
    "allow",
    "allow_unsafe_filesystem",
    "bind_identity",
    "budget",
    "ca",
    "cert",
    "chunk_receive_timeout_ms",
    "client_auth",
    "connect_timeout_ms",
    "credit_budget",
    "credit_ceiling",
    "credit_floor",
    "crl",
    "drain_timeout_ms",
    "durable_links",
    "first_byte_timeout_ms",
    "frame_timeout_ms",
    "group",
    "handshake_timeout_ms",
    "identity",
    "idle_timeout_ms",
    "keepalive_ms",
    "key",
    "lost_after_ms",
    "max_bytes_per_second",
    "max_channel_ids",
    "max_channels",
    "max_compressed_bytes",
    "max_connection_age_ms",
    "max_connections",
    "max_connections_per_address",
    "max_data_bytes",
    "max_entities",
    "max_field_bytes",
    "max_inflated_bytes",
    "max_json_bytes",
    "max_links",
    "max_message_bytes",
    "max_message_parts",
    "max_multicast_bytes",
    "max_opening_bytes",
    "max_pairs",
    "max_part_bytes",
    "max_payload_bytes",
    "max_requests",
    "max_sender_share",
    "max_unacked_windows",
    "max_window_bytes",
    "max_window_events",
    "memory",
    "min_rate",
    "no_window",
    "on_invalid",
    "orphan_after_ms",
    "packet_receive_timeout_ms",
    "ping_after_ms",
    "pong_timeout_ms",
    "proxy_from",
    "quarantine_age_ms",
    "quarantine_budget",
    "receive_window",
    "reconnect_max_ms",
    "retain_committed_ms",
    "retain_max_ms",
    "segment_age_ms",
    "segment_bytes",
    "server_name",
    "stall_timeout_ms",
    "tail_idle_ms",
    "token_file",
    "tokens_file",
    "v1_ack",
)
"""The names of `options` of a receiver, as they are on the command line with underscores."""


def unknown_option(name: str, prefix: str = "") -> UsageError:
    """Returns the error for an option that a receiver does not have: it names the nearest one.

    Args:
        name: The name that was given, without `prefix`.
        prefix: What stands before the receiver's names where they were given.
    """
    nearest = difflib.get_close_matches(name, OPTION_NAMES, n=1, cutoff=_NEAR)
    hint = f" (did you mean {prefix}{nearest[0]}?)" if nearest else ""
    return UsageError(f"there is no option {prefix}{name} of a receiver{hint}")


_NEAR: Final = 0.55
"""How alike a misspelt name is to the one that was meant, from 0 to 1."""


class Receiver:
    """A running receiver: it accepts connections from its construction on.

    Args:
        urls: Where to listen, such as ``lumberjack://127.0.0.1:5044``,
            ``relink://127.0.0.1:5100/NAME`` or ``bpmux://127.0.0.1:5200``; port 0 is allowed.
        spool: The spool's directory, created if it is missing or empty.
        discard: Count and acknowledge without keeping, in place of `spool`: for measuring only.
        options: Further options by their names on the command line with underscores: sizes in bytes
            (``memory``, ``budget``, ``quarantine_budget``, ``max_window_events``, …), times in
            milliseconds (``keepalive_ms``, ``retain_committed_ms``, ``retain_max_ms``,
            ``quarantine_age_ms``, …; 0 is off), words (``ack``: ``durable`` or
            ``committed=NAME``; ``v1_ack``: ``refuse`` or ``durable``; ``on_invalid``: ``refuse``
            or ``quarantine``), networks (``proxy_from``, ``allow``: ``10.0.0.0/8,127.0.0.1``),
            counts (``max_connections``, ``max_connections_per_address``, ``accept_rate``; the last
            two 0 for off), bytes in a second (``max_bytes_per_second``; 0 for off), a part above 0
            and up to 1 (``max_sender_share``), flags (``group``, ``allow_unsafe_filesystem``); for
            ``+tls`` URLs PEM files (``ca``, ``crl``, ``cert``, ``key``), ``client_auth``: ``none``,
            ``optional`` or ``required``, ``identity``: ``subject``, ``san`` or
            ``fingerprint``, and ``tokens_file``, the tokens of senders (``token_file``, our own,
            where we connect); for Relink ``durable_links``, ``orphan_after_ms``,
            ``receive_window``, ``max_channels``, ``max_links``, ``max_channel_ids``,
            ``max_message_parts``, ``max_part_bytes``, ``max_message_bytes``,
            ``max_multicast_bytes``; for bpmux
            ``credit_floor``, ``credit_ceiling``, ``credit_budget``, ``max_payload_bytes``,
            ``max_opening_bytes``, ``max_entities``, ``max_requests``,
            ``chunk_receive_timeout_ms``; for both ``ping_after_ms``, ``pong_timeout_ms``,
            ``connect_timeout_ms``, ``reconnect_max_ms``.
        connect: Where to connect to, for ever, and to land what is sent there: URLs of Relink and
            bpmux listeners that send; ``bpmux://host:port?stream=TEXT`` also opens a stream.

    Raises:
        UsageError: A URL or option is wrong, or not exactly one of spool and discard was given.
        TransportError: A URL cannot be listened on.
        SpoolError: The spool cannot be opened, such as `spool.locked`.

    Example:
        >>> with Receiver(["lumberjack://127.0.0.1:0"], spool="/tmp/spool") as receiver:
        ...     print(receiver.urls)  # doctest: +SKIP
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        spool: str | os.PathLike[str] | None = None,
        discard: bool = False,
        options: Mapping[str, float | str] | None = None,
        connect: Sequence[str] = (),
    ) -> None:
        for name in options or {}:
            if name not in OPTION_NAMES:
                raise unknown_option(name)
        directory = None if spool is None else os.fspath(spool)
        self._core = _core.Receiver(
            list(urls), directory, discard, dict(options or {}), list(connect)
        )
        self._is_stopped = False

    @property
    def urls(self) -> list[str]:
        """Where it listens, with the ports that were chosen."""
        return self._core.urls

    def next_line(self, *, timeout: float | None = None) -> str | None:
        """The next line of the JSON contract (`listening`, `stats`, `refused`, …).

        Args:
            timeout: Seconds to wait; None waits for ever.

        Returns:
            A JSON object as text, or None after `timeout`.
        """
        return self._core.next_event(timeout)

    def events(self, *, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """Yields the lines of `next_line` as dicts until `timeout` passes without one."""
        while (line := self.next_line(timeout=timeout)) is not None:
            yield json.loads(line)

    def stats(self) -> dict[str, Any]:
        """Totals since the start and gauges of now: the members of a `stats` line."""
        stats: dict[str, Any] = json.loads(self._core.stats())
        return stats

    def failure(self) -> str | None:
        """Why it gave up, as ``code: text``; None while it works.

        ``spool.failed``: the spool cannot be written; ``spool.fenced``, ``spool.changed`` and
        ``spool.panic`` say why. ``receiver.accept``: no socket listens.
        """
        return self._core.failure()

    def stop(self, *, drain: float | None = None) -> int:
        """Accepts no more, makes durable and acknowledges what was completely received, ends.

        Args:
            drain: Seconds to wait for that; None is 10 s, or the option ``drain_timeout_ms``.

        Returns:
            How many windows were left unacknowledged: their senders send them again.
        """
        _core.check_seconds("drain", drain)
        self._is_stopped = True
        return self._core.stop(drain)

    def abort(self) -> int:
        """Ends every connection now; what is not durable is not acknowledged.

        Returns:
            How many windows were left unacknowledged.
        """
        self._is_stopped = True
        return self._core.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_stopped:
            self.stop()
