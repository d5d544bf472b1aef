"""Connections and listeners: what the protocols whose links end with them have in common."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ackline.exceptions import LinkClosed, LinkTimeout

__all__ = ["ListenerBase", "ListenerCore", "Peer", "late"]

_Core_co = TypeVar("_Core_co", covariant=True)
_Core = TypeVar("_Core")


@dataclass(frozen=True, slots=True)
class Peer:
    """The connector of a listener's connection."""

    name: str
    """The address, as a trusted proxy told it."""
    sender: str
    """The identity: ``tls:`` and the subject of the certificate, else the address."""
    attributes: dict[str, str]
    """Further facts, such as ``tls.fingerprint``."""


def late(what: str, timeout: float | None) -> LinkTimeout:
    """Returns the error of a wait that was too long."""
    return LinkTimeout(f"{what} within {timeout} s")


class ListenerCore(Protocol[_Core_co]):
    """A native listener."""

    @property
    def url(self) -> str:
        """The URL that it listens on."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        ...

    def try_accept(self) -> _Core_co | None:
        """The next connection, if there is one."""
        ...

    def close(self) -> None:
        """Closes the socket."""
        ...

    def stats(self) -> dict[str, Any]:
        """Its counters."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Waits for a connection."""
        ...

    def wait_async(self, waker: Any) -> Any:  # noqa: ANN401 (each module has its own form)
        """Begins the same wait in an event loop."""
        ...


class ListenerBase(Generic[_Core]):
    """A listener without its waits."""

    def __init__(self, core: ListenerCore[_Core]) -> None:
        self._core = core

    @property
    def url(self) -> str:
        """The URL that it listens on, with the chosen port."""
        return self._core.url

    def stats(self) -> dict[str, Any]:
        """Returns ``health_checks``, and ``turned_away``: refused connections by reason code."""
        return self._core.stats()

    def _try_accept(self) -> _Core | None:
        connection = self._core.try_accept()
        if connection is None and self._core.closed:
            raise LinkClosed("the listener is closed")
        return connection
