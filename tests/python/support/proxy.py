"""A proxy whose connections a test cuts."""

import contextlib
import socket
import threading
from typing import Self


class Proxy:
    """Forwards one address to another; `cut` ends every connection, `closed` refuses new ones."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.open: list[socket.socket] = []
        self.passed = 0
        self.closed = False
        self.lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inside, _ = self.listening.accept()
                # After `closed` is set and `cut` is called no connection is on its way.
                with self.lock:
                    if self.closed:
                        inside.close()
                        continue
                    try:
                        outside = socket.create_connection(self.target, timeout=10)
                    except OSError:
                        inside.close()
                        continue
                    outside.settimeout(None)
                    self.open += [inside, outside]
                    self.passed += 1
                for pair in ((inside, outside), (outside, inside)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Ends every connection now, with all bytes on their way."""
        with self.lock:
            gone, self.open = self.open, []
        for one in gone:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.closed = True
        self.cut()
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
