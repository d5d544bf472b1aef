"""`ackline subscribe` to a publisher of Reactive Streams."""

import threading
import time
from contextlib import suppress
from typing import Any

from ackline import reactive
from ackline._reactive import PACKED_BYTES
from ackline._reactive_core import reactive_split
from ackline.cli.element_output import LOOK, ElementOutput, Signals, SubscribeArguments
from ackline.cli.elements import described
from ackline.cli.options import options_of
from ackline.cli.reaching import reaching
from ackline.cli.values import LEAST, USAGE, fail
from ackline.exceptions import AcklineError, LinkClosed, LinkTimeout, StreamFailed

__all__ = ["OPTIONS", "subscribe_reactive"]

OPTIONS = options_of(
    "reactive.connect",
    but=(
        "connect_timeout",
        "goodbye_timeout",
        "max_subscriptions",
        "parts",
        "send_bytes",
        "split_threshold",
    ),
)
"""The options of the command; others it sets itself, or they do nothing for a subscriber."""
_GOODBYE = 1.0
"""Seconds for the end of the connection."""
_MOST = 1024
"""Elements that are taken at once, at most."""


def subscribe_reactive(
    arguments: SubscribeArguments, *, demand: int, low_water: int | None, element: str | None
) -> None:
    """Writes the elements of a publisher to standard output.

    Args:
        arguments: The arguments that every protocol has.
        demand: Elements that the publisher may send ahead.
        low_water: Number of these at which more are requested.
        element: The type of elements of a fixed size.

    Raises:
        LinkTimeout: The publisher has not accepted in time.
    """
    if low_water is not None and low_water >= demand:
        fail(f"--low-water is {low_water}; it is below --demand, which is {demand}", USAGE)
    shape = described(element)
    form = arguments.checked_form()
    if shape is not None and form not in {None, "json"}:
        fail(f"--element prints JSON: leave --format {form} out", USAGE)
    low = demand // 2 if low_water is None else low_water
    taking = _Taking(demand, low, arguments.count)
    printed = ElementOutput(form or "lines", shape)
    options = arguments.options | {"connect_timeout": max(arguments.timeout, LEAST)}
    try:
        _subscribe(arguments.url, options, taking, printed, Signals())
    except LinkTimeout:
        text = f"the publisher has not accepted within {arguments.timeout:g} s"
        raise LinkTimeout(text) from None


class _Taking:
    """The numbers of elements that are requested and taken."""

    def __init__(self, demand: int, low: int, count: int | None) -> None:
        self.demand = demand if count is None else min(demand, count)
        self._low = low
        self._count = count
        self._requested = self.demand
        self._taken = 0

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of `Connection.subscribe`."""
        if self._count is None:
            return {"demand": self.demand, "low_water": self._low}
        # Nothing is requested beyond the last element.
        return {"demand": self.demand, "automatic": False}

    @property
    def left(self) -> int:
        """Elements that are still to be taken, or at least as many as are taken at once."""
        return _MOST if self._count is None else self._count - self._taken

    def took(self, subscription: reactive.Subscription, elements: int) -> None:
        """Counts elements, and requests more where the count needs them."""
        if self._count is None:
            return
        self._taken += elements
        ahead = self._requested - self._taken
        more = min(self.demand - ahead, self._count - self._requested)
        if ahead <= self._low and more > 0:
            subscription.request(more)
            self._requested += more


def _subscribe(
    url: str, options: dict[str, Any], taking: _Taking, printed: ElementOutput, signals: Signals
) -> None:
    """Writes the stream's elements, up to its end or the count."""
    at, publisher = reactive_split(url)
    until = time.monotonic() + options["connect_timeout"]
    with reaching(until):
        connection = reactive.connect(at, **options)
    threading.Thread(target=_reject_all, args=[connection], daemon=True).start()
    try:
        left = max(until - time.monotonic(), LEAST)
        subscription = _accepted(connection, publisher, taking, left)
        printed.check(subscription.element_size)
        signals.wait_for_looks()
        try:
            _write_all(subscription, taking, printed, signals)
        except StreamFailed as error:
            text = f"the publisher has ended the stream: {error}"
            raise StreamFailed(text) from None
        except LinkClosed as error:
            raise LinkClosed(f"the stream is not complete: {error}") from None
        finally:
            subscription.cancel()
    finally:
        signals.wait_for_looks()
        with suppress(AcklineError):
            connection.shutdown(timeout=_GOODBYE)
        connection.abort()


def _reject_all(connection: reactive.Connection) -> None:
    """Rejects the peer's subscriptions: there are no publishers here."""
    with suppress(AcklineError):
        connection.serve({})


def _accepted(
    connection: reactive.Connection, publisher: str, taking: _Taking, timeout: float
) -> reactive.Subscription:
    try:
        return connection.subscribe(publisher, timeout=timeout, **taking.arguments())
    except StreamFailed as error:
        text = f"the publisher has ended the stream: {error}"
        raise StreamFailed(text) from None


def _write_all(
    subscription: reactive.Subscription, taking: _Taking, printed: ElementOutput, signals: Signals
) -> None:
    size = subscription.element_size
    while taking.left:
        signals.look()
        most = min(taking.left, _MOST)
        try:
            if size and printed.takes_packed:
                at_once = min(most * size, PACKED_BYTES)
                packed = subscription.receive_packed(at_once, timeout=LOOK)
                count = 0 if packed is None else len(packed) // size
                printed.write_packed(packed or b"", size, signals)
            else:
                elements = subscription.receive_many(most, timeout=LOOK)
                count = len(elements)
                printed.write(elements, signals)
        except LinkTimeout:
            printed.look()
            continue
        if not count:
            return
        taking.took(subscription, count)
