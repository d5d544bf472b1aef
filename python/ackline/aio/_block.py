"""`async with` blocks: each object defines how it ends there."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Block", "Closing"]


class Block(ABC):
    """An object that ends, in its own way, at the end of an `async with` block."""

    @abstractmethod
    async def _leave(self, *, failed: bool) -> None:
        """Ends it; `failed` says that an exception left the block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(failed=kind is not None)


class Closing(Block):
    """An object that is closed at the end of an `async with` block."""

    @abstractmethod
    async def close(self) -> object:
        """Ends it."""

    async def _leave(self, *, failed: bool) -> None:
        del failed
        await self.close()
