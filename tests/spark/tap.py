"""A proxy before a Relink receiver that reads along, and holds a connection at a packet."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ackline.sansio import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    Frame = dict[str, Any]


@dataclass(eq=False)
class Connection:
    """One transport of a link, and the bytes that its connector has sent on it.

    Attributes:
        connector: The connector's socket; `listener` the receiver's.
        link: The link's id, when it is known.
        resumes: Whether it goes on with a link that was there before.
    """

    connector: socket.socket
    listener: socket.socket
    link: int = 0
    resumes: bool = False
    sizes: dict[str, int] = field(default_factory=dict)

    def owner(self) -> int | None:
        """Return the process at the connector's end; None if it has left the connection."""
        end = f":{self.connector.getpeername()[1]:04X}"
        table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        sockets = [f"socket:[{row[9]}]" for row in table if row[1].endswith(end) and row[9] != "0"]
        for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if str(descriptor.readlink()) in sockets:
                    return int(descriptor.parts[2])
        return None

    def close(self) -> None:
        for one in (self.connector, self.listener):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


class Tap:
    """Forwards connectors to a receiver.

    Args:
        port: The receiver's.
        holds: Told of each frame of a connector with its connection: whether the connection stands
            still before it. Held bytes do not get through on a next connection either.

    Attributes:
        url: Where connectors find it.
        committed: Links and their channels of which the receiver has answered a commit.
    """

    def __init__(self, port: int, holds: Callable[[Connection, Frame], bool]) -> None:
        self._target = ("127.0.0.1", port)
        self._holds = holds
        self._lock = threading.Lock()
        self._is_lifted = False
        self._open: list[Connection] = []
        self._held: list[Connection] = []
        self.committed: set[tuple[int, bytes]] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"relink://127.0.0.1:{self._listening.getsockname()[1]}/t"

    def held(self) -> list[Connection]:
        """Return the connection of each link that is held, the last one of each."""
        with self._lock:
            return list({one.link: one for one in self._held}.values())

    def lift(self) -> None:
        """End the held transports, with their held bytes, and hold no more."""
        with self._lock:
            self._is_lifted = True
            gone, self._held = self._held, []
        for one in gone:
            one.close()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connector, _ = self._listening.accept()
                try:
                    listener = socket.create_connection(self._target, timeout=10)
                except OSError:
                    # The receiver is away.
                    connector.close()
                    continue
                listener.settimeout(None)
                one = Connection(connector, listener)
                self._open.append(one)
                for pump in (self._upwards, self._downwards):
                    threading.Thread(target=pump, args=[one], daemon=True).start()

    def _upwards(self, one: Connection) -> None:
        units = iter(["version", "endpoint"])
        unit, data = next(units), b""
        try:
            while more := one.connector.recv(1 << 16):
                data += more
                while frames := self._decoded(one, data, unit, "connector"):
                    for frame in frames:
                        if self._stands_still(one, frame):
                            return
                        one.listener.sendall(encode("relink", [frame]))
                        data = data[len(encode("relink", [frame])) :]
                    unit = next(units, "packet")
        except OSError:
            pass
        one.close()

    def _downwards(self, one: Connection) -> None:
        units = iter(["version", "ident"])
        unit, data = next(units), b""
        try:
            while more := one.listener.recv(1 << 16):
                data += more
                while frames := self._decoded(one, data, unit, "listener"):
                    for frame in frames:
                        self._note(one, frame)
                        data = data[len(encode("relink", [frame])) :]
                    unit = next(units, "packet")
                one.connector.sendall(more)
        except OSError:
            pass
        one.close()

    @staticmethod
    def _decoded(one: Connection, data: bytes, unit: str, sender: str) -> list[Frame]:
        """Return the whole packets: of the handshake one block, for others follow it."""
        if unit == "packet":
            return decode("relink", data, sender, unit=unit, **one.sizes)[0]
        for end in range(8, len(data) + 1, 8):
            frames, _ = decode("relink", data[:end], sender, unit=unit)
            if frames:
                return frames
        return []

    def _stands_still(self, one: Connection, frame: Frame) -> bool:
        if frame["type"] == "endpoint":
            one.link, one.resumes = frame["old_link_id"], frame["old_link_id"] != 0
            names = ("connector_channel_id_size", "listener_channel_id_size")
            one.sizes = {name: frame[name] for name in names}
        with self._lock:
            if self._is_lifted:
                return False
            is_known = one.resumes and one.link in [other.link for other in self._held]
            if is_known or self._holds(one, frame):
                self._held.append(one)
                return True
            return False

    def _note(self, one: Connection, frame: Frame) -> None:
        if frame["type"] == "ident":
            one.link = frame["link_id"]
        elif frame.get("acknowledgement") == "committed":
            with self._lock:
                self.committed |= {(one.link, channel) for channel in frame["channel_ids"]}
