"""Hostile spool files: their numbers are wrong, their checksums are right.

Each reading ends with the events or with an error that names the file and a place in it. No reading
ends the process, and none takes more memory than its option says.
"""

import json
import random
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackline import Receiver, Spool, lumberjack

DEADLINE = 100.0
SECTOR = 4096
SEGMENT = "segments/00000000000000000000.arrows"
INDEX = "segments/00000000000000000000.idx"
MIB = 1 << 20


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Forged:
    """A good spool of one group, whose group is replaced by another one with right checksums."""

    def __init__(self, directory: Path, events: int) -> None:
        self.directory = directory
        with (
            Receiver(["lumberjack://127.0.0.1:0"], spool=directory) as receiver,
            lumberjack.connect(receiver.urls[0], batch_events=events) as writer,
        ):
            writer.send([b'{"n":%d}' % n for n in range(events)], timeout=20)
        index = (directory / INDEX).read_bytes()
        self.index, self.entry = index[:64], index[64:160]
        self.offset, length = struct.unpack_from("<QI", self.entry, 8)
        segment = (directory / SEGMENT).read_bytes()
        self.head = segment[: self.offset]
        self.group = segment[self.offset : self.offset + length]
        with pa.ipc.open_stream(segment) as stream:
            self.batch = next(iter(stream))
        assert self.batch.num_rows == 1

    def with_columns(self, **columns: list[Any]) -> None:
        """Writes a group whose blocks have these values in place of the good ones."""
        rows = max(len(values) for values in columns.values())
        arrays = []
        for field in self.batch.schema:
            values = columns.get(field.name, self.batch[field.name].to_pylist() * rows)
            arrays.append(pa.array(values, field.type))
        batch = pa.record_batch(arrays, schema=self.batch.schema)
        message = batch.serialize().to_pybytes()
        end = 8 + struct.unpack_from("<I", message, 4)[0]
        self.write(message[8:end], message[end:], rows)

    def with_bytes(self, change: Callable[[bytearray], None]) -> None:
        """Writes the good group with changes anywhere but in its seal."""
        group = bytearray(self.group)
        change(group)
        end = 8 + struct.unpack_from("<I", self.group, 4)[0]
        self.seal(bytes(group[: end - 104]), bytes(group[end:]), 1)

    def write(self, message: bytes, body: bytes, blocks: int) -> None:
        padding = -(8 + len(message) + 104 + len(body)) % SECTOR
        prefix = b"\xff\xff\xff\xff" + struct.pack("<I", len(message) + padding + 104)
        self.seal(prefix + message + bytes(padding), body, blocks)

    def seal(self, head: bytes, body: bytes, blocks: int) -> None:
        crc = crc32c(head + body)
        entry = bytearray(self.entry)
        struct.pack_into("<I", entry, 4, blocks)
        struct.pack_into("<II", entry, 16, len(head) + 104 + len(body), crc)
        struct.pack_into("<I", entry, 92, crc32c(bytes(entry[:92])))
        seal = bytes(entry) + struct.pack("<I", 96) + b"SEAL"
        (self.directory / SEGMENT).write_bytes(self.head + head + seal + body)
        (self.directory / INDEX).write_bytes(self.index + entry)


READ = """
import json, resource, sys
import pyarrow as pa
from dataclasses import asdict
from ackline import Spool, SpoolError
from ackline.spark.columns import Columns
from ackline.spark.options import COLUMNS
from ackline.spark.pieces import Piece
from ackline.spark.reader import SpoolPartition, read_batches

def of_arrow(spool, **options):
    rows = 0
    with pa.RecordBatchReader.from_stream(spool.read(**options)) as batches:
        for batch in batches:
            batch.validate(full=True)
            rows += batch.num_rows
    return rows

def of_spark(spool):
    pieces = spool.slices(0, spool.durable(), max_slices=1)
    pieces = tuple(Piece(**asdict(piece)) for piece in pieces)
    batches = read_batches(SpoolPartition(pieces), Columns(tuple(COLUMNS)))
    return sum(batch.num_rows for batch in batches)

READERS = {
    "1": lambda spool: of_arrow(spool, threads=1),
    "4": lambda spool: of_arrow(spool, threads=4),
    "positions": lambda spool: of_arrow(spool, columns=["position"]),
    "lines": lambda spool: sum(1 for _ in spool.read().json_lines()),
    "blocks": lambda spool: sum(block["count"] for block in spool.blocks()),
    "schema": lambda spool: spool.infer_schema().events,
    "spark": of_spark,
}
for directory in sys.argv[1:]:
    for name, read in READERS.items():
        print(directory, name, file=sys.stderr, flush=True)
        try:
            found = {"events": read(Spool(directory))}
        except (SpoolError, pa.ArrowInvalid, OSError) as error:
            found = {"error": str(error)}
        print(json.dumps({"reader": name} | found), flush=True)
"""


def read_all(directories: list[Path]) -> list[dict[str, Any]]:
    """Events or error of each reader of each spool, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", READ, *map(str, directories)],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    last = done.stderr.splitlines()[-3:]
    assert done.returncode == 0, f"the process ended with {done.returncode} in {last}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict[str, Any]], events: int) -> None:
    for one in found:
        if "error" in one:
            is_placed = "position" in one["error"] or "byte " in one["error"]
            assert is_placed, one
            assert ".arrows" in one["error"], one
        else:
            assert one["events"] == events, one


def copies(
    tmp_path: Path, forged: Forged, changes: list[Callable[[bytearray], None]]
) -> list[Path]:
    """A spool for each change."""
    directories = []
    for number, change in enumerate(changes):
        forged.with_bytes(change)
        copy = tmp_path / f"{number}"
        shutil.copytree(forged.directory, copy)
        directories.append(copy)
    return directories


def test_a_good_group_that_is_written_anew_is_read_by_every_reader(tmp_path):
    forged = Forged(tmp_path / "spool", 7)
    forged.with_columns(count=[7])
    found = read_all([forged.directory])
    assert [one["events"] for one in found] == [7] * 7


def test_no_number_that_lies_ends_the_process(tmp_path):
    forged = Forged(tmp_path / "spool", 7)
    lots = random.Random(18)
    head = 8 + struct.unpack_from("<I", forged.group, 4)[0]
    message = [at for at in range(8, head - 104, 4) if forged.group[at : at + 4] != bytes(4)]
    places = lots.sample(message, 60) + lots.sample(range(head, len(forged.group) - 4, 4), 60)

    def lie(at: int, value: int) -> Callable[[bytearray], None]:
        return lambda group: struct.pack_into("<i", group, at, value)

    changes = [lie(at, lots.choice([0, 1, -1, 1 << 20, (1 << 31) - 1])) for at in places]
    check(read_all(copies(tmp_path, forged, changes)), 7)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"count": [0]}, "has 0 events"),
        ({"count": [-3]}, "has -3 events"),
        ({"count": [(1 << 31) - 1]}, "its blocks end at position 2147483647, not at 7"),
        ({"first_position": [1 << 40]}, "not the one of positions 0 to 7"),
        ({"count": [3, 4], "first_position": [0, 4]}, "begins at position 4, not at 3"),
        ({"inflated_bytes": [-1]}, "-1 inflated bytes"),
        ({"windows": [-1]}, "-1 windows"),
        ({"attributes": [[(f"{n}", "x") for n in range(2000)]]}, "has 2000 attributes"),
        ({"layout": ["\x1b[2J\x00"]}, "is not built"),
        ({"body": [b"2J" + bytes(8)]}, "announces 7 events"),
        ({"body": [b"2D" + b"\xff" * 8]}, "ends inside a frame"),
        ({"body": [b"2C\xff\xff\xff\xff" + bytes(9)]}, "ends inside a frame"),
    ],
)  # fmt: skip
def test_a_block_that_lies_is_an_error_with_file_and_position(tmp_path, columns, error):
    forged = Forged(tmp_path / "spool", 7)
    forged.with_columns(**columns)
    found = read_all([forged.directory])
    texts = [one["error"] for one in found if "error" in one]
    assert texts
    for text in texts:
        assert ".arrows" in text
        assert "position 0" in text or "positions 0" in text
        assert error in text


def test_an_envelope_inside_an_envelope_is_never_inflated(tmp_path):
    inner = envelope(b"2J" + struct.pack(">II", 1, 2) + b"{}")
    for _ in range(5):
        inner = envelope(inner)
    forged = Forged(tmp_path / "spool", 1)
    forged.with_columns(body=[inner])
    errors = [one for one in read_all([forged.directory]) if "error" in one]
    assert len(errors) == 5
    assert all("unknown frame type 0x43" in one["error"] for one in errors)


def envelope(frames: bytes) -> bytes:
    stream = zlib.compress(frames, 9)
    return b"2C" + struct.pack(">I", len(stream)) + stream


MEASURE = """
import re, sys
import pyarrow as pa
from ackline import Spool, SpoolError

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10

directory, way, threads, memory = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
element = pa.struct([(f"m{n}", pa.int64()) for n in range(50)])
schema = pa.schema([("position", pa.int64()), ("list", pa.list_(element))])
options = {"schema": schema} if way == "schema" else {"threads": threads}
if memory:
    options["memory"] = memory
spool = Spool(directory)
# The memory of the libraries is not the reader's.
pa.RecordBatchReader.from_batches(pa.schema([]), []).close()
before, rows = peak(), 0
try:
    events = spool.read(**options)
    if way == "lines":
        rows = sum(1 for _ in events.json_lines())
    else:
        with pa.RecordBatchReader.from_stream(events) as batches:
            while True:
                try:
                    rows += batches.read_next_batch().num_rows
                except StopIteration:
                    break
except (SpoolError, pa.ArrowInvalid, OSError) as error:
    print(rows, peak() - before, error)
else:
    print(rows, peak() - before)
"""


def measured(directory: Path, way: str, threads: int, memory: int = 0) -> tuple[int, int, str]:
    """Events, bytes of memory at the most, and the error."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(directory), way, str(threads), str(memory)],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows, peak, *error = done.stdout.split(maxsplit=2)
    return int(rows), int(peak), "".join(error)


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """Eight blocks of 300 MB in a group of some kilobytes; the header of each claims one byte."""
    directory = tmp_path_factory.mktemp("bombs") / "spool"
    forged = Forged(directory, 8 * 300)
    frame = b"2J" + struct.pack(">II", 1, 1_000_000) + bytes(1_000_000)
    body = envelope(frame * 300)
    firsts = [at * 300 for at in range(8)]
    forged.with_columns(
        first_position=firsts, count=[300] * 8, body=[body] * 8, inflated_bytes=[1] * 8
    )
    return directory


@pytest.mark.parametrize("threads", [1, 4])
def test_bombs_take_no_more_than_the_default_memory(bombs, threads):
    rows, peak, error = measured(bombs, "arrow", threads)
    assert (rows, error) == (2400, "")
    assert peak < (512 + 64) * MIB, f"{peak >> 20} MiB"


@pytest.mark.parametrize(("way", "threads"), [("arrow", 1), ("arrow", 4), ("lines", 1)])
def test_bombs_take_no_more_than_the_memory_of_the_reader(bombs, way, threads):
    rows, peak, error = measured(bombs, way, threads, 128 * MIB)
    assert (rows, error) == (2400, "")
    assert peak < (128 + 64) * MIB, f"{peak >> 20} MiB"


@pytest.mark.parametrize("threads", [1, 4])
def test_one_event_larger_than_the_memory_is_an_error_that_names_the_option(tmp_path, threads):
    forged = Forged(tmp_path / "spool", 1)
    body = envelope(b"2J" + struct.pack(">II", 1, 900_000_000) + bytes(900_000_000))
    forged.with_columns(body=[body])
    rows, peak, error = measured(forged.directory, "arrow", threads)
    assert rows == 0
    assert "spool.memory" in error
    assert "--memory" in error
    assert "position 0" in error
    assert peak < (512 + 64) * MIB, f"{peak >> 20} MiB"


def test_a_text_that_every_event_has_is_counted_for_each(tmp_path):
    forged = Forged(tmp_path / "spool", 2000)
    forged.with_columns(peer=["p" * 500_000], count=[2000])
    rows, peak, error = measured(forged.directory, "arrow", 4, 64 * MIB)
    assert (rows, error) == (2000, "")
    assert peak < (64 + 64) * MIB, f"{peak >> 20} MiB"


def test_a_group_that_ends_behind_its_file_takes_no_memory(tmp_path):
    forged = Forged(tmp_path / "spool", 7)
    entry = bytearray(forged.entry)
    struct.pack_into("<I", entry, 16, 0xFFFF_F000)
    struct.pack_into("<I", entry, 92, crc32c(bytes(entry[:92])))
    (forged.directory / INDEX).write_bytes(forged.index + entry)
    rows, peak, error = measured(forged.directory, "arrow", 1)
    assert rows == 0
    assert ".arrows" in error
    assert peak < 64 * MIB, f"{peak >> 20} MiB"


def test_the_events_before_an_error_are_read(tmp_path):
    forged = Forged(tmp_path / "spool", 7)
    body = (b"2J" + struct.pack(">II", 1, 2) + b"{}") * 3
    forged.with_columns(first_position=[0, 3], count=[3, 4], body=[body, b"2J" + bytes(8)])
    found, positions = Spool(forged.directory).read(batch_rows=1), []
    with pytest.raises((pa.ArrowInvalid, OSError), match="position 3"):
        positions.extend(batch["position"].to_pylist() for batch in found)
    assert positions == [[0], [1], [2], [3]]


def list_of(elements: int) -> bytes:
    payload = b'{"list":[' + b",".join([b"{}"] * elements) + b"]}"
    return b"2J" + struct.pack(">II", 1, len(payload)) + payload


def test_elements_without_members_take_no_more_than_the_memory_in_columns(tmp_path):
    forged = Forged(tmp_path / "spool", 40)
    # 3 bytes of text for each 50 columns.
    forged.with_columns(body=[envelope(list_of(20_000) * 40)], count=[40])
    rows, peak, error = measured(forged.directory, "schema", 1, 128 * MIB)
    assert (rows, error) == (40, "")
    assert peak < (128 + 64) * MIB, f"{peak >> 20} MiB"


def test_an_event_whose_columns_do_not_fit_is_an_error_that_names_the_option(tmp_path):
    forged = Forged(tmp_path / "spool", 3)
    body = list_of(1) + list_of(1_000_000) + list_of(1)
    forged.with_columns(body=[envelope(body)], count=[3])
    rows, peak, error = measured(forged.directory, "schema", 1, 128 * MIB)
    assert rows == 1
    assert "spool.memory" in error
    assert "position 1" in error
    assert "memory=" in error
    assert peak < (128 + 64) * MIB, f"{peak >> 20} MiB"
