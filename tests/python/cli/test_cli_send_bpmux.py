"""`ackline send bpmux://…`: each window a sink, closed with its count, acknowledged with that."""

import json
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, RunningReceiver, ackline, rows, wait_until

from ackline import Spool, bpmux
from ackline.exceptions import AcklineError

URL = "bpmux://127.0.0.1:1"
Echo = Callable[..., RunningReceiver]


@dataclass
class Got:
    """A sink of the sender."""

    opening: dict[str, str]
    messages: list[bytes] = field(default_factory=list)
    closed: bytes | None = None


@contextmanager
def listening(
    look: Callable[[bpmux.Connection, bpmux.OpenedSink], object] | None = None,
    url: str = "bpmux://127.0.0.1:0",
    **options: str,
) -> Iterator[tuple[str, list[Got]]]:
    """A listener that reads every sink, and calls `look` for each before it reads it."""

    def serve(connection: bpmux.Connection) -> None:
        try:
            for incoming in connection:
                assert isinstance(incoming, bpmux.OpenedSink)
                one = Got(dict(part.split("=") for part in incoming.payload.decode().split()))
                got.append(one)
                if look is not None:
                    look(connection, incoming)
                one.messages += list(incoming.stream)
                one.closed = incoming.stream.closed
        except AcklineError:
            return

    def accept() -> None:
        for connection in listener:
            threads.append(threading.Thread(target=serve, args=[connection]))
            threads[-1].start()

    got: list[Got] = []
    with bpmux.listen(url, **options) as listener:
        threads = [threading.Thread(target=accept)]
        threads[0].start()
        yield listener.url, got
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def numbered(directory: Path, count: int, width: int = 0) -> str:
    path = directory / "lines"
    path.write_text("".join(f"{number:0{width}}\n" for number in range(count)))
    return str(path)


def send(*arguments: str, **kwargs: object) -> tuple[subprocess.CompletedProcess[str], dict]:
    run = ackline("send", "--json", *arguments, **kwargs)
    return run, json.loads(run.stdout) if run.stdout else {}


def test_windows_are_sinks_that_say_where_they_belong_and_close_with_their_count(
    tmp_path: Path,
) -> None:
    with listening() as (url, got):
        run, told = send(url, numbered(tmp_path, 250), "--batch-events", "100")
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[-1] == "250 events acknowledged"
    assert told.pop("seconds") > 0
    counts = {"events": 250, "acked": 250, "not_acked": 0, "possible_repeats": 0}
    assert told == {"event": "sent"} | counts
    assert [one.closed for one in got] == [b"100", b"100", b"50"]
    assert [message for one in got for message in one.messages] == [b"%d" % n for n in range(250)]
    assert len({one.opening.pop("sending") for one in got}) == 1
    assert [one.opening for one in got] == [
        {"window": str(number), "first": str(number * 100)} for number in range(3)
    ]


def test_lines_go_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b" a\r\n\n\xff\x00\n" + b"x" * 3_000_000 + b"\nlast without an end")
    with listening() as (url, got):
        run, told = send(url, str(path))
    assert (run.returncode, told["acked"]) == (0, 5), run.stderr
    sent = [b" a\r", b"", b"\xff\x00", b"x" * 3_000_000, b"last without an end"]
    assert [message for one in got for message in one.messages] == sent


def test_a_line_above_the_limit_is_named_and_the_lines_around_it_are_sent(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"x" * (17 << 20) + b"\nthree\n")
    with listening() as (url, got):
        run, told = send(url, str(path))
    assert (run.returncode, told["acked"], told["not_acked"]) == (1, 2, 1)
    assert f"{path}, line 2: not sent: {(17 << 20) + 1} bytes" in run.stderr
    assert [message for one in got for message in one.messages] == [b"one", b"three"]


def test_mutual_tls_and_a_unix_socket(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "IP:127.0.0.1")
    own, own_key = pki.issue("client", "client", "DNS:client")
    file = numbered(tmp_path, 10)
    server = {"cert": cert, "key": key, "ca": pki.ca}
    with listening(url="bpmux+tls://127.0.0.1:0", **server) as (url, got):
        run, _ = send(url, file, "--ca", pki.ca, "--cert", own, "--key", own_key)
        assert (run.returncode, got[0].closed) == (0, b"10"), run.stderr
    with listening(url=f"bpmux+unix://{tmp_path}/x.sock") as (url, got):
        run, _ = send(url, file)
        assert (run.returncode, got[0].closed) == (0, b"10"), run.stderr


@pytest.mark.parametrize("wrong", ["ca", "name", "plain"])
def test_a_receiver_that_is_not_trusted_is_tried_and_told_as_one_that_is_away(
    tmp_path: Path, wrong: str
) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "IP:127.0.0.1")
    (tmp_path / "stranger").mkdir()
    trusted = Pki(tmp_path / "stranger").ca if wrong == "ca" else pki.ca
    options = ["--ca", trusted, "--timeout", "1"]
    if wrong == "name":
        options += ["--server-name", "other.example"]
    secured = {"url": "bpmux+tls://127.0.0.1:0", "cert": cert, "key": key}
    with listening(**({} if wrong == "plain" else secured)) as (plain, _):
        url = plain.replace("bpmux:", "bpmux+tls:")
        run, told = send(url, numbered(tmp_path, 3), *options)
    assert run.returncode == 1
    assert (told["acked"], told["not_acked"]) == (0, 3)
    assert "not acknowledged: lines 1 to 3" in run.stderr
    assert ("TLS" if wrong == "plain" else "certificate") in run.stderr
    # Every mistake here is wrong usage.
    run = ackline("send", url, numbered(tmp_path, 3), "--ca", str(tmp_path / "none"))
    assert run.returncode == 2


def test_an_echo_server_acknowledges_sent_sinks(tmp_path: Path, echo: Echo) -> None:
    server = echo()
    run, told = send(server.url, numbered(tmp_path, 50_000))
    assert (run.returncode, told["acked"]) == (0, 50_000), run.stderr
    wait_until(lambda: server.next("stats")["messages"] == 50_000, "all are counted")
    assert server.stop() == 0


def test_a_receiver_keeps_each_line_under_its_number(tmp_path: Path) -> None:
    receiver = RunningReceiver("bpmux://127.0.0.1:0", "--spool", str(tmp_path / "spool"))
    try:
        run, told = send(receiver.url, numbered(tmp_path, 2_500), "--batch-events", "1000")
        assert (run.returncode, told["acked"]) == (0, 2_500), run.stderr
    finally:
        assert receiver.stop() == 0
    found = rows(tmp_path / "spool")
    assert len(found) == 2_500
    assert len({stream for _, stream, _, _ in found}) == 3
    windows = {payload: int(payload) % 1_000 for _, _, _, payload in found}
    assert all(windows[payload] == sequence for _, _, sequence, payload in found)
    assert len(windows) == 2_500


def test_a_receiver_that_is_killed_and_comes_back_has_every_line(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    first = RunningReceiver("bpmux://127.0.0.1:0", "--spool", str(spool))
    second = None
    sender = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "send", first.url, numbered(tmp_path, 100_000, 60),
         "--json", "--batch-events", "500", "--backoff-max", "200ms"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: Spool(spool).durable() > 1_000, "some are kept")
        first.kill()
        second = RunningReceiver(first.url, "--spool", str(spool))
        out, said = sender.communicate(timeout=2 * DEADLINE)
        assert sender.returncode == 0, said
        told = json.loads(out)
        assert (told["acked"], told["not_acked"]) == (100_000, 0)
        assert second.stop() == 0
    finally:
        sender.kill()
        sender.communicate()
        first.kill()
        if second is not None:
            second.kill()
    found = [payload for _, _, _, payload in rows(spool)]
    assert len(set(found)) == 100_000
    assert len(found) <= 100_000 + told["possible_repeats"]


def test_only_unacknowledged_sinks_are_sent_again(tmp_path: Path) -> None:
    cut: list[str] = []

    def look(connection: bpmux.Connection, opened: bpmux.OpenedSink) -> None:
        # The second window, in the middle: it has more bytes than there is credit for.
        if b"window=1 " in opened.payload and not cut:
            cut.append(opened.payload.decode())
            assert opened.stream.receive(timeout=DEADLINE) is not None
            connection.abort()

    file = numbered(tmp_path, 30, 1_000_000)
    with listening(look) as (url, got):
        run, told = send(
            url, file, "--batch-events", "10", "--batch-bytes", "64MiB", "--max-in-flight", "1"
        )
    assert run.returncode == 0, run.stderr
    assert (told["acked"], told["possible_repeats"]) == (30, 10)
    assert [one.opening["window"] for one in got] == ["0", "1", "1", "2"]
    assert [one.closed for one in got] == [b"10", None, b"10", b"10"]
    assert "10 of them sent more than once" in run.stderr
    assert "code=bpmux.lost windows=1" in run.stderr


def test_a_receiver_that_takes_nothing_new_is_left_in_order(tmp_path: Path) -> None:
    def look(connection: bpmux.Connection, _: object) -> None:
        # As at its maximum age. The earlier sink may have caused the cancel already.
        with suppress(AcklineError):
            connection.cancel()

    with listening(look) as (url, got):
        run, told = send(
            url, numbered(tmp_path, 120), "--batch-events", "10", "--max-in-flight", "1"
        )
    # More connections than may end in a row with nothing acknowledged.
    assert run.returncode == 0, run.stderr
    assert told["acked"] == 120
    # Sinks on their way when the cancel came are refused, and are sent again.
    # Each connection has a thread here, which may note a window after the next connection's has.
    windows = sorted([int(message) for message in one.messages] for one in got if one.messages)
    assert [number for window in windows for number in window] == list(range(120))


def test_nobody_there_is_told_with_the_lines_that_were_not_acknowledged(tmp_path: Path) -> None:
    run, told = send(URL, numbered(tmp_path, 30), "--timeout", "1.5")
    assert (run.returncode, told["events"], told["not_acked"]) == (1, 30, 30)
    assert "no receiver is reached yet; trying for 1.5 s" in run.stderr
    assert "not acknowledged: lines 1 to 30\n" in run.stderr
    assert "ackline: 30 of 30 events not acknowledged: bpmux://127.0.0.1:1: " in run.stderr


def test_a_sink_that_is_cancelled_ends_the_sending_with_its_payload(tmp_path: Path) -> None:
    def look(_: object, opened: bpmux.OpenedSink) -> None:
        if b"window=1 " in opened.payload:
            opened.stream.cancel(b"not \x1b[31mthese", timeout=DEADLINE)

    file = numbered(tmp_path, 30, 1_000_000)
    with listening(look) as (url, _):
        run, told = send(
            url, file, "--batch-events", "10", "--batch-bytes", "64MiB", "--max-in-flight", "1",
            "--timeout", "3600",
        )  # fmt: skip
    assert (run.returncode, told["acked"], told["not_acked"]) == (1, 10, 20)
    why = r"the receiver has cancelled a sink: not \u001b[31mthese"
    assert f"ackline: 20 of 30 events not acknowledged: {why}\n" in run.stderr
    assert "not acknowledged: lines 11 to 30\n" in run.stderr


def test_connections_that_end_again_and_again_end_the_sending(tmp_path: Path) -> None:
    def look(connection: bpmux.Connection, _: object) -> None:
        connection.abort()

    file = numbered(tmp_path, 10, 1_000_000)
    with listening(look) as (url, got):
        run, told = send(
            url, file, "--timeout", "3600", "--backoff-max", "5ms", "--batch-bytes", "64MiB"
        )
    assert (run.returncode, told["acked"]) == (1, 0)
    assert len(got) == 8
    assert "8 connections in a row have ended with nothing acknowledged" in run.stderr


def test_a_receiver_that_gives_no_credit_is_given_up(tmp_path: Path) -> None:
    with listening(credit="manual") as (url, _):
        run, told = send(url, numbered(tmp_path, 10), "--timeout", "0.5")
    assert (run.returncode, told["acked"]) == (1, 0)
    assert "no credit and no acknowledgement within 0.5 s" in run.stderr


# ---- standard input and signals ----


@contextmanager
def piped(url: str, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ackline.cli", "send", "--json", url, "-", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_line_of_a_pipe_is_acknowledged_before_the_next_one_comes(tmp_path: Path) -> None:
    receiver = RunningReceiver("bpmux://127.0.0.1:0", "--spool", str(tmp_path / "spool"))
    try:
        with piped(receiver.url) as process:
            assert process.stdin is not None
            process.stdin.write(b"first\n")
            process.stdin.flush()
            wait_until(lambda: Spool(tmp_path / "spool").durable() == 1, "the first is kept")
            out, _ = process.communicate(b"second\n", timeout=DEADLINE)
            assert (process.returncode, json.loads(out)["acked"]) == (0, 2)
    finally:
        assert receiver.stop() == 0
    assert [payload for *_, payload in rows(tmp_path / "spool")] == [b"first", b"second"]


def test_lines_lost_while_a_pipe_is_silent_are_sent_again_at_once() -> None:
    opening = len(f"sending={uuid.uuid4()} window=0 first=0")

    def taken(top_level: int) -> tuple[bpmux.Connection, bpmux.OpenedSink]:
        connection = listener.accept(timeout=DEADLINE)
        connection.stream.grant_credit(top_level)
        opened = connection.accept(timeout=DEADLINE)
        assert isinstance(opened, bpmux.OpenedSink)
        opened.stream.grant_credit(1 << 20)
        return connection, opened

    listener = bpmux.listen("bpmux://127.0.0.1:0", credit="manual")
    with listener, piped(listener.url) as process:
        assert process.stdin is not None
        process.stdin.write(b"a line\n" * 10)
        process.stdin.flush()
        # There is no credit for the close, so that it is not acknowledged.
        connection, opened = taken(opening)
        assert [opened.stream.receive(timeout=DEADLINE) for _ in range(10)] == [b"a line"] * 10
        connection.abort()
        connection, again = taken(1 << 20)
        assert again.payload == opened.payload
        assert list(again.stream) == [b"a line"] * 10
        out, _ = process.communicate(b"", timeout=DEADLINE)
    told = json.loads(out)
    assert (told["acked"], told["possible_repeats"]) == (10, 10)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order_with_its_counts(number: signal.Signals, code: int) -> None:
    with listening() as (url, got), piped(url) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        wait_until(lambda: bool(got) and got[0].closed is not None, "they have arrived")
        process.send_signal(number)
        out, said = process.communicate(timeout=DEADLINE)
    assert process.returncode == code
    told = json.loads(out)
    assert (told["event"], told["events"], told["not_acked"]) == ("sent", 2, 0)
    assert said.endswith(f"ackline: stopped by {number.name}\n".encode())


# ---- wrong usage ----


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--channel", "07"], "--channel is an option of Relink\n"),
        (["--state", "x"], "--state is an option of Relink\n"),
        (["--compression", "3"], "--compression is an option of Lumberjack\n"),
        (["--read-timeout", "3s"], "--read-timeout is an option of Lumberjack\n"),
        (["--backoff-min", "3s"], "--backoff-min is an option of Lumberjack\n"),
        (["--buffer-events", "9999"], "--buffer-events is an option of Lumberjack\n"),
        (["--ca", "x.pem"], "--ca is an option of TLS, and no URL is +tls\n"),
    ],
)
def test_an_option_without_effect_is_refused_by_its_name(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    run = ackline("send", URL, numbered(tmp_path, 1), *arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"ackline: {says}"


def test_an_option_of_lumberjack_and_bpmux_is_refused_for_relink(tmp_path: Path) -> None:
    run = ackline("send", "relink://127.0.0.1:1/n", numbered(tmp_path, 1), "--max-in-flight", "3")
    assert run.stderr == "ackline: --max-in-flight is an option of Lumberjack and bpmux\n"
    assert run.returncode == 2


def test_a_url_without_a_place_is_wrong_usage(tmp_path: Path) -> None:
    for url, says in (("bpmux://127.0.0.1", "port"), ("bpmux://127.0.0.1:0", "has port 0")):
        run = ackline("send", url, numbered(tmp_path, 1))
        assert (run.returncode, run.stdout) == (2, "")
        assert says in run.stderr
        assert run.stderr.count("\n") == 1
