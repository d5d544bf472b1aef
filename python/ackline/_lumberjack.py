"""The parts of Lumberjack's links that do not wait: threads and asyncio share them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ackline._closing import CLOSING_SECONDS
from ackline._core import LumberjackBatch, LumberjackListener, LumberjackSender
from ackline._core import LumberjackWindow as Window
from ackline.exceptions import LinkClosed, LinkLost, LinkTimeout, UsageError

__all__ = [
    "ArrowArray",
    "Event",
    "Events",
    "ListenerBase",
    "Unacked",
    "Window",
    "WindowReceipt",
    "WriterBase",
    "lost_at_end",
    "urls",
]

Event = bytes | str | Mapping[str, Any] | Sequence[tuple[bytes | str, bytes | str]]
"""An event to send: JSON text, a dict to be encoded as JSON, or pairs for a key-value event."""


@runtime_checkable
class ArrowArray(Protocol):
    """A column of JSON texts, such as a `pyarrow.Array` of binary or string."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """The column as capsules of Arrow's C interface."""
        ...

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice) -> "ArrowArray": ...


Events = Sequence[Event] | ArrowArray
"""Events as a sequence, or as a column of texts without nulls, which are sent as they are."""

_AWAY = {"idle", "connecting", "waiting"}
"""States of a host without a connection."""

_Encoded = bytes | str | Sequence[tuple[bytes | str, bytes | str]]


class ListenerBase:
    """A listener without its waits."""

    def __init__(self, core: LumberjackListener) -> None:
        self._core = core

    @property
    def url(self) -> str:
        """The URL that it listens on, with the chosen port."""
        return self._core.url

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return self._core.connections

    def refused(self) -> list[tuple[str, str, int, str]]:
        """The last 100 connections ended for their input: peer, code, offset, message."""
        return self._core.refused()

    @property
    def health_checks(self) -> int:
        """Connections that ended before their first byte, as TCP health checks do."""
        return self._core.turned_away()[0]

    @property
    def turned_away(self) -> dict[str, int]:
        """Connections refused before the protocol saw a byte, by code."""
        return self._core.turned_away()[1]

    def _take(self, max_windows: int) -> list[Window]:
        windows = self._core.try_receive(max_windows)
        if not windows and self._core.closed:
            raise LinkClosed("the listener is closed")
        return windows


@dataclass(frozen=True, slots=True)
class WindowReceipt:
    """The fate of one window that a `Writer` sent."""

    id: int
    """The window's number, counted from 1 over all hosts."""
    host: str
    """The host it went to, as a URL."""
    events: int
    """Events in it."""
    acknowledged: int
    """Events that are acknowledged, from the first on; the others are sent again."""
    first: int
    """The number of its first event, counted from 1 in the order of acceptance."""
    last: int
    """The number of its last event."""
    repeats: bool
    """Whether it was sent before and may have arrived then."""


class Unacked:
    """The events that were not acknowledged when a writer closed."""

    def __init__(self, core: LumberjackSender) -> None:
        self._core = core
        self.ranges, self.possibly_arrived = core.unacked() or ([], 0)

    ranges: list[tuple[int, int]]
    """The first and the last number of each run, counted from 1 in the order of acceptance."""
    possibly_arrived: int
    """Events among these that were sent and may have arrived."""

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def events(self) -> list[bytes | list[tuple[bytes, bytes]]]:
        """The events themselves, in order: JSON text, or pairs."""
        return self._core.unacked_events()


def lost_at_end(left: Unacked) -> LinkLost:
    """Returns the error for the end of a block with unacknowledged events."""
    return LinkLost(
        f"{len(left)} events are not acknowledged {CLOSING_SECONDS:g} s after the block's end, "
        f"{left.possibly_arrived} of them may have arrived: flush() inside the block waits for "
        "them, and close(), called there, returns them",
        len(left),
    )


class WriterBase:
    """A writer without its waits."""

    def __init__(self, core: LumberjackSender) -> None:
        self._core = core

    @property
    def unacknowledged(self) -> int:
        """Events accepted and not acknowledged; a receiver may acknowledge a part of a window."""
        return self._core.unacknowledged

    def is_acknowledged(self, number: int) -> bool:
        """Whether the events of the call that returned `number` are acknowledged.

        The calls are `try_send` and `send_window`.

        Raises:
            LinkLost: The writer was closed before they were.
            UsageError: This number was never returned.
        """
        return self._core.is_acknowledged(number)

    def try_send(self, events: Events) -> int | None:
        """Accepts events now, all or none of them.

        Returns:
            A number for `is_acknowledged` and `wait_acknowledged`; None while the buffer is full.

        Raises:
            UsageError: An event cannot be sent, or there are more than the buffer can ever hold.
            LinkClosed: The writer was closed.
        """
        return self._accept(self._batch(events))

    def receipts(self) -> list[WindowReceipt]:
        """Returns the receipts since the last call; none without the option `receipts`."""
        return [WindowReceipt(*receipt) for receipt in self._core.receipts()]

    def stats(self) -> dict[str, Any]:
        """The writer's numbers: `state`, `possible_repeats`, `reconnects`, `hosts` and others."""
        return self._core.stats()

    def _accept(self, batch: LumberjackBatch) -> int | None:
        accepted = self._core.try_send(batch)
        return accepted[0] if accepted else None

    def _batches(self, events: Events) -> Iterator[LumberjackBatch]:
        size = self._core.batch_events
        events = _sequence(events)
        for start in range(0, len(events), size):
            yield self._batch(events[start : start + size], first=start)

    def _window(self, events: Events) -> LumberjackBatch:
        return self._batch(events, is_window=True)

    def _batch(self, events: Events, *, is_window: bool = False, first: int = 0) -> LumberjackBatch:
        """Returns the events, with dicts as JSON text; errors number the first event `first`."""
        events = _sequence(events)
        if isinstance(events, ArrowArray):
            return LumberjackBatch(events, is_window)
        encoded = [
            _json_text(event, at) if isinstance(event, Mapping) else event
            for at, event in enumerate(events, first)
        ]
        return LumberjackBatch(encoded, is_window, first)

    @property
    def _is_closed(self) -> bool:
        """Whether `close` has returned the events that are not acknowledged."""
        return self._core.unacked() is not None

    def _too_late(self) -> LinkTimeout:
        hosts = (host for host in self._core.stats()["hosts"] if host["state"] in _AWAY)
        reason = next((f" ({host['last_error']})" for host in hosts if host["last_error"]), "")
        return LinkTimeout(f"{self.unacknowledged} events were not acknowledged in time{reason}")


def _sequence(events: Events) -> Events:
    """Returns the events, and refuses other iterables such as a single event."""
    if isinstance(events, (str, bytes, bytearray, memoryview, Mapping)):
        raise UsageError("events are a sequence; one event alone goes as a list: [event]", "events")
    if not isinstance(events, ArrowArray) and hasattr(events, "__arrow_c_stream__"):
        text = "a column in chunks is sent chunk by chunk: for chunk in column.chunks"
        raise UsageError(text, "events")
    return events


def _json_text(event: Mapping[str, Any], at: int) -> str:
    try:
        return json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"event {at}: {error}", "event") from error


def urls(url: str | Sequence[str]) -> list[str]:
    """One URL or several, as a list."""
    return [url] if isinstance(url, str) else list(url)
