"""The output of a long-running command: JSON lines, or sentences on standard error."""

import json
import os
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, Protocol

from ackline.cli.notices import Bound
from ackline.cli.terminal import say
from ackline.cli.values import place

__all__ = ["JsonOutput", "Output", "TextOutput"]

_MOST_LINES = 1_000
_LAST_LINES = 2.0
"""Seconds for the remaining lines at the end."""


class Output(Protocol):
    """A receiver of events."""

    def say(self, event: str, **members: Any) -> None:  # noqa: ANN401 (any JSON value)
        """Reports an event."""

    def end(self) -> None:
        """Reports the remaining events."""


class JsonOutput:
    """Lines on standard output, written by a thread of their own: a slow reader delays nothing.

    Of the lines that are not read, the oldest are dropped and counted in the next `stats`.
    """

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._there = threading.Condition()
        self._missed = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def say(self, event: str, **members: Any) -> None:  # noqa: ANN401
        """Reports an event; all but `listening` have the time."""
        line = {"event": event} | members
        with self._there:
            if event != "listening":
                line.setdefault("time", _now())
            if event == "stats" and self._missed:
                line["missed_lines"] = self._missed
            if len(self._lines) == _MOST_LINES:
                self._lines.popleft()
                self._missed += 1
            self._lines.append(json.dumps(line).encode() + b"\n")
            self._there.notify()

    def end(self) -> None:
        """Waits a short time until all lines are written."""
        with self._there:
            self._is_over = True
            self._there.notify()
        self._thread.join(_LAST_LINES)

    def _write(self) -> None:
        while (line := self._next()) is not None:
            while line:
                try:
                    line = line[os.write(1, line) :]
                except OSError:
                    return

    def _next(self) -> bytes | None:
        with self._there:
            while not self._lines and not self._is_over:
                self._there.wait()
            return self._lines.popleft() if self._lines else None


class TextOutput:
    """Sentences for people; numbers are not reported."""

    def __init__(self) -> None:
        self._bound = Bound()

    def say(self, event: str, **members: Any) -> None:  # noqa: ANN401
        """Reports an event, if there are not too many of its kind."""
        match event:
            case "listening":
                text = "listening on " + ", ".join(members["urls"])
            case "refused":
                who = members["peer"] or f"{members['times']} connections"
                where = place(members["code"], members["offset"])
                text = f"refused {who}: {members['code']}: {members['message']}{where}"
            case "rejected":
                text = f"rejected {members['peer']}: {members['message']}"
            case "published":
                text = _published(members)
            case "failed":
                text = f"FAILED: {members['code']}: {members['message']}"
            case _:
                return
        kind = members.get("code") or members.get("end")
        if self._bound.admits(f"{event}: {kind}" if kind else event):
            say(text)
        for told in self._bound.passed():
            say(told)

    def end(self) -> None:
        """Reports the number of events not shown."""
        for told in self._bound.passed(all_of_them=True):
            say(told)


def _published(stream: dict[str, Any]) -> str:
    """Returns the sentence for a stream that has ended."""
    elements, peer, why = (stream[name] for name in ("elements", "peer", "message"))
    match stream["end"]:
        case "completed":
            return f"{elements} elements published to {peer}"
        case "cancelled":
            return f"{peer} has cancelled the stream after {elements} elements"
        case "failed":
            return f"the stream to {peer} was ended after {elements} elements: {why}"
        case _:
            return f"{peer} was lost after {elements} elements: {why}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
