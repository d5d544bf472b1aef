"""`ackline publish` to a topic or a queue of MicroMsg2."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import NoReturn

from ackline._micromsg import LONGEST_NAME
from ackline._micromsg_core import micromsg_split, micromsg_write_properties
from ackline.aio import micromsg
from ackline.cli.micromsg_json import LineMessage, Properties, WrongLine, message_of
from ackline.cli.micromsg_properties import properties_of
from ackline.cli.options import check_option, options_of
from ackline.cli.publish_sources import FORMATS, PublishArguments, Source, SourceFailed
from ackline.cli.reaching import Unreached, reaching
from ackline.cli.stalling import LOOK, Stall
from ackline.cli.terminal import say
from ackline.cli.until_signal import until_signal
from ackline.cli.values import (
    FAILED,
    LATE,
    LEAST,
    UNREACHED,
    USAGE,
    as_written,
    check_word,
    fail,
    place,
    with_dashes,
)
from ackline.exceptions import AcklineError, LinkTimeout, ProtocolError, UsageError

__all__ = ["OPTIONS", "publish_micromsg"]

_TABLE = "micromsg.connect"
OPTIONS = options_of(
    _TABLE, but=("ack_policy", "ack_timer", "connect_timeout", "memory", "negotiation")
)
"""The options of the command; others it sets itself, or they do nothing for a publisher."""
_FORMATS = (*FORMATS, "json")
_MOST = 1024
"""Messages that are handed over at once."""
_GOODBYE = 2.0
"""Seconds for the end of the connection."""


def publish_micromsg(arguments: PublishArguments, properties: Sequence[str]) -> NoReturn:
    """Sends each line as a message to a topic or a queue; ends the process.

    Args:
        arguments: The arguments that every protocol has.
        properties: Properties of every message, as `NAME=VALUE` or `NAME:VALUE`.
    """
    check_word("--format", arguments.form, _FORMATS)
    try:
        at, destination, chosen = micromsg_split(arguments.url)
        limit = check_option(
            _TABLE, "max_message_bytes", arguments.options.get("max_message_bytes")
        )
    except UsageError as error:
        fail(as_written(error, arguments.options), USAGE)
    if chosen is not None:
        fail("a filter is for subscribers: leave it out of the URL", USAGE)
    _check_destination(destination, arguments)
    own = properties_of(properties)
    source = Source(arguments.file, arguments.form, None, (limit, "--max-message-bytes"))
    publishing = _Publishing(at, arguments, _Messages(source, arguments.form, destination, own))
    begin = time.monotonic()
    reason: AcklineError | None = None
    stopped = None
    try:
        stopped = asyncio.run(until_signal(publishing.run()))
    except AcklineError as error:
        reason = error
    _end(publishing, arguments, (reason, stopped), time.monotonic() - begin)


def _check_destination(destination: str, arguments: PublishArguments) -> None:
    """Ends the command if the URL's destination is missing or no destination."""
    here = arguments.url.partition("?")[0]
    if not destination and arguments.form != "json":
        form = "write micromsg://host:port/DESTINATION or micromsg+unix:///path?topic=DESTINATION"
        fail(f"{here}: the destination is missing: {form}", USAGE)
    if not destination.isascii() or len(destination) > LONGEST_NAME:
        fail(f"{here}: a destination is ASCII of at most {LONGEST_NAME} characters", USAGE)


@dataclass(slots=True)
class _Messages:
    """The messages of a source.

    Attributes:
        source: The source.
        form: Its form.
        destination: The destination of messages without their own; may be empty.
        properties: The properties of every message.
        read: Messages that were handed over so far.
        lines: Lines that were read.
        failed: The reason why there are no more.
        has_types: Whether the connection carries .NET types.
    """

    source: Source
    form: str
    destination: str
    properties: Properties
    read: int = 0
    lines: int = 0
    failed: SourceFailed | None = None
    has_types: bool = False

    async def batches(self) -> AsyncGenerator[list[micromsg.Outgoing]]:
        """Yields messages, up to the end of the source or an error in it."""
        try:
            async with aclosing(self.source.batches()) as batches:
                async for batch in batches:
                    # Only elements of a fixed size come in one piece.
                    elements = [batch] if isinstance(batch, bytes) else batch
                    for at in range(0, len(elements), _MOST):
                        messages = list(self._of(elements[at : at + _MOST]))
                        self.read += len(messages)
                        yield messages
                        if self.failed is not None:
                            return
        except SourceFailed as error:
            self.failed = error

    def _of(self, elements: Iterable[bytes]) -> Iterator[micromsg.Outgoing]:
        """Yields the messages of elements, up to one that is none."""
        for element in elements:
            self.lines += 1
            if self.form == "json" and not element.strip():
                continue
            try:
                one = message_of(element) if self.form == "json" else LineMessage(element)
                yield self._message(one)
            except (WrongLine, UsageError) as error:
                self.failed = SourceFailed(f"{self.source.name}, line {self.lines}: {error}")
                return

    def _message(self, one: LineMessage) -> micromsg.Outgoing:
        destination = self.destination if one.destination is None else one.destination
        if not destination:
            raise WrongLine("neither the line nor the URL has a destination")
        if not destination.isascii() or len(destination) > LONGEST_NAME:
            raise WrongLine(f"a destination is ASCII of at most {LONGEST_NAME} characters")
        if one.dotnet_type is not None:
            self._check_type(one.dotnet_type)
        if not one.properties:
            return micromsg.Outgoing(one.payload, destination, self.properties, one.dotnet_type)
        properties = self.properties | one.properties
        micromsg_write_properties(properties)
        return micromsg.Outgoing(one.payload, destination, properties, one.dotnet_type)

    def _check_type(self, name: str) -> None:
        if not self.has_types:
            cure = "give --optional-extensions 'batch-ack;dotnet' (ends of Ackline accept it)"
            raise WrongLine(f"the connection has no dotnet_type: {cure}")
        if not name.isascii():
            raise WrongLine("dotnet_type is ASCII")


class _Publishing:
    """The sending of messages over one connection."""

    def __init__(self, at: str, arguments: PublishArguments, messages: _Messages) -> None:
        self.messages = messages
        self.is_acknowledged = True
        """Whether the peer acknowledges messages."""
        self._at = at
        self._options = arguments.options
        self._timeout = max(arguments.timeout, LEAST)
        self._connection: micromsg.Connection | None = None
        self._last: dict[str, int] = {"sent": 0, "acknowledged": 0}

    @property
    def done(self) -> int:
        """Messages that are acknowledged, or sent to a peer that acknowledges none."""
        return self._last["acknowledged" if self.is_acknowledged else "sent"]

    async def run(self) -> None:
        """Sends everything, and waits until it is acknowledged.

        Raises:
            Unreached: Nobody could be reached.
            LinkTimeout: There was no connection, or no acknowledgement, in time.
            SourceFailed: The source cannot be read any further.
            LinkClosed: The connection has ended before.
        """
        patience = self._timeout
        with reaching(time.monotonic() + patience):
            connection = await micromsg.connect(
                self._at, timeout=patience, connect_timeout=patience, **self._options
            )
        self.is_acknowledged = bool(connection.window)
        self.messages.has_types = "dotnet" in connection.extensions
        sending = asyncio.create_task(self._send(connection))
        watching = asyncio.create_task(self._watch(connection))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            (sending if sending.done() else watching).result()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)
            self._last = connection.stats()
            with suppress(AcklineError):
                await connection.close(timeout=0.0 if self._left() else _GOODBYE)
            connection.abort()

    async def _send(self, connection: micromsg.Connection) -> None:
        async with aclosing(self.messages.batches()) as batches:
            async for batch in batches:
                await connection.send_some(batch)
        if self.is_acknowledged:
            await connection.wait_acknowledged()
        else:
            await connection.close()
        if self.messages.failed is not None:
            raise self.messages.failed

    async def _watch(self, connection: micromsg.Connection) -> None:
        """Returns never; raises `LinkTimeout` when the peer takes nothing for too long."""
        stall = Stall(self._timeout, "no acknowledgement")
        while True:
            await asyncio.sleep(min(LOOK, self._timeout))
            stats = connection.stats()
            is_waiting = stats["pending"] > 0 or stats["waiting_bytes"] > 0
            stall.look(stats["acknowledged"] + stats["bytes_out"], is_waiting=is_waiting)

    def _left(self) -> int:
        return self.messages.read - self.done


def _end(
    publishing: _Publishing,
    arguments: PublishArguments,
    end: tuple[AcklineError | None, int | None],
    seconds: float,
) -> NoReturn:
    """Reports the numbers and ends the process."""
    reason, stopped = end
    read, done = publishing.messages.read, publishing.done
    if arguments.as_json:
        state = "acknowledged" if publishing.is_acknowledged else "sent"
        line = {"event": "published", "messages": read, "acknowledged": 0} | {state: done}
        sys.stdout.write(json.dumps(line | {"seconds": round(seconds, 3)}) + "\n")
        sys.stdout.flush()
    if stopped is not None:
        _fail(publishing, f"stopped by {signal.Signals(stopped).name}", 128 + stopped)
    options = arguments.options
    match reason:
        case None:
            pass
        case UsageError() if not read:
            fail(as_written(reason, options), USAGE)
        case Unreached():
            fail(reason, UNREACHED)
        case LinkTimeout():
            _fail(publishing, str(reason), LATE)
        case ProtocolError():
            text = with_dashes(reason, options) + place(reason.code, reason.offset)
            _fail(publishing, text, FAILED)
        case _:
            _fail(publishing, with_dashes(reason, options), FAILED)
    say(_told(publishing))
    sys.exit(0)


def _fail(publishing: _Publishing, why: str, code: int) -> NoReturn:
    """Ends the process with the reason, and the number of messages that are not acknowledged."""
    read, done = publishing.messages.read, publishing.done
    if read == done:
        fail(f"{why}; {_told(publishing)}" if read else why, code)
    state = "acknowledged" if publishing.is_acknowledged else "sent"
    fail(f"{read - done} of {read} messages not {state}: {why}", code)


def _told(publishing: _Publishing) -> str:
    if publishing.is_acknowledged:
        return f"{publishing.done} messages acknowledged"
    return f"{publishing.done} messages sent; the peer acknowledges none"
