"""The tasks of listeners for asyncio: one for each connection."""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["serve_each"]

_Connection = TypeVar("_Connection")


async def serve_each(
    connections: AsyncIterable[_Connection],
    handle: Callable[[_Connection], Coroutine[Any, Any, object]],
) -> None:
    """Handles each connection in a task; returns when no more come and all tasks have ended.

    An exception, such as a cancellation, cancels the tasks and is raised when they have ended.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            async for connection in connections:
                tasks.create_task(handle(connection))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
