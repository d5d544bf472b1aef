"""Every option of a link has one name: in Rust, in Python's arguments, on the command line."""

import inspect

import pytest
from support.options import assert_is_default

from ackline import relink
from ackline.aio import relink as aio
from ackline.cli.options import options_of
from ackline.cli.receive import receive

SENDING = {"send_window", "send_bytes"}
"""Options of sending: a receiver sends nothing."""
AT_ONCE = {"ack_window", "ack_delay"}
"""Options without a use in a receiver: it acknowledges kept messages at once, in groups."""
OF_THE_URL = {
    "connector_channel_id_size",
    "listener_channel_id_size",
    "connector_transactions",
    "listener_transactions",
}
OF_APPLICATIONS = {"timeout", "stuck_after", "state", "wants_hints"}
"""Options of applications: a receiver waits for ever, and keeps links in its spool."""


@pytest.mark.parametrize("module", [relink, aio])
@pytest.mark.parametrize("call", ["connect", "listen"])
def test_every_option_of_the_table_exists_in_python(module, call):
    table = {option.name: option for option in options_of(f"relink.{call}")}
    parameters = dict(inspect.signature(getattr(module, call)).parameters)
    del parameters["url"]
    # This option is a table, not a single value.
    parameters.pop("endpoints", None)
    assert parameters.keys() == table.keys()
    for name, parameter in parameters.items():
        assert_is_default(table[name], parameter.default)


def test_every_receiver_option_exists_on_the_command_line():
    both = {
        option.name for call in ("connect", "listen") for option in options_of(f"relink.{call}")
    }
    left = both - SENDING - AT_ONCE - OF_THE_URL - OF_APPLICATIONS
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
