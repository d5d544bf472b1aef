"""Payloads as typed columns without Spark, schemas from a sample, and the command for that."""

import json
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.json
import pytest
from support.commands import ackline

from ackline import Projection, Receiver, Spool, UsageError, lumberjack

EVENTS = [
    b'{"n":1,"log":{"level":"info"},"t":"2026-11-21T10:00:00.5Z"}',
    b'{"n":2,"log.level":"warn","position":7}',
    b"oops",
    b'{"n":"three"}',
]


def filled(directory: Path, events: list[bytes]) -> Spool:
    with Receiver(["lumberjack://127.0.0.1:0"], spool=directory) as receiver:
        with lumberjack.connect(receiver.urls[0], batch_events=1000) as writer:
            writer.send(events, timeout=20)
        return Spool(directory)


@pytest.fixture(scope="module")
def spool(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("schema") / "spool", EVENTS)


SCHEMA = pa.schema(
    {"n": pa.int64(), "log": pa.struct({"level": pa.string()}), "position": pa.int64()}
)


def test_a_read_with_a_schema_has_its_columns_and_the_rescued(spool):
    table = spool.read(schema=SCHEMA).to_table()
    assert table.schema == SCHEMA.append(pa.field("_rescued", pa.string()))
    assert table["n"].to_pylist() == [1, 2, None, None]
    assert table["log"].to_pylist() == [{"level": "info"}, {"level": "warn"}, None, None]
    assert table["position"].to_pylist() == [0, 1, 2, 3]
    rescued = [text and json.loads(text) for text in table["_rescued"].to_pylist()]
    assert rescued == [
        {"t": "2026-11-21T10:00:00.5Z"},
        {"position": 7},
        {"_corrupt_record": "oops"},
        {"n": "three"},
    ]


def test_a_slice_is_projected_as_the_whole_is(spool):
    parts = spool.slices(1, 4, max_slices=1)
    tables = [Spool.read_slice(part, schema=SCHEMA).to_table() for part in parts]
    assert pa.concat_tables(tables) == spool.read(1, 4, schema=SCHEMA).to_table()


def test_a_projection_handles_malformed_events_by_its_mode(spool):
    dropped = Projection(SCHEMA, mode="DROPMALFORMED", rescued=None)
    assert spool.read(schema=dropped).to_table()["position"].to_pylist() == [0, 1]
    with pytest.raises(Exception, match=r"json\.syntax: position 2: ") as error:
        spool.read(schema=Projection(SCHEMA, mode="FAILFAST")).to_table()
    assert "oops" not in str(error.value)
    named = Projection(SCHEMA.append(pa.field("bad", pa.string())), corrupt_record="bad")
    assert spool.read(schema=named).to_table()["bad"].to_pylist() == [None, None, "oops", None]
    renamed = Projection(SCHEMA, rescued="rest", case_sensitive=True)
    assert spool.read(schema=renamed).to_table().column_names[-1] == "rest"


def test_a_projection_may_give_the_columns_of_events_other_names(spool):
    fields = {"at": pa.int64(), "position": pa.int64(), "raw": pa.binary(), "stream": pa.string()}
    named = Projection(
        pa.schema(fields), rescued=None, event_columns={"at": "position", "raw": "payload"}
    )
    table = spool.read(0, 2, schema=named).to_table()
    assert table.to_pylist() == [
        {"at": 0, "position": None, "raw": EVENTS[0], "stream": None},
        {"at": 1, "position": 7, "raw": EVENTS[1], "stream": None},
    ]
    lines = [json.loads(line) for line in spool.read(1, 2, schema=named).json_lines()]
    assert lines[0]["position"] == 7
    for columns, text in (
        ({"at": "positions"}, 'an event has no column "positions"'),
        ({"stream": "position"}, "column stream is one that every event has"),
    ):
        with pytest.raises(UsageError, match=text):
            spool.read(schema=Projection(pa.schema(fields), event_columns=columns))


def test_rows_of_a_schema_are_json_lines_too(spool):
    lines = [json.loads(line) for line in spool.read(0, 2, schema=SCHEMA).json_lines()]
    assert lines[0]["log"] == {"level": "info"}
    assert lines[1] == {
        "n": 2,
        "log": {"level": "warn"},
        "position": 1,
        "_rescued": '{"position":7}',
    }
    with pytest.raises(Exception, match=r"position 2: the payload is not JSON"):
        list(spool.read(schema=Projection(SCHEMA, mode="FAILFAST")).json_lines())


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema({"a": pa.float16()}), "column a has the type Float16"),
        (pa.schema({"a": pa.large_string()}), "column a has the type LargeUtf8"),
        (pa.schema([pa.field("a", pa.int8(), nullable=False)]), "column a may not be null"),
        (pa.schema({"position": pa.string()}), "column position is one that every event has"),
        (pa.schema({"a": pa.map_(pa.int8(), pa.int8())}), "column a.key has the type Int8"),
        (Projection(pa.schema({}), mode="LOOSE"), "mode must be PERMISSIVE"),
    ],
)
def test_schemas_that_cannot_be_filled_are_refused(spool, schema, message):
    with pytest.raises(UsageError, match=message) as error:
        spool.read(schema=schema)
    assert error.value.code == "json.schema"


def test_columns_and_schema_are_not_given_both(spool):
    with pytest.raises(UsageError, match="columns and schema contradict"):
        spool.read(columns=["position"], schema=SCHEMA)


def test_events_are_projected_once(spool):
    core = spool._core
    stream = core.read(columns=["position", "parts", "payload"])
    native = Projection(SCHEMA).native()
    stream.project(native, 1 << 20)
    with pytest.raises(ValueError, match="read already"):
        stream.project(native, 1 << 20)
    with pytest.raises(Exception, match="the column payload was not read"):
        pa.table(core.read(columns=["position", "parts"]).project(native, 1 << 20))


def test_pyarrow_reads_the_same_from_ordinary_json(tmp_path):
    schema = pa.schema(
        {
            "i": pa.int64(),
            "f": pa.float64(),
            "b": pa.bool_(),
            "s": pa.string(),
            "l": pa.list_(pa.int64()),
            "o": pa.struct({"x": pa.int32(), "y": pa.struct({"z": pa.string()})}),
            "d": pa.decimal128(20, 4),
        }
    )
    events = []
    for n in range(500):
        event = {
            "i": (-1) ** n * (n**6),
            "f": n / 7,
            "b": n % 2 == 0,
            "s": f'"{n}" \\ \u00e9 {chr(0x1F600 + n % 50)} {chr(1 + n % 31)}',
            "l": list(range(n % 5)),
            "o": {"x": n, "y": {"z": "z" * (n % 9)}},
            "d": None,
            "unknown": [n, {"m": None}],
        }
        for name in list(event)[: n % 8]:
            event[name] = None if n % 3 else event[name]
        text = json.dumps(event, ensure_ascii=n % 2 == 0)
        events.append(text.replace('"d": null', f'"d": {n}.{n:04}').encode())
    lines = tmp_path / "lines.json"
    lines.write_bytes(b"\n".join(events))
    options = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    expected = pyarrow.json.read_json(lines, parse_options=options)
    spool = filled(tmp_path / "spool", events)
    found = spool.read(schema=Projection(schema, rescued=None)).to_table()
    assert found.to_pylist() == expected.select(schema.names).to_pylist()
    assert spool.read(schema=schema).to_table().drop("_rescued") == found


def test_a_sample_tells_the_schema(spool):
    found = spool.infer_schema()
    assert found.ddl == "n STRING,\nlog STRUCT<level: STRING>,\nt TIMESTAMP"
    assert (found.events, found.malformed, found.shadowed) == (4, 1, ("position",))
    assert found.names_left_out == 0
    assert spool.infer_schema(0, 2).schema().field("n").type == pa.int64()
    assert spool.read(schema=found.schema()).to_table()["n"].to_pylist() == [
        "1",
        "2",
        None,
        "three",
    ]
    with pytest.raises(UsageError, match="sample is 0; it is a whole number from 1 to"):
        spool.infer_schema(sample=0)


def test_a_sample_comes_from_the_whole_range(tmp_path):
    spool = filled(tmp_path / "spool", [b'{"m%d":1}' % (n // 100) for n in range(1000)])
    found = spool.infer_schema(sample=20)
    assert found.events == 20
    assert found.ddl.count("BIGINT") == 10
    assert spool.infer_schema(sample=3).events == 3
    assert spool.infer_schema(500, 600, case_sensitive=True).ddl == "m5 BIGINT"


def test_the_rescue_columns_are_not_inferred(tmp_path):
    events = [b'{"_rescued":"m","_corrupt_record":1,"a":1}']
    found = filled(tmp_path / "spool", events).infer_schema()
    assert found.ddl == "a BIGINT"
    assert found.shadowed == ("_rescued", "_corrupt_record")


def test_a_projection_names_each_column_once():
    names = pa.schema([("_rescued", pa.string()), ("a", pa.int64()), ("_rescued", pa.string())])
    with pytest.raises(UsageError, match="two columns are named _rescued"):
        Projection(names).native()


def test_pairs_are_members(tmp_path):
    with Receiver(["lumberjack://127.0.0.1:0"], spool=tmp_path / "spool") as receiver:
        options = {"version": 1}
        with lumberjack.connect(receiver.urls[0], **options) as writer:
            writer.send([[(b"line", b"x"), (b"offset", b"12")]], timeout=20)
        spool = Spool(tmp_path / "spool")
    schema = pa.schema({"offset": pa.int64(), "line": pa.string()})
    row = {"offset": 12, "line": "x", "_rescued": None}
    assert spool.read(schema=schema).to_table().to_pylist() == [row]
    assert spool.infer_schema().ddl == "line STRING,\noffset STRING"


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        ({"_rescued": pa.int64()}, {}, "column _rescued takes rescued members and is a STRING"),
        ({"rest": pa.list_(pa.string())}, {"rescued": "rest"}, "column rest .* not List"),
        ({"_corrupt_record": pa.int64()}, {}, "column _corrupt_record takes events that are no"),
        ({"a": pa.int64()}, {"rescued": "position"}, "column position is one that every event has"),
        ({"a": pa.int64()}, {"corrupt_record": "payload"}, "column payload is one that every"),
        ({"_rescued": pa.field("_rescued", pa.string(), nullable=False)}, {}, "make it nullable"),
    ],
)  # fmt: skip
def test_a_column_that_takes_the_rest_is_text_and_has_its_own_name(spool, schema, options, text):
    fields = [x if isinstance(x, pa.Field) else pa.field(n, x) for n, x in schema.items()]
    with pytest.raises(UsageError, match=text) as refused:
        spool.read(schema=Projection(pa.schema(fields), **options))
    assert refused.value.code == "json.schema"


@pytest.mark.parametrize("schema", ["s STRING", {"s": "string"}, Projection("s STRING")])
def test_an_argument_that_is_no_schema_of_arrow_is_refused(spool, schema):
    with pytest.raises(UsageError, match=r"schema is a pyarrow\.Schema or a Projection") as refused:
        spool.read(schema=schema)
    assert refused.value.code == "json.schema"


def infer(*arguments: object) -> subprocess.CompletedProcess[str]:
    return ackline("schema", "infer", *map(str, arguments))


def test_the_command_prints_ddl_and_notes(spool):
    found = infer(spool.path)
    assert found.returncode == 0
    assert found.stdout == "n STRING,\nlog STRUCT<level: STRING>,\nt TIMESTAMP\n"
    assert "3 of 4 events are JSON objects" in found.stderr
    assert "no columns: position" in found.stderr
    some = infer(spool.path, "--from", 0, "--to", 2, "--sample", 2, "--json")
    assert json.loads(some.stdout) == {
        "event": "schema",
        "ddl": "n BIGINT,\nlog STRUCT<level: STRING>,\nt TIMESTAMP",
        "events": 2,
        "malformed": 0,
        "shadowed": ["position"],
        "names_left_out": 0,
    }


def test_the_command_refuses_unreadable_input(spool, tmp_path):
    assert infer(spool.path, "--from", 2, "--to", 3).returncode == 1
    assert infer(spool.path, "--to", 99).returncode == 1
    assert infer(spool.path, "--sample", 0).returncode == 2
    for first, last, text in ((5, 2, "positions 5 to 2"), (99, None, "positions 99 to 4")):
        found = infer(spool.path, "--from", first, *(["--to", last] if last else []))
        assert (found.returncode, found.stdout) == (1, "")
        assert f"{text} are no range: there are 0 to 4" in found.stderr
    assert infer(tmp_path).returncode != 0
