"""`ackline publish`: a file or standard input to subscribers, or to a topic or a queue."""

from typing import Annotated, NoReturn

import typer

from ackline.cli.needs import PROTOCOLS, check_protocol, of_command_line, one_of
from ackline.cli.options import together, with_options
from ackline.cli.publish_micromsg import OPTIONS, publish_micromsg
from ackline.cli.publish_reactive import CONNECT, LISTEN, publish_reactive
from ackline.cli.publish_sources import PublishArguments
from ackline.cli.values import check_timeout

__all__ = ["publish"]

_SCHEMES = ("reactive", "micromsg")
_OTHERS = dict.fromkeys(("lumberjack", "relink", "bpmux"), "send")
"""The command for other protocols."""
_REACTIVE, _MICROMSG = (PROTOCOLS[scheme] for scheme in _SCHEMES)
_OPTIONS = together({_REACTIVE: [*LISTEN, *CONNECT], _MICROMSG: OPTIONS})
_OF = {
    "listen": ("reactive",),
    "streams": ("reactive",),
    "element": ("reactive",),
    "property": ("micromsg",),
} | {
    option.name: tuple(scheme for scheme in _SCHEMES if PROTOCOLS[scheme] in option.sections)
    for option in _OPTIONS
}
"""The protocols of each option that not every protocol has."""


_Url = Annotated[
    str,
    typer.Argument(
        help="The peer and the publisher's name: reactive://127.0.0.1:5210/PUBLISHER, also "
        "+tls, or reactive+unix:///path?publisher=PUBLISHER. With --listen: where to listen; "
        "port 0 is allowed. Or the peer and the topic or queue: "
        "micromsg://127.0.0.1:8334/DESTINATION, also +tls, or "
        "micromsg+unix:///path?topic=DESTINATION."
    ),
]
_File = Annotated[str, typer.Argument(help="A file, or - for standard input.")]
_Listen = Annotated[
    bool,
    typer.Option(
        "--listen",
        help="Listen for subscribers instead of connecting to one.",
        rich_help_panel=_REACTIVE,
    ),
]
_Streams = Annotated[
    int | None,
    typer.Option(
        help="Number of streams after which the command ends. A file is published to each "
        "subscriber from its beginning, standard input to the first subscriber alone.",
        min=1,
        show_default="1; with --listen and a file: unlimited",
        rich_help_panel=_REACTIVE,
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        help="Seconds for the connection. Reactive Streams: also for the peer's subscription, and "
        "for its goodbye after its last stream. MicroMsg2: also without an acknowledgement.",
        min=0,
    ),
]
_Form = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="lines|raw|base64|json",
        help="Form of the elements or messages in the file: a line each, bytes in pieces of up to "
        "64 KiB (raw), or a line of base64 each. MicroMsg2: or a line of JSON each, with payload "
        "or payload_hex, and with destination and properties where they are its own.",
    ),
]
_Element = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        help="Type of elements of a fixed size, one behind the other in a binary file or a "
        ".npy file: a number such as f64, or fields such as time:u64,value:f32.",
        rich_help_panel=_REACTIVE,
    ),
]
_Property = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A property of every message, for filters. A value that is a number as JSON has it, "
        "such as 3 or -1.5, is a number; any other is a text. NAME:VALUE has the value as on the "
        "wire: level:N3, region:Teu, since:D1413198000.0. May be repeated.",
        rich_help_panel=_MICROMSG,
    ),
]
_AsJson = Annotated[bool, typer.Option("--json", help="JSON lines on standard output.")]


def publish(  # noqa: PLR0913, PLR0917 (an argument for each option)
    context: typer.Context,
    url: _Url,
    file: _File,
    listen: _Listen = False,  # noqa: FBT002 (a flag)
    streams: _Streams = None,
    timeout: _Timeout = 60.0,
    form: _Form = "lines",
    element: _Element = None,
    property: _Property = None,  # noqa: A002 (the option's name)
    as_json: _AsJson = False,  # noqa: FBT002 (a flag)
    **given: str | bool | None,
) -> NoReturn:
    """Publishes a file or standard input; it is read as fast as the peer takes it.

    Reactive Streams: without --listen the command connects to a peer that subscribes, such as
    `ackline receive reactive://…/PUBLISHER`, which says goodbye when every element is kept. With
    --listen it serves subscribers, such as `ackline subscribe`, until SIGINT or SIGTERM, or for
    --streams streams.

    MicroMsg2: the command connects to a peer such as `ackline serve micromsg://…` and sends each
    line as a message to the destination. A peer may acknowledge nothing; then standard error has a
    line about it. To connect again after a lost connection, use `ackline send`.

    Ends with 0 when each of these streams was published to its end and its peer has said goodbye,
    or, if their number is unlimited, at SIGINT or SIGTERM; of MicroMsg2 when all messages are
    acknowledged, or sent to a peer that acknowledges none; with 1 when a subscriber has cancelled a
    stream, a message is not acknowledged, the connection broke or the source cannot be read; 124
    when the peer does not connect, subscribe, acknowledge or say goodbye within --timeout; 69 when
    nobody could be reached; 2 for a wrong command line; 130 and 143 after SIGINT and SIGTERM before
    the last stream or message.
    """
    check_timeout(timeout)
    scheme = one_of(url, _SCHEMES, _OTHERS)
    check_protocol(of_command_line(context), scheme, _OF)
    options = {name: value for name, value in given.items() if value is not None}
    arguments = PublishArguments(url, file, form, timeout, as_json, options)
    if scheme == "micromsg":
        publish_micromsg(arguments, property or [])
    publish_reactive(arguments, listens=listen, streams=streams, element=element)


with_options(publish, _OPTIONS)
