"""Wrong options, arguments and uses of Relink's links are refused by name."""

import pytest
from support.relink import TIME, drain, pair

from ackline import LinkLost, LinkTimeout, ProtocolError, UsageError, relink
from ackline.sansio import Machine


def test_a_url_and_a_keyword_that_disagree_are_refused():
    said = "connector_channel_id_size is 4 in the URL and 5 among the options"
    url = "relink://127.0.0.1:1/x?connector_channel_id_size=4"
    for make in (relink.connect, relink.listen):
        with pytest.raises(UsageError, match=said):
            make(url, connector_channel_id_size=5)


def test_a_refusal_names_the_value_and_the_accepted_ones(listener):
    link, peer = pair(listener)
    for call, said in (
        (
            lambda: link.send(1, [b"x"] * 1025),
            "the message has 1025 parts; max_message_parts is 1024",
        ),
        (lambda: peer.consume(99, 0), "no channel 63000000 of the peer's is open"),
        (
            lambda: relink.listen("relink://127.0.0.1:0/n", endpoints={"n": {}}),
            'endpoint "n" is given twice',
        ),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert str(refused.value) == said
    link.send_many(7, [b"x"] * 3)
    drain(peer, 2)
    with pytest.raises(UsageError) as refused:
        peer.consume(7, 10**6)
    assert str(refused.value).startswith("message 1000000 of channel 07000000 cannot be named now")


def test_a_message_of_a_channel_that_was_closed_is_not_consumed_on_the_next(listener):
    link, peer = pair(listener)
    first = link.send(1, b"a")
    link.close_channel(1)
    old = peer.receive(timeout=TIME)
    peer.consume_many([old])
    first.consumed(timeout=TIME)
    while link.event(timeout=TIME).name != "closed":
        pass
    second = link.send(1, b"b")
    new = peer.receive(timeout=TIME)
    assert (old.sequence, new.sequence) == (0, 0)
    for messages in ([old], [old, new], [new, old]):
        with pytest.raises(UsageError, match="of an earlier channel 01000000"):
            peer.consume_many(messages)
    assert not second.is_consumed
    peer.consume_many([new])
    second.consumed(timeout=TIME)


def test_a_message_of_another_link_is_not_consumed_on_this_one(listener):
    link, peer = pair(listener)
    other, other_peer = pair(listener)
    mine, theirs = link.send(7, b"mine"), other.send(7, b"theirs")
    own, foreign = peer.receive(timeout=TIME), other_peer.receive(timeout=TIME)
    assert (own.channel, own.sequence) == (foreign.channel, foreign.sequence)
    for messages in ([foreign], [own, foreign], [foreign, own]):
        with pytest.raises(UsageError) as refused:
            peer.consume_many(messages)
        assert str(refused.value) == "message 0 of channel 07000000 came over another link"
        assert refused.value.code == "other_link"
    assert not mine.is_consumed
    peer.consume_many([own])
    other_peer.consume_many([foreign])
    mine.consumed(timeout=TIME)
    theirs.consumed(timeout=TIME)


def test_errors_name_options_as_python_does():
    with relink.listen("relink://127.0.0.1:0/n", memory=65_536) as listener:
        link, _peer = pair(listener, stuck_after=1)
        with pytest.raises(LinkLost) as lost:
            link.send(7, bytes(200_000)).consumed(timeout=TIME)
    text = str(lost.value)
    assert "its max_part_bytes, its max_message_bytes or a quarter of its memory" in text
    assert "--" not in text
    sizes = {"connector_channel_id_size": 1, "listener_channel_id_size": 1}
    bare = Machine("relink", "connector", start="established", max_channels=1, **sizes)
    hello = "110161000500000068656c6c6f000000"
    said = r"^2 channels are above 1 \(max_channels\) \(at byte 16 "
    with pytest.raises(ProtocolError, match=said):
        bare.receive(0, bytes.fromhex(hello + hello.replace("110161", "110162")))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"send_window": 0}, "send_window is 0; it is a whole number from 1 to 2147483647"),
        ({"connector_channel_id_size": 256}, "connector_channel_id_size is 256"),
        ({"connector_transactions": "yes"}, "connector_transactions is yes; it is true or false"),
        ({"ack_delay": -1.0}, "ack_delay is -1"),
        ({"handshake_timeout": None}, "handshake_timeout is off; it is a number of seconds"),
        ({"timeout": float("nan")}, "timeout is"),
        ({"connect_timeout": -1}, "connect_timeout is"),
        ({"lost_after": "soon"}, "lost_after is soon"),
        ({"stuck_after": 0}, "stuck_after is 0; it is a whole number from 1 to 4294967295"),
        ({"memory": 0}, "memory is 0"),
        ({"memory": 1}, "memory is 1; it is at least 65536 bytes"),
        ({"ca": "/none.pem"}, "ca"),
        ({"connector_channel_id_size": True}, "connector_channel_id_size is true"),
        ({"max_part_bytes": 0}, "max_part_bytes is 0; it is a whole number from 1"),
        ({"max_multicast_bytes": 0}, "max_multicast_bytes is 0; it is a whole number from 1"),
        ({"ping_after": 0}, "ping_after is 0; it is a number of seconds, at least 1ms"),
        ({"pong_timeout": 0}, "pong_timeout is 0; it is a number of seconds, at least 1ms"),
        (
            {"handshake_timeout": 0},
            "handshake_timeout is 0; it is a number of seconds",
        ),
        ({"reconnect_max": 0}, "reconnect_max is 0; it is a number of seconds, at least 1ms"),
    ],
)
def test_a_wrong_option_is_named(options, said):
    with pytest.raises(UsageError, match=said):
        relink.connect("relink://127.0.0.1:1/x", **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoints": []}, "endpoints is a dict"),
        ({"endpoints": {"x": {"speed": 1}}}, "speed"),
        ({"endpoints": {"orders": {}}}, "given twice"),
        ({"max_links": 0}, "max_links is 0"),
        ({"orphan_after": None}, "orphan_after is off; it is a number of seconds"),
        ({"bind_identity": 3}, "bind_identity is 3"),
    ],
)
def test_a_wrong_option_of_a_listener_is_named(options, said):
    with pytest.raises(UsageError, match=said):
        relink.listen("relink://127.0.0.1:0/orders", **options)


def test_misuse_is_named_and_changes_nothing(listener):
    link, peer = pair(listener)
    for call, code in (
        (lambda: link.send(b"abc", b"x"), "invalid_channel_id"),
        (lambda: link.send(1 << 32, b"x"), "invalid_channel_id"),
        (lambda: link.send("a", b"x"), "invalid_channel_id"),
        (lambda: link.send(1, "text"), "payload"),
        (lambda: link.send(1, [b"x", "text"]), "payload"),
        (lambda: link.send(1, 3), "payload"),
        (lambda: link.send(1, {b"x"}), "payload"),
        (lambda: link.send(1, {b"x": 1}), "payload"),
        (lambda: link.send(1, (part for part in [b"x"])), "payload"),
        (lambda: link.send(True, b"x"), "invalid_channel_id"),
        (lambda: link.consume(1, True), "out_of_range"),
        (lambda: link.send(1, [b"x"] * 1025), "message_too_large"),
        (lambda: link.send_many(1, b"text"), "payloads"),
        (lambda: link.consume(1, 0), "unknown_channel"),
        (lambda: link.close_channel(1), "unknown_channel"),
        (lambda: link.commit(1), "transactions_disabled"),
        (lambda: peer.committed(1), "transactions_disabled"),
        (lambda: peer.notify_received(1), "unknown_channel"),
        (lambda: link.receive_many(0), "max_messages"),
        (lambda: link.receive_many("1"), "max_messages"),
        (lambda: link.consume(1, -1), "out_of_range"),
        (lambda: link.consume(1, 1 << 32), "out_of_range"),
        (lambda: link.consume(1, "1"), "out_of_range"),
        (lambda: link.commit(1, -1), "out_of_range"),
        (lambda: peer.committed(1, 1 << 64), "out_of_range"),
        (lambda: link.consume(b"abc", 0), "invalid_channel_id"),
        (lambda: link.receive(timeout=-1), "timeout"),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert refused.value.code == code, call
    assert link.stats()["messages_sent"] == 0
    with pytest.raises(LinkTimeout, match=r"no message arrived within 0\.01 s"):
        peer.receive(timeout=0.01)
    with pytest.raises(LinkTimeout, match="no event"):
        drain_events(peer)
    link.send(1, b"x")
    drain(peer, 1)
    with pytest.raises(UsageError) as refused:
        peer.consume(1, 5)
    assert refused.value.code == "out_of_range"


def test_a_wrong_number_or_id_is_refused_with_the_accepted_range(listener):
    link, _ = pair(listener)
    for call, said in (
        (
            lambda: link.consume(1, -1),
            "through is -1; a message's number is a whole number from 0 to 4294967295",
        ),
        (
            lambda: link.send(b"abc", b"x"),
            "channel 616263 has 3 bytes; the ids of these channels have 4",
        ),
    ):
        with pytest.raises(UsageError) as refused:
            call()
        assert str(refused.value) == said
    link.send(1, b"x")
    with pytest.raises(LinkTimeout):
        link.receive_many(1 << 80, timeout=0)


def drain_events(link: relink.Link) -> None:
    while True:
        link.event(timeout=0.05)
