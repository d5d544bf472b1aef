"""`ackline decode`: the frames of a capture, as people and programs read them."""

import json
import os
import subprocess
import sys
import zlib

import pytest
from support.commands import DEADLINE, ROOT, ackline, ackline_bytes

from ackline import _core
from ackline.exceptions import ProtocolError, UsageError
from ackline.sansio import encode

VECTORS = ROOT / "tests" / "vectors"
CAPTURE = bytes.fromhex(
    "0000000000000000"
    "03616263020105000700000000000000" "0900000000000000"
    "110145600500000048656c6c6f000000"
    "2d070000ffffffff"
    "2000000000000000"
)  # fmt: skip


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "capture"
    path.write_bytes(CAPTURE)
    return str(path)


def decode(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return ackline_bytes("decode", *arguments, given=stdin)


def frames(*arguments: str, stdin: bytes = b"") -> list[dict[str, object]]:
    run = decode("--json", *arguments, stdin=stdin)
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_a_handshake_gives_the_id_sizes_of_the_packets_after_it(capture):
    run = ackline("decode", "--protocol", "relink", "--handshake", "--json", capture)
    assert run.returncode == 0, run.stderr
    version, endpoint, message, consumed, ping, end = map(json.loads, run.stdout.splitlines())
    assert version == {"event": "frame", "offset": 0, "length": 8, "type": "version", "version": 0}
    assert endpoint["endpoint_name"] == "abc"
    assert (endpoint["require_old_link_id"], endpoint["old_link_id"]) == (True, 9)
    assert message == {
        "event": "frame", "offset": 32, "length": 16, "type": "message", "multicast": False,
        "channel_ids": ["4560"], "payload": [b"Hello".hex()],
    }  # fmt: skip
    assert (consumed["acknowledgement"], consumed["sequence_number"]) == ("consumed", 2**32 - 1)
    assert ping["type"] == "ping"
    assert end == {"event": "decoded", "frames": 5, "bytes": len(CAPTURE), "pending": 0}


def test_the_table_shows_text_as_text_and_ids_as_hex(capture):
    run = ackline("decode", "--protocol", "relink", "--handshake", capture)
    lines = run.stdout.splitlines()
    assert lines[0].split() == ["offset", "bytes", "frame", "content"]
    assert lines[3].split() == [
        "32", "16", "message", "multicast=no", "channel_ids=[4560]", 'payload=["Hello"]',
    ]  # fmt: skip
    assert run.stderr == f"5 frames, {len(CAPTURE)} bytes\n"


def test_every_byte_of_annotated_hex_stands_there_once(capture):
    run = ackline("decode", "--protocol", "relink", "--handshake", "--annotate", capture)
    rows = [line[2:] for line in run.stdout.splitlines() if line.startswith("  ")]
    shown = bytes.fromhex("".join(row[10:34] for row in rows))
    assert shown == CAPTURE
    assert [int(row[:8], 16) for row in rows][:3] == [0, 1, 8]
    assert any(row.endswith("03                       endpoint name of 3 bytes") for row in rows)
    assert any(row.endswith("padding") for row in rows)


def test_the_printed_frames_are_those_of_the_vectors():
    vectors = json.loads((VECTORS / "relink" / "frames.json").read_text())["vectors"]
    checked = 0
    for vector in vectors:
        context = vector["context"]
        if context["unit"] != "packet" or not isinstance(vector["hex"], str):
            continue
        sizes = {name: value for name, value in context.items() if name.endswith("_size")}
        inspector = _core.Inspector("relink", context["from"], sizes)
        inspector.feed(bytes.fromhex(vector["hex"]))
        if "frames" not in vector:
            # The limits of a capture's reader are wider.
            if vector["error"] == "unused_enumeration":
                with pytest.raises(ProtocolError) as caught:
                    inspector.take()
                assert caught.value.code == "relink.unused_enumeration"
            continue
        for frame in vector["frames"]:
            taken = inspector.take()
            assert taken is not None
            assert {"type": taken[1], **plain(taken[3])} == frame, vector["name"]
        assert (inspector.take(), inspector.pending) == (None, 0)
        checked += 1
    assert checked > 50


def plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def test_every_chunk_of_bpmux_is_read_as_its_vector_says():
    """Every form of a frame has all of its bytes explained."""
    vectors = json.loads((VECTORS / "bpmux" / "frames.json").read_text())["vectors"]
    sound = [one for one in vectors if "frames" in one and isinstance(one["hex"], str)]
    data = bytes.fromhex("".join(one["hex"] for one in sound))
    came = frames("--protocol", "bpmux", "-", stdin=data)
    wanted = [frame for one in sound for frame in one["frames"]]
    assert len(wanted) > 60
    kept = [
        {key: frame[key] for key in frame if key in one}
        for frame, one in zip(came, wanted, strict=False)
    ]
    assert kept == wanted
    assert came[-1] == {"event": "decoded", "frames": len(wanted), "bytes": len(data), "pending": 0}
    inspector = _core.Inspector("bpmux", None, {})
    inspector.feed(data)
    while (frame := inspector.take()) is not None:
        assert sum(length for length, _ in frame[4]) == len(frame[2]), frame


def test_bpmux_has_one_kind_of_sender_and_a_limit():
    run = decode("--protocol", "bpmux", "--sender", "connector", "-")
    assert run.returncode == 2
    assert b"--sender" in run.stderr
    run = decode("--protocol", "bpmux", "--max-frame-bytes", "4", "-", stdin=b"\x6c\x05hello")
    assert run.returncode == 1
    assert b"bpmux.limit_exceeded: 5 is above 4 (--max-frame-bytes)" in run.stderr
    run = decode("--protocol", "bpmux", "-", stdin=b"\x6c\x05hello\x8c")
    assert b"bpmux.invalid_chunk" in run.stderr
    assert run.stderr.endswith(b" (at byte 7 of the capture)\n")
    assert b"hello" in run.stdout


def test_hex_may_be_written_in_many_ways_and_in_many_pieces():
    expected = frames("--protocol", "relink", "-", stdin=bytes.fromhex("2000000000000000") * 3)
    texts = [
        b"2000000000000000 " * 3,
        b"0x20 00 00 00 00 00 00 00\n" + b"20:00:00:00,00,00,00,00\n" * 2,
        b"20\n00\n00\n00\n00\n00\n00\n00\n" * 3,
    ]
    for text in texts:
        assert frames("--protocol", "relink", "--hex", "-", stdin=text) == expected, text
    many = decode("--protocol", "relink", "--hex", "-", stdin=b"2000000000000000\n" * 20_000)
    assert many.stderr == b"20000 frames, 160000 bytes\n"


@pytest.mark.parametrize("text", [b"2", b"20 0", b"zz", b"200\n0"])
def test_input_that_is_not_hex_is_refused(text):
    run = decode("--protocol", "relink", "--hex", "-", stdin=text)
    assert run.returncode == 2
    assert run.stderr.startswith(b"ackline: --hex: ")


def test_an_envelope_is_shown_with_the_frames_in_it():
    stream = zlib.compress(b"2J\0\0\0\x01\0\0\0\x02{}2J\0\0\0\x02\0\0\0\x02[]")
    capture = b"2W\0\0\0\x02" + b"2C" + len(stream).to_bytes(4) + stream
    window, envelope, _ = frames("--protocol", "lumberjack", "-", stdin=capture)
    assert (window["type"], window["window_size"]) == ("window", 2)
    inner = envelope["frames"]
    assert isinstance(inner, list)
    assert [(one["offset"], one["payload"]) for one in inner] == [
        (0, b"{}".hex()),
        (12, b"[]".hex()),
    ]
    table = decode("--protocol", "lumberjack", "-", stdin=capture).stdout.decode().splitlines()
    assert table[3].startswith("  0 ")
    assert table[4].split()[0] == "12"
    annotated = decode("--protocol", "lumberjack", "--annotate", "-", stdin=capture).stdout.decode()
    assert "    json, 12 bytes\n" in annotated


def test_a_reader_of_lumberjack_sends_acknowledgements():
    (ack, _) = frames("--protocol", "lumberjack", "--sender", "reader", "-", stdin=b"2A\0\0\0\x07")
    assert (ack["type"], ack["sequence_number"]) == ("ack", 7)


def test_frames_before_an_invalid_one_are_printed():
    capture = bytes.fromhex("2000000000000000a0000000000000002000000000000000")
    run = decode("--protocol", "relink", "--json", "-", stdin=capture)
    ping, failed = map(json.loads, run.stdout.splitlines())
    assert (run.returncode, ping["type"], failed["event"]) == (1, "ping", "failed")
    assert (failed["code"], failed["offset"]) == ("relink.unused_enumeration", 8)
    run = decode("--protocol", "relink", "-", stdin=capture)
    assert run.stdout.splitlines()[1].split()[:3] == [b"0", b"8", b"ping"]
    assert run.stderr.startswith(b"ackline: relink.unused_enumeration: ")


def test_half_a_frame_at_the_end_is_told():
    run = decode("--protocol", "relink", "-", stdin=CAPTURE[32:45])
    assert (run.returncode, run.stdout) == (1, b"")
    assert run.stderr == b"0 frames, 0 bytes; bytes behind the last whole frame: 13\n"


def test_a_frame_above_the_limit_names_the_option():
    large = bytes.fromhex("5101000000000000ffffffffffffffff")
    run = decode("--protocol", "relink", "-", stdin=large)
    assert run.returncode == 1
    assert b"is above 1073741824 (--max-frame-bytes)" in run.stderr
    message = bytes.fromhex("11010500") + bytes(12)
    assert (
        decode("--protocol", "relink", "--max-frame-bytes", "5", "-", stdin=message).returncode == 0
    )
    run = decode("--protocol", "relink", "--max-frame-bytes", "4", "-", stdin=message)
    assert b"5 is above 4 (--max-frame-bytes)" in run.stderr
    bomb = zlib.compress(bytes(10_000))
    capture = b"2C" + len(bomb).to_bytes(4) + bomb
    run = decode("--protocol", "lumberjack", "--max-frame-bytes", "1000", "-", stdin=capture)
    assert b"lumberjack.inflated_too_large" in run.stderr
    assert b"(--max-frame-bytes)" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--protocol", "smtp"],
            '--protocol is "bpmux", "lumberjack", "micromsg", "reactive" or "relink"',
        ),
        (["--protocol", "relink", "--sender", "writer"], '--sender is "connector" or "listener"'),
        (["--protocol", "lumberjack", "--handshake"], "--handshake is no option of lumberjack"),
        (
            ["--protocol", "lumberjack", "--listener-channel-id-size", "1"],
            "--listener-channel-id-size is no option of lumberjack",
        ),
        (["--protocol", "relink", "--json", "--annotate"], "--json and --annotate"),
    ],
)
def test_a_wrong_command_line_is_told_by_its_option(arguments, message):
    run = decode(*arguments, "-")
    assert run.returncode == 2
    assert message in run.stderr.decode()


def test_a_file_that_is_not_there_is_named(tmp_path):
    run = decode("--protocol", "relink", str(tmp_path / "nothing"))
    assert (run.returncode, run.stdout) == (2, b"")
    assert b"nothing: No such file or directory" in run.stderr


def test_nothing_of_the_peer_reaches_the_terminal_as_it_is():
    name = b"\x1b[2J\xc2\x9bx"
    block = bytes([len(name)]) + name + bytes(3)
    block += bytes(-len(block) % 8 + 16)
    capture = bytes(8) + block + bytes.fromhex("11010300") + bytes(4) + b"\x1b[m" + bytes(5)
    for way in ([], ["--annotate"], ["--json"]):
        run = decode("--protocol", "relink", "--handshake", *way, "-", stdin=capture)
        assert run.returncode == 0, run.stderr
        assert "\x1b" not in run.stdout.decode()
        assert "\x9b" not in run.stdout.decode()
        if not way:
            assert rb'payload=["\u001b[m"]' in run.stdout


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        ("grüße\n".encode(), r'"grüße\n"'),
        (b"a\tb", r'"a\tb"'),
        ("x\u202ey".encode(), r'"x\u202ey"'),
        (b"", '""'),
        (b"\x00\x01", "0001"),
        (b"\xff", "ff"),
        ("é".encode() * 25, f'"{"é" * 24}"…(50 bytes)'),
        (b"x" + "é".encode() * 25, f'"x{"é" * 23}"…(51 bytes)'),
        ("é".encode()[:1], "c3"),
    ],
    ids=repr,
)
def test_a_payload_that_is_text_is_shown_as_text(payload: bytes, shown: str) -> None:
    capture = encode("bpmux", [{"type": "req", "id": 1, "payload": payload}])
    run = decode("--protocol", "bpmux", "-", stdin=capture)
    assert run.returncode == 0, run.stderr
    assert f"payload={shown}\n" in run.stdout.decode()


def test_a_name_is_shown_as_the_text_that_it_is():
    name = "grüße \u202e\x1b".encode()
    block = bytes([len(name)]) + name + bytes(3)
    capture = bytes(8) + block + bytes(-len(block) % 8 + 16)
    run = decode("--protocol", "relink", "--handshake", "-", stdin=capture)
    assert run.returncode == 0, run.stderr
    assert r'endpoint_name="grüße \u202e\u001b"' in run.stdout.decode()


def test_eight_bytes_that_name_a_million_channels_are_one_short_line():
    run = decode("--protocol", "relink", "--json", "-", stdin=bytes.fromhex("03000000ffffffff"))
    assert run.returncode == 0
    assert len(run.stdout) < 10_000
    assert json.loads(run.stdout.splitlines()[0])["channel_id_count"] == 2**32 - 1


def test_a_reader_that_leaves_early_is_told_in_one_line():
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "decode", "--protocol", "relink", "-"],
        stdin=subprocess.PIPE, stdout=write, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        os.close(write)
        os.close(read)
        _, err = process.communicate(bytes.fromhex("2000000000000000") * 50_000, timeout=DEADLINE)
    line = b"ackline: standard output cannot be written: its reader has left\n"
    assert (process.returncode, err) == (74, line)


def test_an_inspector_takes_only_whole_frames():
    inspector = _core.Inspector("relink", None, {"handshake": True})
    for byte in CAPTURE[:32]:
        inspector.feed(bytes([byte]))
    taken = [inspector.take(), inspector.take(), inspector.take()]
    assert [one and one[:2] for one in taken] == [(0, "version"), (8, "endpoint"), None]
    assert (inspector.offset, inspector.pending) == (32, 0)
    with pytest.raises(UsageError):
        _core.Inspector("relink", None, {"speed": 1})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("00 01\n02 zz\n", "--hex: line 2: 'z' in column 4 is no hex digit"),
        ("0x00\n\n0x0g", "--hex: line 3: 'g' in column 4 is no hex digit"),
        ("00\n" * 40_000 + "0x1", "--hex: line 40001: it ends inside a byte"),
    ],
)
def test_a_character_that_is_no_hex_is_named_with_its_place(text, said):
    run = decode("--protocol", "relink", "--hex", "-", stdin=text.encode())
    assert run.returncode == 2
    assert said in run.stderr.decode()


def test_ids_that_are_longer_than_a_message_are_not_waited_for():
    hostile = bytes.fromhex("13010000ffffffff")
    options = ["--protocol", "relink", "--connector-channel-id-size", "2", "--json"]
    run = decode(*options, "-", stdin=hostile)
    assert run.returncode == 1
    last = json.loads(run.stdout.splitlines()[-1])
    assert (last["event"], last["code"]) == ("failed", "relink.limit_exceeded")
    assert "--max-frame-bytes" in last["message"]
