"""bpmux over TLS proves identities and refuses those that it must not trust."""

import socket
import ssl
from typing import Any

import pytest
from support.bpmux import OVER, TIME, TLS, URL, connected_to, top_credit, turned_away
from support.certificates import Pki

from ackline import TransportError, UsageError, bpmux


def test_connecting_takes_no_longer_than_it_may() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        # It never answers the handshake of TLS.
        url = f"bpmux+tls://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(TransportError, match="handshake did not end within"):
            bpmux.connect(url, connect_timeout=0.1)


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
