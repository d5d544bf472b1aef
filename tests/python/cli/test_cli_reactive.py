"""`ackline publish` and `ackline subscribe`, from the outside."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import (
    DEADLINE,
    RunningReceiver,
    ackline,
    rows,
    wait_until,
)
from support.publishing import (
    ANYWHERE,
    COMMAND,
    Publisher,
    Start,
    accepted,
    feed,
    lines_of,
    serving,
    subscribe,
)

from ackline import StreamFailed, reactive
from ackline.exceptions import AcklineError, LinkClosed

# ---- from one command to the other ----


def test_every_line_comes_over_tcp(publisher: Publisher, numbers: Path) -> None:
    serving = publisher(numbers, "--streams", "2")
    for _ in range(2):
        run = subscribe(serving.url)
        assert (run.returncode, run.stderr) == (0, b"")
        assert run.stdout == numbers.read_bytes()
    line = serving.next("published")
    assert (line["elements"], line["bytes"], line["end"]) == (5_000, 18_890, "completed")
    assert serving.process.wait(DEADLINE) == 0


def test_every_line_comes_over_a_unix_socket(
    publisher: Publisher, numbers: Path, tmp_path: Path
) -> None:
    url = f"reactive+unix://{tmp_path}/socket?publisher=a%20%2Fb"
    serving = publisher(numbers, url=url)
    assert serving.url == f"reactive+unix://{tmp_path}/socket?publisher=a%20/b"
    assert subscribe(serving.url).stdout == numbers.read_bytes()
    assert serving.stop() == 0


def test_every_line_comes_over_tls(publisher: Publisher, numbers: Path, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "IP:127.0.0.1")
    url = "reactive+tls://127.0.0.1:0/numbers"
    serving = publisher(numbers, "--cert", cert, "--key", key, url=url)
    assert subscribe(serving.url, "--ca", pki.ca).stdout == numbers.read_bytes()
    assert subscribe(serving.url).returncode == 69


@pytest.mark.parametrize("form", ["raw", "base64"])
def test_any_bytes_go_through(publisher: Publisher, tmp_path: Path, form: str) -> None:
    payload = os.urandom(300_000)
    file = tmp_path / "file"
    lines = [payload[:100_000], b"", b"\n\r\x00", payload[100_000:]]
    file.write_bytes(
        b"".join(lines) if form == "raw" else b"\n".join(base64.b64encode(line) for line in lines)
    )
    serving = publisher(file, "--format", form)
    run = subscribe(serving.url, "--format", form)
    if form == "raw":
        assert run.stdout == b"".join(lines)
        told = serving.next("published")
        assert told["elements"] >= 300_003 // (64 << 10)
    else:
        assert [base64.b64decode(line) for line in run.stdout.splitlines()] == lines


def test_a_last_line_without_an_end_is_an_element(publisher: Publisher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\r\n\nb\xff")
    serving = publisher(file)
    assert subscribe(serving.url).stdout == b"a\r\n\nb\xff\n"
    told = subscribe(serving.url, "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in told] == [
        {"element": "a\r"}, {"element": ""}, {"element_hex": "62ff"},
    ]  # fmt: skip


def test_the_receiver_keeps_what_is_published(
    receiver: Callable[..., RunningReceiver], numbers: Path, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    running = receiver("--spool", str(spool), url=ANYWHERE)
    run = ackline("publish", running.url, str(numbers))
    assert (run.returncode, run.stdout) == (0, "")
    assert re.fullmatch(r"ackline: 5000 elements published to reactive://\S+\n", run.stderr)
    assert running.stop() == 0
    kept = [payload for _, _, _, payload in rows(spool) if payload is not None]
    assert [payload for payload in kept if payload][:5_000] == numbers.read_bytes().split()


def test_a_goodbye_before_the_last_stream_is_an_error(
    receiver: Callable[..., RunningReceiver], numbers: Path, tmp_path: Path
) -> None:
    running = receiver("--spool", str(tmp_path / "spool"), url=ANYWHERE)
    run = ackline("publish", running.url, str(numbers), "--streams", "2")
    assert run.returncode == 1
    why = "the peer has said goodbye after 1 of 2 streams: all streams have ended\n"
    assert run.stderr.endswith(why)
    assert running.stop() == 0


def test_the_largest_element_goes_through_as_base64(publisher: Publisher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(base64.b64encode(bytes(16 << 20)) + b"\n")
    run = subscribe(publisher(file, "--format", "base64").url, "--format", "base64")
    assert (run.returncode, run.stdout) == (0, file.read_bytes())
    file.write_bytes(base64.b64encode(bytes((16 << 20) + 1)) + b"\n")
    run = subscribe(publisher(file, "--format", "base64").url)
    assert run.returncode == 1
    assert b"line 1: longer than the limit of 16777216 bytes" in run.stderr


def test_a_long_name_is_rejected_in_a_short_line(publisher: Publisher, numbers: Path) -> None:
    serving = publisher(numbers)
    run = subscribe(serving.url.rpartition("/")[0] + "/" + "n" * 65_536)
    assert run.returncode == 1
    assert b"there is no publisher" in run.stderr
    assert len(run.stderr) < 500
    assert len(serving.next("rejected")["publisher"]) == 200


def test_a_subscriber_rejects_the_subscriptions_of_its_peer() -> None:
    refusals: list[str] = []

    def serve(connection: reactive.Connection) -> None:
        publication = accepted(connection)
        with suppress(StreamFailed):
            connection.subscribe("other", timeout=DEADLINE).receive(timeout=DEADLINE)
        refusals.append("told")
        publication.complete()
        connection.wait_ended(timeout=DEADLINE)

    with serving(serve) as url:
        assert subscribe(url).returncode == 0
    assert refusals == ["told"]


# ---- standard input ----


def test_standard_input_goes_to_the_first_subscriber_alone(start: Start) -> None:
    feeding = start("publish", "--listen", ANYWHERE, "-", "--json")
    url = json.loads(lines_of(feeding).readline())["urls"][0]
    first = start("subscribe", url)
    feed(feeding, b"one\n")
    assert lines_of(first).readline() == b"one\n"
    second = subscribe(url)
    why = b"the publisher reads standard input, and an earlier subscriber has it"
    assert second.stderr == b"ackline: the publisher has ended the stream: " + why + b"\n"
    assert (second.returncode, second.stdout) == (1, b"")
    out, _ = feeding.communicate(b"two", timeout=DEADLINE)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["event"] for line in lines] == ["rejected", "published"]
    assert lines[1]["elements"] == 2
    assert feeding.returncode == 0
    assert first.communicate(timeout=DEADLINE) == (b"two\n", b"")
    assert first.returncode == 0


def test_standard_input_has_one_stream() -> None:
    run = ackline("publish", "--listen", ANYWHERE, "-", "--streams", "2")
    assert run.returncode == 2
    assert run.stderr == "ackline: --streams needs a file: standard input can be read once\n"


# ---- the end ----


def test_a_count_is_requested_and_not_exceeded(publisher: Publisher, numbers: Path) -> None:
    serving = publisher(numbers)
    for count, demand in ((3, 1024), (2_000, 7), (1, 1)):
        run = subscribe(serving.url, "--count", str(count), "--demand", str(demand))
        assert (run.returncode, run.stderr) == (0, b"")
        assert run.stdout.split() == numbers.read_bytes().split()[:count]
        told = serving.next("published")
        assert (told["elements"], told["end"]) == (count, "cancelled")


def test_a_reader_that_leaves_ends_it_silently(publisher: Publisher, numbers: Path) -> None:
    serving = publisher(numbers)
    pipe = f'"$0" -m ackline.cli subscribe {serving.url} --demand 10 | head -2'
    run = subprocess.run(
        ["/bin/bash", "-c", f"set -o pipefail; {pipe}", sys.executable],
        capture_output=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (0, b"0\n1\n", b"")
    assert serving.next("published")["end"] == "cancelled"


def test_a_reader_that_leaves_a_silent_stream_ends_it(start: Start) -> None:
    def serve(connection: reactive.Connection) -> None:
        publication = accepted(connection)
        publication.send(b"one")
        publication.wait_cancelled(timeout=DEADLINE)

    with serving(serve) as url:
        running = start("subscribe", url)
        assert lines_of(running).readline() == b"one\n"
        lines_of(running).close()
        assert running.wait(DEADLINE) == 0
    assert running.stderr is not None
    assert running.stderr.read() == b""


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_reported(
    publisher: Publisher, numbers: Path, where: str
) -> None:
    why = {">&-": b"it is closed", ">/dev/full": b"No space left on device"}[where]
    run = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {where}', *COMMAND, "subscribe", publisher(numbers).url],
        stderr=subprocess.PIPE, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert run.returncode == 74
    assert run.stderr == b"ackline: standard output cannot be written: " + why + b"\n"


def test_an_error_of_the_publisher_comes_behind_its_elements() -> None:
    def serve(connection: reactive.Connection) -> None:
        publication = accepted(connection)
        publication.send(b"one")
        publication.fail("no \x1b[31mmore")
        connection.wait_ended(timeout=DEADLINE)

    with serving(serve) as url:
        run = subscribe(url)
    assert (run.returncode, run.stdout) == (1, b"one\n")
    text = b"ackline: the publisher has ended the stream: no \\u001b[31mmore\n"
    assert run.stderr == text


def test_a_rejection_is_reported(publisher: Publisher, numbers: Path) -> None:
    serving = publisher(numbers)
    run = subscribe(serving.url.replace("numbers", "nmbers"))
    why = "there is no publisher 'nmbers'; this one is 'numbers'"
    assert (run.returncode, run.stdout) == (1, b"")
    text = f"ackline: the publisher has ended the stream: {why}\n"
    assert run.stderr.decode() == text
    assert serving.next("rejected")["message"] == why


def test_a_killed_publisher_is_reported_behind_its_elements(start: Start) -> None:
    feeding = start("publish", "--listen", ANYWHERE, "-", "--json")
    url = json.loads(lines_of(feeding).readline())["urls"][0]
    running = start("subscribe", url)
    feed(feeding, b"one\n")
    assert lines_of(running).readline() == b"one\n"
    feeding.kill()
    out, err = running.communicate(timeout=DEADLINE)
    assert (running.returncode, out) == (1, b"")
    assert err.startswith(b"ackline: the stream is not complete: the connection is over")


def test_a_killed_subscriber_is_reported(
    publisher: Publisher, start: Start, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x\n" * 1_000_000)
    serving = publisher(file, "--streams", "1")
    running = start("subscribe", serving.url, "--demand", "2")
    assert lines_of(running).read(2) == b"x\n"
    running.kill()
    told = serving.next("published")
    assert told["end"] == "lost", told
    assert serving.process.wait(DEADLINE) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_subscriber_in_order(start: Start, number: int) -> None:
    def serve(connection: reactive.Connection) -> None:
        publication = accepted(connection)
        publication.send(b"one")
        publication.wait_cancelled(timeout=DEADLINE)
        cancelled.set()
        connection.wait_ended(timeout=DEADLINE)
        reasons.append(connection.goodbye_reason)

    cancelled, reasons = threading.Event(), list[str | None]()
    with serving(serve) as url:
        running = start("subscribe", url)
        assert lines_of(running).readline() == b"one\n"
        running.send_signal(number)
        assert running.wait(DEADLINE) == 128 + number
    assert cancelled.is_set()
    assert reasons == ["the connection was closed"]
    name = signal.Signals(number).name.encode()
    assert running.communicate()[1] == b"ackline: stopped by " + name + b"\n"


def test_a_signal_ends_a_publisher_in_order(publisher: Publisher, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x\n" * 1_000_000)
    serving = publisher(file)
    with reactive.connect(serving.url.rpartition("/")[0]) as connection:
        stream = connection.subscribe("numbers", demand=1, automatic=False, timeout=DEADLINE)
        assert stream.receive(timeout=DEADLINE) == b"x"
        assert serving.stop(signal.SIGINT) == 0
        with pytest.raises(AcklineError, match="the publisher stops"):
            stream.receive(timeout=DEADLINE)


def test_idle_streams_leave_others_their_turns_and_take_no_descriptor(
    publisher: Publisher, numbers: Path
) -> None:
    serving = publisher(numbers)
    descriptors = Path(f"/proc/{serving.process.pid}/fd")
    with reactive.connect(serving.url.rpartition("/")[0]) as connection:
        before = len(list(descriptors.iterdir()))
        idle = [
            connection.subscribe("numbers", demand=at % 2, automatic=False, timeout=DEADLINE)
            for at in range(200)
        ]
        with pytest.raises(StreamFailed, match="there is no publisher 'other'"):
            connection.subscribe("other", timeout=DEADLINE)
        assert len(list(connection.subscribe("numbers", timeout=DEADLINE))) == 5_000
        assert [one.receive(timeout=DEADLINE) for one in idle[1::2]] == [b"0"] * 100
        assert len(list(descriptors.iterdir())) <= before + 2
    assert serving.stop() == 0


def test_a_limit_is_named_as_on_the_command_line_and_the_peer_is_told_none() -> None:
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [*COMMAND, "subscribe", f"reactive://127.0.0.1:{server.getsockname()[1]}/x"],
            stderr=subprocess.PIPE,
        )
        peer = server.accept()[0]
        with peer:
            peer.settimeout(DEADLINE)
            while not heard.endswith(b"x\x01\x80\x08"):
                heard += peer.recv(65_536)
            # serverHello, subscribed, and the beginning of an onNext of 2^35 bytes.
            peer.sendall(bytes([2, 0, 0, 6, 1, 0, 7, 1, *[0x80] * 5, 1]))
            while some := peer.recv(65_536):
                heard += some
        stderr = process.communicate(timeout=DEADLINE)[1]
    assert process.returncode == 1
    limit = b"34359738368 is above 16777216"
    assert limit + b" (--max-element-bytes)" in stderr
    assert heard.endswith(limit + b", which is the limit of this end")


def test_a_signal_before_the_last_stream_is_an_error(publisher: Publisher, numbers: Path) -> None:
    assert publisher(numbers, "--streams", "1").stop(signal.SIGINT) == 130


def test_a_peer_that_does_not_subscribe_or_accept_is_waited_for(numbers: Path) -> None:
    with serving(lambda connection: connection.wait_ended(timeout=DEADLINE)) as url:
        run = ackline("publish", url, str(numbers), "--timeout", "0.3")
    assert run.returncode == 124
    assert run.stderr == "ackline: the peer has not subscribed to numbers within 0.3 s\n"
    with serving(lambda connection: connection.wait_ended(timeout=DEADLINE)) as url:
        run = ackline("subscribe", url, "--timeout", "0.3")
    assert run.returncode == 124
    assert run.stderr == "ackline: the publisher has not accepted within 0.3 s\n"


def test_a_peer_without_a_goodbye_is_reported(numbers: Path) -> None:
    def serve(connection: reactive.Connection) -> None:
        assert len(list(connection.subscribe("numbers"))) == 5_000
        connection.wait_ended(timeout=DEADLINE)

    with serving(serve) as url:
        run = ackline("publish", url, str(numbers), "--timeout", "0.5")
    assert run.returncode == 124
    assert run.stderr.splitlines()[1] == (
        "ackline: the peer has not said goodbye within 0.5 s of its last stream: "
        "it may not have kept every element"
    )


def test_a_subscriber_that_cancels_is_an_error_of_the_publisher(numbers: Path) -> None:
    def serve(connection: reactive.Connection) -> None:
        stream = connection.subscribe("numbers", demand=5, automatic=False)
        assert stream.receive(timeout=DEADLINE) == b"0"
        stream.cancel()
        with suppress(LinkClosed):
            connection.accept(timeout=DEADLINE)

    with serving(serve) as url:
        run = ackline("publish", url, str(numbers))
    assert run.returncode == 1
    assert re.search(r"has cancelled the stream after \d elements\n$", run.stderr)


# ---- demand ----


def test_a_slow_reader_holds_up_the_publisher(
    publisher: Publisher, start: Start, tmp_path: Path
) -> None:
    """Neither command holds much of a file whose reader is slow."""
    file = tmp_path / "file"
    with file.open("wb") as big:
        for _ in range(200):
            big.write((b"x" * 9_999 + b"\n") * 100)
    serving = publisher(file, "--streams", "1")
    running = start("subscribe", serving.url, "--demand", "100")
    read = len(lines_of(running).read(100))
    before = [resident(process.pid) for process in (serving.process, running)]
    for _ in range(20):
        read += len(lines_of(running).read(100_000))
        time.sleep(0.02)
    after = [resident(process.pid) for process in (serving.process, running)]
    growth = [late - early for early, late in zip(before, after, strict=True)]
    assert max(growth) < 30 << 20, growth
    while chunk := lines_of(running).read(1 << 20):
        read += len(chunk)
    assert read == file.stat().st_size
    assert running.wait(DEADLINE) == 0
    assert serving.process.wait(DEADLINE) == 0


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    [kibibytes] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text("utf-8"))
    return int(kibibytes) << 10


def test_no_more_than_the_demand_is_sent(start: Start) -> None:
    def serve(connection: reactive.Connection) -> None:
        request = connection.accept(timeout=DEADLINE)
        assert request is not None
        demands.append(request.initial_demand)
        publication = request.accept()
        publication.send_many([b"x" * 60_000] * 40, timeout=DEADLINE)
        # A pipe that nobody reads holds 64 KiB.
        with suppress(AcklineError):
            publication.send_many([b"x" * 60_000] * 100, timeout=1.0)
        demands.append(publication.room)

    demands: list[int] = []
    with serving(serve) as url:
        running = start("subscribe", url, "--demand", "40")
        wait_until(lambda: len(demands) == 2, "the demand is used up")
        running.kill()
    assert demands == [40, 0]
