"""TLS against OpenSSL, by Python's ssl: as client, as server, and on the command line."""

import asyncio
import json
import os
import socket
import ssl
import struct
import threading
from contextlib import closing
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, ackline, wait_until

from ackline import TransportError, UsageError, lumberjack
from ackline.aio import lumberjack as aio

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def own(pki):
    return pki.issue("server", "logs", "DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="module")
def web(pki):
    return pki.issue("web", "web-1", "DNS:web-1.example,URI:spiffe://example/web-1")


@pytest.fixture
def events(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_text("{}\n")
    return str(file)


@pytest.fixture
def listen(own):
    """Starts listeners with this certificate; ends them."""
    started = []

    def start(**options):
        cert, key = own
        url = "lumberjack+tls://127.0.0.1:0"
        started.append(lumberjack.listen(url, cert=cert, key=key, **options))
        return started[-1]

    yield start
    for listener in started:
        listener.close()


def port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def dial(url: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port(url)), timeout=DEADLINE)
    return context.wrap_socket(plain, server_hostname="localhost")


def window(*events: bytes) -> bytes:
    frames = [
        b"2J" + struct.pack(">II", number, len(event)) + event
        for number, event in enumerate(events, 1)
    ]
    return b"2W" + struct.pack(">I", len(events)) + b"".join(frames)


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := sock.recv(count - len(data))):
        data += more
    return data


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_of_openssl_is_served_and_known_by_its_certificate(pki, web, listen, version):
    listener = listen(ca=pki.ca)
    context = pki.client(version, web)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with dial(listener.url, context) as sock:
        sock.sendall(window(b'{"n":1}', b"x" * 100_000))
        received = listener.receive(timeout=DEADLINE)
        assert received.events == [b'{"n":1}', b"x" * 100_000]
        received.ack()
        assert read(sock, 6) == b"2A\0\0\0\2"
        assert sock.selected_alpn_protocol() is None
        # A ticket that nobody reads would turn a mere writer's close into a reset.
        assert not sock.session or not sock.session.has_ticket
        assert sock.version() == {VERSIONS[0]: "TLSv1.2", VERSIONS[1]: "TLSv1.3"}[version]
    assert received.sender == "tls:O=Example, CN=web-1; issuer CN=test ca"
    attributes = received.attributes
    assert attributes["tls.subject"] == "O=Example, CN=web-1"
    assert attributes["tls.san"] == "DNS:web-1.example,URI:spiffe://example/web-1"
    assert len(attributes["tls.fingerprint"]) == 64
    assert attributes["tls.version"] == version.name
    assert attributes["tls.cipher"]


def test_a_client_without_a_certificate_is_refused_by_an_alert(pki, listen):
    listener = listen(ca=pki.ca)
    refused = pytest.raises(ssl.SSLError, match="certificate required")
    with dial(listener.url, pki.client(VERSIONS[1])) as sock, refused:
        read(sock, 6)
    wait_until(listener.refused, "the refusal is known")
    peer, code, _, message = listener.refused()[0]
    assert peer.startswith("127.0.0.1:")
    assert (code, "it sent none" in message) == ("tls.certificate", True)


def test_an_optional_certificate_may_be_missing(pki, listen):
    listener = listen(ca=pki.ca, client_auth="optional")
    with dial(listener.url, pki.client(VERSIONS[1])) as sock:
        sock.sendall(window(b"{}"))
        received = listener.receive(timeout=DEADLINE)
    assert received.sender == "127.0.0.1"
    assert sorted(received.attributes) == ["tls.cipher", "tls.version"]


def test_a_client_that_does_not_trust_us_says_so_and_so_do_we(listen):
    listener = listen()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        dial(listener.url, context)
    wait_until(listener.refused, "the refusal is known")
    _, code, _, message = listener.refused()[0]
    assert code == "tls.handshake"
    assert "unknown_ca (48)" in message


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_openssl_with_nothing_above_tls_1_1_is_refused(listen, pki):
    context = pki.client(ssl.TLSVersion.TLSv1_3)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    listener = listen()
    with pytest.raises(ssl.SSLError):
        dial(listener.url, context)
    wait_until(listener.refused, "the refusal is known")
    assert "no TLS 1.2 or 1.3 in common" in listener.refused()[0][3]


class Server:
    """A server of OpenSSL that acknowledges one window of one connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.received = b""
        self.subject: dict[str, str] = {}
        self.alpn: str | None = "no handshake"
        self._context = context
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        with closing(self._listener), self._listener.accept()[0] as plain:
            plain.settimeout(DEADLINE)
            try:
                sock = self._context.wrap_socket(plain, server_side=True)
            except (ssl.SSLError, ConnectionError):
                return
            with sock:
                self.alpn = sock.selected_alpn_protocol()
                certificate = sock.getpeercert() or {}
                self.subject = dict(pair[0] for pair in certificate.get("subject", ()))
                head = read(sock, 6)
                for _ in range(struct.unpack(">I", head[2:])[0]):
                    _, length = struct.unpack(">II", read(sock, 10)[2:])
                    self.received += read(sock, length)
                sock.sendall(b"2A" + head[2:])
                read(sock, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_of_openssl_receives_the_events(pki, own, web, version):
    context = pki.server(version, own, asks=True)
    context.set_alpn_protocols(["h2", "http/1.1"])
    server = Server(context)
    cert, key = web
    url = f"lumberjack+tls://localhost:{server.port}?ca={pki.ca}&cert={cert}&key={key}"
    events = [f'{{"n":{n},"text":"{"ä" * 500}"}}'.encode() for n in range(1000)]
    with lumberjack.connect(url, compression=None) as writer:
        writer.send(events, timeout=DEADLINE)
        assert writer.unacknowledged == 0
    assert server.received == b"".join(events)
    assert server.subject["commonName"] == "web-1"
    assert server.alpn is None


def test_the_systems_roots_are_trusted_where_no_ca_is_given(pki, own, events):
    """OpenSSL's variables name the system's roots: for one process, an authority of our own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT_")}
    plain = ("--compression", "0", "--timeout", "5")
    for roots, code in [({"SSL_CERT_FILE": pki.ca}, 0), ({}, 1)]:
        server = Server(pki.server(VERSIONS[1], own))
        url = f"lumberjack+tls://localhost:{server.port}"
        sent = ackline("send", url, events, *plain, env=env | roots)
        assert sent.returncode == code, sent.stderr
        assert ("tls.certificate" in sent.stderr) == (code == 1)
        server.thread.join(DEADLINE)
        assert server.received == (b"{}" if code == 0 else b"")


def test_a_server_of_another_name_or_authority_is_not_sent_to(pki, own, tmp_path):
    for query in [f"ca={pki.ca}&server_name=other", f"ca={Pki(tmp_path).ca}"]:
        server = Server(pki.server(VERSIONS[1], own))
        url = f"lumberjack+tls://127.0.0.1:{server.port}?{query}"
        with pytest.raises(TransportError, match="certificate is not accepted"):
            lumberjack.connect(url, connect_timeout=5.0)
        server.thread.join(DEADLINE)
        assert server.received == b""


def test_asyncio_has_the_same_options(pki, own, web):
    async def exchange() -> tuple[list[bytes], str]:
        cert, key = own
        url = "lumberjack+tls://127.0.0.1:0"
        listening = aio.listen(url, ca=pki.ca, cert=cert, key=key)
        query = f"?ca={pki.ca}&cert={web[0]}&key={web[1]}"
        async with listening as listener, aio.connect(listener.url + query) as writer:
            sending = asyncio.create_task(writer.send([b"{}"], timeout=DEADLINE))
            received = await listener.receive(timeout=DEADLINE)
            received.ack()
            await sending
            return received.events, received.sender

    assert asyncio.run(exchange()) == ([b"{}"], "tls:O=Example, CN=web-1; issuer CN=test ca")


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("lumberjack+tls://127.0.0.1:0", {}, "needs cert and key"),
        ("lumberjack+tls://127.0.0.1:0", {"cert": "/no", "key": "/no"}, "cert /no cannot be read"),
        ("lumberjack+tls://127.0.0.1:0", {"client_auth": "maybe"}, "client_auth is maybe; it is"),
        ("lumberjack://127.0.0.1:0", {"cert": "/no"}, "cert is an option of TLS"),
        ("lumberjack://127.0.0.1:0?cert=/no", {}, "cert is an option of TLS"),
        ("lumberjack+tls://127.0.0.1:0?crt=/no", {}, "there is no option"),
        ("lumberjack+tls://127.0.0.1:0,127.0.0.1:1?cert=/no", {}, "several hosts"),
    ],
)
def test_wrong_options_are_named_before_anything_listens(url, options, said):
    with pytest.raises(UsageError, match=said):
        lumberjack.listen(url, **options)


def test_the_command_line_keeps_the_identity_beside_the_events(pki, own, web, tmp_path, receiver):
    spool = str(tmp_path / "spool")
    cert, key = own
    running = receiver(
        "--spool", spool, "--ca", pki.ca, "--cert", cert, "--key", key,
        url="lumberjack+tls://127.0.0.1:0",
    )  # fmt: skip
    assert running.url == f"lumberjack+tls://127.0.0.1:{port(running.url)}"
    file = tmp_path / "events.jsonl"
    file.write_text('{"n":1}\n{"n":2}\n')
    query = f"?ca={pki.ca}&cert={web[0]}&key={web[1]}"
    sent = ackline("send", running.url + query, str(file))
    assert sent.returncode == 0, sent.stderr
    nobody = ackline("send", f"{running.url}?ca={pki.ca}", str(file), "--timeout", "5")
    assert nobody.returncode == 1
    refused = running.next("refused")
    assert (refused["code"], refused["protocol"]) == ("tls.certificate", "lumberjack")
    assert running.stop() == 0
    kept = ackline("spool", "cat", spool, "--json").stdout.splitlines()
    attributes = json.loads(kept[0])["attributes"]
    assert attributes["tls.subject"] == "O=Example, CN=web-1"
    assert attributes["tls.san"] == "DNS:web-1.example,URI:spiffe://example/web-1"
    assert attributes["tls.version"] == "TLSv1_3"


def test_a_certificate_is_changed_without_a_restart(pki, own, tmp_path, receiver):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    first, second = own, pki.issue("second", "second", "DNS:localhost")
    cert.write_bytes(Path(first[0]).read_bytes())
    key.write_bytes(Path(first[1]).read_bytes())
    running = receiver(
        "--discard", "--cert", str(cert), "--key", str(key), url="lumberjack+tls://127.0.0.1:0"
    )

    def name() -> str:
        with dial(running.url, pki.client(VERSIONS[1])) as sock:
            return dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"]

    assert name() == "logs"
    cert.write_bytes(Path(second[0]).read_bytes())
    assert name() == "logs"
    key.write_bytes(Path(second[1]).read_bytes())
    assert name() == "second"
    assert running.stop() == 0


def refusal(running, sender: str, events: str) -> tuple[dict[str, object], str]:
    """The messages of receiver and sender about each other."""
    sent = ackline("send", sender, events, "--timeout", "5")
    assert sent.returncode == 1
    return running.next("refused"), sent.stderr


def test_plain_bytes_on_a_port_of_tls_are_named_on_both_ends(own, receiver, events):
    cert, key = own
    url = "lumberjack+tls://127.0.0.1:0"
    running = receiver("--discard", "--cert", cert, "--key", key, url=url)
    line, said = refusal(running, running.url.replace("+tls", ""), events)
    assert line["code"] == "tls.plaintext"
    assert "Lumberjack version 2" in str(line["message"])
    assert "the peer takes TLS" in said


def test_tls_on_a_plain_port_is_named_on_both_ends(pki, receiver, events):
    running = receiver("--discard")
    sender = running.url.replace("lumberjack:", "lumberjack+tls:") + f"?ca={pki.ca}"
    line, said = refusal(running, sender, events)
    assert line["code"] == "tls.unexpected"
    assert "the peer answered with bytes that are not TLS" in said
    # OpenSSL has a name for it.
    with pytest.raises(ssl.SSLError, match=r"(?i)wrong.version.number"):
        dial(running.url, pki.client(VERSIONS[1]))


def test_both_ends_log_an_alert_with_its_reason(pki, own, receiver, events):
    cert, key = own
    url = "lumberjack+tls://127.0.0.1:0"
    running = receiver("--discard", "--cert", cert, "--key", key, "--ca", pki.ca, url=url)
    line, said = refusal(running, f"{running.url}?ca={pki.ca}", events)
    assert (line["code"], line["message"]) == (
        "tls.certificate",
        "the peer's certificate is not accepted: it sent none, and client_auth is required",
    )
    assert "tls.handshake" in said
    assert "certificate_required (116): it wants a certificate: set cert and key" in said


def logged(caplog, code: str) -> list[tuple[str, str]]:
    records = [one for one in caplog.records if f"code={code}" in one.getMessage()]
    return [(one.levelname, one.getMessage()) for one in records]


def test_files_that_change_are_told_once(pki, own, tmp_path, caplog):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(Path(own[0]).read_bytes())
    key.write_bytes(Path(own[1]).read_bytes())
    url = "lumberjack+tls://127.0.0.1:0"
    listening = lumberjack.listen(url, cert=str(cert), key=str(key))
    with caplog.at_level("INFO", logger="ackline"), listening as listener:
        key.write_text("half a k")
        for _ in range(3):
            dial(listener.url, pki.client(VERSIONS[1])).close()
        wait_until(lambda: logged(caplog, "tls.reload"), "the broken file is told")
        key.write_bytes(Path(own[1]).read_bytes())
        dial(listener.url, pki.client(VERSIONS[1])).close()
        wait_until(lambda: len(logged(caplog, "tls.reload")) > 1, "the good file is told")
    (broken, good) = logged(caplog, "tls.reload")
    assert broken[0] == "ERROR"
    assert f"key {key} holds no private key" in broken[1]
    assert good[0] == "INFO"
    assert str(key) in good[1]


def test_a_certificate_that_ends_soon_is_told(pki, own, caplog):
    soon = pki.issue("soon", "soon", "DNS:localhost", days=3)
    url = "lumberjack+tls://127.0.0.1:0"
    for cert, key in [own, soon]:
        lumberjack.listen(url, cert=cert, key=key).close()
    wait_until(lambda: logged(caplog, "tls.expiry"), "the end is told")
    ((level, message),) = logged(caplog, "tls.expiry")
    assert level == "WARNING"
    assert "CN=soon" in message


def test_a_session_that_breaks_later_is_told(pki, listen, caplog):
    """OpenSSL sends an invalid record instead of its next one."""
    listener = listen()
    with dial(listener.url, pki.client(VERSIONS[1])) as sock:
        with socket.socket(fileno=socket.dup(sock.fileno())) as plain:
            plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
        wait_until(lambda: logged(caplog, "tls.handshake"), "the break is told")
    ((level, message),) = logged(caplog, "tls.handshake")
    assert (level, "peer=127.0.0.1:" in message) == ("WARNING", True)
    assert "decrypt" in message


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lumberjack://127.0.0.1:0", "--cert", "x"], "--cert is an option of TLS"),
        (["lumberjack+tls://127.0.0.1:0", "--cert", "/no", "--key", "/no"], "--cert /no cannot be"),
        (["lumberjack+tls://127.0.0.1:0"], "needs cert and key"),
        (["lumberjack+tls://127.0.0.1:0", "--client-auth", "maybe"], "--client-auth is"),
    ],
)
def test_wrong_options_end_the_command_line_with_2(arguments, said):
    ended = ackline("receive", "--discard", *arguments)
    assert ended.returncode == 2
    assert said in ended.stderr
