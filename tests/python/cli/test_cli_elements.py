"""`ackline publish` and `subscribe`: elements of a fixed size, sources, wrong command lines."""

import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from support.commands import (
    DEADLINE,
    ackline,
)
from support.publishing import (
    ANYWHERE,
    PAGE,
    Publisher,
    accepted,
    serving,
    subscribe,
)

from ackline import reactive

# ---- elements of a fixed size ----


@pytest.mark.parametrize("is_packed", [True, False])
def test_numbers_are_values_of_json(is_packed: bool) -> None:  # noqa: FBT001 (a parameter)
    values = [0.0, -1.5, 1e300, float("inf"), float("nan")]

    def serve(connection: reactive.Connection) -> None:
        with accepted(connection, 8 if is_packed else 0) as publication:
            publication.send_many([struct.pack("<d", value) for value in values])
        connection.wait_ended(timeout=DEADLINE)

    with serving(serve) as url:
        run = subscribe(url, "--element", "f64")
    assert run.stderr == b""
    assert run.stdout.split() == [b"0.0", b"-1.5", b"1e+300", b'"Infinity"', b'"NaN"']


def test_fields_are_members_of_an_object(publisher: Publisher, tmp_path: Path) -> None:
    shape = "time:u64, _:bytes[3],value:>f32,flag:bool,id:bytes[2]"
    file = tmp_path / "file"
    elements = [
        struct.pack("<Q3x", number) + struct.pack(">f", number / 2) + bytes([number % 2, 1, 255])
        for number in range(30_000)
    ]
    file.write_bytes(b"".join(elements))
    serving = publisher(file, "--element", shape)
    run = subscribe(serving.url, "--element", shape)
    assert [json.loads(line) for line in run.stdout.splitlines()] == [
        {"time": number, "value": number / 2, "flag": number % 2 == 1, "id": "01ff"}
        for number in range(30_000)
    ]
    assert subscribe(serving.url, "--format", "raw", "--count", "7").stdout == b"".join(
        elements[:7]
    )


def test_elements_that_do_not_fit_are_reported(publisher: Publisher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(16)))
    url = publisher(file, "--element", "u64").url
    run = subscribe(url, "--element", "f32")
    assert run.returncode == 2
    text = b"ackline: --element f32 has 4 bytes, and the publisher's elements have 8\n"
    assert run.stderr == text
    url = publisher(file, "--element", "bool").url
    run = subscribe(url, "--element", "bool")
    assert (run.returncode, run.stdout) == (1, b"")
    assert run.stderr.endswith(b"a bool of --element bool is 2; it is 0 or 1\n")
    url = publisher(file, "--format", "raw").url
    run = subscribe(url, "--element", "u64")
    assert run.returncode == 1
    assert run.stderr.endswith(b"--element u64 has 8 bytes, and an element of the stream has 16\n")


def test_a_numpy_file_is_published(publisher: Publisher, tmp_path: Path) -> None:
    file = tmp_path / "values.npy"
    np.save(file, np.arange(10_000, dtype="<i4").reshape(100, 100))
    serving = publisher(file, "--element", "i32")
    run = subscribe(serving.url, "--element", "i32")
    assert run.stdout.split() == [b"%d" % number for number in range(10_000)]
    pairs = np.array([(1, 2.5)], dtype=[("time", "<u8"), ("value", "<f4")])
    np.save(file, pairs)
    serving = publisher(file, "--element", "time:u64,value:f32")
    run = subscribe(serving.url, "--element", "time:u64,value:f32")
    assert run.stdout == b'{"time":1,"value":2.5}\n'


def test_a_numpy_file_of_other_values_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "values.npy"
    np.save(file, np.zeros(3, dtype="<f8"))
    run = ackline("publish", "--listen", ANYWHERE, str(file), "--element", "i64")
    assert run.returncode == 2
    assert run.stderr == f"ackline: {file} has values of '<f8'; --element i64 describes others\n"
    file.write_bytes(b"no file of NumPy")
    run = ackline("publish", "--listen", ANYWHERE, str(file), "--element", "i64")
    assert run.stderr == f"ackline: {file} is not a NumPy file\n"


# ---- sources that fail ----


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        (b"a\n" + b"b" * 2_000, ["--max-element-bytes", "1000"], "line 2: longer than the limit"),
        (b"YQ==\n?\n", ["--format", "base64"], "line 2: not base64: "),
    ],
)
def test_a_source_that_fails_ends_the_stream(
    publisher: Publisher, tmp_path: Path, content: bytes, options: list[str], why: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    serving = publisher(file, *options, "--streams", "1")
    run = subscribe(serving.url)
    assert run.returncode == 1
    assert f"the stream: {file}, {why}" in run.stderr.decode()
    told = serving.next("published")
    assert told["end"] == "failed"
    assert why in told["message"]
    assert serving.process.wait(DEADLINE) == 1


def test_a_file_that_is_gone_ends_the_stream(publisher: Publisher, numbers: Path) -> None:
    serving = publisher(numbers)
    numbers.unlink()
    run = subscribe(serving.url)
    assert run.stderr.decode().endswith(f"{numbers}: No such file or directory\n")
    assert serving.next("published")["end"] == "failed"


# ---- the command line ----


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["subscribe", "reactive://127.0.0.1:1"], "the publisher's name is missing"),
        (["subscribe", "bpmux://127.0.0.1:1/x"], "bpmux is no protocol of this command"),
        (["subscribe", "nonsense"], "nonsense"),
        (["subscribe", ANYWHERE, "--low-water", "9", "--demand", "9"], "it is below --demand"),
        (["subscribe", ANYWHERE, "--format", "jso"], "not 'jso' (did you mean json?)"),
        (["subscribe", ANYWHERE, "--element", "f63"], '--element is "f63": it has'),
        (["subscribe", ANYWHERE, "--element", "u8", "--format", "raw"], "leave --format raw out"),
        (["subscribe", ANYWHERE, "--timeout", "inf"], "--timeout is inf; it is in seconds"),
        (["subscribe", ANYWHERE, "--memory", "3"], "--memory is 3; it is at least 65536"),
        (["publish", "reactive://127.0.0.1:1", "FILE"], "the publisher's name is missing"),
        (["send", ANYWHERE, "FILE"], "use `ackline publish`"),
        (["publish", ANYWHERE, "missing"], "missing is not a file"),
        (["publish", ANYWHERE, "FILE", "--format", "lnes"], "not 'lnes' (did you mean lines?)"),
        (["publish", ANYWHERE, "FILE", "--allow", "::1"], "--allow needs --listen"),
        (["publish", ANYWHERE, "FILE", "--element", "u64"], "2 bytes at the end are no"),
        (
            ["publish", "--listen", ANYWHERE, "FILE", "--token-file", "x"],
            "--token-file is for a command without --listen",
        ),
    ],
    ids=repr,
)  # fmt: skip
def test_a_wrong_command_line_is_refused(arguments: list[str], why: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(10))
    run = ackline(*(str(file) if argument == "FILE" else argument for argument in arguments))
    assert run.returncode == 2, run.stderr
    assert run.stdout == ""
    assert why in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["subscribe", "publish"])
def test_nobody_is_there(command: str, numbers: Path) -> None:
    url = "reactive://127.0.0.1:1/numbers"
    file = [str(numbers)] if command == "publish" else []
    run = ackline(command, url, *file, "--timeout", "5")
    assert run.returncode == 69
    assert run.stderr.startswith("ackline: reactive://127.0.0.1:1: ")


def test_json_lines_of_a_publisher_are_the_documented_ones(
    publisher: Publisher, numbers: Path
) -> None:
    text = PAGE.read_text("utf-8").split("## Lines of `ackline publish --json`\n")[1]
    table = re.findall(r"(?m)^\| `(\w+)` \| [^|]* \| (.*) \|$", text.split("\n## ")[0])
    documented = {event: set(re.findall(r"`(\w+)`", members)) for event, members in table}
    serving = publisher(numbers)
    subscribe(serving.url)
    subscribe(f"{serving.url}/none")
    serving.next("rejected")
    for line in serving.lines:
        members = documented[line["event"]] - {"completed", "cancelled", "lost", "failed"}
        assert set(line) - {"event", "time"} == members
    assert {line["event"] for line in serving.lines} == {"listening", "published", "rejected"}
