"""Clients with tokens, over every protocol, and on the command line."""

import asyncio
import json
import struct
from contextlib import closing
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, ackline, wait_until
from test_tls import VERSIONS, dial, read, window

from ackline import AcklineError, UsageError, bpmux, lumberjack, relink
from ackline.aio import bpmux as aio_bpmux

TOKEN = "0123456789abcdef"
OTHER = "fedcba9876543210"


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def served(pki):
    """Options of a listener."""
    cert, key = pki.issue("server", "logs", "DNS:localhost,IP:127.0.0.1")
    return {"cert": cert, "key": key}


def secret(tmp_path: Path, name: str, text: str) -> str:
    file = tmp_path / name
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


@pytest.fixture
def tokens(tmp_path):
    return secret(tmp_path, "tokens", f"web-1 {TOKEN}\n")


@pytest.fixture
def own(tmp_path):
    return secret(tmp_path, "own", TOKEN + "\n")


@pytest.fixture
def wrong(tmp_path):
    return secret(tmp_path, "wrong", OTHER)


def test_a_sender_of_lumberjack_is_known_by_its_token(pki, served, tokens, own):
    url = "lumberjack+tls://127.0.0.1:0"
    with closing(lumberjack.listen(url, tokens_file=tokens, **served)) as listener:
        writer = lumberjack.connect(listener.url, ca=pki.ca, token_file=own)
        writer.try_send([b"{}"])
        received = listener.receive(timeout=DEADLINE)
        received.ack()
        assert (received.sender, received.attributes["tls.token"]) == ("token:web-1", "web-1")
        assert len(writer.close(timeout=DEADLINE)) == 0


def test_a_link_of_relink_belongs_to_the_token_that_made_it(pki, served, tokens, own, tmp_path):
    Path(tokens).write_text(f"web-1 {TOKEN}\nweb-2 {OTHER}\n")
    other = secret(tmp_path, "other", OTHER)
    url = "relink+tls://127.0.0.1:0/orders"
    with closing(relink.listen(url, tokens_file=tokens, **served)) as listener:
        with relink.connect(listener.url, ca=pki.ca, token_file=own) as link:
            at_listener = listener.accept(timeout=DEADLINE)
            assert at_listener.peer.sender == "token:web-1"
            link.send(1, b"kept")
            message = at_listener.receive(timeout=DEADLINE)
            assert message.payload == b"kept"
            at_listener.consume_many([message])
        with relink.connect(listener.url, ca=pki.ca, token_file=other):
            assert listener.accept(timeout=DEADLINE).peer.sender == "token:web-2"


def test_a_peer_of_bpmux_is_known_by_its_token_and_a_wrong_one_is_told(
    pki, served, tokens, own, wrong
):
    async def ask(url: str, token: str) -> bytes:
        async with aio_bpmux.connect(url, ca=pki.ca, token_file=token) as connection:
            return await connection.call(b"question", timeout=DEADLINE)

    url = "bpmux+tls://127.0.0.1:0"
    with closing(bpmux.listen(url, tokens_file=tokens, **served)) as listener:
        with bpmux.connect(listener.url, ca=pki.ca, token_file=own) as connection:
            accepted = listener.accept(timeout=DEADLINE)
            assert accepted.peer.sender == "token:web-1"
            connection.abort()
        with pytest.raises(AcklineError, match="does not know our token"):
            asyncio.run(ask(listener.url, wrong))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_are_as_they_are_documented(pki, served, tokens, version):
    header = bytes.fromhex("0D0A0D0A000D0A515549540A2000")
    tlv = b"\xe0" + struct.pack(">H", len(TOKEN)) + TOKEN.encode()
    url = "lumberjack+tls://127.0.0.1:0"
    with closing(lumberjack.listen(url, tokens_file=tokens, **served)) as listener:
        with dial(listener.url, pki.client(version)) as sock:
            sock.sendall(header + struct.pack(">H", len(tlv)) + tlv + window(b"{}"))
            received = listener.receive(timeout=DEADLINE)
            received.ack()
            assert read(sock, 6) == b"2A\0\0\0\1"
        assert received.sender == "token:web-1"
        with dial(listener.url, pki.client(version)) as sock:
            bad = tlv.replace(b"0", b"1")
            sock.sendall(header + struct.pack(">H", len(bad)) + bad + window(b"{}"))
            code = b"token.wrong"
            refusal = b"\xe1" + struct.pack(">H", len(code)) + code
            expected = header + struct.pack(">H", len(refusal)) + refusal
            assert read(sock, 1_000) == expected
        wait_until(lambda: len(listener.refused()) == 1, "the first refusal is known")
        with dial(listener.url, pki.client(version)) as sock:
            sock.sendall(window(b"{}"))
            assert read(sock, 1) == b""
        wait_until(lambda: len(listener.refused()) == 2, "both refusals are known")
        codes = [code for _, code, _, _ in listener.refused()]
        assert codes == ["token.wrong", "token.missing"]


def test_a_listener_without_tokens_refuses_one(pki, served, own):
    url = "lumberjack+tls://127.0.0.1:0"
    with closing(lumberjack.listen(url, **served)) as listener:
        writer = lumberjack.connect(listener.url, ca=pki.ca, token_file=own)
        writer.try_send([b"{}"])
        wait_until(listener.refused, "the refusal is known")
        assert listener.refused()[0][1] == "lumberjack.unknown_version"
        assert len(writer.close(timeout=0)) == 1


def test_the_command_line_keeps_the_name_and_tells_both_ends_of_a_wrong_token(
    pki, served, tokens, own, wrong, tmp_path, receiver
):
    spool = str(tmp_path / "spool")
    arguments = ["--cert", served["cert"], "--key", served["key"], "--tokens-file", tokens]
    running = receiver("--spool", spool, *arguments, url="lumberjack+tls://127.0.0.1:0")
    file = tmp_path / "events.jsonl"
    file.write_text('{"n":1}\n')
    to = [running.url, str(file), "--ca", pki.ca]
    sent = ackline("send", *to, "--token-file", own)
    assert sent.returncode == 0, sent.stderr
    refused = ackline("send", *to, "--token-file", wrong, "--timeout", "3")
    assert refused.returncode == 1
    assert "token.refused" in refused.stderr
    assert OTHER not in refused.stderr
    assert running.next("refused")["code"] == "token.wrong"
    assert running.stop() == 0
    kept = [
        json.loads(line) for line in ackline("spool", "cat", spool, "--json").stdout.splitlines()
    ]
    assert [one["attributes"]["tls.token"] for one in kept] == ["web-1"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("tokens_file", "web-1", "line 1: is no name and token"),
        ("tokens_file", f"web-1 {TOKEN}\nweb-2 {TOKEN}", "line 2: the token is given twice"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_without_its_tokens(served, tmp_path, name, text, said):
    options = served | {name: secret(tmp_path, "file", text)}
    with pytest.raises(UsageError, match=said) as told:
        lumberjack.listen("lumberjack+tls://127.0.0.1:0", **options)
    assert TOKEN not in str(told.value)


def test_the_option_of_the_other_end_is_told(served, own):
    with pytest.raises(UsageError, match="token_file is for clients"):
        lumberjack.listen(f"lumberjack+tls://127.0.0.1:0?token_file={own}", **served)
    with pytest.raises(UsageError, match="tokens_file is for listeners"):
        bpmux.connect(f"bpmux+tls://127.0.0.1:1?tokens_file={own}")


def test_a_link_of_relink_with_a_wrong_token_says_so(pki, served, tokens, wrong):
    url = "relink+tls://127.0.0.1:0/orders"
    refused = pytest.raises(AcklineError, match="does not know our token")
    with closing(relink.listen(url, tokens_file=tokens, **served)) as listener, refused:
        relink.connect(listener.url, ca=pki.ca, token_file=wrong, timeout=3)


def test_a_token_needs_tls(tokens, own):
    with pytest.raises(UsageError, match="tokens_file is an option of TLS"):
        lumberjack.listen("lumberjack://127.0.0.1:0", tokens_file=tokens)
    with pytest.raises(UsageError, match="token_file is an option of TLS"):
        bpmux.connect("bpmux://127.0.0.1:1", token_file=own)
