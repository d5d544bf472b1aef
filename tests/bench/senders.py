"""One writer from Python: `senders.py ackline|pylogbeat HOST:PORT SECONDS < EVENTS`.

Reads events from standard input, one on each line, and sends them again and again as they are, in
windows of 2,048; prints how many were acknowledged and how long that took, as one JSON line.
"""

import json
import sys
import time
from collections.abc import Callable

WINDOW = 2048


def by_ackline(target: str, windows: list[list[bytes]], is_over: Callable[[], bool]) -> int:
    """Send with two windows in flight."""
    from ackline.lumberjack import connect

    sent = 0
    with connect(f"lumberjack://{target}") as writer:
        waiting: list[int] = []
        while not is_over():
            waiting.append(writer.send_window(windows[sent % len(windows)]))
            sent += 1
            if len(waiting) > 1:
                writer.wait_acknowledged(waiting.pop(0))
        for window in waiting:
            writer.wait_acknowledged(window)
    return sent * WINDOW


def by_pylogbeat(target: str, windows: list[list[bytes]], is_over: Callable[[], bool]) -> int:
    """Send one window after the other, as it does."""
    import pylogbeat

    host, port = target.rsplit(":", 1)
    sent = 0
    with pylogbeat.PyLogBeatClient(host, int(port), timeout=30) as client:
        while not is_over():
            client.send(windows[sent % len(windows)])
            sent += 1
    return sent * WINDOW


def main() -> None:
    """Send until the time is over."""
    which, target, seconds = sys.argv[1:]
    events = sys.stdin.buffer.read().splitlines()
    windows = [events[at : at + WINDOW] for at in range(0, len(events), WINDOW)]
    begun = time.monotonic()
    by = by_ackline if which == "ackline" else by_pylogbeat
    count = by(target, windows, lambda: time.monotonic() - begun > float(seconds))
    line = {"event": "done", "events": count, "seconds": time.monotonic() - begun}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
