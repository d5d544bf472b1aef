"""A MicroMsg2 listener in Python that acknowledges the messages of its peers, or does not."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING, Any

from accepting import Accepting

from ackline import micromsg

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self


class Inbox(Accepting):
    """Listens and takes every message.

    Args:
        look: Told of the messages that came together: True acknowledges them, False ends their
            connection, None leaves them unacknowledged.
        url: Where it listens.
        options: Of the listener.
    """

    def __init__(
        self,
        look: Callable[[list[micromsg.Message]], bool | None] = lambda _messages: True,
        url: str = "micromsg://127.0.0.1:0",
        **options: Any,
    ) -> None:
        super().__init__(micromsg.listen(url, ack_policy="manual", **options))
        self._look = look
        self.messages: list[micromsg.Message] = []
        self.acknowledged: list[micromsg.Message] = []
        self.extensions: list[list[str]] = []

    def rows(self) -> list[dict[str, Any]]:
        """Return the payloads that were acknowledged."""
        return [json.loads(message.payload) for message in self.acknowledged]

    def serve(self, connection: micromsg.Connection) -> None:
        """Take messages until the peer ends the connection."""
        connection.wait_connected(timeout=30)
        self.extensions.append(connection.extensions)
        while messages := connection.receive_some(timeout=60):
            self.messages += messages
            answer = self._look(messages)
            if answer is False:
                connection.abort()
                return
            if answer:
                messages[-1].ack()
                self.acknowledged += messages


class Mute:
    """A peer that replies to a handshake without any extension, and reads what comes."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"micromsg://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(60)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            with peer:
                peer.recv(65_536)
                peer.sendall(b"\x01\x00\x00\x00\x00\x00\x00\x00")
                while peer.recv(65_536):
                    pass
