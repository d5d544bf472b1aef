"""What the Lumberjack links for threads and for asyncio share: all that does not wait."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ackline._core import LumberjackClient, LumberjackListener
from ackline._core import LumberjackWindow as Window
from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = ["Event", "ListenerBase", "Window", "WriterBase", "deadline_in", "left_until"]

Event = bytes | str | Mapping[str, Any] | Sequence[tuple[bytes | str, bytes | str]]
"""What can be sent: JSON text, a dict to be encoded as such, or pairs for a key-value event."""

_Encoded = bytes | str | Sequence[tuple[bytes | str, bytes | str]]


class ListenerBase:
    """A listener without its waits."""

    def __init__(self, core: LumberjackListener) -> None:
        self._core = core

    @property
    def url(self) -> str:
        """Where it listens, with the port that was chosen."""
        return self._core.url

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return self._core.connections

    def refused(self) -> list[tuple[str, str, int, str]]:
        """The last 100 connections ended for their input: peer, code, offset, message."""
        return self._core.refused()

    def _take(self, max_windows: int) -> list[Window]:
        windows = self._core.try_receive(max_windows)
        if not windows and self._core.closed:
            raise LinkClosed("the listener is closed")
        return windows


class WriterBase:
    """A writer without its waits."""

    def __init__(self, core: LumberjackClient) -> None:
        self._core = core

    @property
    def unacknowledged(self) -> int:
        """Events sent and not acknowledged; a receiver may acknowledge a part of a window."""
        return self._core.unacknowledged

    def is_acknowledged(self, window: int) -> bool:
        """Whether a window is acknowledged now.

        Raises:
            LinkLost: The link ended before it was.
        """
        return self._core.is_acknowledged(window)

    def _windows(self, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        size = self._core.max_window
        return (events[start : start + size] for start in range(0, len(events), size))

    def _encoded(self, events: Sequence[Event]) -> list[_Encoded]:
        """Dicts as JSON text; everything else as it is."""
        return [
            json.dumps(event, separators=(",", ":"), ensure_ascii=False)
            if isinstance(event, Mapping)
            else event
            for event in events
        ]

    def _too_late(self) -> LinkTimeout:
        return LinkTimeout(f"{self.unacknowledged} events were not acknowledged in time")


def deadline_in(timeout: float | None) -> float | None:
    """When `timeout` seconds have passed; None is never."""
    return None if timeout is None else time.monotonic() + timeout


def left_until(deadline: float | None) -> float | None:
    """Seconds from now to `deadline`, at least 0."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
