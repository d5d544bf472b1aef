"""The receiver inside a query's process, for one machine: `listen=` and `connect=`.

The first planning call starts it, once, and it ends with the query. Spark starts the process of the
next query before the process of the last one is gone, so it waits for a busy port or spool.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Final

from ackline.exceptions import SpoolError, TransportError, UsageError
from ackline.receiver import Receiver

if TYPE_CHECKING:
    from types import FrameType

    from ackline.spark.options import ListenOptions

WAIT_SECONDS: Final = 10.0
"""Seconds to wait for the port and spool of the process before."""

DRAIN_SECONDS: Final = 2.0
"""Seconds that the end waits for received events to be durable: Spark allows no more."""

_RETRY_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 1.0
_log = logging.getLogger("ackline.spark")


class Embedded:
    """A receiver that is started when it is first needed.

    Args:
        spool: The directory that it fills.
        options: The URLs to listen on and to connect to, and the receiver's options.
    """

    def __init__(self, spool: str, options: ListenOptions) -> None:
        self._spool = spool
        self._options = options
        self._receiver: Receiver | None = None
        self._ending = threading.Event()

    def start(self) -> None:
        """Listen, unless it listens already.

        Raises:
            SpoolError: The spool cannot be written, for example `spool.locked`.
            TransportError: A URL cannot be listened on.
        """
        if self._receiver is not None:
            return
        self._receiver = self._started()
        urls = ", ".join([*self._receiver.urls, *self._options.connect])
        _log.info("the embedded receiver receives from %s code=spark.listening", urls)
        # The new thread's log lines name the query of this one.
        run = copy_context().run
        threading.Thread(target=run, args=(self._follow, self._receiver), daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _leave)

    def _started(self) -> Receiver:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return Receiver(
                    self._options.urls,
                    connect=self._options.connect,
                    spool=self._spool,
                    options=dict(self._options.options),
                )
            except UsageError as error:
                raise UsageError(self._as_written(error)) from None
            except (SpoolError, TransportError) as error:
                busy = isinstance(error, TransportError) or error.code == "spool.locked"
                if not busy or time.monotonic() >= deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def _as_written(self, error: UsageError) -> str:
        """Returns an error's text with the receiver's options as the query writes them."""
        text = str(error)
        if error.option is None or error.option in _NAMED or not text.startswith(error.option):
            return text
        if error.other is not None:
            text = text.removesuffix(error.other) + f"receiver.{error.other}"
        return f"receiver.{error.option}{text.removeprefix(error.option)}"

    def stop(self) -> None:
        """Stop listening; the received events are made durable."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._ending.set()
            left = receiver.stop(drain=DRAIN_SECONDS)
            _log.info(
                "the embedded receiver ended, %d windows unacknowledged code=spark.receiver_ended",
                left,
            )

    def _follow(self, receiver: Receiver) -> None:
        while not self._ending.is_set():
            line = receiver.next_line(timeout=_LOOK_SECONDS)
            if line is not None:
                event = json.loads(line).get("event")
                _log.log(logging.DEBUG if event in _ROUTINE else logging.WARNING, "%s", line)


def _leave(_number: int, _frame: FrameType | None) -> None:
    # Spark's runner calls stop() as it exits.
    sys.exit(0)


# Options of the receiver that have their own name here; all others are `receiver.NAME`.
_NAMED: Final = ("ack", "budget", "memory", "group")
_ROUTINE: Final = ("listening", "stats", "connected", "disconnected")
