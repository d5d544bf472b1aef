# Written by `make sync` from ackline/aio/_micromsg_broker.py: change that file.
"""The broker of MicroMsg2 for threads: `serve`."""

import json
from collections.abc import Sequence
from os import PathLike
from typing import Any, Unpack

from ackline._block import Block
from ackline._ending import ended
from ackline._micromsg import PATIENCE, queue_names
from ackline._micromsg_core import MicroMsgBroker, PendingOp, micromsg_serve
from ackline._micromsg_options import MicromsgServeOptions as ServeOptions
from ackline._table import known, signed

__all__ = ["Broker", "ServeOptions", "serve"]


@signed("micromsg.serve")
def serve(
    url: str,
    *,
    spool: str | PathLike[str] | None = None,
    queues: Sequence[str] = (),
    **options: Unpack[ServeOptions],
) -> "Broker":
    """Serves topics and queues: hands published messages on to subscribers.

    A message to a topic goes to every subscriber whose filter it matches, now; nobody gets it
    later. A queue hands each message to one receiver, in order, and keeps it until that receiver
    has acknowledged it. A subscriber that does not keep up is ended.

    Args:
        url: ``micromsg://host:port``, ``micromsg+tls://host:port`` or ``micromsg+unix:///path``;
            port 0 is any free one.
        spool: The directory that keeps the messages of queues. With it a publisher to a queue is
            acknowledged once its message is on the disk, and queues outlive the process. None keeps
            them in memory, and acknowledges a message of a queue once a receiver has.
        queues: Destinations that are queues, beside ``queue/*``: names, and beginnings with ``*``
            behind them.
        options: See `ServeOptions`.

    Raises:
        UsageError: The URL is not understood, an option or file is wrong, or the spool keeps a
            queue that would be a topic.
        TransportError: The address cannot be listened on, or the spool not be opened.

    Example:
        >>> with serve("micromsg://127.0.0.1:8334") as broker:  # doctest: +SKIP
        ...     print(broker.url, broker.stats())
    """
    given = known("micromsg.serve", options)
    return _served(micromsg_serve(url, spool, queue_names(queues), given))


class Broker(Block):
    """A running broker. It ends at once when it is dropped.

    A `with` block closes it at its end, as `close` with 10 s. If an exception leaves the block, it
    ends at once.
    """

    def __init__(self, core: MicroMsgBroker) -> None:
        self._core = core
        self._is_over = False

    @property
    def url(self) -> str:
        """The URL that it listens on, with the chosen port."""
        return self._core.url

    def stats(self) -> dict[str, Any]:
        """The broker's numbers.

        Now: ``connections``, ``subscriptions``, ``queues``; messages of queues: ``waiting`` in
        memory for a receiver, and ``unacknowledged`` by one; ``held_bytes`` of messages that wait
        for anybody. Since the start: messages ``published``, and ``delivered`` to subscribers, each
        counted for each of them; ``refused`` connections, ``slow_subscribers`` among them;
        ``ignored`` commands and frames of extensions; ``health_checks``; ``turned_away`` by reason
        code.
        """
        return self._core.stats()

    def refusals(self) -> list[dict[str, Any]]:
        """Takes the reports of connections that were refused since the last call.

        A connection is refused if its input breaks the protocol or a limit, or if the broker turned
        it away. Each report has the members of the line ``refused`` of ``ackline serve --json``. Of
        reports that nobody takes, the last 10,000 are kept.
        """
        return [json.loads(line) for line in self._core.refusals()]

    def abort(self) -> None:
        """Ends the broker at once: messages that wait are dropped, or stay in the spool."""
        self._is_over = True
        self._core.abort()

    def close(self, *, timeout: float | None = None) -> None:
        """Ends the broker in order.

        It accepts nothing more, hands nothing more out of queues, waits until receivers have
        acknowledged the messages that they have, and ends every connection behind everything that
        waits for it.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: Not all of that was done in time; the broker has ended all the same.
        """
        self._is_over = True
        ended(self._core.close(timeout), "not everything was acknowledged or sent", timeout)

    def _leave(self, *, failed: bool) -> None:
        try:
            if not failed and not self._is_over:
                self.close(timeout=PATIENCE)
        finally:
            self.abort()


def _served(doing: PendingOp) -> Broker:
    doing.wait(None)
    return Broker(doing.take())
