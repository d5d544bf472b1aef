"""Every option of bpmux exists in Python by its name, and its wrong values are refused."""

import asyncio
import inspect
import re
from typing import Any

import pytest
from support.bpmux import TLS, URL
from support.options import assert_is_default

from ackline import UsageError, bpmux
from ackline.aio import bpmux as aio
from ackline.cli.options import options_of


@pytest.mark.parametrize("module", [bpmux, aio])
@pytest.mark.parametrize("call", ["connect", "listen"])
def test_every_option_of_the_table_exists_in_python(module: Any, call: str) -> None:
    table = {option.name: option for option in options_of(f"bpmux.{call}")}
    parameters = dict(inspect.signature(getattr(module, call)).parameters)
    del parameters["url"]
    assert parameters.keys() == table.keys()
    for name, parameter in parameters.items():
        assert_is_default(table[name], parameter.default)


def test_the_defaults_are_the_same_in_both_modules_and_calls() -> None:
    def defaults(call: Any) -> dict[str, Any]:
        return {name: it.default for name, it in inspect.signature(call).parameters.items()}

    for call in ("connect", "listen"):
        assert defaults(getattr(bpmux, call)) == defaults(getattr(aio, call))
    connects, listens = defaults(bpmux.connect), defaults(bpmux.listen)
    assert {name: connects[name] for name in connects.keys() & listens.keys()} == {
        name: listens[name] for name in connects.keys() & listens.keys()
    }


WRONG = [
    ("credit", "some", 'credit is some; it is "automatic" or "manual"'),
    ("credit_floor", 0, "credit_floor is 0; it is a whole number from 1 to 18446744073709551615"),
    (
        "credit_ceiling",
        4095,
        "is 4095; it is at least 4096, the value of credit_floor",
    ),
    ("credit_budget", -1, "credit_budget is -1; it is a whole number from 0 to"),
    ("chunk_size", 1 << 32, "chunk_size is 4294967296; it is a whole number from 1 to 4294967295"),
    ("send_bytes", 0, "send_bytes is 0; it is a whole number from 1 to"),
    ("ping_after", 0, "ping_after is 0; it is a number of seconds, at least 1ms, or off"),
    ("pong_timeout", 0.0, "pong_timeout is 0; it is a number of seconds, at least 1ms, or off"),
    ("parts", "x", "parts is x; it is true or false"),
    ("chunk_receive_timeout", "x", "chunk_receive_timeout is x; it is a time such as 10s, 500ms"),
    ("max_payload_bytes", 0, "max_payload_bytes is 0; it is a whole number from 1 to"),
    ("max_entities", 0, "max_entities is 0; it is a whole number from 1 to 4294967295"),
    ("max_requests", -1, "max_requests is -1; it is a whole number from 1 to 4294967295"),
    ("memory", 65_535, "memory is 65535; it is at least 65536 bytes (64KiB)"),
    ("ca", "/nowhere", "ca is an option of TLS, and no URL is +tls"),
    ("crl", "/nowhere", "crl is an option of TLS, and no URL is +tls"),
    ("cert", "/nowhere", "cert is an option of TLS, and no URL is +tls"),
    ("key", "/nowhere", "key is an option of TLS, and no URL is +tls"),
]
WRONG_CONNECTING = [
    ("connect_timeout", 0, "connect_timeout is 0; it is a number of seconds, at least 1ms"),
    ("connect_timeout", None, "connect_timeout is off; it is a number of seconds"),
    ("server_name", "", "server_name is empty"),
    ("token_file", "", "token_file is empty"),
]
WRONG_LISTENING = [
    ("handshake_timeout", 0, "handshake_timeout is 0; it is a number of seconds, at least 1ms"),
    ("first_byte_timeout", -1, "first_byte_timeout is -1; it is a number of seconds"),
    ("proxy_from", "x", 'proxy_from "x" is not a network such as 10.0.0.0/8 or 2001:db8::/32'),
    ("allow", "1.2.3.4/40", 'allow "1.2.3.4/40" is not a network such as'),
    ("max_connections", 0, "max_connections is 0; it is a whole number from 1 to"),
    ("max_connections_per_address", -1, "max_connections_per_address is -1; it is a whole number"),
    ("max_connection_age", -1, "max_connection_age is -1; it is a number of seconds"),
    ("accept_rate", -1, "accept_rate is -1; it is a whole number from 0 to"),
    ("max_bytes_per_second", "x", "max_bytes_per_second is x; it is a size such as"),
    ("identity", "name", 'identity is name; it is "subject", "san" or "fingerprint"'),
    ("tokens_file", "/nowhere", "tokens_file is an option of TLS, and no URL is +tls"),
    ("client_auth", "maybe", 'client_auth is maybe; it is "none", "optional" or "required"'),
]


@pytest.mark.parametrize("module", [bpmux, aio])
@pytest.mark.parametrize(
    ("call", "option", "value", "text"),
    [
        *(("connect", *row) for row in WRONG + WRONG_CONNECTING),
        *(("listen", *row) for row in WRONG + WRONG_LISTENING),
    ],
)
def test_a_wrong_value_is_named(
    module: Any, call: str, option: str, value: object, text: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        refuse(module, call, URL, **{option: value})


def refuse(module: Any, call: str, url: str, **options: object) -> None:
    """Calls it, and awaits the result: some refusals come only then."""

    async def awaited() -> None:
        made = getattr(module, call)(url, **options)
        if hasattr(made, "__await__"):
            await made

    if module is aio:
        asyncio.run(awaited())
    else:
        getattr(module, call)(url, **options)


def test_every_option_has_a_wrong_value() -> None:
    for call, rows in (("connect", WRONG_CONNECTING), ("listen", WRONG_LISTENING)):
        taken = set(inspect.signature(getattr(bpmux, call)).parameters) - {"url"}
        assert {row[0] for row in WRONG + rows} == taken


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", '"" is not a URL: write protocol://host:port'),
        ("bpmux:/x", '"bpmux:/x" is not a URL'),
        ("bpmux://", "needs a host and a port"),
        ("bpmux://127.0.0.1", "needs a host and a port"),
        ("bpmux://127.0.0.1:1/name", "needs a host and a port"),
        ("bpmux://127.0.0.1:99999", "ports go from 0 to 65535"),
        ("relink://127.0.0.1:1", "relink://127.0.0.1:1 is of relink, not of bpmux"),
        ("bpmux+quic://127.0.0.1:1", "names an unknown transport"),
        ("bpmux+unix://relative", "needs an absolute path"),
        (
            "bpmux://127.0.0.1:1?x=1",
            'there is no option "x": a URL takes options of its',
        ),
        ("bpmux://127.0.0.1:1?ca=/x", "ca is an option of TLS: write protocol+tls://"),
    ],
)
@pytest.mark.parametrize("call", ["connect", "listen"])
def test_a_wrong_url_is_named(call: str, url: str, text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)) as refused:
        refuse(bpmux, call, url)
    assert refused.value.code == "url"


@pytest.mark.parametrize(
    ("call", "options", "text"),
    [
        ("listen", {}, "needs cert and key"),
        ("listen", {"cert": "/no", "key": "/no"}, "cert /no cannot be read"),
        ("connect", {"ca": "/no"}, "ca /no cannot be read"),
        ("connect", {"cert": "/no"}, "cert needs key"),
        ("connect", {"key": "/no"}, "key needs cert"),
        ("connect", {"server_name": "a b"}, 'server_name "a b" is no host name'),
    ],
)
def test_a_wrong_setting_of_tls_is_named(call: str, options: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        refuse(bpmux, call, TLS, **options)
