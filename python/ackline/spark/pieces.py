"""The work of tasks: pieces of segments, as plain data that any process can read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Piece:
    """A run of blocks in one segment, and the positions wanted of it.

    Attributes:
        path: The segment's file.
        uuid: The spool that the file must belong to.
        byte_start: Offset of the first block's group in the file.
        byte_end: Offset of the end of the last block's group.
        start: First position wanted.
        end: First position not wanted.
    """

    path: str
    uuid: str
    byte_start: int
    byte_end: int
    start: int
    end: int

    @property
    def spool(self) -> str:
        """The directory of the spool: segments lie in a folder of the spool."""
        return str(Path(self.path).parent.parent)

    @property
    def size(self) -> int:
        """Bytes of the file that are read."""
        return self.byte_end - self.byte_start


@dataclass(frozen=True, slots=True)
class Task:
    """The work of one task: pieces in the order of their positions."""

    pieces: tuple[Piece, ...]
