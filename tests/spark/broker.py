"""A topic of MicroMsg2 in Python: each subscriber gets the messages that its filter matches."""

from __future__ import annotations

from typing import Any

from accepting import Accepting

from ackline import micromsg

TOPIC = "alerts"


class Topic(Accepting):
    """Listens, and sends all messages to each subscriber of `alerts`.

    Args:
        messages: The payload and the properties of each message.
    """

    def __init__(self, messages: list[tuple[bytes, dict[str, Any]]]) -> None:
        super().__init__(micromsg.listen("micromsg://127.0.0.1:0"))
        self._messages = messages
        self.url = f"{self.url}/{TOPIC}"
        self.filters: list[micromsg.Filter | None] = []
        self.sent = 0

    def serve(self, connection: micromsg.Connection) -> None:
        """Send the messages that the peer subscribes to."""
        asked = connection.receive_command(timeout=30)
        assert isinstance(asked, micromsg.Subscribe)
        assert asked.topic == TOPIC
        self.filters.append(asked.filter)
        for payload, properties in self._messages:
            if asked.filter is None or asked.filter.matches(properties):
                connection.send(payload, TOPIC, properties, timeout=30)
                self.sent += 1
        connection.wait_acknowledged(timeout=60)
        connection.wait_ended(timeout=60)
