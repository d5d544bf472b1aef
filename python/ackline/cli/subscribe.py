"""`ackline subscribe`: the elements of a publisher, or the messages of a topic or a queue."""

from typing import Annotated

import typer

from ackline._reactive import UNBOUNDED
from ackline.cli.element_output import FORMATS, ReaderLeft, Stopped, SubscribeArguments
from ackline.cli.needs import PROTOCOLS, check_protocol, of_command_line, one_of
from ackline.cli.options import together, with_options
from ackline.cli.reaching import Unreached
from ackline.cli.standard import to_nowhere
from ackline.cli.subscribe_micromsg import OPTIONS as OF_MICROMSG
from ackline.cli.subscribe_micromsg import subscribe_micromsg
from ackline.cli.subscribe_reactive import OPTIONS as OF_REACTIVE
from ackline.cli.subscribe_reactive import subscribe_reactive
from ackline.cli.values import (
    LATE,
    UNREACHED,
    USAGE,
    as_written,
    check_timeout,
    fail,
    with_dashes,
)
from ackline.exceptions import AcklineError, LinkTimeout, UsageError

__all__ = ["subscribe"]

_SCHEMES = ("reactive", "micromsg")
_OTHERS = dict.fromkeys(("lumberjack", "relink", "bpmux"), "receive")
"""The command for other protocols."""
_REACTIVE, _MICROMSG = (PROTOCOLS[scheme] for scheme in _SCHEMES)
_OPTIONS = together({_REACTIVE: OF_REACTIVE, _MICROMSG: OF_MICROMSG})
_OF = {
    "demand": ("reactive",),
    "low_water": ("reactive",),
    "element": ("reactive",),
    "filter": ("micromsg",),
} | {
    option.name: tuple(scheme for scheme in _SCHEMES if PROTOCOLS[scheme] in option.sections)
    for option in _OPTIONS
}
"""The protocols of each option that not every protocol has."""


_Url = Annotated[
    str,
    typer.Argument(
        help="The publisher: reactive://127.0.0.1:5210/PUBLISHER, also +tls, or "
        "reactive+unix:///path?publisher=PUBLISHER. Or the topic or queue: "
        "micromsg://127.0.0.1:8334/TOPIC, also +tls, or micromsg+unix:///path?topic=TOPIC."
    ),
]
_Demand = Annotated[
    int,
    typer.Option(
        help="Elements that the publisher may send ahead of the output.",
        min=1,
        max=UNBOUNDED,
        rich_help_panel=_REACTIVE,
    ),
]
_LowWater = Annotated[
    int | None,
    typer.Option(
        help="Number of these elements at which more are requested.",
        min=0,
        show_default="half of --demand",
        rich_help_panel=_REACTIVE,
    ),
]
_Filter = Annotated[
    str | None,
    typer.Option(
        metavar="CONDITIONS",
        help="Conditions on properties with ; between them, all of which must hold: "
        "'level>=N3;region=Teu'. Operators: = != < <= > >=, and for texts = != < (begins with) "
        "> (ends with) & (contains) ~ (does not contain). Values: N number, D date in seconds "
        "since 1970, T text.",
        show_default="all messages",
        rich_help_panel=_MICROMSG,
    ),
]
_Count = Annotated[
    int | None,
    typer.Option(
        help="Elements or messages after which the command ends; no more are taken.",
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
        help="Form of an element or message: its bytes and a line feed (lines), its bytes alone "
        "(raw), a line of base64, or a JSON line. JSON of Reactive Streams: element, or "
        "element_hex if it is no UTF-8. JSON of MicroMsg2: position, destination, properties, and "
        "payload or payload_hex.",
        show_default="lines; json with --element",
    ),
]
_Element = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Type of elements of a fixed size, printed as JSON: a number such as f64 as a "
        "value, fields such as time:u64,value:f32 as an object.",
        rich_help_panel=_REACTIVE,
    ),
]


def subscribe(  # noqa: PLR0913, PLR0917 (an argument for each option)
    context: typer.Context,
    url: _Url,
    demand: _Demand = 1024,
    low_water: _LowWater = None,
    filter: _Filter = None,  # noqa: A002 (the option's name)
    count: _Count = None,
    timeout: _Timeout = 60.0,
    form: _Form = None,
    element: _Element = None,
    **given: str | bool | None,
) -> None:
    """Subscribes, and writes each element or message to standard output.

    The peer waits while the reader of standard output is slow. When this reader leaves (`| head`),
    the subscription is cancelled, without a message.

    MicroMsg2: a message is acknowledged when it was written to standard output. So a message of a
    queue that this command has not written goes to another receiver.

    Ends with 0 when the publisher has completed the stream, at --count, and when the reader has
    left; with 1 when the peer rejects the subscription or ends it, and when the connection breaks;
    124 when the peer does not accept within --timeout; 69 when nobody could be reached; 74 when
    standard output cannot be written; 2 for a wrong command line; 130 and 143 after SIGINT and
    SIGTERM, which cancel the subscription.
    """
    check_timeout(timeout)
    scheme = one_of(url, _SCHEMES, _OTHERS)
    check_protocol(of_command_line(context), scheme, _OF)
    options = {name: value for name, value in given.items() if value is not None}
    arguments = SubscribeArguments(url, count, timeout, form, options)
    try:
        if scheme == "micromsg":
            subscribe_micromsg(arguments, filter)
        else:
            subscribe_reactive(arguments, demand=demand, low_water=low_water, element=element)
    except Stopped as stopped:
        fail(stopped, 128 + stopped.number)
    except ReaderLeft:
        to_nowhere()
    except Unreached as error:
        fail(error, UNREACHED)
    except LinkTimeout as error:
        fail(error, LATE)
    except UsageError as error:
        fail(as_written(error, options), USAGE)
    except AcklineError as error:
        fail(with_dashes(error, [option.name for option in _OPTIONS]))


with_options(subscribe, _OPTIONS)
