"""The stats of links, writers and spools: each number has its own name."""

from support.commands import DEADLINE, RunningReceiver, wait_until

from ackline import Spool, lumberjack, relink


def test_a_link_tells_its_numbers_by_name():
    with relink.listen("relink://127.0.0.1:0/n") as listener:
        link = relink.connect(listener.url)
        peer = listener.accept(timeout=DEADLINE)
        receipt = link.send(7, b"twelve bytes")
        wait_until(lambda: peer.stats()["waiting"] == 1, "it has arrived")
        none = dict.fromkeys(
            ("messages_sent_again", "messages_skipped", "resumes", "missed_events"), 0
        )
        sent = {"messages_sent": 1, "channels_outgoing": 1, "unacknowledged_bytes": 12}
        assert {name: link.stats()[name] for name in sent} == sent
        assert {name: link.stats()[name] for name in none} == none
        got = {"messages_received": 1, "channels_incoming": 1, "waiting": 1, "transports": 1}
        assert {name: peer.stats()[name] for name in got} == got
        assert link.stats()["bytes_sent"] == peer.stats()["bytes_received"] >= 12
        names = set(sent) | set(none) | set(got) | {"bytes_sent", "bytes_received"}
        assert set(link.stats()) == names
        message = peer.receive(timeout=DEADLINE)
        peer.consume(message.channel, message.sequence)
        receipt.consumed(timeout=DEADLINE)
        assert (link.stats()["unacknowledged_bytes"], peer.stats()["waiting"]) == (0, 0)
        link.close()


def test_a_writer_and_a_spool_tell_theirs(tmp_path):
    receiver = RunningReceiver("lumberjack://127.0.0.1:0", "--spool", str(tmp_path / "spool"))
    with lumberjack.connect(receiver.url) as writer:
        writer.send([b"{}"] * 3)
        writer.flush(timeout=DEADLINE)
        stats = writer.stats()
        (host,) = stats.pop("hosts")
    told = {"accepted": 3, "unacknowledged": 0, "possible_repeats": 0, "reconnects": 0}
    told |= {"buffer_events": 0, "buffer_bytes": 0, "receipts_dropped": 0}
    assert {name: stats[name] for name in told} == told
    assert set(stats) == set(told) | {"state", "attempts", "oldest_s"}
    told = {"acknowledged": 3, "outstanding": 0, "in_flight_windows": 0, "connections": 1}
    assert {name: host[name] for name in told} == told
    assert set(host) == set(told) | {"url", "state", "attempts", "window_size", "last_error"}
    spool = Spool(tmp_path / "spool")
    (block,) = spool.blocks()
    found = {name: block[name] for name in ("position", "count", "protocol", "windows", "stream")}
    wanted = {"position": 0, "count": 3, "protocol": "lumberjack", "windows": 1, "stream": None}
    assert found == wanted
    assert (block["inflated_bytes"], block["first_sequence"]) == (36, 1)
    assert block["body_bytes"] > 0
    (part,) = spool.slices(0, 3, max_slices=1)
    assert (part.start, part.end, part.uuid) == (0, 3, spool.uuid)
    assert 0 <= part.byte_start < part.byte_end
    checked = spool.verify()
    assert (checked.segments, checked.groups, checked.blocks, checked.events) == (1, 1, 1, 3)
    assert (checked.bytes > 0, checked.problems) == (True, [])
    with spool.lease("lake", holder="test", create_at=2):
        (consumer,) = spool.consumers()
        assert (consumer.name, consumer.committed, consumer.generation) == ("lake", 2, 1)
        assert consumer.holder is not None
        assert consumer.holder.pid > 0
        assert consumer.holder.what == "test"
    assert receiver.stop() == 0
