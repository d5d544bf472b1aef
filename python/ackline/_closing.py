"""`with` blocks: what is done at their end."""

import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from ackline.exceptions import AcklineError

__all__ = ["CLOSING_SECONDS", "AsyncBlock", "AsyncClosing", "Block", "Closing", "tell_loss"]

CLOSING_SECONDS = 5.0
"""How long the end of a block waits for what is not acknowledged."""

_log = logging.getLogger("ackline.link")


def tell_loss(loss: AcklineError, *, failed: bool) -> None:
    """Raises what was lost at the end of a block that ended well.

    Where an exception left the block, that one stands, and the loss is a warning in the log.
    """
    if not failed:
        raise loss
    _log.warning("%s code=link.unacknowledged", loss)


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
