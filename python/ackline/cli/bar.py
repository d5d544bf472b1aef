"""The progress of a sending."""

from pathlib import Path
from typing import Self

__all__ = ["Bar"]


class Bar:
    """A progress bar on standard error, which leaves nothing behind when an error is raised."""

    def __init__(self, file: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

        total = None if file == "-" else Path(file).stat().st_size
        columns = (BarColumn(), DownloadColumn(), TextColumn("{task.fields[acked]} acked"))
        self._progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
        self._task = self._progress.add_task("", total=total, acked=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        if raised is None:
            self._progress.stop()
            return
        self._progress.live.transient = True
        self._progress.live.stop()

    def show(self, sent_bytes: int, acked: int) -> None:
        """Shows the bytes sent and the events acknowledged."""
        self._progress.update(self._task, completed=sent_bytes, acked=f"{acked:,}")
