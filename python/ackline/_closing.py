"""`with` blocks: what is done at their end."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["AsyncBlock", "AsyncClosing", "Block", "Closing"]


class Block(ABC):
    """Leaves itself at the end of a `with` block."""

    @abstractmethod
    def _leave(self, *, failed: bool) -> None:
        """What the end does; `failed` if an exception left the block."""

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
    """Closes itself at the end of a `with` block."""

    @abstractmethod
    def close(self) -> object:
        """Ends it."""

    def _leave(self, *, failed: bool) -> None:
        del failed
        self.close()


class AsyncBlock(ABC):
    """Leaves itself at the end of an `async with` block."""

    @abstractmethod
    async def _leave(self, *, failed: bool) -> None:
        """What the end does; `failed` if an exception left the block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(failed=kind is not None)


class AsyncClosing(AsyncBlock):
    """Closes itself at the end of an `async with` block."""

    @abstractmethod
    async def close(self) -> object:
        """Ends it."""

    async def _leave(self, *, failed: bool) -> None:
        del failed
        await self.close()
