import json
import os
import signal
from pathlib import Path

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline

from ackline import Spool, lumberjack

SEGMENT = "segments/00000000000000000000.arrows"
INDEX = "segments/00000000000000000000.idx"
FIRST, LAST = 30, 20
ENTRY_BYTES = 96


@pytest.fixture
def killed(tmp_path, receiver):
    """A spool of two groups after kill -9; and where the last one begins in both files."""
    spool = tmp_path / "spool"
    running = receiver("--spool", str(spool))
    with lumberjack.connect(running.url) as writer:
        writer.send([b'{"n":%d}' % n for n in range(FIRST)], timeout=DEADLINE)
        begins = {name: (spool / name).stat().st_size for name in (SEGMENT, INDEX)}
        writer.send([b'{"n":%d}' % n for n in range(FIRST, FIRST + LAST)], timeout=DEADLINE)
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(DEADLINE)
    assert (spool / INDEX).stat().st_size == begins[INDEX] + ENTRY_BYTES
    return spool, begins


def recovered(running: RunningReceiver) -> dict:
    told = [line for line in running.lines if line["event"] == "recovered"]
    return told[0] if told else running.next("recovered")


def send_one(url: str) -> None:
    with lumberjack.connect(url) as writer:
        writer.send([b"after"], timeout=DEADLINE)


def printed(*arguments: str) -> list[int]:
    result = ackline("spool", "cat", "--json", *arguments)
    assert result.returncode == 0, result.stderr
    return [json.loads(line)["position"] for line in result.stdout.splitlines()]


def damage(path: Path, at: int, how: str) -> None:
    whole = path.read_bytes()
    flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    path.write_bytes(whole[:at] if how == "cut" else flipped)


@pytest.mark.parametrize("how", ["cut", "flip"])
@pytest.mark.parametrize("part", [0.0, 0.4, 1.0])
def test_a_receiver_starts_on_a_torn_segment_and_names_the_lost_events(killed, receiver, how, part):
    spool, begins = killed
    size = (spool / SEGMENT).stat().st_size
    damage(spool / SEGMENT, begins[SEGMENT] + int((size - begins[SEGMENT] - 1) * part), how)

    running = receiver("--spool", str(spool))
    told = recovered(running)
    end = FIRST + LAST
    assert told["lost"] == {"from": FIRST, "to": end}
    assert told["position"] == end
    assert told["cut_bytes"] > 0
    send_one(running.url)
    assert running.stop() == 0

    directory = str(spool)
    assert printed(directory, "--to", str(FIRST)) == list(range(FIRST))
    assert printed(directory, "--from", str(end)) == [end]
    assert printed(directory, "--on-loss", "skip") == [*range(FIRST), end]
    gap = ackline("spool", "cat", directory)
    assert gap.returncode == 1
    assert "spool.gap" in gap.stderr
    _, loss, *blocks = map(json.loads, ackline("spool", "ls", directory, "--json").stdout.split())
    assert (loss["from"], loss["to"], loss["why"]) == (FIRST, end, "lost")
    assert [block["position"] for block in blocks] == [0, end]
    verified = ackline("spool", "verify", directory)
    assert verified.returncode == 0
    assert f"{LAST} positions noted as lost" in verified.stdout


@pytest.mark.parametrize("how", ["cut", "flip"])
@pytest.mark.parametrize("part", [0.0, 0.4, 1.0])
def test_a_torn_index_loses_nothing(killed, receiver, how, part):
    spool, begins = killed
    damage(spool / INDEX, begins[INDEX] + int((ENTRY_BYTES - 1) * part), how)
    running = receiver("--spool", str(spool))
    told = recovered(running)
    end = FIRST + LAST
    assert (told["lost"], told["position"]) == (None, end)
    send_one(running.url)
    assert running.stop() == 0
    assert printed(str(spool)) == list(range(end + 1))
    assert ackline("spool", "verify", str(spool)).returncode == 0


def test_the_torn_tail_along_the_last_group_and_its_entry(killed):
    # The Rust tests cut at every byte: a start of the command for each takes minutes.
    from ackline import Receiver

    spool, begins = killed
    names = [SEGMENT, INDEX, "durable", "start"]
    whole = {name: (spool / name).read_bytes() for name in names}
    for name in (SEGMENT, INDEX):
        for at in range(begins[name], len(whole[name]), 61):
            for other in names:
                (spool / other).write_bytes(whole[other])
            (spool / "losses").unlink(missing_ok=True)
            (spool / name).write_bytes(whole[name][:at])
            with Receiver(["lumberjack://127.0.0.1:0"], spool=spool):
                reader = Spool(spool)
                assert reader.durable() == FIRST + LAST
                kept = reader.read(0, FIRST, columns=["position"]).to_table()["position"]
                assert kept.to_pylist() == list(range(FIRST))
                lost = [(FIRST, FIRST + LAST)] if name == SEGMENT else []
                assert [(loss.start, loss.end) for loss in reader.losses()] == lost


def test_a_range_is_cut_at_the_end_that_exists_but_does_not_begin_above_it(killed):
    directory = str(killed[0])
    end = FIRST + LAST
    assert printed(directory, "--from", "48", "--to", "99") == [48, 49]
    assert printed(directory, "--from", str(end)) == []
    assert printed(directory, "--from", str(end), "--to", "99") == []
    for more in ([], ["--to", "99"]):
        above = ackline("spool", "cat", directory, "--from", str(end + 1), *more)
        assert above.returncode == 1
        assert "spool.behind_checkpoint" in above.stderr


def test_verify_names_a_torn_slot_of_the_durable_mark(killed):
    directory = killed[0]
    whole = (directory / "durable").read_bytes()
    for slot, at in enumerate((4096, 8192)):
        torn = bytearray(whole)
        torn[at + 9] ^= 1
        (directory / "durable").write_bytes(torn)
        verified = ackline("spool", "verify", str(directory))
        assert verified.returncode == 1
        assert f"slot {slot} of the durable mark" in verified.stderr
