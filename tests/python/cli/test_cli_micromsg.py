"""`ackline publish`, `send` and `receive` of MicroMsg2, from the outside."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.commands import DEADLINE, RunningReceiver, ackline, ackline_bytes, rows, wait_until
from support.micromsg import ANY, listening, taking
from support.publishing import Start, feed

from ackline import micromsg
from ackline.exceptions import AcklineError

CLOSED = "micromsg://127.0.0.1:1"
"""A URL where nobody listens."""


@pytest.fixture
def two(tmp_path: Path) -> str:
    """A file of two lines, of which the second has no end."""
    path = tmp_path / "two"
    path.write_bytes(b"one\ntwo\xff")
    return str(path)


# ---- publish ----


def test_each_line_is_a_message_with_the_properties_of_the_command_line(two: str) -> None:
    given = (
        "level=3", "rate=-1.5", "zip=01234", "exponent=1e3", "above=9223372036854775808",
        "region=Texas", "wire:Ta%20b", "number:N-7", "since:D1413198000.5", "empty=", "url=a=b:c",
    )  # fmt: skip
    options = [word for one in given for word in ("--property", one)]
    with taking() as (url, taken):
        run = ackline("publish", f"{url}/logs/a%20b", two, *options)
        assert (run.returncode, run.stdout) == (0, "")
        assert run.stderr == "ackline: 2 messages acknowledged\n"
        wait_until(lambda: len(taken) == 2, "both are taken")
    assert [message.payload for message in taken] == [b"one", b"two\xff"]
    assert {message.destination for message in taken} == {"logs/a b"}
    assert taken[0].properties == {
        "level": 3, "rate": -1.5, "zip": "01234", "exponent": "1e3",
        "above": "9223372036854775808", "region": "Texas", "wire": "a b", "number": -7,
        "since": datetime(2014, 10, 13, 11, 0, 0, 500_000, UTC), "empty": "", "url": "a=b:c",
    }  # fmt: skip
    assert isinstance(taken[0].properties["level"], int)


def test_a_line_of_json_has_its_own_destination_and_properties() -> None:
    lines = [
        {"payload": "é"},
        {"payload_hex": "00ff", "destination": "other", "properties": {"level": 4, "own": "x"}},
        {"payload": "", "position": 9, "properties": {"at": {"date": "2026-01-31T12:00:00Z"}}},
    ]
    text = "\n\n".join(json.dumps(line) for line in lines)
    with taking() as (url, taken):
        options = ("--format", "json", "--property", "level=3", "--json")
        run = ackline("publish", f"{url}/logs", "-", *options, given=text)
        assert run.returncode == 0, run.stderr
        wait_until(lambda: len(taken) == 3, "all are taken")
    told = json.loads(run.stdout)
    assert told.pop("seconds") > 0
    assert told == {"event": "published", "messages": 3, "acknowledged": 3}
    assert [(one.destination, one.payload) for one in taken] == [
        ("logs", "é".encode()), ("other", b"\x00\xff"), ("logs", b""),
    ]  # fmt: skip
    assert [one.properties for one in taken] == [
        {"level": 3},
        {"level": 4, "own": "x"},
        {"level": 3, "at": datetime(2026, 1, 31, 12, tzinfo=UTC)},
    ]


@pytest.mark.parametrize("form", ["raw", "base64"])
def test_any_bytes_are_messages(form: str) -> None:
    given = b"\x00\n\xff" * 50_000 if form == "raw" else b"AP8=\n\nCg==\n"
    with taking() as (url, taken):
        run = ackline_bytes("publish", f"{url}/b", "-", "--format", form, given=given)
        assert run.returncode == 0, run.stderr
        wait_until(lambda: f"{len(taken)} ".encode() in run.stderr, "all are taken")
    payloads = [message.payload for message in taken]
    if form == "raw":
        assert b"".join(payloads) == given
    else:
        assert payloads == [b"\x00\xff", b"", b"\n"]


@pytest.mark.parametrize(
    ("form", "bad", "why"),
    [
        ("json", "{", "not JSON: "),
        ("json", "[]", "not a JSON object"),
        ("json", '{"paylod": "x"}', "there is no member 'paylod' (did you mean payload?)"),
        ("json", '{"payload": "x", "payload_hex": "00"}', "either payload or payload_hex"),
        ("json", '{"payload_hex": "0"}', "payload_hex is not hex"),
        ("json", '{"payload": 3}', "payload is a text, not 3"),
        ("json", '{"payload": "x", "destination": "é"}', "a destination is ASCII"),
        ("json", '{"payload": "x", "properties": {"a": true}}', "property 'a' is true; it is a"),
        ("json", '{"payload": "x", "properties": {"a": {"date": "now"}}}', "property 'a' is {"),
        ("json", '{"payload": "x", "properties": {"a b": 1}}', "printable ASCII"),
        ("json", '{"payload": "x", "dotnet_type": "A"}', "the connection has no dotnet_type"),
        ("base64", "=", "not base64"),
    ],
)
def test_a_line_that_is_no_message_ends_it_with_its_number(form: str, bad: str, why: str) -> None:
    good = '{"payload": "x"}' if form == "json" else "eA=="
    with taking() as (url, _):
        options = ("--format", form)
        run = ackline("publish", f"{url}/x", "-", *options, given=f"{good}\n{bad}\n{good}")
    assert run.returncode == 1
    assert run.stderr.startswith("ackline: standard input, line 2: ")
    assert why in run.stderr
    assert "Traceback" not in run.stderr


def test_a_type_that_cannot_be_sent_is_told_with_its_line() -> None:
    line = '{"payload": "x", "dotnet_type": "%s"}'
    both = "batch-ack;dotnet"
    with taking(optional_extensions=both) as (url, taken):
        options = ("--format", "json", "--optional-extensions", both)
        given = f"{line % 'A.B'}\n{line % 'é'}\n"
        run = ackline("publish", f"{url}/x", "-", *options, given=given)
        wait_until(lambda: len(taken) == 1, "the first one is taken")
    assert run.returncode == 1
    assert run.stderr.startswith("ackline: standard input, line 2: dotnet_type is ASCII")
    assert taken[0].dotnet_type == "A.B"


def test_a_peer_that_acknowledges_nothing_is_told(two: str) -> None:
    with taking(optional_extensions="pub-sub") as (url, taken):
        options = ("--optional-extensions", "pub-sub", "--json")
        run = ackline("publish", f"{url}/x", two, *options)
        assert run.returncode == 0
        assert run.stderr == "ackline: 2 messages sent; the peer acknowledges none\n"
        assert json.loads(run.stdout)["sent"] == 2
        wait_until(lambda: len(taken) == 2, "both are taken")
        run = ackline("send", f"{url}/x", two)
    # `send` offers acknowledgements, and this peer accepts them.
    assert run.returncode == 0


def test_a_peer_that_takes_no_message_is_late(two: str) -> None:
    def hold(connection: micromsg.Connection) -> None:
        connection.wait_ended(timeout=DEADLINE)

    with listening(hold) as url:
        run = ackline("publish", f"{url}/x", two, "--timeout", "0.5")
        assert run.returncode == 124
        late = "no acknowledgement within 0.5 s"
        assert run.stderr == f"ackline: 2 of 2 messages not acknowledged: {late}\n"
        run = ackline("send", f"{url}/x", two, "--timeout", "0.5")
        assert run.returncode == 1
        assert run.stderr.endswith(f"2 of 2 events not acknowledged: {late}\n")


def test_an_error_of_the_peer_is_told(two: str) -> None:
    def fail(connection: micromsg.Connection) -> None:
        connection.receive(timeout=DEADLINE)
        connection.fail("no \x1b[31mmore")

    with listening(fail) as url:
        run = ackline("publish", f"{url}/x", two)
    assert run.returncode == 1
    assert "2 of 2 messages not acknowledged: " in run.stderr
    assert "not acknowledged: no " in run.stderr
    assert "\x1b" not in run.stderr


def test_nobody_there_is_69_and_a_silent_peer_124(two: str) -> None:
    for command in (["publish", f"{CLOSED}/x", two], ["subscribe", f"{CLOSED}/x"]):
        run = ackline(*command)
        assert (run.returncode, run.stdout) == (69, "")
        assert "Connection refused" in run.stderr
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = f"micromsg://127.0.0.1:{server.getsockname()[1]}/x"
        for command in (["publish", silent, two], ["subscribe", silent]):
            run = ackline(*command, "--timeout", "0.3")
            assert run.returncode == 124, run.stderr


def test_a_signal_ends_publish_with_the_numbers(start: Start) -> None:
    with taking() as (url, taken):
        feeding = start("publish", f"{url}/x", "-", "--json")
        feed(feeding, b"one\n")
        wait_until(lambda: len(taken) == 1, "the line is taken before the end of the input")
        feeding.send_signal(signal.SIGTERM)
        out, err = feeding.communicate(timeout=DEADLINE)
    assert feeding.returncode == 143
    assert b"stopped by SIGTERM" in err
    assert json.loads(out)["messages"] == 1


WRONG = [
    (["publish", CLOSED, "FILE"], "the destination is missing: write micromsg://host:port/DEST"),
    (["publish", f"{CLOSED}/%C3%A9", "FILE"], "a destination is ASCII"),
    (["publish", f"{CLOSED}/x?filter=a%3DN1", "FILE"], "a filter is for subscribers"),
    (["publish", f"{CLOSED}/x", "FILE", "--property", "a"], "write NAME=VALUE, or NAME:VALUE"),
    (["publish", f"{CLOSED}/x", "FILE", "--property", "a b=1"], "printable ASCII"),
    (["publish", f"{CLOSED}/x", "FILE", "--property", "a:1"], "a value on the wire is N with"),
    (["publish", f"{CLOSED}/x", "FILE", "--property", "a:T;"], "write %3B"),
    (["publish", f"{CLOSED}/x", "FILE", "--property", "a=1", "--property", "a=2"], "given twice"),
    (["publish", f"{CLOSED}/x", "FILE", "--format", "jsn"], "not 'jsn' (did you mean json?)"),
    (["publish", f"{CLOSED}/x", "missing"], "missing is not a file"),
    (["publish", f"{CLOSED}/x", "FILE", "--listen"], "--listen is an option of Reactive Streams"),
    (["publish", f"{CLOSED}/x", "FILE", "--allow", "::1"], "--allow is an option of Reactive"),
    (["publish", f"{CLOSED}/x", "FILE", "--max-names", "0"], "--max-names is 0; it is"),
    (["publish", f"{CLOSED}/x", "FILE", "--ca", "x.pem"], "--ca is an option of TLS"),
    (["publish", "reactive://h:1/x", "FILE", "--property", "a=1"], "is an option of MicroMsg2"),
    (["publish", "micromsgs://h:1/x", "FILE"], "(did you mean micromsg?)"),
    (["publish", "nonsense", "FILE"], "'nonsense' is not a URL: write reactive://host:port or"),
    (["subscribe", CLOSED], f"the topic is missing: write {CLOSED}/TOPIC"),
    (["subscribe", "micromsg+unix:///x/TOPIC"], "write micromsg+unix:///x/TOPIC?topic=TOPIC"),
    (["subscribe", f"{CLOSED}/x", "--filter", "level>=3"], "a value has no type in front"),
    (["subscribe", f"{CLOSED}/x", "--filter", "a<=Tb"], "an operator is not one for the type"),
    (["subscribe", f"{CLOSED}/x", "--filter", ""], "it has no condition"),
    (["subscribe", f"{CLOSED}/x?filter=a", "--filter", "a=N1"], "a condition has no operator"),
    (["subscribe", f"{CLOSED}/x?filter=a%3DN1", "--filter", "a=N1"], "are two: give one"),
    (["subscribe", f"{CLOSED}/x", "--demand", "1"], "--demand is an option of Reactive Streams"),
    (
        ["subscribe", f"{CLOSED}/x", "--window", "0"],
        "--window is 0; it is a whole number",
    ),
    (["subscribe", "reactive://h:1/x", "--filter", "a=N1"], "--filter is an option of MicroMsg2"),
    (["send", CLOSED, "FILE"], "the destination is missing"),
    (["send", f"{CLOSED}/x", "FILE", "--max-in-flight", "3"], "is an option of Lumberjack and bpm"),
    (["send", f"{CLOSED}/x", "FILE", "--channel", "00"], "--channel is an option of Relink"),
    (["send", f"{CLOSED}/x?filter=a%3DN1", "FILE"], "a filter is for subscribers"),
]


@pytest.mark.parametrize(("arguments", "why"), WRONG)
def test_a_wrong_command_line_is_refused(arguments: list[str], why: str, two: str) -> None:
    run = ackline(*(two if one == "FILE" else one for one in arguments))
    assert (run.returncode, run.stdout) == (2, "")
    assert why in run.stderr
    assert run.stderr.count("\n") == 1


# ---- send ----


def test_messages_are_sent_again_over_a_new_connection(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    lines = [f"{number}".encode() for number in range(20_000)]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    acknowledged: list[bytes] = []
    seen: list[bytes] = []

    def take(connection: micromsg.Connection) -> None:
        begin = len(seen)
        while messages := connection.receive_some(100, timeout=DEADLINE):
            seen.extend(message.payload for message in messages)
            if begin < 15_000 and len(seen) - begin >= 5_000:
                # The last ones are not acknowledged, and come again.
                connection.abort()
                return
            connection.ack(messages[-1])
            acknowledged.extend(message.payload for message in messages)

    with listening(take, ack_policy="manual") as url:
        run = ackline("send", f"{url}/x", str(file), "--json", "--backoff-max", "50ms")
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert (told["events"], told["acked"], told["not_acked"]) == (20_000, 20_000, 0)
    repeats = len(seen) - len(set(seen))
    assert 0 < repeats <= told["possible_repeats"] <= 3_000
    assert {*acknowledged} == {*lines}
    assert f"20000 events acknowledged, {told['possible_repeats']} of them sent" in run.stderr


def test_send_waits_for_a_receiver_that_comes_later(start: Start, two: str) -> None:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        url = f"micromsg://127.0.0.1:{held.getsockname()[1]}"
        sending = start("send", f"{url}/x", two)
        assert sending.stderr is not None
        assert b"no receiver is reached yet; trying for 60 s" in sending.stderr.readline()
        with micromsg.listen(url) as listener, listener.accept(timeout=DEADLINE) as connection:
            assert len(connection.receive_some(timeout=DEADLINE)) >= 1
            with suppress(AcklineError):
                while connection.receive_some(timeout=DEADLINE):
                    pass
        assert sending.wait(DEADLINE) == 0


def test_send_gives_up_when_nobody_comes(two: str) -> None:
    run = ackline("send", f"{CLOSED}/x", two, "--timeout", "0.3", "--json")
    assert run.returncode == 1
    assert "2 of 2 events not acknowledged: " in run.stderr
    assert "Connection refused" in run.stderr
    assert json.loads(run.stdout)["not_acked"] == 2


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("send", "the receiver acknowledges nothing: `ackline publish` sends all the same"),
        ("subscribe", "the peer has no subscriptions: it lacks pub-sub"),
    ],
)
def test_a_peer_without_extensions_is_told(command: str, why: str, two: str) -> None:
    def serve(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer:
            # A server without any extension.
            peer.recv(1_000)
            peer.sendall(bytes.fromhex("0100000000000000"))
            while peer.recv(1_000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=[server])
        thread.start()
        url = f"micromsg://127.0.0.1:{server.getsockname()[1]}/x"
        run = ackline(command, url, *([two] if command == "send" else []))
        thread.join()
    assert (run.returncode, run.stdout) == (1, "")
    assert why in run.stderr


# ---- receive ----


def test_sent_lines_are_kept_and_printed(
    receiver: Callable[..., RunningReceiver], tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    running = receiver("--spool", str(spool), url=ANY)
    file = tmp_path / "lines"
    file.write_text("one\ntwo\nthree\n")
    run = ackline("send", f"{running.url}/logs", str(file))
    assert run.returncode == 0
    assert run.stderr.endswith("\n3 events acknowledged\n")
    run = ackline("publish", f"{running.url}/other", "-", "--property", "level=3", given="four")
    assert run.returncode == 0
    assert running.stop() == 0
    kept = [(stream, sequence, payload) for _, stream, sequence, payload in rows(spool)]
    assert kept == [
        ("logs", 0, b"one"), ("logs", 1, b"two"), ("logs", 2, b"three"), ("other", 0, b"four"),
    ]  # fmt: skip
    run = ackline("spool", "cat", str(spool))
    assert run.stdout.splitlines() == ["one", "two", "three", "four"]


# ---- decode ----


def captures() -> tuple[str, str]:
    """The bytes of both sides of a conversation of the vectors, in hex."""
    path = Path(__file__).resolve().parents[2] / "vectors" / "micromsg" / "conversations.json"
    conversation = json.loads(path.read_text("utf-8"))["conversations"][0]
    steps = conversation["steps"]
    client = "".join(step["transmit"] for step in steps if "transmit" in step)
    return client, "".join(step["recv"] for step in steps if "recv" in step)


def test_both_sides_of_a_capture_are_decoded() -> None:
    for sender, capture, begin in (
        ("client", captures()[0], ["handshake", "handshake", "command"]),
        ("server", captures()[1], ["handshake", "message", "message"]),
    ):
        options = ("--protocol", "micromsg", "--sender", sender, "--hex")
        run = ackline("decode", *options, "--json", "-", given=capture)
        assert run.returncode == 0, run.stderr
        *frames, end = [json.loads(line) for line in run.stdout.splitlines()]
        assert [frame["type"] for frame in frames][:3] == begin
        assert end == {
            "event": "decoded", "frames": len(frames), "bytes": len(capture) // 2, "pending": 0,
        }  # fmt: skip
        table = ackline("decode", *options, "-", given=capture)
        assert len(table.stdout.splitlines()) == 1 + len(frames)
        annotated = ackline("decode", *options, "--annotate", "-", given=capture)
        assert f"{begin[0]}, " in annotated.stdout


def test_frames_without_the_handshakes_are_a_unit() -> None:
    frame = "000001016100000131"
    options = ("--protocol", "micromsg", "--hex", "--json", "-")
    run = ackline("decode", "--unit", "frame", *options, given=frame)
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout.splitlines()[0])
    assert (told["type"], told["destination"], told["payload"]) == ("message", "a", "31")
    assert ackline("decode", *options, given=frame).returncode == 1
    run = ackline("decode", "--unit", "fram", *options, given=frame)
    assert run.returncode == 2
    assert "--unit is handshake or frame, not 'fram' (did you mean frame?)" in run.stderr
    run = ackline("decode", "--protocol", "bpmux", "--unit", "frame", "-", given="")
    assert "--unit is an option of MicroMsg2" in run.stderr


# ---- a listener in the middle of everything ----


@pytest.mark.parametrize("command", ["publish", "subscribe", "serve"])
def test_the_help_has_no_line_beyond_80_columns(command: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "ackline.cli", command, "--help"],
        capture_output=True, text=True, timeout=DEADLINE, check=True,
        env={"COLUMNS": "80", "PATH": "", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip
    assert max(map(len, run.stdout.splitlines())) <= 80
    assert "MicroMsg2" in run.stdout
