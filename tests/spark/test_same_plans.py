"""The planner of a JVM plans as the source in Python does: one continues what the other began."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from harness import Receiver, numbered
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from ackline.spark.reader import SpoolPartition
from ackline.spark.source import AcklineSource, described

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Receive = Callable[..., Receiver]

VERSION = "4.3.0"


def replies(*requests: dict[str, Any]) -> list[str]:
    """Return the results of requests, each as the text that a JVM gets."""
    with subprocess.Popen(
        [sys.executable, "-m", "ackline.spark.planner"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        found: list[str] = []
        for request in requests:
            process.stdin.write(json.dumps({"id": 1} | request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line.startswith('{"id": 1, "ok": '), line
            found.append(line.removeprefix('{"id": 1, "ok": ').removesuffix("}\n"))
        process.stdin.close()
    assert process.returncode == 0
    return found


def opening(options: dict[str, str], schema: StructType) -> dict[str, Any]:
    wanted = described(schema)
    fields = [asdict(field) for field in wanted.fields]
    arrow = base64.b64encode(wanted.arrow()).decode()
    return {
        "call": "open",
        "query": "q",
        "kind": "stream",
        "options": options,
        "spark": VERSION,
        "cores": 2,
        "is_asked": True,
        "schema": {"fields": fields, "arrow": arrow},
    }


def test_offsets_and_pieces_are_the_same_to_the_byte(receive: Receive, tmp_path: Path) -> None:
    receive(tmp_path / "spool").send(numbered(0, 500), window=20)
    options = {"spool": str(tmp_path / "spool"), "columns": "position,payload"}

    class Source(AcklineSource):
        cores = 2

    source = Source(options)
    schema = source.schema()
    assert isinstance(schema, StructType)
    reader = source.streamReader(schema)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    tasks = reader.partitions(begin, end)
    pieces = [
        [asdict(piece) for piece in task.pieces]
        for task in tasks
        if isinstance(task, SpoolPartition)
    ]
    found = replies(
        opening(options, schema),
        {"call": "initial", "query": "q"},
        {"call": "latest", "query": "q", "start": begin, "all": True},
        {"call": "partitions", "query": "q", "start": begin, "end": end, "is_ahead": False},
    )
    assert found[1] == json.dumps(begin)
    assert found[2].startswith(f'{{"end": {json.dumps(end)}, "report": ')
    assert found[2].endswith(f', "tasks": {json.dumps(pieces)}}}')
    assert found[3] == json.dumps(pieces)
    # The next batch begins where the one of the other ended.
    assert reader.latestOffset(json.loads(found[2])["end"], ReadAllAvailable()) == end


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"digest": "true"},
        {"columns": "position,parts,attributes"},
        {"payload": "variant"},
        {"reactive.element": "a:u64,b:u32,c:u16,d:u8,e:i8,f:f32,g:f64,h:bool,i:bytes[3],j:i64"},
        {"schema": "n INT, log STRUCT<level: STRING>"},
    ],
)
def test_schemas_are_the_same(tmp_path: Path, options: dict[str, str]) -> None:
    options = {"spool": str(tmp_path)} | options
    (text,) = replies({"call": "schema", "options": options, "spark": VERSION})
    found = json.loads(text)
    schema = AcklineSource(options).schema()
    assert schema == (found["ddl"] if "ddl" in found else StructType.fromJson(found["json"]))
