"""The receiver: it listens, keeps events in a spool, and acknowledges durable ones."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ackline import _core
from ackline._table import nearest
from ackline.exceptions import UsageError

__all__ = ["OPTION_NAMES", "Receiver", "unknown_option"]


def _names() -> tuple[str, ...]:
    names = set()
    for option in _core.option_table("receive"):
        names.add(option["name"])
        if option["kind"] == "time":
            names.add(f"{option['name']}_ms")
    return tuple(sorted(names))


OPTION_NAMES: Final = _names()
"""The names of `options` of a receiver, as they are on the command line with underscores."""


def unknown_option(name: str, prefix: str = "") -> UsageError:
    """Returns the error for an option that a receiver does not have, with the nearest name.

    Args:
        name: The name that was given, without `prefix`.
        prefix: The text before the receiver's names in the caller's own names.
    """
    hint = nearest(name, OPTION_NAMES, prefix)
    return UsageError(f"there is no option {prefix}{name} of a receiver{hint}")


class Receiver:
    """A running receiver: it accepts connections from its construction on.

    Args:
        urls: URLs to listen on, such as ``lumberjack://127.0.0.1:5044``,
            ``relink://127.0.0.1:5100/NAME``, ``bpmux://127.0.0.1:5200``,
            ``reactive://127.0.0.1:5210/PUBLISHER`` or ``micromsg://127.0.0.1:8334``; port 0 is
            allowed.
        spool: The spool's directory, created if it is missing or empty.
        discard: Whether to count and acknowledge events without keeping them, in place of `spool`:
            for measuring only.
        options: Further options by their names on the command line with underscores, as
            `ackline receive --help` and the page on limits list them: sizes as bytes or texts
            (``"64MiB"``), times as texts (``"10s"``, ``"off"``) or, as ``NAME_ms``, in milliseconds
            (0 is off), counts, words, flags and paths.
        connect: URLs of Relink, bpmux, Reactive Streams and MicroMsg2 listeners that send. The
            receiver connects to them, for ever, and keeps the messages that they send;
            ``bpmux://host:port?stream=TEXT`` also opens a stream,
            ``reactive://host:port/PUBLISHER`` ends when the publisher completes its stream, and
            ``micromsg://host:port/TOPIC?filter=level%3E%3DN3`` subscribes to a topic or a queue.

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
        options: Mapping[str, float | str | bool | os.PathLike[str] | None] | None = None,
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
        """The URLs that it listens on, with the chosen ports."""
        return self._core.urls

    def next_line(self, *, timeout: float | None = None) -> str | None:
        """Waits for the next line of the JSON contract (`listening`, `stats`, `refused`, …).

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
        """Returns the reason why it gave up, as ``code: text``; None while it works.

        ``spool.failed``: the spool cannot be written; ``spool.fenced``, ``spool.changed`` and
        ``spool.panic`` are such failures with a known reason. ``receiver.accept``: no socket
        listens.
        """
        return self._core.failure()

    def stop(self, *, drain: float | None = None) -> int:
        """Accepts no more, makes complete input durable, acknowledges it, and ends.

        Args:
            drain: Seconds to wait for that; None is 10 s, or the option ``drain_timeout_ms``.

        Returns:
            The number of windows left unacknowledged: their senders send them again.
        """
        _core.check_seconds("drain", drain)
        self._is_stopped = True
        return self._core.stop(drain)

    def abort(self) -> int:
        """Ends every connection now; messages that are not durable are not acknowledged.

        Returns:
            The number of windows left unacknowledged.
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
