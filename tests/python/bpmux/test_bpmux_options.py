"""Every option of bpmux's connections and listeners: its effect, and its refusals."""

import asyncio
import contextlib
import inspect
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from support.certificates import Pki
from support.commands import wait_until
from support.options import assert_is_default

from ackline import LinkClosed, LinkTimeout, ProtocolError, TransportError, UsageError, bpmux
from ackline.aio import bpmux as aio
from ackline.cli.options import options_of

TIME = 20
URL = "bpmux://127.0.0.1:0"
TLS = "bpmux+tls://127.0.0.1:0"
OVER = (LinkClosed, ProtocolError, TransportError)


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


class Raw:
    """A raw peer that shows the bytes on the wire: by itself it sends nothing."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        stream.settimeout(TIME)

    def reads(self, count: int) -> bytes:
        """The next bytes; fewer at the end."""
        got = b""
        while len(got) < count and (more := self.stream.recv(count - len(got))):
            got += more
        return got

    def is_ended(self) -> bool:
        """Reads to the end, which must come."""
        try:
            while self.stream.recv(65_536):
                pass
        except ConnectionError:
            pass
        return True


@contextmanager
def connected_to(url: str) -> Iterator[Raw]:
    host, _, port = url.partition("://")[2].partition(":")
    with socket.create_connection((host, int(port)), TIME) as stream:
        yield Raw(stream)


@contextmanager
def raw_pair(**options: Any) -> Iterator[tuple[bpmux.Connection, Raw]]:
    """A connector's end with these options, and a raw peer that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIME)
        near = bpmux.connect(f"bpmux://127.0.0.1:{server.getsockname()[1]}", **options)
        stream, _ = server.accept()
        with stream:
            yield near, Raw(stream)
            near.abort()


@contextmanager
def pair(
    listens: dict[str, Any] | None = None, url: str = URL, **connects: Any
) -> Iterator[tuple[bpmux.Connection, bpmux.Connection]]:
    with bpmux.listen(url, **(listens or {})) as listener:
        near = bpmux.connect(listener.url, **connects)
        far = listener.accept(timeout=TIME)
    try:
        yield near, far
    finally:
        near.abort()
        far.abort()


def is_ended(connection: bpmux.Connection) -> bool:
    connection.wait_ended(timeout=TIME)
    return connection.is_ended


def top_credit(amount: int) -> bytes:
    """The chunk that gives the top-level so many bytes of credit, 255 at the most."""
    return bytes([0xEC, amount])


PING, PONG = b"\xd3", b"\xdb"


def test_manual_credit_gives_none_and_the_floor_is_given_first() -> None:
    with raw_pair(credit="manual", ping_after=0.01, pong_timeout=None) as (near, raw):
        # Nothing comes before the first ping.
        assert raw.reads(1) == PING
        near.stream.grant_credit(7)
        raw.stream.sendall(PONG)
        assert raw.reads(2) == top_credit(7)
    with raw_pair(credit_floor=200) as (_, raw):
        assert raw.reads(2) == top_credit(200)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"credit_ceiling": 4096}, 4096),
        ({"credit_budget": 0}, 4096),
        ({"credit_floor": 1000, "credit_ceiling": 8000}, 8000),
        ({"credit_budget": 12_288}, 16_384),
    ],
)
def test_a_window_has_a_ceiling_and_a_budget(options: dict[str, int], most: int) -> None:
    """Messages that the peer may send before any is taken: all that come without a reader."""
    with pair(options) as (near, far):
        sink = near.open_sink()
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        # A reader that keeps up lets the window grow up to its limit.
        for _ in range(200):
            sink.send(bytes(most), timeout=TIME)
            assert opened.stream.receive(timeout=TIME) == bytes(most)
        before = far.stats()["bytes_received"]
        sink.send_many([bytes(100)] * 2000, timeout=TIME)
        with pytest.raises(LinkTimeout):
            sink.flush(timeout=0.2)
        assert far.stats()["bytes_received"] - before <= most


def test_chunks_have_their_size() -> None:
    with raw_pair(credit="manual", chunk_size=10) as (near, raw):
        raw.stream.sendall(top_credit(200))
        near.sink.send(b"x" * 25)
        # Its length, then parts of ten bytes and the rest.
        parts = b"\x6c\x0a" + b"x" * 10
        assert raw.reads(33) == b"\xfc\x19" + parts + parts + b"\x6c\x05" + b"x" * 5


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_so_many_bytes_may_wait_on_a_sink(side: str) -> None:
    own, manual = {"send_bytes": 100}, {"credit": "manual"}
    listens, connects = (manual, own) if side == "connect" else (own, manual)
    with pair(listens, **connects) as (near, far):
        sender = near if side == "connect" else far
        assert sender.sink.try_send(bytes(60))
        assert sender.sink.try_send(bytes(40))
        assert not sender.sink.try_send(b"x")


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_a_silent_peer_is_pinged_and_given_up(side: str) -> None:
    options = {"credit": "manual", "ping_after": 0.02, "pong_timeout": 0.02}
    if side == "connect":
        with raw_pair(**options) as (near, raw):
            assert raw.reads(1) == PING
            assert is_ended(near)
        return
    with bpmux.listen(URL, **options) as listener, connected_to(listener.url) as raw:
        far = listener.accept(timeout=TIME)
        assert raw.reads(1) == PING
        with pytest.raises(OVER) as told:
            far.accept(timeout=TIME)
        assert "pong" in str(told.value)


@pytest.mark.alone
def test_a_peer_that_answers_is_kept() -> None:
    with raw_pair(credit="manual", ping_after=0.02, pong_timeout=TIME) as (near, raw):
        begin = time.monotonic()
        for _ in range(5):
            assert raw.reads(1) == PING
            raw.stream.sendall(PONG)
        assert not near.is_ended
        # The default is eleven seconds for each.
        assert time.monotonic() - begin < 40


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_the_rest_of_a_chunk_must_come(side: str) -> None:
    options = {"chunk_receive_timeout": 0.05, "ping_after": None}
    if side == "connect":
        with raw_pair(**options) as (near, raw):
            raw.stream.sendall(b"\x80")
            assert raw.is_ended()
            assert is_ended(near)
        return
    with bpmux.listen(URL, **options) as listener, connected_to(listener.url) as raw:
        raw.stream.sendall(b"\x80")
        far = listener.accept(timeout=TIME)
        with pytest.raises(OVER) as told:
            far.accept(timeout=TIME)
        assert "chunk" in str(told.value)


@pytest.mark.parametrize("side", ["connect", "listen"])
@pytest.mark.parametrize(
    ("option", "most"), [("max_payload_bytes", 10), ("max_entities", 1), ("max_requests", 1)]
)
def test_a_limit_of_the_peer_is_enforced(side: str, option: str, most: int) -> None:
    own = {option: most}
    with pair(own if side == "listen" else {}, **(own if side == "connect" else {})) as ends:
        limited, other = ends if side == "connect" else reversed(ends)
        within(other, option, most)
        KEPT.append(limited.accept(timeout=TIME))
        # It may be over before the call returns.
        with contextlib.suppress(*OVER):
            within(other, option, most + 1)
        with pytest.raises(ProtocolError) as broken:
            limited.accept(timeout=TIME)
        assert broken.value.code == "bpmux.limit_exceeded"
        assert f"{most + 1} is above {most} ({option})" in str(broken.value)


def within(end: bpmux.Connection, option: str, value: int) -> None:
    """Opens an entity of that size."""
    if option == "max_payload_bytes":
        KEPT.append(end.request(bytes(value)))
    elif option == "max_entities":
        KEPT.append(end.open_sink())
    else:
        KEPT.append(end.request(b""))


def keep(begin: Callable[[], object]) -> None:
    """Opens entities without an end, and keeps them."""
    while True:
        KEPT.append(begin())


KEPT: list[object] = []
"""A handle that is dropped ends its entity."""


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_memory_bounds_received_messages_that_are_not_taken(side: str) -> None:
    own = {"memory": 65_536, "credit": "manual"}
    queue = {"send_bytes": 9 << 20}
    connects, listens = (own, queue) if side == "connect" else (queue, own)
    with pair(listens, **connects) as ends:
        reader, writer = ends if side == "connect" else reversed(ends)
        reader.stream.grant_credit(8 << 20)
        writer.sink.send_many([bytes(1024)] * 8000, timeout=TIME)
        for taken in range(8000):
            # Above that come the bytes that are free of charge, and those of one read.
            assert reader.stats()["bytes_received"] - 1024 * taken < 512 << 10
            assert reader.stream.receive(timeout=TIME) == bytes(1024)


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_memory_bounds_the_open_entities_of_the_peer(side: str) -> None:
    # Entities may take a further quarter; one connection has half of that, and some free bytes.
    own, most = {"memory": 1 << 20}, (1 << 20) // 4 // 2 // 1024 + 64
    with pair(own if side == "listen" else {}, **(own if side == "connect" else {})) as ends:
        limited, other = ends if side == "connect" else reversed(ends)
        for _ in range(most):
            KEPT.append(other.open_sink())
            KEPT.append(limited.accept(timeout=TIME))
        with contextlib.suppress(*OVER):
            KEPT.append(other.open_sink())
        with pytest.raises(ProtocolError) as broken:
            limited.accept(timeout=TIME)
        assert broken.value.code == "bpmux.limit_exceeded"
        assert "take 132096 bytes, above 131072: half of the part" in str(broken.value)
        assert str(broken.value).split(" (")[0].endswith("of a quarter of memory")


def test_others_go_on_where_one_has_opened_too_much_and_its_memory_is_freed() -> None:
    with bpmux.listen(URL, memory=1 << 20) as listener:
        for _ in range(3):
            near = bpmux.connect(listener.url)
            far = listener.accept(timeout=TIME)
            healthy = bpmux.connect(listener.url)
            other = listener.accept(timeout=TIME)
            with pytest.raises(OVER):
                keep(near.open_sink)
            with pytest.raises(ProtocolError):
                keep(partial(far.accept, timeout=TIME))
            asked = healthy.request(b"still there?")
            incoming = other.accept(timeout=TIME)
            assert isinstance(incoming, bpmux.Request)
            incoming.respond(b"yes")
            assert asked.response(timeout=TIME) == b"yes"
            KEPT.clear()
            for one in (near, far, healthy, other):
                one.abort()


@pytest.mark.parametrize("side", ["connect", "listen"])
def test_a_payload_has_an_eighth_of_the_memory(side: str) -> None:
    own = {"memory": 1 << 20}
    with pair(own if side == "listen" else {}, **(own if side == "connect" else {})) as ends:
        limited, other = ends if side == "connect" else reversed(ends)
        asked = other.request(bytes(1 << 17))
        incoming = limited.accept(timeout=TIME)
        assert isinstance(incoming, bpmux.Request)
        incoming.respond(b"")
        assert asked.response(timeout=TIME) == b""
        with contextlib.suppress(*OVER):
            KEPT.append(other.request(bytes((1 << 17) + 1)))
        with pytest.raises(ProtocolError) as broken:
            limited.accept(timeout=TIME)
        assert broken.value.code == "bpmux.limit_exceeded"
        assert "a payload would take 131073 bytes, above 131072: an eighth of memory" in str(
            broken.value
        )


def test_connecting_takes_no_longer_than_it_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # It never answers the handshake of TLS.
        url = f"bpmux+tls://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(TransportError, match="handshake did not end within"):
            bpmux.connect(url, connect_timeout=0.1)


def turned_away(listener: bpmux.Listener, count: int = 1) -> dict[str, int]:
    """The refused connections, once so many were refused."""

    def told() -> dict[str, int]:
        refused: dict[str, int] = listener.stats()["turned_away"]
        return refused

    wait_until(lambda: sum(told().values()) >= count, "they are turned away")
    return told()


def test_a_first_byte_and_a_handshake_must_come(site: Pki) -> None:
    own = {"cert": site.path("server.pem"), "key": site.path("server.key")}
    with (
        bpmux.listen(TLS, first_byte_timeout=0.05, **own) as listener,
        connected_to(listener.url) as raw,
    ):
        assert raw.is_ended()
        assert turned_away(listener) == {"link.timeout": 1}
    with (
        bpmux.listen(TLS, handshake_timeout=0.05, **own) as listener,
        connected_to(listener.url) as raw,
    ):
        raw.stream.sendall(b"\x16")
        assert raw.is_ended()
        assert turned_away(listener) == {"tls.timeout": 1}


def test_a_proxy_gives_the_address_of_the_client() -> None:
    with bpmux.listen(URL, proxy_from="127.0.0.1") as listener, connected_to(listener.url) as raw:
        raw.stream.sendall(b"PROXY TCP4 192.0.2.7 192.0.2.1 1234 7000\r\n")
        far = listener.accept(timeout=TIME)
        assert far.peer is not None
        assert far.peer.name == "192.0.2.7:1234"
        with connected_to(listener.url) as other:
            other.stream.sendall(b"\x80\x01\x00")
            assert other.is_ended()
        assert turned_away(listener) == {"proxy.missing": 1}


def test_a_peer_that_is_not_allowed_is_turned_away() -> None:
    with (
        bpmux.listen(URL, allow="192.0.2.0/24") as listener,
        connected_to(listener.url) as raw,
    ):
        assert raw.is_ended()
        assert turned_away(listener) == {"link.not_allowed": 1}
    with pair({"allow": "127.0.0.0/8"}) as (near, far):
        near.sink.send(b"x")
        assert far.stream.receive(timeout=TIME) == b"x"


@pytest.mark.parametrize("option", ["max_connections", "max_connections_per_address"])
def test_so_many_connections_at_once(option: str) -> None:
    with bpmux.listen(URL, **{option: 1}) as listener:
        first = bpmux.connect(listener.url)
        far = listener.accept(timeout=TIME)
        with connected_to(listener.url) as raw:
            assert raw.is_ended()
        assert list(turned_away(listener).values()) == [1]
        first.abort()
        far.abort()
        again: list[bpmux.Connection] = []

        def is_admitted() -> bool:
            again.append(bpmux.connect(listener.url))
            try:
                again[-1].ping(timeout=TIME)
            except OVER:
                return False
            return True

        wait_until(is_admitted, "there is room again")


def test_a_connection_has_an_age() -> None:
    with pair({"max_connection_age": 2}) as (near, far):
        sink = near.open_sink(b"kept")
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        # It ends in good order: nothing new is begun, and open entities come to their end.
        assert near.accept(timeout=TIME) is None
        sink.send(b"last")
        sink.close(timeout=TIME)
        assert list(opened.stream) == [b"last"]
        near.shutdown(timeout=TIME)
        assert is_ended(far)


def test_so_many_are_accepted_in_a_second() -> None:
    with bpmux.listen(URL, accept_rate=10) as listener:
        begin = time.monotonic()
        ends = [bpmux.connect(listener.url) for _ in range(15)]
        for end in ends:
            end.ping(timeout=TIME)
        # Ten may come at once.
        assert time.monotonic() - begin > 0.3


def test_so_many_bytes_are_read_in_a_second() -> None:
    with pair({"max_bytes_per_second": 100_000}, send_bytes=1 << 20) as (near, far):
        begin = time.monotonic()
        near.sink.send_many([bytes(1000)] * 200)
        got = 0
        while got < 200:
            got += len(far.stream.receive_many(timeout=TIME))
        assert time.monotonic() - begin > 0.5


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """An authority with certificates for a server and a client, and another authority."""
    pki = Pki(tmp_path_factory.mktemp("pki"))
    pki.issue("server", "server", "DNS:localhost,IP:127.0.0.1")
    pki.issue("other", "other", "DNS:other.example")
    pki.issue("client", "client-1", "DNS:client-1.example")
    (pki.directory / "stranger").mkdir()
    Pki(pki.directory / "stranger").issue("client", "client-2", "DNS:client-2.example")
    return pki


def files(site: Pki, name: str) -> dict[str, str]:
    return {"cert": site.path(f"{name}.pem"), "key": site.path(f"{name}.key")}


def test_a_certificate_is_trusted_by_its_authority_and_name(site: Pki) -> None:
    with bpmux.listen(TLS, **files(site, "server")) as listener:
        with bpmux.connect(listener.url, ca=site.ca) as near:
            far = listener.accept(timeout=TIME)
            near.sink.send(b"x")
            assert far.stream.receive(timeout=TIME) == b"x"
            assert far.peer is not None
            assert far.peer.sender == "127.0.0.1"
            assert sorted(far.peer.attributes) == ["tls.cipher", "tls.version"]
        with pytest.raises(TransportError, match="certificate"):
            bpmux.connect(listener.url, ca=site.path("stranger/ca.pem"))
        with pytest.raises(TransportError, match=r"certificate.*other\.example"):
            bpmux.connect(listener.url, ca=site.ca, server_name="other.example")
    with bpmux.listen(TLS, **files(site, "other")) as listener:
        with pytest.raises(TransportError):
            bpmux.connect(listener.url, ca=site.ca)
        bpmux.connect(listener.url, ca=site.ca, server_name="other.example").abort()


def test_both_ends_prove_their_identity(site: Pki) -> None:
    with bpmux.listen(TLS, ca=site.ca, **files(site, "server")) as listener:
        with bpmux.connect(listener.url, ca=site.ca, **files(site, "client")) as near:
            far = listener.accept(timeout=TIME)
            assert far.peer is not None
            assert far.peer.sender == "tls:O=Example, CN=client-1; issuer CN=test ca"
            assert far.peer.attributes["tls.san"] == "DNS:client-1.example"
            near.sink.send(b"x")
            assert far.stream.receive(timeout=TIME) == b"x"
        for options in ({}, files(site, "stranger/client")):
            assert is_refused(listener.url, ca=site.ca, **options)
        assert turned_away(listener, 2) == {"tls.certificate": 2}


def is_refused(url: str, **options: Any) -> bool:
    """Whether a connector gets this error: when it connects, or at its connection's end."""
    try:
        near = bpmux.connect(url, **options)
    except TransportError:
        return True
    with pytest.raises((*OVER, UsageError)):
        near.accept(timeout=TIME)
    return True


def test_whether_peers_must_have_a_certificate(site: Pki) -> None:
    own = files(site, "server")
    with bpmux.listen(TLS, client_auth="optional", ca=site.ca, **own) as listener:
        with bpmux.connect(listener.url, ca=site.ca):
            far = listener.accept(timeout=TIME)
            assert far.peer is not None
            assert far.peer.sender == "127.0.0.1"
        with bpmux.connect(listener.url, ca=site.ca, **files(site, "client")):
            far = listener.accept(timeout=TIME)
            assert far.peer is not None
            assert far.peer.sender == "tls:O=Example, CN=client-1; issuer CN=test ca"
        assert is_refused(listener.url, ca=site.ca, **files(site, "stranger/client"))
    with (
        bpmux.listen(TLS, client_auth="none", **own) as listener,
        bpmux.connect(listener.url, ca=site.ca, **files(site, "client")),
    ):
        far = listener.accept(timeout=TIME)
        assert far.peer is not None
        assert far.peer.sender == "127.0.0.1"
    with pytest.raises(UsageError, match="client_auth none leaves a listener's ca without use"):
        bpmux.listen(TLS, client_auth="none", ca=site.ca, **own)


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


def test_openssl_is_served(site: Pki) -> None:
    """Bytes of another implementation of TLS are read, and it can read ours."""
    with bpmux.listen(TLS, credit="manual", **files(site, "server")) as listener:
        port = int(listener.url.rpartition(":")[2])
        context = site.client(ssl.TLSVersion.TLSv1_3)
        with (
            socket.create_connection(("127.0.0.1", port), TIME) as stream,
            context.wrap_socket(stream, server_hostname="localhost") as secured,
        ):
            far = listener.accept(timeout=TIME)
            far.stream.grant_credit(9)
            assert secured.recv(2) == top_credit(9)
            secured.sendall(b"\x6c\x02hi")
            assert far.stream.receive(timeout=TIME) == b"hi"


def test_plain_and_secured_do_not_mix(site: Pki) -> None:
    with bpmux.listen(URL) as plain, pytest.raises(TransportError):
        bpmux.connect(plain.url.replace("bpmux:", "bpmux+tls:"), ca=site.ca)
    with bpmux.listen(TLS, **files(site, "server")) as secured:
        near = bpmux.connect(secured.url.replace("+tls", ""))
        with pytest.raises(OVER):
            near.accept(timeout=TIME)
        assert turned_away(secured) == {"tls.plaintext": 1}


def test_many_messages_end_behind_the_one_with_which_they_have_256_kib() -> None:
    sizes = [100 << 10, 100 << 10, 60 << 10, 1, 400 << 10, 2]
    with pair() as (near, far), near.open_sink(timeout=TIME) as sink:
        opened = far.accept(timeout=TIME)
        assert isinstance(opened, bpmux.OpenedSink)
        opened.stream.grant_credit(1 << 20)
        for size in sizes:
            sink.send(bytes(size), timeout=TIME)
        sink.flush(timeout=TIME)
        near.ping(timeout=TIME)
        taken = [opened.stream.try_receive_many() for _ in range(3)]
        assert [[len(one) for one in many or ()] for many in taken] == [sizes[:3], sizes[3:5], [2]]
        assert len(opened.stream.try_receive_many() or ()) == 0
