"""`ackline subscribe` to a topic or a queue of MicroMsg2."""

import time
from contextlib import suppress
from typing import Any

from ackline import micromsg
from ackline._micromsg_core import micromsg_split
from ackline.cli.element_output import LOOK, ElementOutput, Signals, SubscribeArguments
from ackline.cli.micromsg_json import line_of
from ackline.cli.options import options_of
from ackline.cli.reaching import reaching
from ackline.cli.values import LEAST, USAGE, fail
from ackline.exceptions import AcklineError, LinkClosed, LinkTimeout, UsageError

__all__ = ["OPTIONS", "subscribe_micromsg"]

OPTIONS = options_of(
    "micromsg.connect",
    but=(
        "ack_policy",
        "ack_timer",
        "connect_timeout",
        "dotnet_frames",
        "fragment_size",
        "negotiation",
        "send_bytes",
    ),
)
"""The options of the command; others it sets itself, or they do nothing for a subscriber."""
_GOODBYE = 1.0
"""Seconds for the end of the connection."""
_MOST = 1024
"""Messages that are taken at once, at most."""


def subscribe_micromsg(arguments: SubscribeArguments, conditions: str | None) -> None:
    """Writes the messages of a topic or a queue to standard output, and acknowledges these.

    Args:
        arguments: The arguments that every protocol has.
        conditions: The filter.

    Raises:
        LinkTimeout: There was no connection in time.
        LinkClosed: The peer has ended the connection.
    """
    form = arguments.checked_form() or "lines"
    at, topic, in_url = micromsg_split(arguments.url)
    if not topic:
        place = at.partition("?")[0]
        # The path of a Unix socket has no end that could be a topic.
        is_path = place.startswith("micromsg+unix:")
        form = f"{place}?topic=TOPIC" if is_path else f"{place}/TOPIC"
        fail(f"{place}: the topic is missing: write {form}", USAGE)
    if conditions is not None and in_url is not None:
        fail("--filter and the filter in the URL are two: give one", USAGE)
    chosen = _filter(conditions if in_url is None else in_url)
    options = arguments.options | {"ack_policy": "manual"}
    printed, signals = ElementOutput(form, None), Signals()
    try:
        connection = _connected(at, options, arguments.timeout)
    except LinkTimeout:
        raise LinkTimeout(f"no connection within {arguments.timeout:g} s") from None
    try:
        _subscribe(connection, topic, chosen)
        signals.wait_for_looks()
        _write_all(connection, arguments.count, form, printed, signals)
    finally:
        signals.wait_for_looks()
        # The acknowledgements go out; messages that were not written have none.
        with suppress(AcklineError):
            connection.close(timeout=_GOODBYE)
        connection.abort()


def _filter(conditions: str | None) -> micromsg.Filter | None:
    """Returns a filter; a wrong one ends the command."""
    try:
        return None if conditions is None else micromsg.Filter(conditions)
    except UsageError as error:
        fail(f"--filter: {error}", USAGE)


def _connected(at: str, options: dict[str, Any], timeout: float) -> micromsg.Connection:
    patience = max(timeout, LEAST)
    with reaching(time.monotonic() + patience):
        return micromsg.connect(at, timeout=patience, connect_timeout=patience, **options)


def _subscribe(connection: micromsg.Connection, topic: str, chosen: micromsg.Filter | None) -> None:
    try:
        connection.subscribe(topic, chosen)
    except UsageError as error:
        if error.code == "extension_not_negotiated":
            raise LinkClosed("the peer has no subscriptions: it lacks pub-sub") from None
        raise


def _write_all(
    connection: micromsg.Connection,
    count: int | None,
    form: str,
    printed: ElementOutput,
    signals: Signals,
) -> None:
    """Writes messages, up to the count."""
    is_acknowledged = bool(connection.window)
    left = count
    while left is None or left > 0:
        signals.look()
        most = _MOST if left is None else min(left, _MOST)
        try:
            messages = connection.receive_some(most, timeout=LOOK)
        except LinkTimeout:
            printed.look()
            continue
        if not messages:
            raise LinkClosed("the peer has ended the connection")
        if form == "json":
            printed.write_lines(map(line_of, messages), signals)
        else:
            printed.write([message.payload for message in messages], signals)
        if is_acknowledged:
            connection.ack(messages[-1].position)
        left = None if left is None else left - len(messages)
