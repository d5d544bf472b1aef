"""The state of a spool: its own numbers, and those of the receiver that writes it."""

import json
import time
from pathlib import Path
from typing import Any

from ackline.cli import consumers
from ackline.cli.show import table
from ackline.cli.terminal import print_line
from ackline.spool import Spool

__all__ = ["summary", "tell"]

_RUNNING = (
    "budget", "state", "fsync_p99_ms", "accepted", "refused", "quarantined", "unacked",
    "connections",
)  # fmt: skip
"""Members that only the running receiver knows; null when there is none."""


def summary(spool: Spool) -> dict[str, Any]:
    """The members of the receiver's `stats` line that concern a spool; may raise `SpoolError`."""
    rows = consumers.rows(spool, spool.consumers())
    losses = spool.losses()
    running = _running(spool)
    return {
        "spool": spool.uuid,
        "durable": spool.durable(),
        "first_kept": spool.first_kept(),
        "bytes": spool.bytes(),
        "budget": running["budget"],
        "oldest_uncommitted_age_s": _oldest(spool, rows),
        **{name: running[name] for name in _RUNNING if name != "budget"},
        "losses": len(losses),
        "lost": sum(loss.end - loss.start for loss in losses),
        "consumers": rows,
    }


def tell(stands: dict[str, Any]) -> None:
    """Prints a summary for people."""
    print_line(f"{stands['spool']}: positions {stands['first_kept']} to {stands['durable']}")
    of = "" if stands["budget"] is None else f" of {stands['budget']}"
    print_line(f"{stands['bytes']} bytes{of}, {_state(stands)}")
    if stands["losses"]:
        print_line(f"{stands['lost']} positions are lost, in {stands['losses']} ranges")
    names = ["name", "committed", "lag_events", "lag_bytes", "lag_s", "state", "last_seen_s"]
    table("consumers", names, stands["consumers"])


def _state(stands: dict[str, Any]) -> str:
    if stands["state"] is None:
        return "no receiver runs"
    names = ("connections", "accepted", "unacked", "refused", "quarantined")
    return ", ".join([str(stands["state"]), *(f"{name} {stands[name]}" for name in names)])


def _oldest(spool: Spool, rows: list[dict[str, Any]]) -> float:
    """Seconds since the receipt of the first kept event that a consumer has not committed."""
    if rows:
        return max(float(row["lag_s"]) for row in rows)
    oldest = spool.lag(spool.first_kept()).oldest
    return 0.0 if oldest is None else round(max(0.0, time.time() - oldest.timestamp()), 3)


def _running(spool: Spool) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(_RUNNING)
    if spool.writer() is None:
        return nothing
    try:
        status = json.loads(Path(spool.path, "status.json").read_bytes())
    except (OSError, ValueError):
        return nothing
    # A status of an earlier spool in this place is not this receiver's.
    if not isinstance(status, dict) or status.get("spool", spool.uuid) != spool.uuid:
        return nothing
    return nothing | {name: status[name] for name in _RUNNING if name in status}
