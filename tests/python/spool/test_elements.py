"""Payloads that are elements of a fixed size as typed columns, without Spark."""

import json
import math
import pickle
import struct
from pathlib import Path

import pyarrow as pa
import pytest

from ackline import Elements, Receiver, Spool, UsageError, lumberjack

PACKED = struct.Struct("<QxxxfB")
EVENTS = [
    PACKED.pack(2**64 - 1, 1.5, 1),
    PACKED.pack(0, -0.0, 0),
    b"short",
    PACKED.pack(7, 2.5, 2),
    PACKED.pack(1 << 63, math.nan, 1),
]
ELEMENT = "time:u64,_:bytes[3],value:f32,flag:bool"


def filled(directory: Path, events: list[bytes] | list[list[tuple[bytes, bytes]]], **options):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=directory) as receiver:
        with lumberjack.connect(receiver.urls[0], batch_events=1000, **options) as writer:
            writer.send(events, timeout=20)
        return Spool(directory)


@pytest.fixture(scope="module")
def spool(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("elements") / "spool", EVENTS)


def test_fields_are_columns_in_place_of_the_payload(spool):
    table = spool.read(schema=Elements(ELEMENT)).to_table()
    stored = spool.read().to_table().column_names
    own = ["time", "value", "flag", "_corrupt_record"]
    assert table.column_names == [name for name in stored if name != "payload"] + own
    assert table.schema.field("time").type == pa.uint64()
    assert table["time"].to_pylist() == [2**64 - 1, 0, None, None, 1 << 63]
    found = table["value"].to_pylist()
    assert (found[0], math.copysign(1, found[1]), found[2]) == (1.5, -1.0, None)
    assert math.isnan(found[4])
    assert table["flag"].to_pylist() == [True, False, None, None, True]
    assert table["_corrupt_record"].to_pylist() == [None, None, b"short", EVENTS[3], None]
    assert table["position"].to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("element", "code", "kind"),
    [
        *(("<i8", "<b", pa.int8()), ("i16", "<h", pa.int16()), (">i32", ">i", pa.int32())),
        *(("i64", "<q", pa.int64()), (">u8", "B", pa.uint8()), (">u16", ">H", pa.uint16())),
        *(("<u32", "<I", pa.uint32()), (">u64", ">Q", pa.uint64()), ("f32", "<f", pa.float32())),
        *((">f64", ">d", pa.float64()), ("bool", "?", pa.bool_())),
        ("bytes[3]", "3s", pa.binary()),
    ],
)
def test_each_type_has_the_values_of_struct(tmp_path, element, code, kind):
    size = struct.calcsize(code)
    payloads = [bytes(range(n, n + size)) for n in range(1 if element == "bool" else 200)]
    payloads += [] if element == "bool" else [b"\x00" * size, b"\x7f" * size, b"\x80" * size]
    spool = filled(tmp_path / "spool", payloads)
    table = spool.read(schema=Elements(element, mode="FAILFAST")).to_table()
    assert table.schema.field("element").type == kind
    assert table["element"].to_pylist() == [struct.unpack(code, one)[0] for one in payloads]


def test_a_schema_chooses_columns_and_may_widen_unsigned_numbers(spool):
    schema = pa.schema(
        {"time": pa.decimal128(20, 0), "payload": pa.binary(), "position": pa.int64()}
    )
    elements = Elements(ELEMENT, schema, "DROPMALFORMED")
    table = spool.read(schema=pickle.loads(pickle.dumps(elements))).to_table()
    assert table.schema == schema
    assert [int(one) for one in table["time"].to_pylist()] == [2**64 - 1, 0, 1 << 63]
    assert table["position"].to_pylist() == [0, 1, 4]
    assert table["payload"].to_pylist() == [EVENTS[0], EVENTS[1], EVENTS[4]]


def test_a_slice_and_small_batches_have_the_same_rows(spool):
    elements = Elements(ELEMENT)
    whole = spool.read(1, 4, schema=elements).to_table()
    parts = spool.slices(1, 4, max_slices=1)
    assert pa.concat_tables(Spool.read_slice(p, schema=elements).to_table() for p in parts) == whole
    assert spool.read(1, 4, schema=elements, batch_rows=1).to_table() == whole


def test_rows_are_json_lines_too(spool):
    lines = [json.loads(line) for line in spool.read(0, 3, schema=Elements(ELEMENT)).json_lines()]
    assert (lines[0]["time"], lines[0]["value"], lines[0]["flag"]) == (2**64 - 1, 1.5, True)
    assert (lines[2].get("time"), lines[2]["_corrupt_record"]) == (None, "c2hvcnQ=")


def test_the_mode_failfast_names_position_reason_and_description(spool):
    strict = Elements(ELEMENT, mode="FAILFAST")
    said = r"element\.size: position 2: the payload has 5 bytes, and an element has 16 \(element"
    with pytest.raises(Exception, match=said):
        spool.read(schema=strict).to_table()
    with pytest.raises(Exception, match=r"element\.bool: position 3: the field flag is a bool"):
        spool.read(3, schema=strict).to_table()
    assert spool.read(0, 2, schema=strict).to_table().num_rows == 2


def test_events_of_keys_and_values_are_no_elements(tmp_path):
    spool = filled(tmp_path / "spool", [[(b"line", b"x"), (b"n", b"1")]], version=1)
    table = spool.read(schema=Elements("f64")).to_table()
    assert table["element"].to_pylist() == [None]
    assert table["_corrupt_record"].to_pylist() == [b""]
    with pytest.raises(Exception, match=r"element\.pairs: position 0: the event has keys"):
        spool.read(schema=Elements("f64", mode="FAILFAST")).to_table()


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        (
            Elements("f46"),
            r'element is "f46": it has the unknown type "f46" \(did you mean f64\?\)',
        ),
        (Elements("double"), r"did you mean f64\?\); types are bool, i8, i16, i32, i64, u8"),
        (Elements("a:u8,b"), 'field 2 is "b" without a colon; write name:type'),
        (Elements("position:u64"), "a field is named position, as a column that every event has"),
        (Elements("_corrupt_record:u8"), "a field is named _corrupt_record, as the column for"),
        (Elements("f64", mode="LOOSE"), "mode must be PERMISSIVE"),
        (Elements("f64", corrupt_record="peer"), "column peer is one that every event has"),
        (Elements("f64", pa.schema({"element": pa.int64()})), "column element has the type Int64"),
        (Elements("f64", pa.schema({"x": pa.int64()})), "column x is none of every event, and no"),
        (Elements("f64", pa.schema({"peer": pa.int64()})), "column peer is one that every event"),
        (Elements("f64", "element DOUBLE"), r"schema is a pyarrow\.Schema, not str"),
    ],
)
def test_wrong_descriptions_and_schemas_are_refused(spool, elements, text):
    with pytest.raises(UsageError, match=text) as refused:
        spool.read(schema=elements)
    assert refused.value.code == "element.schema"


def test_columns_and_elements_are_not_given_both(spool):
    with pytest.raises(UsageError, match="columns and schema contradict"):
        spool.read(columns=["position"], schema=Elements("f64"))
