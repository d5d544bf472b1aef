"""Log lines at a fixed rate: `buyer_load.py FILE FIRST COUNT RATE`; rate 0 writes at once.

A line is `MICROSECONDS NUMBER TEXT`: the time at which it is written, in microseconds since 1970
(16 digits), its number (10 digits), and about 150 bytes as of a web server's log.
"""

import sys
import time
from pathlib import Path

TICK_S = 0.01
CHUNK = 10_000
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "curl/8.14.1", "kube-probe/1.33")
# Texts differ as those of real logs do; they are made beforehand, so that a line costs little.
TEXTS = [
    f'10.0.{n % 7}.{n % 251} - - "GET /item/{n * 7919 % 99991}?page={n % 13} HTTP/1.1" '
    f'{(200, 200, 200, 304, 404)[n % 5]} {n * 104_729 % 50_021} "https://shop.example/" '
    f'"{AGENTS[n % len(AGENTS)]}"\n'
    for n in range(4096)
]


def lines(first: int, count: int, made_us: int) -> str:
    """Return lines that are made at the same time."""
    numbers = range(first, first + count)
    return "".join(f"{made_us:016} {n:010} {TEXTS[n * 2_654_435_761 % 4096]}" for n in numbers)


def generate(path: Path, first: int, count: int, rate: float) -> float:
    """Append `count` lines to a file at a rate; return the seconds that it took."""
    begun, done = time.monotonic(), 0
    with path.open("a", encoding="ascii") as file:
        while done < count:
            due = int((time.monotonic() - begun) * rate) if rate else done + CHUNK
            now = min(count, due) - done
            if now > 0:
                file.write(lines(first + done, now, time.time_ns() // 1000))
                file.flush()
                done += now
            if rate:
                time.sleep(TICK_S)
    return time.monotonic() - begun


def main() -> None:
    """Write the lines and print how long that took."""
    path, first, count, rate = sys.argv[1:]
    took = generate(Path(path), int(first), int(count), float(rate))
    sys.stdout.write(f"{took}\n")


if __name__ == "__main__":
    main()
