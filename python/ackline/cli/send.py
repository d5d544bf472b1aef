"""`ackline send`: JSON lines to a receiver, acknowledged or counted as not."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from ackline import lumberjack
from ackline.cli.values import FAILED, USAGE, fail
from ackline.exceptions import AcklineError, UsageError

__all__ = ["send"]


def send(
    url: Annotated[str, typer.Argument(help="Where to send: lumberjack://127.0.0.1:5044.")],
    file: Annotated[str, typer.Argument(help="A file of JSON lines, or - for standard input.")],
    window: Annotated[int, typer.Option(help="Events in a window.", min=1)] = 2048,
    in_flight: Annotated[int, typer.Option(help="Windows sent and not acknowledged.", min=1)] = 2,
    compression: Annotated[int, typer.Option(help="zlib level; 0 sends plain.", min=0, max=9)] = 3,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an acknowledgement.")] = 60.0,
) -> None:
    """Sends each line of a file as one event.

    Ends with 0 when all are acknowledged, 1 when some are not (with their number), 2 for a wrong
    command line.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    if file != "-" and not Path(file).is_file():
        fail(f"{file} is not a file", USAGE)
    given = sys.stdin.buffer if file == "-" else None
    source = nullcontext(given) if given else Path(file).open("rb")  # noqa: SIM115 (entered below)
    total = None if file == "-" else Path(file).stat().st_size
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[acked]} acked"))
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
    with source as lines, bar:
        task = bar.add_task("", total=total, acked=0)
        tally = _Tally()
        try:
            level = compression or None
            writer = lumberjack.connect(
                url, max_window=window, max_in_flight=in_flight, compression=level
            )
            for acked, sent_bytes in tally.run(writer, lines, window, in_flight, timeout):
                bar.update(task, completed=sent_bytes, acked=f"{acked:,}")
            reason = None
        except UsageError as error:
            fail(error, USAGE)
        except AcklineError as error:
            reason = error
            tally.read += sum(1 for line in lines if line.strip())
    if reason is not None:
        fail(
            f"{tally.read - tally.acked} of {tally.read} events not acknowledged: {reason}", FAILED
        )
    sys.stderr.write(f"{tally.acked} events acknowledged\n")


class _Tally:
    """Counts what was read and what was acknowledged."""

    def __init__(self) -> None:
        self.read = 0
        self.acked = 0

    def run(
        self,
        writer: lumberjack.Writer,
        lines: BinaryIO,
        window: int,
        in_flight: int,
        timeout: float,
    ) -> Iterator[tuple[int, int]]:
        """Sends everything; yields events acknowledged and bytes sent."""
        pending: list[tuple[int, int, int]] = []
        done_bytes = 0
        with writer:
            for events, size in _windows(lines, window):
                self.read += len(events)
                number = writer.send_window(events, timeout=timeout)
                pending.append((number, len(events), size))
                while pending and (
                    len(pending) > in_flight or writer.is_acknowledged(pending[0][0])
                ):
                    done_bytes += self._settle(writer, pending.pop(0), timeout)
                    yield self.acked, done_bytes
            for sent in pending:
                done_bytes += self._settle(writer, sent, timeout)
                yield self.acked, done_bytes

    def _settle(self, writer: lumberjack.Writer, sent: tuple[int, int, int], timeout: float) -> int:
        number, count, size = sent
        writer.wait_acknowledged(number, timeout=timeout)
        self.acked += count
        return size


def _windows(lines: BinaryIO, window: int) -> Iterator[tuple[list[bytes], int]]:
    """Lists of events, none of them empty, and the bytes of the file they came from."""
    events: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line)
        if event := line.strip():
            events.append(event)
        if len(events) == window:
            yield events, size
            events, size = [], 0
    if events:
        yield events, size
