# Written by `make sync` from ackline/aio/_relink_links.py: change that file.
"""Relink's links for threads, their receipts, and the listener that hands links out."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ackline._block import Closing
from ackline._closing import CLOSING_SECONDS
from ackline._deadline import deadline_in, left_until
from ackline._payloads import Payload, Payloads
from ackline._relink import (
    Channel,
    Decision,
    Event,
    LinkBase,
    ListenerBase,
    Message,
    Outcome,
    ReceiptBase,
    Stage,
    batch_of,
)
from ackline._wait import handed_over
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkLost,
    LinkTimeout,
    Unacknowledged,
)

__all__ = ["Link", "Listener", "Receipt"]


class Receipt(ReceiptBase):
    """The progress of a message: received, consumed, and the outcome of its transaction.

    Example:
        >>> with connect("relink://127.0.0.1:7000/orders") as link:  # doctest: +SKIP
        ...     receipt = link.send(7, b"an order")
        ...     receipt.consumed(timeout=10)
    """

    def kept(self, *, timeout: float | None = None) -> None:
        """Waits until the message is in `state` on the disk of this end, before it is sent.

        From then on it is sent until it is consumed, even if this process ends.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not written in time.
            UsageError: ``not_kept``: the link has no `state`.
            StateError: It could not be written.
            LinkClosed: The link ended first.
        """
        self._wait("kept", timeout)

    def received(self, *, timeout: float | None = None) -> None:
        """Waits until the peer has the message.

        Without a cut of the connection the peer says so when it consumes the message.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The peer did not say so in time.
            LinkLost: The link was lost first.
            LinkClosed: The link or the channel was closed first.
        """
        self._wait("received", timeout)

    def consumed(self, *, timeout: float | None = None) -> None:
        """Waits until the peer has consumed it and all before it; raises as `received`."""
        self._wait("consumed", timeout)

    def committed(self, *, timeout: float | None = None) -> Outcome:
        """Waits until its transaction is over; raises as `received`."""
        while (outcome := self.outcome) is None:
            if not self._core.wait("committed", timeout):
                raise self._too_late("committed", timeout)
        return outcome

    def _wait(self, stage: Stage, timeout: float | None) -> None:
        while not self._is_there(stage):
            if not self._core.wait(stage, timeout):
                raise self._too_late(stage, timeout)


class Link(Closing, LinkBase[Receipt]):
    """A link: this end sends on outgoing channels, and the peer on incoming ones.

    Both ends send and receive. A message stays with its sender until the receiver has consumed it,
    through any number of connections. Methods may be called from any thread.

    The end of a `with` block closes it and raises `LinkLost` with the messages that are not
    acknowledged then and not kept in `state`, unless `close` was called inside.

    Example:
        >>> with connect("relink://127.0.0.1:7000/orders") as link:  # doctest: +SKIP
        ...     last = link.send_many(7, [b"one", b"two"])
        ...     last.consumed(timeout=10)
        ...     for message in link:
        ...         print(message.channel, message.sequence, message.payload)
        ...         link.consume(message.channel, message.sequence)
    """

    _receipt = Receipt

    def send(self, channel: Channel, payload: Payload, *, timeout: float | None = None) -> Receipt:
        """Sends a message as soon as there is room, also without a connection.

        When it returns, the message has its number, and goes out in its turn while this process
        lives. With `state` it is on the disk a little later: `Receipt.kept` waits for that. A
        message that is not on the disk when the process is killed is not sent.

        Args:
            channel: As for `try_send`.
            payload: The message, as for `try_send`.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: As by `try_send`, which also raises `LinkLost` and `LinkClosed`.
        """
        return self.send_to([channel], payload, timeout=timeout)[0]

    def send_to(
        self, channels: Sequence[Channel], payload: Payload, *, timeout: float | None = None
    ) -> list[Receipt]:
        """Sends one message on several channels in one packet: on all of them or on none.

        Returns:
            A receipt for each channel.

        Raises:
            LinkTimeout: There was no room in time; nothing was sent.
            UsageError: As by `try_send`, which also raises `LinkLost` and `LinkClosed`.
        """
        deadline, message = deadline_in(timeout), batch_of([payload])
        size = message.size(0) * len(channels)
        while not (sent := self._try_send(channels, message)):
            if not channels:
                return []
            if not self._core.wait("room", left_until(deadline), channel=list(channels), size=size):
                raise self._no_room(0, timeout)
        return [Receipt(receipt) for receipt in sent]

    def send_many(
        self, channel: Channel, payloads: Payloads, *, timeout: float | None = None
    ) -> Receipt | None:
        """Sends messages on one channel, in order, waiting for room.

        Args:
            channel: A channel of this end.
            payloads: Messages as for `try_send`, or an Arrow array of them.
            timeout: Seconds for all of them; None waits for ever.

        Returns:
            The receipt of the last message, which stands for all; None without a message.

        Raises:
            LinkTimeout: There was no room for all in time; the text says how many were sent.
            UsageError: As by `try_send`, which also raises `LinkLost` and `LinkClosed`.
        """
        deadline, batch = deadline_in(timeout), batch_of(payloads)
        sent, last = self._core.try_send_many(channel, batch, 0)
        while sent < len(batch):
            if not self._core.wait(
                "room", left_until(deadline), channel=channel, size=batch.size(sent)
            ):
                raise self._no_room(sent, timeout)
            count, receipt = self._core.try_send_many(channel, batch, sent)
            sent, last = sent + count, receipt or last
        return None if last is None else Receipt(last)

    def receive_many(
        self, max_messages: int = 1024, *, timeout: float | None = None
    ) -> list[Message]:
        """Waits for at least one message. Messages stay unacknowledged until they are consumed.

        Args:
            max_messages: Messages taken at the most.
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No message came in time.
            LinkLost: The link is lost, and every message was taken.
            LinkClosed: No more messages can come, and every one was taken.
        """
        deadline = deadline_in(timeout)
        while not (messages := self._try_receive(max_messages)):
            if not self._core.wait("message", left_until(deadline)):
                raise LinkTimeout(f"no message arrived within {timeout} s")
        return messages

    def receive(self, *, timeout: float | None = None) -> Message:
        """Waits for one message; like `receive_many`."""
        return self.receive_many(1, timeout=timeout)[0]

    def __iter__(self) -> Iterator[Message]:
        """Yields messages until no more can come, taken in batches. Raises `LinkLost`."""
        try:
            while True:
                self._ahead.extend(self.receive_many())
                while self._ahead:
                    yield self._ahead.popleft()
        except LinkLost:
            raise
        except LinkClosed:
            return

    def decision(self, *, timeout: float | None = None) -> Decision:
        """Waits for the peer's next decision in a transactional direction; raises as `receive`.

        While 65,536 decisions wait to be taken the link reads nothing, not even messages; the log
        says so (`relink.decisions_wait`).
        """
        deadline = deadline_in(timeout)
        while (decision := self.try_decision()) is None:
            if not self._core.wait("decision", left_until(deadline)):
                raise LinkTimeout(f"no decision arrived within {timeout} s")
        return decision

    def event(self, *, timeout: float | None = None) -> Event:
        """Waits for the next event; raises as `receive`."""
        deadline = deadline_in(timeout)
        while (event := self.try_event()) is None:
            if not self._core.wait("event", left_until(deadline)):
                raise LinkTimeout(f"no event within {timeout} s")
        return event

    def ping(self, *, timeout: float | None = 10.0) -> float:
        """Asks the peer for a sign of life.

        Returns:
            Seconds from the ping to its pong.

        Raises:
            UsageError: ``not_connected``: no transport carries the link, or it was lost meanwhile.
            LinkTimeout: The pong did not come in time.
            LinkClosed: The link is over.
        """
        ping, deadline = self._core.ping(), deadline_in(timeout)
        while (seconds := self._core.pong(ping)) is None:
            if not self._core.wait("pong", left_until(deadline), ping=ping):
                raise LinkTimeout(f"no pong within {timeout} s")
        return seconds

    def wait_connected(self, *, timeout: float | None = None) -> None:
        """Waits until a transport carries the link; raises as `receive`."""
        while not self.is_connected:
            self._core.check()
            if not self._core.wait("connected", timeout):
                raise LinkTimeout(f"no transport within {timeout} s")

    def kept(self, *, timeout: float | None = None) -> None:
        """Waits until all that was sent, consumed or decided before is in `state` on the disk.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: It was not written in time.
            UsageError: ``not_kept``: the link has no `state`.
            StateError: It could not be written.
            LinkClosed: The link ended first.
        """
        deadline, noted = deadline_in(timeout), self._core.noted()
        while not self._core.is_kept(noted):
            if not self._core.wait("kept", left_until(deadline)):
                raise LinkTimeout(f"not all is on the disk within {timeout} s")

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until everything sent is acknowledged as consumed; raises as `receive`."""
        deadline = deadline_in(timeout)
        while self._core.unacknowledged():
            self._core.check()
            if not self._core.wait("acknowledged", left_until(deadline)):
                raise LinkTimeout(f"not all messages were consumed within {timeout} s")

    def shutdown(self, *, timeout: float | None = None) -> None:
        """Opens no more channels, closes the open ones, and waits until the peer does the same.

        Then the link is closed at both ends.

        Raises:
            LinkTimeout: The peer has not shut down in time; the shutdown goes on.
            LinkLost: The link was lost first.
        """
        self._core.begin_shutdown()
        if not self._core.wait("end", timeout):
            raise LinkTimeout(f"the peer has not shut down within {timeout} s")
        try:
            self._core.check()
        except LinkLost:
            raise
        except LinkClosed:
            return

    def hand_over(self, *, timeout: float | None = None) -> bytes:
        """Lets the link go, so that another process can go on with it by `adopt`.

        Waits until the peer has every message that was sent; in a direction without transactions,
        until it has consumed them. The state for the other process is small and holds no message. A
        second call returns the same state.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: The peer does not have everything in time; the link goes on here.
            UsageError: ``not_connector``, ``journaled`` (it has a `state` directory),
                ``shutting_down``, ``channel_closing``, ``unconsumed``: a message that came in was
                not consumed.
            LinkClosed: The link is over.
        """
        state = handed_over(self._core, timeout)
        self._core.let_go()
        return state

    def close(self, *, timeout: float = CLOSING_SECONDS) -> list[Unacknowledged]:
        """Ends the link in this process.

        A link in a `state` directory goes on in the next process that opens the directory. Any
        other link is shut down; if the peer does not answer in time, it is lost.

        Args:
            timeout: Seconds for the shutdown, or until everything sent is acknowledged.

        Returns:
            The messages that were not acknowledged as consumed.
        """
        if self._core.is_gone:
            self._is_told = True
            return []
        deadline = deadline_in(timeout)
        if self._core.keeps:
            noted = self._core.noted()
            self._core.wait("acknowledged", left_until(deadline))
            self._core.wait("kept", left_until(deadline))
            # A failure ends the wait too, but `close` does not report it.
            with suppress(AcklineError):
                self._is_safe = self._core.is_kept(noted)
        elif self.state not in {"closed", "lost"}:
            with suppress(LinkClosed):  # another call of `close` may come first
                self._core.begin_shutdown()
                self._core.wait("end", left_until(deadline))
        return self._let_go()

    def _leave(self, *, failed: bool) -> None:
        if not self._is_told:
            self._tell_lost(self.close(), failed=failed)


class Listener(Closing, ListenerBase):
    """Hands out each new link once; a link whose connector reconnects goes on by itself.

    Closing it closes the socket: links that were handed out go on while their connections do.

    Example:
        >>> with listen("relink://127.0.0.1:7000/orders") as listener:  # doctest: +SKIP
        ...     with listener.accept() as link:
        ...         for message in link:
        ...             link.consume(message.channel, message.sequence)
    """

    def accept(self, *, timeout: float | None = None) -> Link:
        """Waits for a link: a new one, or with `state` one of an earlier process.

        Args:
            timeout: Seconds; None waits for ever.

        Raises:
            LinkTimeout: No link came in time.
            LinkClosed: The listener is closed.
        """
        deadline = deadline_in(timeout)
        while (core := self._try_accept()) is None:
            if not self._core.wait(left_until(deadline)):
                raise LinkTimeout(f"no link came within {timeout} s")
        return Link(core)

    def try_accept(self) -> Link | None:
        """The next link, if one is there."""
        core = self._try_accept()
        return None if core is None else Link(core)

    def __iter__(self) -> Iterator[Link]:
        try:
            while True:
                yield self.accept()
        except LinkClosed:
            return

    def close(self) -> None:
        """Accepts no more links; links that nobody accepted are let go."""
        self._core.close()
