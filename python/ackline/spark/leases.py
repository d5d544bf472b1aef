"""The consumer of a query: held from the first planning call until the query ends.

Spark makes a reader in several processes and only one of them plans; only that process may hold the
consumer, so nothing is taken before it plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ackline.spark.spools import LeaseView, Spools

WAIT_SECONDS: Final = 10.0
"""Seconds to wait for another reader: one of a query that Spark is just stopping."""


class Leases:
    """The leases of one consumer, one per spool; empty without a consumer.

    Args:
        consumer: Its name; None holds nothing.
    """

    def __init__(self, consumer: str | None) -> None:
        self._consumer = consumer
        self._held: dict[str, LeaseView] = {}
        self._made: set[str] = set()

    def hold(self, spools: Spools) -> None:
        """Take the consumer in every spool in which it is not held yet.

        A consumer that does not exist is made at the beginning of the spool: from then on no event
        is removed before the consumer has read it, and nothing is acknowledged in its name.

        Raises:
            SpoolError: `spool.consumer_busy`, naming the process that holds it.
        """
        if self._consumer is None:
            return
        for uuid, view in spools:
            if uuid not in self._held:
                if all(name != self._consumer for name, _, _ in view.consumers()):
                    self._made.add(uuid)
                self._held[uuid] = view.lease(
                    self._consumer, "Spark stream", WAIT_SECONDS, view.first_kept()
                )

    def is_new(self, uuid: str) -> bool:
        """Return whether the consumer did not exist in a spool before this process took it."""
        return uuid in self._made

    def committed(self, uuid: str) -> int | None:
        """Return the consumer's mark in a spool; None if it has none."""
        lease = self._held.get(uuid)
        return None if lease is None else lease.committed()

    def commit(self, uuid: str, position: int) -> None:
        """Move the consumer's mark in a spool, durably."""
        lease = self._held.get(uuid)
        if lease is not None:
            lease.commit(position)

    def seen(self) -> None:
        """Record that the reader is alive; the spool writes this at most every few seconds."""
        for lease in self._held.values():
            lease.seen()

    def release(self) -> None:
        """Let go of the consumer."""
        while self._held:
            self._held.popitem()[1].release()
