"""The same bytes to our decoder and to a naive second one: the same frames, or the same verdict."""

import json
import random
import struct
import zlib
from typing import Any

import pytest
import reference_lumberjack as reference
from support.commands import ROOT

from ackline import sansio
from ackline.exceptions import ProtocolError
from vectors import to_bytes

SEEDS = sorted((ROOT / "fuzz" / "seeds" / "lumberjack_receive").iterdir())
SMALL = {"json": 40, "data": 60, "compressed": 80, "inflated": 120, "pairs": 3, "field": 8}
ROUNDS = 20_000
LIMITS = {
    field["limit"]: name
    for name, field in sansio.describe("lumberjack")["decoding"].items()
    if "limit" in field
}


def verdict(data: bytes, limits: dict[str, int]) -> Any:
    try:
        options = {LIMITS[name]: limit for name, limit in limits.items()}
        return sansio.decode("lumberjack", data, "writer", **options)
    except ProtocolError as error:
        return error.code.removeprefix("lumberjack.")


def expected(data: bytes, limits: dict[str, int]) -> Any:
    try:
        return reference.decode(data, limits)
    except reference.Refused as refused:
        return str(refused)


def same(ours: Any, theirs: Any) -> bool:
    """A stream that is both too long and broken behind that breaks two rules: either is named."""
    return ours == theirs or (theirs, ours) == ("inflated_too_large", "zlib")


def vectors() -> list[bytes]:
    folder = ROOT / "tests" / "vectors" / "lumberjack"
    frames = json.loads((folder / "frames.json").read_text("utf-8"))["vectors"]
    talks = json.loads((folder / "conversations.json").read_text("utf-8"))["conversations"]
    given = [to_bytes(each["hex"]) for each in frames if each["context"]["from"] == "writer"]
    for talk in talks:
        if talk["role"] == "reader":
            given += [to_bytes(step["recv"]) for step in talk["steps"] if "recv" in step]
    return given


def test_the_corpus_gets_the_same_verdict() -> None:
    for data in [path.read_bytes() for path in SEEDS] + vectors():
        # A seed of the fuzzer begins with its own switches: with them and without.
        for skip in range(4):
            for limits in ({}, SMALL):
                piece = data[skip:]
                assert same(verdict(piece, limits), expected(piece, limits)), piece[:200].hex()


def generated(random: random.Random, *, version: bytes, depth: int = 0) -> bytes:
    """A frame, mostly valid."""
    kind = random.choice("WJJJDDDCC" if depth == 0 else "WJJJDDD")
    if kind == "W":
        return version + b"W" + struct.pack(">I", random.choice([0, 1, 2, 3, 5]))
    if kind == "J":
        payload = bytes(random.choices(range(256), k=random.randint(1, 50)))
        number = random.choice([0, 1, 7, 2**32 - 1])
        return version + b"J" + struct.pack(">II", number, len(payload)) + payload
    if kind == "D":
        fields = [bytes(random.randint(0, 10)) for _ in range(2 * random.randint(0, 4))]
        body = b"".join(struct.pack(">I", len(field)) + field for field in fields)
        return version + b"D" + struct.pack(">II", 1, len(fields) // 2) + body
    frames = b"".join(
        generated(random, version=version, depth=1) for _ in range(random.randint(0, 4))
    )
    level = random.choice([0, 1, 6, 9])
    stream = zlib.compress(frames + frames[: random.choice([0, 0, 0, 3])], level)
    stream += bytes(random.choice([0, 0, 0, 0, 1]))
    # The end marker of the stream comes twice: its apparent checksum is not its end.
    stream += stream[-4:] if random.random() < 0.05 else b""
    return version + b"C" + struct.pack(">I", len(stream)) + stream


def damaged(random: random.Random, data: bytes) -> bytes:
    """The bytes with a few changed, cut or doubled, or as they are."""
    piece = bytearray(data)
    for _ in range(random.choice([0, 0, 1, 1, 2, 5])):
        at = random.randrange(len(piece)) if piece else 0
        match random.randrange(4):
            case 0 if piece:
                piece[at] ^= 1 << random.randrange(8)
            case 1:
                del piece[at : at + random.randint(1, 5)]
            case 2:
                piece[at:at] = piece[at : at + random.randint(1, 9)]
            case _:
                piece[at : at + 1] = random.choice([b"\xff", b"\0", b"C", b"A", b"W"])
    return bytes(piece)


@pytest.mark.parametrize("seed", range(4))
def test_generated_and_damaged_bytes_get_the_same_verdict(seed: int) -> None:
    chance = random.Random(seed)
    verdicts: dict[str, int] = {}
    for _ in range(ROUNDS // 4):
        frames = [
            generated(chance, version=chance.choice([b"1", b"2"]))
            for _ in range(chance.randint(1, 4))
        ]
        data = damaged(chance, b"".join(frames))
        limits = chance.choice([{}, SMALL])
        ours, theirs = verdict(data, limits), expected(data, limits)
        assert same(ours, theirs), (ours, theirs, data.hex(), limits)
        name = ours if isinstance(ours, str) else "frames"
        verdicts[name] = verdicts.get(name, 0) + 1
    # The corpus is useful: it reaches the rules.
    assert len(verdicts) >= 10, verdicts


@pytest.mark.parametrize("version", [b"1", b"2"])
def test_windows_of_a_connection_are_the_same(version: bytes) -> None:
    chance = random.Random(version)
    outcomes: dict[str | None, int] = {}
    for _ in range(ROUNDS // 4):
        data = b"".join(generated(chance, version=version) for _ in range(chance.randint(1, 9)))
        windows: list[list[int]] = []
        error = None
        machine = sansio.Machine("lumberjack", "reader")
        try:
            piece = data
            while True:
                need, _ = machine.receive(0, piece)
                piece = b""
                before = len(windows)
                while (event := machine.poll_event()) is not None:
                    windows.append([record["sequence_number"] for record in event["records"]])
                while machine.poll_transmit(0):
                    pass
                if need == "input" or (need == "room" and len(windows) == before):
                    break
        except ProtocolError as refused:
            error = refused.code.removeprefix("lumberjack.")
            while (event := machine.poll_event()) is not None:
                windows.append([record["sequence_number"] for record in event["records"]])
        naive = reference.Reader()
        assert error == naive.receive(data), data.hex()
        assert windows == naive.windows, data.hex()
        outcomes[error] = outcomes.get(error, 0) + 1
    assert outcomes[None] > ROUNDS // 100
    assert outcomes["premature_window"] > 0
