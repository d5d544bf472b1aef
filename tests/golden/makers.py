"""The golden spools of format 1, and the way in which each is made."""

import json
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from receiving import (
    DEADLINE,
    LUMBERJACK,
    Payload,
    Raw,
    envelope,
    json_frame,
    killed,
    running,
    send,
)

from ackline import Spool, bpmux, relink

SMALL_SEGMENTS = ("--segment-bytes", "4KiB")
"""Two groups of these spools."""
MARK_SLOT_BYTES = 24
ENTRY_BYTES = 64

Range = tuple[int, int]


@dataclass
class Made:
    """The content of a spool as its maker knows it, without having read it."""

    holds: str
    """A line for readers of the golden."""
    sent: dict[int, Payload] = field(default_factory=dict)
    """Payload or parts of every position that a receiver finds when it opens the spool."""
    lost: list[Range] = field(default_factory=list)
    """Positions that were given out and are lost, above the first kept one."""
    readable: int | None = None
    """The position at which reading fails before a receiver has mended the spool, if it does."""
    group: bool = False
    urls: tuple[str, ...] = (LUMBERJACK,)
    """URLs with which a receiver uses everything in the spool."""
    quarantine: "Made | None" = None


MAKERS: dict[str, Callable[[Path], Made]] = {}


def maker(make: Callable[[Path], Made]) -> Callable[[Path], Made]:
    """Lists the maker of a golden of that name; its argument is the spool's directory to be."""
    MAKERS[make.__name__] = make
    return make


def texts(name: str, count: int) -> list[bytes]:
    """Payloads that no other call makes."""
    return [b'{"from":"%s","n":%d}' % (name.encode(), number) for number in range(count)]


def placed(*windows: list[Payload], first: int = 0) -> dict[int, Payload]:
    """The events of these windows by their positions."""
    return dict(enumerate((event for window in windows for event in window), first))


def copied(spool: Path, to: Path) -> Path:
    """A copy as a backup of the running receiver's files would be."""
    shutil.copytree(spool, to, ignore=shutil.ignore_patterns("lock", "reserve", "status.json*"))
    return to


def segment(spool: Path, first: int) -> Path:
    return spool / "segments" / f"{first:020}.arrows"


def index(spool: Path, first: int) -> Path:
    return segment(spool, first).with_suffix(".idx")


def cut(path: Path, by: int) -> None:
    """Takes the last bytes of a file away: the disk lost bytes that it had confirmed."""
    path.write_bytes(path.read_bytes()[:-by])


@maker
def empty(spool: Path) -> Made:
    with running(spool):
        pass
    return Made("A spool in which no event has arrived yet: no segment.")


@maker
def lumberjack_v1(spool: Path) -> Made:
    pairs: list[Payload] = [
        [b"host", b"a.example", b"line", b"one"],
        [b"host", b"", b"host", b"twice", b"\xfe", b"\xff\x00"],
    ]
    plain: list[Payload] = [[b"line", b"in an envelope"], b'{"v":1}']
    with running(spool) as receiver:
        send(receiver, pairs, version=1, compression=None)
        send(receiver, plain, version=1, compression=9)
    return Made(
        "Key-value events as parts, JSON of version 1, plain and in a compressed envelope.",
        placed(pairs, plain),
    )


@maker
def lumberjack_v2(spool: Path) -> Made:
    plain: list[Payload] = [
        b'{"v":2}',
        b'{"text":"gr\xc3\xbc\xc3\x9f"}',
        b"no JSON",
        b"\xff\xfe\x00",
    ]
    packed, long = texts("envelope", 10), [b'{"text":"%s"}' % (b"long " * 400)]
    mixed, counted = texts("mixed", 3), texts("counted", 6)
    with running(spool) as receiver:
        send(receiver, plain, compression=None)
        send(receiver, packed, long, compression=9)
        raw = Raw(receiver.url)
        inside = b"".join(map(json_frame, (1, 2), mixed[:2]))
        raw.window(mixed, envelope(zlib.compress(inside)) + json_frame(3, mixed[2]))
        raw.acknowledged(3)
        raw.close()
        send(receiver, counted, batch_events=2, cumulative=True, max_in_flight=1)
    return Made(
        "JSON, text and bytes of version 2: plain, in compressed envelopes, an envelope and a "
        "plain frame in one window, windows that are numbered on and on.",
        placed(plain, packed, long, mixed, counted),
    )


@maker
def several_blocks(spool: Path) -> Made:
    own = {name: texts(name, 6) for name in "abc"}
    for _ in range(20):
        with running(spool) as receiver:
            senders = {name: Raw(receiver.url) for name in own}
            # Windows that arrive while it is stopped are read at once, and land together.
            receiver.process.send_signal(signal.SIGSTOP)
            for name, sender in senders.items():
                sender.window(own[name][:2])
                sender.window(own[name][2:4])
                sender.window(own[name][4:])
            receiver.process.send_signal(signal.SIGCONT)
            for sender in senders.values():
                for _ in range(3):
                    sender.acknowledged(2)
                sender.close()
        entries = index(spool, 0).read_bytes()[ENTRY_BYTES:]
        blocks = struct.iter_unpack("<II56x", entries)
        if any(kind == 1 and count > 1 for kind, count in blocks):
            break
        shutil.rmtree(spool)
    else:
        raise AssertionError("no group of several blocks")
    found = Spool(spool).read(columns=["payload"]).to_table()["payload"].to_pylist()
    assert sorted(found) == sorted(text for one in own.values() for text in one)
    for one in own.values():
        assert [text for text in found if text in one] == one
    return Made(
        "Three senders at once: groups of several blocks, blocks of several windows.",
        dict(enumerate(found)),
    )


@maker
def repeats(spool: Path) -> Made:
    events = texts("first", 5)
    again = [*events[:3]], [*events[3:], *texts("new", 3)]
    after = [events[4], *texts("after", 1)]
    with running(spool) as receiver:
        raw = Raw(receiver.url)
        raw.window(events)
        Spool(spool).wait_durable(5, timeout=DEADLINE)
        raw.close()  # without having read the acknowledgement
        raw = Raw(receiver.url)
        for window in again:
            raw.window(window)
            raw.acknowledged(len(window))
        raw.close()
    with running(spool) as receiver:
        send(receiver, after)
    marks = Spool(spool).read(columns=["repeat"]).to_table()["repeat"].to_pylist()
    assert [at for at, is_repeat in enumerate(marks) if is_repeat] == [5, 6, 7, 8, 9, 13]
    return Made(
        "A sender whose acknowledgement was cut off sends its window again: cut anew, with new "
        "events behind it (one block has repeats and others), and once more to a new receiver.",
        placed(events, *again, after),
    )


@maker
def relink_links(spool: Path) -> Made:
    urls = ("relink://127.0.0.1:0/orders", "relink://127.0.0.1:0/tx?connector_transactions=true")
    ours: list[Payload] = [b"one", b"", b"\xff\xfe", [b"part", b"", b"\x00"]]
    with killed(spool, urls=urls) as receiver:
        first, second = (relink.connect(receiver.urls[0]) for _ in range(2))
        tx = relink.connect(receiver.urls[1], connector_transactions=True)
        first.send_many(1, ours, timeout=DEADLINE)
        first.flush(timeout=DEADLINE)
        first.send_to([2, 0xFF], b"on two channels", timeout=DEADLINE)
        first.flush(timeout=DEADLINE)
        second.send_many(1, [b"another link", b"its second"], timeout=DEADLINE)
        second.flush(timeout=DEADLINE)
        kept = tx.send_many(7, [b"committed", b"too"], timeout=DEADLINE)
        tx.commit(7, kept.sequence)
        assert kept.committed(timeout=DEADLINE) == "committed"
        dropped = tx.send(7, b"rolled back", timeout=DEADLINE)
        tx.rollback(7, dropped.sequence)
        more = tx.send(7, b"more", timeout=DEADLINE)
        tx.commit(7, more.sequence)
        assert more.committed(timeout=DEADLINE) == "committed"
    for link in (first, second, tx):
        link.close(timeout=0)
    rest = [b"another link", b"its second"], [b"committed", b"too"], [b"more"]
    sent = placed(ours, [b"on two channels"] * 2, *rest)
    holds = (
        "Two links with several channels, messages of several parts, one message on two channels, "
        "transactions; killed while the links were open, so that their journals are there."
    )
    return Made(holds, sent, urls=(LUMBERJACK, *urls))


@maker
def bpmux_entities(spool: Path) -> Made:
    def send_on(sink: bpmux.Sink, messages: list[bytes]) -> None:
        sink.send_many(messages, timeout=DEADLINE)
        sink.close(str(len(messages)).encode(), timeout=DEADLINE)

    orders, plain, streamed = [b"one", b"", b"\xff\x00"], [b"again"], [b"from", b"a listener"]
    with bpmux.listen("bpmux://127.0.0.1:0") as listener:
        own = f"{listener.url}?stream=orders"
        with running(spool, "--connect", own, urls=("bpmux://127.0.0.1:0",)) as receiver:
            with bpmux.connect(receiver.url) as link:
                send_on(link.open_sink(b"orders", timeout=DEADLINE), orders)
                send_on(link.open_sink(b"\xff", timeout=DEADLINE), plain)
                assert link.call(b"asked", timeout=DEADLINE) == b""
            with listener.accept(timeout=DEADLINE) as link:
                opened = link.accept(timeout=DEADLINE)
                assert isinstance(opened, bpmux.OpenedStream)
                send_on(opened.sink, streamed)
    return Made(
        "Two sinks, of which one was opened with text and one with bytes, a request, and a stream "
        "that the receiver opened at a listener.",
        placed(orders, plain, [b"asked"], streamed),
    )


@maker
def quarantine(spool: Path) -> Made:
    good, later = texts("good", 2), texts("later", 2)
    broken = envelope(b"this is not zlib")
    inside = envelope(zlib.compress(b"2X" + b"\0" * 20))
    with running(spool, "--on-invalid", "quarantine") as receiver:
        raw = Raw(receiver.url)
        for events, frames in ((good, None), (good, broken), (good, inside), (later, None)):
            raw.window(events, frames)
            raw.acknowledged(2)
        raw.close()
    made = Made("The frames of the two windows that cannot be read.", {0: broken, 1: inside})
    holds = "Bad windows were set aside in `quarantine`, a spool of its own."
    return Made(holds, placed(good, later), quarantine=made)


@maker
def segments_ended(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(6)]
    with running(spool, *SMALL_SEGMENTS) as receiver:
        send(receiver, *windows)
    return Made("Several segments, each with its footer.", placed(*windows))


@maker
def segments_killed(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(5)]
    with killed(spool, *SMALL_SEGMENTS) as receiver:
        send(receiver, *windows)
    return Made("Several segments, the last one without a footer (kill -9).", placed(*windows))


HOLD = """
import os, signal, sys
from ackline import Spool
lease = Spool(sys.argv[1]).lease(sys.argv[2], holder="the reader that was killed")
if len(sys.argv) > 3:
    lease.commit(int(sys.argv[3]))
os.kill(os.getpid(), signal.SIGKILL)
"""


@maker
def consumers(spool: Path) -> Made:
    windows = [texts(f"window {number}", 4) for number in range(3)]
    with running(spool) as receiver:
        send(receiver, *windows)
    reading = Spool(spool)
    reading.add_consumer("a.b_c-9", 4)
    for position in (3, 7):
        with reading.lease("lake", create_at=0) as lease:
            lease.commit(position)
    for arguments in (("killed", "2"), ("nothing-committed",)):
        subprocess.run([sys.executable, "-c", HOLD, str(spool), *arguments], check=False)
    # As the release before wrote it, which had no leases.
    old = {"committed": 5, "format": 1, "updated": "2026-11-20T00:00:00.000000Z"}
    path = spool / "consumers" / "old.json"
    path.write_text(json.dumps(old | {"uuid": reading.uuid}) + "\n", "utf-8")
    path.chmod(0o600)
    return Made(
        "Consumers: one that no reader has had, one whose reader let go of it, one whose reader "
        "was killed, a reader that was killed before its first commit (a lock and no mark), and a "
        "mark without generation, holder and time, written by hand.",
        placed(*windows),
    )


@maker
def retired(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(6)]
    with running(spool, *SMALL_SEGMENTS) as receiver:
        send(receiver, *windows)
    Spool(spool).add_consumer("lake", 10)
    with running(spool, "--retain-committed", "1ms"):
        pass
    first = Spool(spool).first_kept()
    assert 0 < first <= 10
    sent = {position: one for position, one in placed(*windows).items() if position >= first}
    return Made("The first segments were retired: the consumer was done with them.", sent)


@maker
def retired_halfway(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(6)]
    with running(spool, *SMALL_SEGMENTS) as receiver:
        send(receiver, *windows)
    oldest = index(spool, 0).read_bytes()
    Spool(spool).add_consumer("lake", 10)
    with running(spool, "--retain-committed", "1ms"):
        pass
    index(spool, 0).write_bytes(oldest)
    index(spool, 0).chmod(0o600)
    first = Spool(spool).first_kept()
    sent = {position: one for position, one in placed(*windows).items() if position >= first}
    return Made("A retirement that was cut short: the index of a segment that is gone.", sent)


@maker
def retired_by_age(spool: Path) -> Made:
    old, new = ([texts(f"{age} {number}", 3) for number in range(3)] for age in ("old", "new"))
    with running(spool, *SMALL_SEGMENTS) as receiver:
        send(receiver, *old)
    Spool(spool).add_consumer("lake", 2)
    time.sleep(6)
    with running(spool, *SMALL_SEGMENTS) as receiver:
        send(receiver, *new)
    with running(spool, "--retain-max", "5s"):
        pass
    assert Spool(spool).first_kept() == 9
    assert (spool / "retired").read_text("utf-8") == "9\n"
    return Made(
        "Events went by age (retain_max) before their consumer had committed them: `retired` says "
        "up to where.",
        placed(*new, first=9),
    )


@maker
def adopted(spool: Path) -> Made:
    windows = [texts(f"life {number}", 3) for number in range(3)]
    with running(spool) as receiver:
        send(receiver, windows[0])
    Spool(spool).add_consumer("lake", 2)
    for window in windows[1:]:
        Spool.adopt(spool)
        with running(spool) as receiver:
            send(receiver, window)
    return Made(
        "Adopted twice: segments and a consumer of three UUIDs, two of them in `formerly`.",
        placed(*windows),
    )


@maker
def lost_inside(spool: Path) -> Made:
    kept, first = [texts(f"kept {number}", 3) for number in range(3)], 0
    for window in kept[:2]:
        with killed(spool) as receiver:
            send(receiver, window, texts("lost", 2))
        cut(segment(spool, first), 5)
        first += 5
    with running(spool) as receiver:
        send(receiver, kept[2])
    sent = placed(kept[0]) | placed(kept[1], first=5) | placed(kept[2], first=10)
    return Made(
        "Two recoveries found the tail of the last segment missing, and new events followed.",
        sent,
        [(3, 5), (8, 10)],
    )


@maker
def lost_at_end(spool: Path) -> Made:
    kept = texts("kept", 3)
    with killed(spool) as receiver:
        send(receiver, kept, texts("lost", 2))
    cut(segment(spool, 0), 5)
    with running(spool):
        pass
    return Made(
        "A recovery found the tail of the last segment missing, and nothing came after it.",
        placed(kept),
        [(3, 5)],
    )


@maker
def lost_everything(spool: Path) -> Made:
    with killed(spool) as receiver:
        send(receiver, texts("lost", 5))
    cut(segment(spool, 0), 5)
    with running(spool):
        pass
    return Made(
        "A recovery found nothing sound in the only segment and removed it. Format 1 has no word "
        "for these losses: the first kept position is the end."
    )


@maker
def lost_by_mark(spool: Path) -> Made:
    early, late, new = texts("early", 5), texts("late", 5), texts("new", 3)
    original = spool.with_name("original")
    with running(original) as receiver:
        send(receiver, early)
        copied(original, spool)
        send(receiver, late)
    Spool(original).add_consumer("lake", 8)
    shutil.rmtree(spool / "consumers")
    shutil.copytree(original / "consumers", spool / "consumers")
    with running(spool) as receiver:
        send(receiver, new)
    return Made(
        "Restored from a backup that is older than its consumer's mark, and used: positions below "
        "the mark are not given out again.",
        placed(early) | placed(new, first=8),
        [(5, 8)],
    )


@maker
def lost_when_opened(spool: Path) -> Made:
    kept = [texts("kept", 3), texts("kept too", 2)]
    with killed(spool) as receiver:
        send(receiver, *kept, texts("lost", 2))
    cut(segment(spool, 0), 5)
    return Made(
        "The tail of the last segment is missing, and no receiver has opened the spool since.",
        placed(*kept),
        [(5, 7)],
        readable=5,
    )


@maker
def torn_tail(spool: Path) -> Made:
    kept = texts("kept", 3)
    with killed(spool) as receiver:
        send(receiver, kept)
        before = {name: (spool / name).read_bytes() for name in ("durable", index(spool, 0))}
        begin = segment(spool, 0).stat().st_size
        send(receiver, texts("never acknowledged", 4))
    # As a power loss in the middle of the last group leaves it: nothing of it was durable.
    half = (segment(spool, 0).stat().st_size - begin) // 2
    cut(segment(spool, 0), half)
    last = index(spool, 0).read_bytes()
    (spool / "durable").write_bytes(before["durable"])
    index(spool, 0).write_bytes(last[: -ENTRY_BYTES // 2])
    return Made(
        "Behind the last durable group stand half a group and half an entry of the index.",
        placed(kept),
    )


@maker
def mark_stale(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(4)]
    with killed(spool) as receiver:
        send(receiver, windows[0])
        mark = (spool / "durable").read_bytes()
        send(receiver, *windows[1:])
    (spool / "durable").write_bytes(mark)
    return Made(
        "The durable mark is three groups behind, as after a power loss: a receiver finds them.",
        placed(*windows),
    )


@maker
def mark_torn(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(2)]
    with killed(spool) as receiver:
        send(receiver, *windows)
    mark = bytearray((spool / "durable").read_bytes())
    slots = [mark[at : at + MARK_SLOT_BYTES] for at in (0, MARK_SLOT_BYTES)]
    newer = max((0, 1), key=lambda at: struct.unpack_from("<Q", slots[at], 8))
    mark[newer * MARK_SLOT_BYTES + 9] ^= 1
    (spool / "durable").write_bytes(mark)
    return Made(
        "The newer slot of the durable mark is not sound; the other one is a group behind.",
        placed(*windows),
    )


@maker
def segment_overtaken(spool: Path) -> Made:
    first, given_up, second = texts("first", 3), texts("given up", 2), texts("second", 4)
    other = spool.with_name("other")
    with killed(other) as receiver:
        send(receiver, first)
        copied(other, spool)
        send(receiver, given_up)
    with running(spool) as receiver:
        send(receiver, second)
    # As after a sync that failed: groups above the first position of the next segment are void.
    for of in (segment, index):
        of(spool, 0).write_bytes(of(other, 0).read_bytes())
    return Made(
        "A segment without a footer that goes on above the first position of the next one.",
        placed(first, second),
    )


@maker
def group(spool: Path) -> Made:
    windows = [texts(f"window {number}", 3) for number in range(2)]
    with running(spool, "--group") as receiver:
        send(receiver, *windows)
    Spool(spool, group=True).add_consumer("lake", 2)
    return Made("Directories of mode 0770, files of mode 0660.", placed(*windows), group=True)
