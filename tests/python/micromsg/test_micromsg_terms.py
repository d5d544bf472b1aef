"""The agreement of MicroMsg2 on extensions by the application, and the formats of payloads."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.commands import wait_until
from support.micromsg_pair import NOW, TIME, URL, handshake, pair, raw_peer

import ackline.aio.micromsg as asynchronous
from ackline import LinkClosed, LinkTimeout, PeerFailed, UsageError, micromsg, sansio
from ackline.micromsg import Codec, Extension


def test_both_applications_decide_on_the_extensions() -> None:
    with (
        micromsg.listen(URL, negotiation="manual", name="server") as listener,
        ThreadPoolExecutor(1) as pool,
    ):
        offer = "batch-ack:max-count=50;x-trace:to=a%2Fb,level=2;x-other"
        connecting = pool.submit(
            micromsg.connect, listener.url, name="client", negotiation="manual",
            required_extensions="json", optional_extensions=offer, timeout=TIME,
        )  # fmt: skip
        far = listener.accept(timeout=TIME)
        asked = far.wait_proposal(timeout=TIME)
        assert (asked.identity, asked.version) == ("client", (1, 0))
        assert asked.required == (Extension("json"),)
        assert asked.optional == (
            Extension("batch-ack", {"max-count": "50"}),
            Extension("x-trace", {"to": "a/b", "level": "2"}),
            Extension("x-other"),
        )
        assert ";".join(str(one) for one in asked.optional) == offer
        with pytest.raises(UsageError, match="call wait_connected first"):
            _ = far.extensions
        for wrong, code, text in [
            ("a;a", "invalid_answer", "names an extension twice"),
            ("batch-ack:max-count=0", "invalid_answer", "a count of batch-ack"),
            ("a;;b", "invalid_answer", "the list of extensions"),
            (["a;b", "a"], "invalid_answer", "twice"),
            ([f"x{number}" for number in range(256)], "invalid_answer", "more than 255"),
            ([Extension("x", {"of": "a" * 65_536})], "out_of_range", "65,535"),
            ([Extension("a;b")], "invalid_answer", "without ; : , and ="),
            ([Extension("x", {"a=1,b": "2"})], "invalid_answer", "without ; : , and ="),
            ([Extension("x", {"of": "\ud800"})], "invalid_answer", "of the extension x is no text"),
            ([Extension("x", {"of": 5})], "invalid_answer", "of the extension x is no text"),  # type: ignore[dict-item]
        ]:
            with pytest.raises(UsageError, match=text) as refused:
                far.answer(wrong)
            assert refused.value.code == code, wrong
        far.answer(Extension("x-trace", {"level": "1"}), ["batch-ack:max-count=3"])
        with pytest.raises(UsageError, match="waits for an answer") as again:
            far.answer("json")
        assert again.value.code == "nothing_proposed"
        near = connecting.result(TIME)
        offered = near.wait_proposal(timeout=TIME)
        assert (offered.identity, offered.required) == (
            "server",
            (Extension("x-trace", {"level": "1"}),),
        )
        for wrong, text in [
            ("json", "everything that either end requires"),
            ("json;x-trace;x-other", "did not name"),
            ("json;x-trace;batch-ack:max-count=4", "above the smallest one"),
        ]:
            with pytest.raises(UsageError, match=text):
                near.answer(wrong)
        near.answer("x-trace:level=1;json", "batch-ack:max-count=2")
        far.wait_connected(timeout=TIME)
        assert near.extensions == far.extensions == ["x-trace", "json", "batch-ack"]
        assert near.window == far.window == 2
        trace, batch = Extension("x-trace", {"level": "1"}), {"max-count": "2"}
        for end in (near, far):
            assert end.agreed == (trace, Extension("json"), Extension("batch-ack", batch))
        near.send(b"1")
        message = far.receive(timeout=TIME)
        assert message is not None
        assert message.payload == b"1"
        with pytest.raises(UsageError) as late:
            far.wait_proposal(timeout=TIME)
        assert late.value.code == "nothing_proposed"
        near.abort()
        far.abort()


def test_an_application_refuses_a_peer_with_its_own_words() -> None:
    async def both() -> None:
        async with asynchronous.listen(URL, negotiation="manual") as listener:
            connecting = asyncio.create_task(_connect(listener.url))
            far = await listener.accept(timeout=TIME)
            asked = await far.wait_proposal(timeout=TIME)
            assert asked.identity == "stranger"
            await far.fail("strangers are not served", timeout=TIME)
            with pytest.raises(PeerFailed, match="strangers are not served"):
                await connecting
            with pytest.raises(LinkClosed):
                far.answer()

    asyncio.run(both())


async def _connect(url: str) -> asynchronous.Connection:
    return await asynchronous.connect(url, name="stranger")


def test_a_proposal_that_does_not_come_is_waited_for_as_long_as_was_said() -> None:
    with micromsg.listen(URL, negotiation="manual") as listener, raw_peer(listener.url) as raw:
        raw.sendall(handshake()[:3])
        far = listener.accept(timeout=TIME)
        with pytest.raises(LinkTimeout, match="the peer proposed nothing within"):
            far.wait_proposal(timeout=NOW)
        with pytest.raises(UsageError) as early:
            far.answer()
        assert early.value.code == "nothing_proposed"
        raw.sendall(handshake()[3:] + b"\x00")
        assert far.wait_proposal(timeout=TIME).required == ()
        # Bytes behind an unanswered handshake wait.
        with pytest.raises(LinkTimeout):
            far.wait_connected(timeout=NOW)
        far.abort()
    with pair() as (near, far):
        for end in (near, far):
            with pytest.raises(UsageError, match="the negotiation is auto"):
                end.wait_proposal(timeout=TIME)


def test_each_message_has_its_type_in_front_if_that_is_wanted() -> None:
    for frames, named in [("change", 1), ("always", 3)]:
        with (
            micromsg.listen(URL, optional_extensions="dotnet", dotnet_frames=frames) as listener,  # type: ignore[arg-type]
            raw_peer(listener.url) as raw,
        ):
            raw.sendall(handshake(optional=b"dotnet"))
            far = listener.accept(timeout=TIME)
            assert raw.recv(1 << 16).endswith(b"dotnet")
            raw.sendall(handshake(optional=b"dotnet"))
            far.wait_connected(timeout=TIME)
            far.send_some([(b"", "", None, "A.B")] * 3)
            far.close(timeout=TIME)
            came = b"".join(iter(lambda: raw.recv(1 << 16), b""))
            assert came.count(b"\x02\x01\x03A.B") == named
            assert came.count(b"A.B") == named


def test_values_go_in_the_format_that_both_ends_agreed_on() -> None:
    with pair({"optional_extensions": "x-upper;json"}, optional_extensions="json") as (near, far):
        assert near.extensions == far.extensions == ["json"]
        value = {"name": "é", "of": [1, 2.5, None]}
        payload = near.encode(value)
        assert payload == '{"name":"é","of":[1,2.5,null]}'.encode()
        near.send(payload, "people")
        message = far.receive(timeout=TIME)
        assert message is not None
        assert far.decode(message) == far.decode(message.payload) == value
        assert far.decode(memoryview(payload)) == value
        with pytest.raises(json.JSONDecodeError):
            far.decode(b"{")
        with pytest.raises(ValueError, match="not JSON compliant"):
            far.encode(float("nan"))
        with pytest.raises(ValueError, match="Infinity is no JSON"):
            far.decode(b"[Infinity]")
        with pytest.raises(ValueError, match="nests too deep"):
            far.decode(b"[" * 200_000)
        for wrong in (5, [1], "text"):
            with pytest.raises(TypeError):
                far.decode(wrong)  # type: ignore[arg-type]
    both = "x-upper;json"
    with pair({"optional_extensions": both}, optional_extensions=both) as (near, far):
        # The first extension with a codec counts.
        assert near.encode("a") == b'"a"'
        for end in (near, far):
            end.codecs["x-upper"] = Codec(lambda text: text.upper().encode(), bytes.decode)
        assert far.decode(near.encode("a")) == "A"
    with pair() as (near, _):
        with pytest.raises(UsageError, match="no extension with a codec; codecs has json") as none:
            near.encode(1)
        assert none.value.code == "extension_not_negotiated"


def test_the_machine_alone_proposes_and_answers() -> None:
    server = sansio.Machine("micromsg", "server", negotiation="manual")
    client = sansio.Machine("micromsg", "client", optional_extensions="json")
    server.call(0, "connect")
    client.call(0, "connect")
    server.receive(0, client.poll_transmit(0))
    asked = server.poll_event()
    assert asked is not None
    assert asked["event"] == "proposed"
    assert asked["optional_extensions"] == "json"
    server.call(0, "answer", required_extensions="", optional_extensions="json")
    client.receive(0, server.poll_transmit(0))
    server.receive(0, client.poll_transmit(0))
    assert list(iter(server.poll_event, None)) == [
        {"event": "connected", "major_version": 1, "minor_version": 0, "identity": "",
         "extensions": ["json"]},
    ]  # fmt: skip


def test_the_end_of_a_peer_is_noticed_while_the_application_decides() -> None:
    with micromsg.listen(URL, negotiation="manual") as listener:
        with raw_peer(listener.url) as raw:
            raw.sendall(handshake())
            far = listener.accept(timeout=TIME)
            far.wait_proposal(timeout=TIME)
        far.wait_ended(timeout=TIME)
        for late in (far.wait_proposal, far.answer, far.wait_connected):
            with pytest.raises(LinkClosed):
                late()


def test_a_refusal_keeps_the_application_for_a_second_at_the_most() -> None:
    with micromsg.listen(URL, negotiation="manual") as listener, raw_peer(listener.url) as raw:
        raw.sendall(handshake())
        far = listener.accept(timeout=TIME)
        far.wait_proposal(timeout=TIME)
        begun = time.monotonic()
        # The peer reads it and keeps its socket.
        far.fail("no")
        assert time.monotonic() - begun < 4
        assert raw.recv(1 << 16) == b"\x04\x02no"
        with pytest.raises(LinkClosed):
            far.wait_proposal(timeout=TIME)


def test_a_broker_gives_no_message_the_type_of_another_publisher() -> None:
    typed = {"optional_extensions": "batch-ack;pub-sub;dotnet"}
    with (
        micromsg.serve(URL) as broker,
        micromsg.connect(broker.url, **typed) as subscriber,
        micromsg.connect(broker.url, **typed) as one,
        micromsg.connect(broker.url) as other,
    ):
        subscriber.subscribe("t")
        wait_until(lambda: broker.stats()["subscriptions"] == 1, "it subscribes")
        for sender, kind in (
            (one, "A"),
            (other, None),
            (one, "A"),
            (one, "B" * 2_000),
            (other, None),
        ):
            sender.send(b"", "t", dotnet_type=kind)
            sender.wait_acknowledged(timeout=TIME)
            message = subscriber.receive(timeout=TIME)
            assert message is not None
            assert message.dotnet_type == kind
