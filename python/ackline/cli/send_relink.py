"""The sending of `ackline send relink://…`: each line one message of one channel."""

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from ackline import relink
from ackline.cli.lines import Lines, Window
from ackline.cli.values import USAGE, fail
from ackline.exceptions import AcklineError

__all__ = ["RelinkSending", "Target", "Uncommitted", "target_of"]

_ID_BYTES = 4
"""Bytes of a channel's id, if neither the URL nor --channel sets them."""
_ATTEMPT = 0.1
"""Least seconds that a receiver has to answer, even if --timeout leaves less."""
_STUCK_AFTER = 8
"""Connections in a row, over some ten seconds, with nothing done: the sending gives up."""
_CLOSE = 1.0
"""Seconds for the receiver's end of a link on which everything is acknowledged."""


class Uncommitted(AcklineError):  # noqa: N818 (the protocol's word for it)
    """The receiver has answered that it did not commit."""


class OtherFile(AcklineError):  # noqa: N818 (its subject)
    """The file has fewer lines than were sent of it before."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of the messages.

    Args:
        url: The receiver's URL; its query has options of the link.
        channel: The channel's id.
        is_transactional: Whether each window is a transaction.
    """

    url: str
    channel: bytes
    is_transactional: bool


def target_of(url: str, text: str | None) -> Target:
    """Returns the URL's channel with this id in hex, or the channel with the id of zeros."""
    query = parse_qs(url.partition("?")[2])
    told = query.get("connector_channel_id_size", [None])[-1]
    size = int(told) if told and told.isdecimal() else _ID_BYTES
    try:
        channel = bytes(size) if text is None else bytes.fromhex(text)
    except ValueError:
        fail(f"--channel is the id in hex, such as 00000007, not {text!r}", USAGE)
    if len(channel) != size:
        where = "" if told else ", where the URL does not say otherwise"
        sizes = f"--channel has {len(channel)} bytes; connector_channel_id_size is {size}{where}"
        fail(sizes, USAGE)
    decides = query.get("connector_transactions", ["false"])[-1] == "true"
    return Target(url, channel, decides)


class RelinkSending:
    """Sends windows of messages and knows how many of them are acknowledged as consumed.

    If there is a `state`, an earlier process may have sent the first lines; they are not repeated.
    """

    possible_repeats = 0
    """Always 0, because the protocol recognises repeats."""

    def __init__(
        self, lines: Lines, target: Target, options: dict[str, Any], timeout: float
    ) -> None:
        self._lines = lines
        self._target = target
        self._batch = (options.pop("batch_events"), options.pop("batch_bytes"))
        self._options = options
        self._timeout = timeout
        self._before = 0
        self._lines_before = 0
        self._refused = 0
        self.acked = 0

    def run(self) -> Generator[int, None, None]:
        """Sends everything; yields the bytes of the file that are acknowledged."""
        link = self._connected()
        patience = 0.0
        try:
            before = link.last_receipt(self._target.channel) if "state" in self._options else None
            self._before = before.sequence + 1 if before else 0
            yield from self._send(link)
            if before:
                self._check_lines()
                before.consumed(timeout=self._timeout)
            patience = _CLOSE
        finally:
            # This counts single messages: a receiver may acknowledge a part of a window.
            sent = self._lines_before + link.stats()["messages_sent"]
            self.acked = max(sent - len(link.unacknowledged) - self._refused, 0)
            link.close(timeout=patience)

    def _connected(self) -> relink.Link:
        """Returns the link, as soon as there is a receiver that makes one."""
        timeout = max(self._timeout, _ATTEMPT)
        options = self._options | {"stuck_after": _STUCK_AFTER}
        return relink.connect(self._target.url, timeout=timeout, **options)

    def _send(self, link: relink.Link) -> Iterator[int]:
        pending: deque[tuple[relink.Receipt, int, int]] = deque()
        done = 0
        for window in self._lines.windows(*self._batch):
            events = self._new(window)
            last = link.send_many(self._target.channel, events, timeout=self._timeout)
            if last is None:
                done += window.file_bytes
                yield done
                continue
            if self._target.is_transactional:
                link.commit(self._target.channel, last.sequence)
            pending.append((last, len(events), window.file_bytes))
            while pending and self._is_over(pending[0][0]):
                done += self._acknowledged(pending)
            yield done
            if self._refused:
                # The next window would be refused too.
                break
        while pending:
            pending[0][0].consumed(timeout=self._timeout)
            if self._target.is_transactional:
                pending[0][0].committed(timeout=self._timeout)
            done += self._acknowledged(pending)
            yield done
        if self._refused:
            msg = f"the receiver has not committed {self._refused} of the messages: see its log"
            raise Uncommitted(msg)

    def _new(self, window: Window) -> list[bytes]:
        """Returns the messages that no earlier process has sent."""
        known = min(self._before - self._lines_before, len(window.events))
        self._lines_before += known
        return window.events[known:]

    def _check_lines(self) -> None:
        had, has = self._before, self._lines_before
        if has < had:
            msg = f"{had} lines were sent with this --state, and the file has {has}: is it another?"
            raise OtherFile(msg)

    def _is_over(self, last: relink.Receipt) -> bool:
        return last.is_consumed and (not self._target.is_transactional or last.outcome is not None)

    def _acknowledged(self, pending: deque[tuple[relink.Receipt, int, int]]) -> int:
        last, count, file_bytes = pending.popleft()
        if self._target.is_transactional and last.outcome == "uncommitted":
            self._refused += count
            return 0
        self.acked += count
        return file_bytes
