"""Every option of a link has one name: in Rust, in Python's arguments, on the command line."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import ROOT

from ackline import relink
from ackline.aio import relink as aio
from ackline.cli.receive import receive

OPTIONS = ROOT / "crates/ackline/src/relink/options.rs"
ACCEPTOR = ROOT / "crates/link/src/acceptor.rs"
TLS = ROOT / "crates/link/src/tls.rs"
RECEIVE = ROOT / "crates/ackline/src/relink/receive.rs"
PARAMETERS = {
    "connector_channel_id_size",
    "listener_channel_id_size",
    "connector_transactions",
    "listener_transactions",
}
LIMITS = {
    "max_channel_ids",
    "max_message_parts",
    "max_part_bytes",
    "max_message_bytes",
    "max_multicast_bytes",
}
SENDING = {"send_window", "send_bytes"}
"""Options of sending, which a receiver does not do."""
AT_ONCE = {"ack_window", "ack_delay"}
"""Options without a use in a receiver: it acknowledges kept messages at once, in groups."""


def fields(source: Path, struct: str) -> set[str]:
    """The public fields of a struct."""
    text = source.read_text("utf-8")
    found = re.search(rf"pub struct {struct} \{{\n(.*?)\n\}}", text, re.DOTALL)
    assert found, struct
    names = set(re.findall(r"^    pub (\w+):", found[1], re.MULTILINE))
    assert names
    return names


def whole(struct: str, source: Path = OPTIONS) -> set[str]:
    """The options that a struct stands for, with those of the structs in it."""
    parts = {
        "parameters": PARAMETERS,
        "limits": LIMITS,
        "link": lambda: whole("LinkOptions"),
        "acceptor": lambda: fields(ACCEPTOR, "AcceptorOptions"),
        "tls": lambda: fields(TLS, "TlsOptions"),
    }
    names: set[str] = set()
    for field in fields(source, struct):
        part = parts.get(field, {field})
        names |= part() if callable(part) else part
    return names


def arguments(function: Callable[..., object]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"url"}


@pytest.mark.parametrize("module", [relink, aio])
def test_every_connector_option_of_rust_exists_in_python(module):
    # The seed is for tests; only listeners ask for certificates.
    assert arguments(module.connect) == whole("ConnectOptions") - {
        "seed",
        "client_auth",
        "identity",
        "tokens_file",
    }


@pytest.mark.parametrize("module", [relink, aio])
def test_every_listener_option_of_rust_exists_in_python(module):
    assert arguments(module.listen) == whole("ListenOptions") - {"server_name", "token_file"}


def test_every_receiver_option_of_rust_exists_on_the_command_line():
    wanted = whole("RelinkOptions", RECEIVE) - SENDING - AT_ONCE
    # The URL sets these, because both ends must agree on them.
    assert wanted - PARAMETERS <= set(inspect.signature(receive).parameters)
    both = whole("ConnectOptions") | whole("ListenOptions")
    # Options that the receiver names otherwise: it waits for ever, keeps links in its spool, and
    # has several URLs for several endpoints.
    others = {"timeout", "stuck_after", "state", "endpoints", "seed", "server_name", "wants_hints"}
    left = both - SENDING - AT_ONCE - PARAMETERS - others
    assert left <= set(inspect.signature(receive).parameters)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ping_after", None),
        ("pong_timeout", 1.5),
        ("packet_receive_timeout", None),
        ("connect_timeout", 2),
        ("first_byte_timeout", None),
    ],
)
def test_a_time_is_taken(option, value):
    options = {option: value}
    if option != "first_byte_timeout":
        with relink.listen("relink://127.0.0.1:0/n") as listener:
            relink.connect(listener.url, **options).close()
    if option != "connect_timeout":
        relink.listen("relink://127.0.0.1:0/n", **options).close()
