"""A Relink listener in Python that keeps committed messages, as an application would."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ackline import relink
from ackline.exceptions import LinkClosed, LinkTimeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

TRANSACTIONS = "?connector_transactions=true"


class Ledger:
    """Listens; a link's messages are taken when they are committed.

    Args:
        answer: Told of each commit by the number of its link, from 1, and its messages: whether it
            succeeds. None ends the listener without an answer.
        url: Where it listens.
        options: Of the listener.
    """

    def __init__(
        self,
        answer: Callable[[int, list[bytes]], bool | None] = lambda _link, _rows: True,
        url: str = "relink://127.0.0.1:0/ledger",
        **options: Any,
    ) -> None:
        self._answer = answer
        self._listener = relink.listen(url, connector_transactions=True, **options)
        self.url = self._listener.url
        self.committed: list[bytes] = []
        self.rolled_back = 0
        self.links = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]

    def rows(self) -> list[dict[str, Any]]:
        """Return the messages committed so far."""
        with self._lock:
            return [json.loads(row) for row in self.committed]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _accept(self) -> None:
        for link in self._listener:
            with self._lock:
                self.links += 1
                number = self.links
            thread = threading.Thread(target=self._serve, args=[link, number])
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: relink.Link, number: int) -> None:
        # Undecided messages by channel: channels are not decided in the order of messages.
        waiting: defaultdict[bytes, list[relink.Message]] = defaultdict(list)
        try:
            while True:
                try:
                    decision = link.decision(timeout=0.05)
                except LinkTimeout:
                    event = link.try_event()
                    is_closed = self._listener_is_closed()
                    if is_closed or (event is not None and event.name == "peer_shutdown"):
                        break
                    continue
                if not self._decided(link, number, decision, waiting):
                    link.discard()
                    return
            link.close()
        except LinkClosed:
            return

    def _decided(
        self,
        link: relink.Link,
        number: int,
        decision: relink.Decision,
        waiting: defaultdict[bytes, list[relink.Message]],
    ) -> bool:
        """Take the messages, which came before the decision, and answer."""
        own = waiting[decision.channel]
        while not own or own[-1].sequence != decision.through:
            message = link.receive(timeout=10)
            waiting[message.channel].append(message)
        taken = [bytes(message.payload) for message in own]
        own.clear()
        if decision.operation == "rollback":
            with self._lock:
                self.rolled_back += len(taken)
            link.consume(decision.channel, decision.through)
            return True
        answer = self._answer(number, taken)
        if answer is None:
            return False
        if answer:
            with self._lock:
                self.committed += taken
        link.consume(decision.channel, decision.through)
        (link.committed if answer else link.uncommitted)(decision.channel, decision.through)
        return True

    def _listener_is_closed(self) -> bool:
        return bool(self._listener._core.closed)
