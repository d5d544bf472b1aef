"""Small files that the source keeps in a spool's directory: lines that are only appended."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(file: Path, text: str, *, fresh: bool = False, sync: bool = False) -> None:
    """Append text to a file; a new file gets the permissions of its directory.

    Args:
        file: The file.
        text: The text to be written, in one call.
        fresh: Whether the old content is removed first.
        sync: Whether file and directory are on the disk when this returns.

    Raises:
        OSError: The file cannot be written.
    """
    made = not file.exists()
    how = os.O_TRUNC if fresh else os.O_APPEND
    mode = file.parent.stat().st_mode & 0o660
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, mode)
    try:
        if made:
            os.fchmod(descriptor, mode)
        os.write(descriptor, text.encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if made and sync:
        directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
