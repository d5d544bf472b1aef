"""The line of `ackline receive` that changes, and the messages above it."""

import json
import time
from typing import Any

from ackline.cli.notices import Bound, tell_elsewhere
from ackline.cli.terminal import escaped

__all__ = ["LiveLine"]

_SHOWN_HERE = (
    "connection refused ",
    "transaction refused ",
    "a window was set aside ",
    "reading code=receiver.paused",
    "the spool cannot be written code=receiver.failed",
)
"""Log records that this module gets as lines of their own."""


class LiveLine:
    """One line on standard error that changes; important messages stand above it."""

    def __init__(self, *, is_kept: bool) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        self._text = Text
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()
        self._is_kept = is_kept
        self._last = (time.monotonic(), 0)
        self._bound = Bound()
        tell_elsewhere(_SHOWN_HERE)

    def line(self, line: str) -> None:
        """Shows one line of the JSON contract."""
        event = json.loads(line)
        if event["event"] == "stats":
            # The text is shown as it is, without markup.
            self._live.update(self._text(escaped(self._stats(event))), refresh=True)
            if missed := event.get("missed_lines"):
                self._print(f"{missed} lines came too quickly and were dropped")
            self._tell(self._bound.passed())
        elif self._bound.admits(_kind(event)):
            self._print(_sentence(event))

    def end(self) -> None:
        """Reports the messages that were not shown, and leaves the last line in place."""
        self._tell(self._bound.passed(all_of_them=True))
        self._live.stop()

    def _tell(self, texts: list[str]) -> None:
        for text in texts:
            self._print(text)

    def _print(self, text: str) -> None:
        # The text is shown as it is: an address may have an emoji's name between its colons.
        self._live.console.print(escaped(text), markup=False, emoji=False, highlight=False)

    def _stats(self, stats: dict[str, Any]) -> str:
        now, (before, events) = time.monotonic(), self._last
        self._last = (now, stats["events"])
        rate = (stats["events"] - events) / max(now - before, 1e-3)
        kept = (
            f"spool {stats['spool_bytes'] / (1 << 20):,.1f} MiB" if self._is_kept else "DISCARDED"
        )
        paused = f", paused: {stats['paused']}" if stats["paused"] else ""
        return (
            f"{stats['connections']} connections, {rate:,.0f} events/s, "
            f"{stats['events']:,} events, "
            f"{stats['unacked_windows']} windows unacked, {kept}, "
            f"{stats['state']}{paused}{_slowest(stats['consumers'])}"
        )


def _slowest(consumers: list[dict[str, Any]]) -> str:
    """Returns the consumer that is furthest behind; it holds the space."""
    if not consumers:
        return ", no consumer"
    one = min(consumers, key=lambda consumer: consumer["committed"])
    return f", {one['name']} ({one['state']}) {one['lag_events']:,} events behind"


def _kind(event: dict[str, Any]) -> str:
    code = event.get("code")
    return f"{event['event']}: {code}" if code else str(event["event"])


def _sentence(event: dict[str, Any]) -> str:
    match event["event"]:
        case "listening":
            urls = event["urls"]
            text = "listening on " + ", ".join(urls) if urls else "connecting"
        case "recovered":
            lost = event["lost"]
            gone = f"; LOST: positions {lost['from']} to {lost['to']} were durable" if lost else ""
            cut = f"{event['cut_bytes']} bytes cut off"
            text = f"spool recovered at {event['position']}, {cut}{gone}"
        case "refused":
            cure = f"; {event['option']} changes it" if event.get("option") else ""
            text = f"refused {event['peer']}: {event['code']}: {event['message']}{cure}"
        case "quarantined":
            what = f"{event['events']} events of {event['peer']}"
            text = f"set aside {what}: {event['code']}: {event['message']}"
        case "failed":
            text = f"FAILED: {event['code']}: {event['message']}"
        case "paused" | "resumed" as kind:
            text = f"{kind}: {event['reason']}"
        case kind:
            members = {
                name: value for name, value in event.items() if name not in {"event", "time"}
            }
            text = f"{kind} {members}" if members else str(kind)
    return text
