# Written by `make sync` from ackline/aio/_block.py: change that file.
"""`with` blocks: each object defines how it ends there."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Block", "Closing"]


class Block(ABC):
    """An object that ends, in its own way, at the end of a `with` block."""

    @abstractmethod
    def _leave(self, *, failed: bool) -> None:
        """Ends it; `failed` says that an exception left the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(failed=kind is not None)


class Closing(Block):
    """An object that is closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> object:
        """Ends it."""

    def _leave(self, *, failed: bool) -> None:
        del failed
        self.close()
