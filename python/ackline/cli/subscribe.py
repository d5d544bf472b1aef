"""`ackline subscribe`: the elements of a publisher of Reactive Streams on standard output."""

import threading
import time
from contextlib import suppress
from typing import Annotated, Any

import typer

from ackline import reactive
from ackline._reactive import PACKED_BYTES, UNBOUNDED
from ackline._reactive_core import reactive_split
from ackline._table import nearest
from ackline.cli.element_output import FORMATS, LOOK, ElementOutput, ReaderLeft, Signals, Stopped
from ackline.cli.elements import Element, described
from ackline.cli.options import options_of, with_options
from ackline.cli.standard import to_nowhere
from ackline.cli.values import (
    LATE,
    LEAST,
    UNREACHED,
    USAGE,
    as_written,
    check_timeout,
    fail,
    with_dashes,
)
from ackline.exceptions import (
    AcklineError,
    LinkClosed,
    LinkTimeout,
    ProtocolError,
    StreamFailed,
    TransportError,
    UsageError,
)

__all__ = ["subscribe"]

_TABLE = "reactive.connect"
_NOT_OPTIONS = (
    "connect_timeout",
    "goodbye_timeout",
    "max_subscriptions",
    "parts",
    "send_bytes",
    "split_threshold",
)
"""Options that the command sets itself, or that do nothing for a subscriber."""
_GOODBYE = 1.0
"""Seconds for the end of the connection."""
_MOST = 1024
"""Elements that are taken at once, at most."""


_Url = Annotated[
    str,
    typer.Argument(
        help="The publisher: reactive://127.0.0.1:5210/PUBLISHER, also +tls, or "
        "reactive+unix:///path?publisher=PUBLISHER."
    ),
]
_Demand = Annotated[
    int,
    typer.Option(
        help="Elements that the publisher may send ahead of the output.", min=1, max=UNBOUNDED
    ),
]
_LowWater = Annotated[
    int | None,
    typer.Option(
        help="Number of these elements at which more are requested.",
        min=0,
        show_default="half of --demand",
    ),
]
_Count = Annotated[
    int | None,
    typer.Option(
        help="Elements after which the command ends; no more are requested.",
        min=1,
        max=UNBOUNDED,
        show_default="all",
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        help="Seconds for the connection and the publisher's acceptance. The stream itself has "
        "no time limit.",
        min=0,
    ),
]
_Form = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="|".join(FORMATS),
        help="Form of an element: its bytes and a line feed (lines), its bytes alone (raw), a "
        "line of base64, or a JSON line with element, or element_hex if it is no UTF-8.",
        show_default="lines; json with --element",
    ),
]
_Element = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Type of elements of a fixed size, printed as JSON: a number such as f64 as a "
        "value, fields such as time:u64,value:f32 as an object.",
    ),
]


def subscribe(
    url: _Url,
    demand: _Demand = 1024,
    low_water: _LowWater = None,
    count: _Count = None,
    timeout: _Timeout = 60.0,
    form: _Form = None,
    element: _Element = None,
    **given: str | bool | None,
) -> None:
    """Subscribes to a publisher and writes each element to standard output.

    The publisher waits while the reader of standard output is slow. When this reader leaves
    (`| head`), the subscription is cancelled, without a message.

    Ends with 0 when the publisher has completed the stream, at --count, and when the reader has
    left; with 1 when the publisher rejects the subscription or ends the stream with an error, and
    when the connection breaks; 124 when the publisher does not accept within --timeout; 69 when
    nobody could be reached; 74 when standard output cannot be written; 2 for a wrong command line;
    130 and 143 after SIGINT and SIGTERM, which cancel the subscription.
    """
    check_timeout(timeout)
    if low_water is not None and low_water >= demand:
        fail(f"--low-water is {low_water}; it is below --demand, which is {demand}", USAGE)
    options = {name: value for name, value in given.items() if value is not None}
    shape = described(element)
    taking = _Taking(demand, demand // 2 if low_water is None else low_water, count)
    printed = ElementOutput(_form(form, shape), shape)
    signals = Signals()
    try:
        _subscribe(
            url, options | {"connect_timeout": max(timeout, LEAST)}, taking, printed, signals
        )
    except Stopped as stopped:
        fail(stopped, 128 + stopped.number)
    except ReaderLeft:
        to_nowhere()
    except _Unreached as error:
        fail(error, UNREACHED)
    except LinkTimeout:
        fail(f"the publisher has not accepted within {timeout:g} s", LATE)
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    except ProtocolError as error:
        fail(with_dashes(error, options))
    except AcklineError as error:
        fail(with_dashes(error, options))


with_options(subscribe, options_of(_TABLE), but=_NOT_OPTIONS)


def _form(form: str | None, shape: Element | None) -> str:
    if form is not None and form not in FORMATS:
        hint = nearest(form, FORMATS)
        fail(f"--format is {', '.join(FORMATS[:-1])} or {FORMATS[-1]}, not {form!r}{hint}", USAGE)
    if shape is not None and form not in {None, "json"}:
        fail(f"--element prints JSON: leave --format {form} out", USAGE)
    return form or "lines"


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
    connection = _connected(at, options, until)
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


def _connected(at: str, options: dict[str, Any], until: float) -> reactive.Connection:
    try:
        return reactive.connect(at, **options)
    except TransportError as error:
        if time.monotonic() >= until:
            raise LinkTimeout(str(error)) from None
        raise _Unreached(str(error)) from None


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


class _Unreached(AcklineError):  # noqa: N818 (an outcome)
    """No peer could be reached."""
