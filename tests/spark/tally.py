"""A bpmux listener in Python that counts messages on the sinks of its peers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from accepting import Accepting

from ackline import bpmux
from ackline.exceptions import AcklineError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Opened:
    """A peer's sink: the payload of its opening, its messages, the payload of its close."""

    opening: str
    messages: list[bytes] = field(default_factory=list)
    closed: bytes | None = None

    @property
    def origin(self) -> dict[str, str]:
        return dict(part.split("=") for part in self.opening.split())


class Tally(Accepting):
    """Listens and reads every sink.

    Args:
        look: Told of a sink after each batch of its messages: a payload cancels it, False ends its
            connection.
        url: Where it listens.
        options: Of the listener.
    """

    def __init__(
        self,
        look: Callable[[Opened], bytes | bool] = lambda _opened: True,
        url: str = "bpmux://127.0.0.1:0",
        **options: Any,
    ) -> None:
        super().__init__(bpmux.listen(url, **options))
        self._look = look
        self.sinks: list[Opened] = []

    @property
    def whole(self) -> list[Opened]:
        """The sinks closed so far."""
        return [opened for opened in self.sinks if opened.closed is not None]

    def rows(self) -> list[dict[str, Any]]:
        """Return the messages so far, of whole sinks or not."""
        return [json.loads(message) for opened in self.sinks for message in opened.messages]

    def serve(self, connection: bpmux.Connection) -> None:
        """Read every sink of the peer."""
        for incoming in connection:
            assert isinstance(incoming, bpmux.OpenedSink)
            self._read(connection, incoming)

    def _read(self, connection: bpmux.Connection, incoming: bpmux.OpenedSink) -> None:
        opened = Opened(incoming.payload.decode())
        self.sinks.append(opened)
        try:
            while messages := incoming.stream.receive_many():
                opened.messages += messages
                answer = self._look(opened)
                if answer is False:
                    connection.abort()
                elif answer is not True:
                    incoming.stream.cancel(answer, timeout=30)
                    return
            opened.closed = incoming.stream.closed
        except AcklineError:
            return
