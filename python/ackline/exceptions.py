"""The errors of this package, by the side that caused them. All of them can be pickled."""

from dataclasses import dataclass
from typing import Self

__all__ = [
    "AcklineError",
    "ForkError",
    "LinkClosed",
    "LinkLost",
    "LinkTimeout",
    "PeerCancelled",
    "PeerFailed",
    "ProtocolError",
    "RequestClosed",
    "SpoolError",
    "StateError",
    "StreamFailed",
    "TransportError",
    "UsageError",
]


class AcklineError(Exception):
    """The base of every error of this package."""


class ProtocolError(AcklineError):
    """The peer broke the protocol, a limit or a deadline; its connection is over.

    Attributes:
        protocol: The protocol's name, such as ``lumberjack``.
        code: The stable name of the rule, such as ``lumberjack.window_too_large``.
        offset: Bytes received on the connection before the offending frame.
        option: The option that changes the limit or deadline, such as ``max_window_events``; None
            if there is none.
    """

    def __init__(
        self, message: str, *, protocol: str, code: str, offset: int, option: str | None = None
    ) -> None:
        super().__init__(message)
        self.protocol = protocol
        self.code = code
        self.offset = offset
        self.option = option

    def __reduce__(self) -> tuple[object, ...]:
        members = (self.protocol, self.code, self.offset, self.option)
        return (_protocol_error, (type(self), str(self), *members))


class UsageError(AcklineError, ValueError):
    """The caller asked for something that is not allowed now; nothing changed.

    Attributes:
        code: The stable name of the refusal, such as ``unknown_window``; empty if it has none.
        option: The option that is wrong; None if there is none. The text begins with it, or with
            the URL whose query has it.
        other: Another option, with which the text ends; None if there is none.
    """

    def __init__(
        self, message: str, code: str = "", *, option: str | None = None, other: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.option = option
        self.other = other

    def __reduce__(self) -> tuple[object, ...]:
        return _usage_error, (type(self), str(self), self.code, self.option, self.other)


class LinkClosed(AcklineError, ConnectionError):  # noqa: N818 (design: the name is the state)
    """The link is over, in an orderly way."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """A message that was sent and never acknowledged as consumed: it may have arrived."""

    channel: bytes
    """The channel it was sent on."""
    sequence: int
    """Its number there."""
    parts: tuple[bytes, ...]
    """The message."""


class LinkLost(LinkClosed):
    """The link ended while messages were not acknowledged.

    Attributes:
        unacknowledged: How many messages were sent and not acknowledged: they may have arrived.
        messages: These messages, if the link kept them (Relink); they may be sent again over
            another link. Channels ascending, each in order.
    """

    def __init__(
        self,
        message: str,
        unacknowledged: int = 0,
        messages: tuple[Unacknowledged, ...] = (),
    ) -> None:
        super().__init__(message)
        self.unacknowledged = unacknowledged
        self.messages = messages

    def __reduce__(self) -> tuple[type[Self], tuple[str, int, tuple[Unacknowledged, ...]]]:
        return type(self), (str(self), self.unacknowledged, self.messages)


class PeerFailed(LinkClosed):
    """The peer has ended the connection with an error, such as MicroMsg2's ERROR frame.

    Its text is the peer's.
    """


class TransportError(AcklineError, ConnectionError):
    """The operating system could not connect, listen, read or write."""


class StateError(AcklineError, OSError):
    """A change of a link could not be written to its `state` directory, as on a full disk.

    The text names the file and the system's error. The link has ended in this process; the next
    process that opens the directory goes on with the state that was kept. Nothing was sent that was
    not kept before.
    """


class LinkTimeout(AcklineError, TimeoutError):  # noqa: N818 (design: the name is the state)
    """The awaited event did not happen in time. The link lives on."""


class _EndedByPeer(AcklineError):  # noqa: N818 (as those that it is the base of)
    """The peer has ended something, with a payload that says why."""

    def __init__(self, message: str, payload: bytes = b"") -> None:
        super().__init__(message)
        self.payload = payload

    def __reduce__(self) -> tuple[type[Self], tuple[str, bytes]]:
        return type(self), (str(self), self.payload)


class PeerCancelled(_EndedByPeer):
    """The peer wants no more messages, or has given its request up.

    Attributes:
        payload: The reason; by convention empty if all is well.
    """


class RequestClosed(_EndedByPeer):
    """The peer will not answer the request.

    Attributes:
        payload: The reason, such as the text of an exception.
    """


class StreamFailed(AcklineError):  # noqa: N818 (design: the name is the state)
    """The publisher has ended the stream with an error, or has rejected the subscription.

    Its text is the publisher's.
    """


class ForkError(AcklineError, RuntimeError):
    """The object was made before a fork and belongs to the parent: make a new one in the child."""


class SpoolError(AcklineError):
    """A spool cannot be used as asked.

    Attributes:
        code: The stable name of the reason, such as ``spool.locked``.
    """

    def __init__(self, message: str, code: str = "spool.io") -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (str(self), self.code)


def _protocol_error(
    kind: type[ProtocolError],
    message: str,
    protocol: str,
    code: str,
    offset: int,
    option: str | None,
) -> ProtocolError:
    return kind(message, protocol=protocol, code=code, offset=offset, option=option)


def _usage_error(
    kind: type[UsageError], message: str, code: str, option: str | None, other: str | None
) -> UsageError:
    return kind(message, code, option=option, other=other)
