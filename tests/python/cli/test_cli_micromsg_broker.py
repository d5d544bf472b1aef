"""`ackline serve micromsg://…` with publishers and subscribers, each a process of its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.certificates import Pki
from support.commands import DEADLINE, RunningReceiver, ackline, rows, wait_until
from support.micromsg import ANY, Broker
from support.publishing import COMMAND, Start, feed, lines_of

from ackline import micromsg
from ackline.exceptions import AcklineError

READINGS = [
    {"payload": f"{region} {level}", "properties": {"level": level, "region": region}}
    for level in range(6)
    for region in ("eu", "us")
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Starts `ackline serve` on a free port; ends those that still run."""
    started: list[RunningReceiver] = []

    def start(*arguments: object, url: str = ANY) -> RunningReceiver:
        texts = [str(argument) for argument in arguments]
        started.append(RunningReceiver(url, *texts, command="serve"))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def subscribed(running: RunningReceiver, count: int) -> None:
    """Waits until the broker has so many subscriptions."""
    while running.next("stats")["subscriptions"] != count:
        pass


def published(url: str, *payloads: object) -> None:
    """Publishes lines by the command, and checks that all are acknowledged."""
    text = "".join(f"{payload}\n" for payload in payloads)
    run = ackline("publish", url, "-", given=text)
    told = f"ackline: {len(payloads)} messages acknowledged\n"
    assert (run.returncode, run.stderr) == (0, told)


def test_a_client_that_breaks_the_protocol_is_a_line(broker: Broker) -> None:
    running = broker()
    host, _, port = running.url.removeprefix("micromsg://").rpartition(":")
    handshake = bytes([1, 0, 0, 0, 0, 0, 0, 0])
    with socket.create_connection((host, int(port)), timeout=DEADLINE) as client:
        client.sendall(handshake * 2 + b"\x20")
        line = running.next("refused")
    assert line["peer"].startswith("127.0.0.1:")
    told = {name: line[name] for name in ("protocol", "code", "offset")}
    assert told == {"protocol": "micromsg", "code": "micromsg.reserved_flags", "offset": 16}
    assert running.next("stats")["refused"] == 1
    assert running.stop() == 0


# ---- topics ----


def test_each_subscriber_gets_the_messages_that_its_filter_matches(
    broker: Broker, start: Start
) -> None:
    running = broker()
    url = f"{running.url}/readings"
    everything = start("subscribe", url, "--count", "12")
    chosen = start("subscribe", url, "--filter", "level>=N3;region=Teu", "--count", "3")
    encoded = start("subscribe", f"{url}?filter=region!%3DTeu", "--count", "6", "--format", "json")
    subscribed(running, 3)
    given = "".join(json.dumps(reading) + "\n" for reading in READINGS)
    run = ackline("publish", url, "-", "--format", "json", given=given)
    assert run.returncode == 0, run.stderr
    payloads = [str(reading["payload"]) for reading in READINGS]
    for process, wanted in ((everything, payloads), (chosen, ["eu 3", "eu 4", "eu 5"])):
        out, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, out.decode().splitlines(), err) == (0, wanted, b"")
    out, _ = encoded.communicate(timeout=DEADLINE)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"position": at, "destination": "readings"} | reading
        for at, reading in enumerate((one for one in READINGS if "us" in str(one)), 1)
    ]
    assert running.stop() == 0
    stats = [line for line in running.lines if line["event"] == "stats"][-1]
    assert (stats["published"], stats["delivered"]) == (12, 21)
    assert running.lines[-1]["event"] == "stopped"
    assert running.lines[-1]["cut"] == 0


def test_lines_of_json_go_from_subscribe_to_publish(broker: Broker, start: Start) -> None:
    running = broker()
    first = start("subscribe", f"{running.url}/from", "--format", "json", "--count", "3")
    subscribed(running, 1)
    values = {
        "whole": -3,
        "first_name": "jonas",
        "half": 0.5,
        "text": "N3",
        "at": {"date": "2014-10-13T11:00:00Z"},
    }
    messages = [
        {"payload": "x", "properties": values},
        {"payload": "y", "properties": {}},
        {"payload_hex": "ff", "properties": {}},
    ]
    given = "\n".join(json.dumps(message) for message in messages)
    run = ackline("publish", f"{running.url}/from", "-", "--format", "json", given=given)
    assert run.returncode == 0, run.stderr
    came, _ = first.communicate(timeout=DEADLINE)
    lines = [json.loads(line) for line in came.splitlines()]
    assert lines == [
        {"position": at, "destination": "from"} | message for at, message in enumerate(messages, 1)
    ]
    subscribed(running, 0)
    again = start("subscribe", f"{running.url}/from", "--format", "json", "--count", "3")
    subscribed(running, 1)
    run = ackline("publish", running.url, "-", "--format", "json", given=came.decode())
    assert run.returncode == 0, run.stderr
    assert again.communicate(timeout=DEADLINE)[0] == came


def test_a_topic_is_live_only(broker: Broker, start: Start) -> None:
    running = broker()
    published(f"{running.url}/t", "before")
    late = start("subscribe", f"{running.url}/t", "--count", "1")
    subscribed(running, 1)
    published(f"{running.url}/t", "after")
    assert late.communicate(timeout=DEADLINE)[0] == b"after\n"


def test_a_reader_that_leaves_ends_subscribe_silently(broker: Broker) -> None:
    running = broker()
    url = f"{running.url}/t"
    pipe = f'"$0" -m ackline.cli subscribe {url} | head -2'
    process = subprocess.Popen(
        ["/bin/bash", "-c", f"set -o pipefail; {pipe}", sys.executable],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        subscribed(running, 1)
        published(url, *range(1_000))
        out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, out, err) == (0, b"0\n1\n", b"")


def test_the_end_of_the_broker_ends_subscribe_with_1(broker: Broker, start: Start) -> None:
    running = broker()
    ended, killed = (start("subscribe", f"{running.url}/t") for _ in range(2))
    subscribed(running, 2)
    killed.send_signal(signal.SIGINT)
    assert killed.wait(DEADLINE) == 130
    assert killed.communicate()[1] == b"ackline: stopped by SIGINT\n"
    assert running.stop() == 0
    out, err = ended.communicate(timeout=DEADLINE)
    assert (ended.returncode, out) == (1, b"")
    assert err == b"ackline: the peer has ended the connection\n"


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_output_that_cannot_be_written_is_reported(broker: Broker, where: str) -> None:
    running = broker()
    command = ["subscribe", f"{running.url}/queue/q"]
    published_one = ["publish", f"{running.url}/queue/q", "-"]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$0" "$@" {where}', *COMMAND, *command],
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with process:
        subscribed(running, 1)
        # Nobody has written it, so it is not acknowledged.
        run = ackline(*published_one, "--timeout", "1", given="one\n")
        assert process.wait(DEADLINE) == 74
    assert run.returncode == 124
    assert "1 of 1 messages not acknowledged" in run.stderr


def test_topics_are_served_over_tls_and_a_unix_socket(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.issue("server", "server", "IP:127.0.0.1")
    secure = broker("--cert", cert, "--key", key, url="micromsg+tls://127.0.0.1:0")
    local = broker(url=f"micromsg+unix://{tmp_path}/socket")
    for running, url, options in (
        (secure, f"{secure.url}/a%20b", ["--ca", pki.ca]),
        (local, f"{local.url}?topic=a%20b", []),
    ):
        taking = start("subscribe", url, "--count", "2", *options)
        subscribed(running, 1)
        for command in ("publish", "send"):
            run = ackline(command, url, "-", *options, given=f"{command}\n")
            assert run.returncode == 0, run.stderr
        assert taking.communicate(timeout=DEADLINE) == (b"publish\nsend\n", b"")
        assert running.stop() == 0


# ---- queues ----


def drained(url: str, count: int) -> list[str]:
    """Takes messages of a queue by the command."""
    run = ackline("subscribe", url, "--count", str(count))
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_a_message_of_a_queue_goes_to_one_of_two_workers(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    running = broker("--spool", tmp_path / "spool", "--queue", "jobs")
    for number, queue in enumerate(("queue/a", "jobs"), 1):
        url = f"{running.url}/{queue}"
        workers = [start("subscribe", url, "--window", "10") for _ in range(2)]
        subscribed(running, 2)
        published(url, *range(2_000))
        # Messages that wait on the disk alone are not among those that wait.
        while running.next("stats")["delivered"] < number * 2_000:
            pass
        while running.next("stats")["unacknowledged"]:
            pass
        for worker in workers:
            worker.terminate()
        taken = [worker.communicate(timeout=DEADLINE)[0].split() for worker in workers]
        assert all(taken), "both have worked"
        assert sorted(int(one) for each in taken for one in each) == [*range(2_000)]
        subscribed(running, 0)


def test_a_count_leaves_the_rest_of_a_queue(broker: Broker, tmp_path: Path) -> None:
    running = broker("--spool", tmp_path / "spool")
    url = f"{running.url}/queue/q"
    published(url, *range(10))
    assert drained(url, 3) == ["0", "1", "2"]
    assert drained(url, 7) == [str(number) for number in range(3, 10)]


def test_a_killed_worker_loses_nothing_that_it_has_not_acknowledged(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    running = broker("--spool", tmp_path / "spool")
    url = f"{running.url}/queue/q"
    numbers = range(50_000)
    published(url, *numbers)
    written: list[bytes] = []
    for _ in range(3):
        worker = start("subscribe", url, "--window", "100")
        begin = b"".join(lines_of(worker).readline() for _ in range(1_000))
        worker.send_signal(signal.SIGKILL)
        rest, _ = worker.communicate(timeout=DEADLINE)
        # A last line may be cut.
        written += (begin + rest).rpartition(b"\n")[0].split()
    rest = ackline_rest(url, running)
    came = [int(one) for one in [*written, *rest]]
    assert {*came} == {*numbers}, "everything acknowledged to the publisher has come"
    # Only those in the window of a killed worker, and a batch in work, come twice.
    assert len(came) - len(numbers) <= 3 * 1_100
    assert [int(one) for one in rest] == sorted(int(one) for one in rest)


def test_a_killed_receiver_keeps_each_message_of_its_queue(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    running = broker("--spool", tmp_path / "queues")
    url, kept = f"{running.url}/queue/q", tmp_path / "kept"
    sent = on_their_way = 0

    def landed() -> list[int]:
        # At first it is not whole.
        with suppress(AcklineError):
            return [int(payload or b"") for _, _, _, payload in rows(kept)]
        return []

    def receive(least: int) -> None:
        receiving = start(
            "receive", "--connect", url, "--spool", str(kept), "--window", "10", "--json"
        )
        wait_until(lambda: len({*landed()}) >= least, f"{least} have landed")
        receiving.send_signal(signal.SIGKILL)
        receiving.communicate(timeout=DEADLINE)

    kills = 0
    while on_their_way < 2:
        assert kills < 10, "each receiver was done before it was killed"
        published(url, *range(sent, sent + 6_000))
        sent += 6_000
        receive(len({*landed()}) + 500)
        kills += 1
        on_their_way += len({*landed()}) < sent
    receive(sent)
    came = landed()
    assert {*came} == {*range(sent)}
    # Only messages whose acknowledgement a kill has cut come twice.
    assert len(came) - sent <= kills * 10


def ackline_rest(url: str, running: RunningReceiver) -> list[bytes]:
    """Takes everything that is left in a queue."""
    with micromsg.connect(url.partition("/queue")[0], ack_policy="manual") as connection:
        connection.subscribe("queue/q")
        taken = []
        with suppress(AcklineError):
            while messages := connection.receive_some(timeout=2.0):
                taken += [message.payload for message in messages]
                connection.ack(messages[-1])
    while running.next("stats")["waiting"]:
        pass
    return taken


def test_a_killed_broker_keeps_what_it_has_acknowledged(
    broker: Broker, start: Start, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    running = broker("--spool", spool)
    port = running.url.rpartition(":")[2]
    sending = start("send", f"{running.url}/queue/q", "-", "--json", "--backoff-max", "100ms")
    numbers = iter(range(1_000_000))
    sent: list[int] = []
    for _ in range(3):
        for _ in range(20):
            some = [next(numbers) for _ in range(200)]
            feed(sending, b"".join(b"%d\n" % number for number in some))
            sent += some
            time.sleep(0.01)
        running.kill()
        running = broker("--spool", spool, url=f"micromsg://127.0.0.1:{port}")
    out, err = sending.communicate(timeout=DEADLINE)
    assert sending.returncode == 0, err
    told = json.loads(out)
    assert (told["events"], told["acked"]) == (len(sent), len(sent))
    came = [int(one) for one in ackline_rest(f"{running.url}/queue/q", running)]
    assert {*came} == {*sent}, "everything acknowledged is there"
    assert len(came) - len(sent) <= told["possible_repeats"]
    assert running.stop() == 0
    # Acknowledged messages do not come again.
    again = broker("--spool", spool)
    assert ackline_rest(f"{again.url}/queue/q", again) == []


# ---- the command itself ----


def test_a_receiver_subscribes_with_a_filter(broker: Broker, start: Start, tmp_path: Path) -> None:
    running = broker()
    spool = tmp_path / "spool"
    url = f"{running.url}/logs?filter=level%3E%3DN3"
    receiving = start("receive", "--connect", url, "--spool", str(spool), "--json")
    subscribed(running, 1)
    for level in range(6):
        options = ("--property", f"level={level}")
        run = ackline("publish", f"{running.url}/logs", "-", *options, given=f"{level}\n")
        assert run.returncode == 0, run.stderr
    wait_until(lambda: cat(spool) == ["3", "4", "5"], "those are kept")
    receiving.terminate()
    assert receiving.wait(DEADLINE) == 0
    lines_of(receiving).read()


def cat(spool: Path) -> list[str]:
    return ackline("spool", "cat", str(spool)).stdout.split()


def test_a_refused_client_is_one_sentence() -> None:
    process = subprocess.Popen([*COMMAND, "serve", ANY], stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stderr is not None
        port = process.stderr.readline().rpartition(":")[2]
        with socket.create_connection(("127.0.0.1", int(port)), timeout=DEADLINE) as client:
            client.sendall(bytes([1, 0, 0, 0, 0, 0, 0, 0]) * 2 + b"\x20")
            line = process.stderr.readline()
        assert re.match(r"ackline: refused 127\.0\.0\.1:\d+: micromsg\.reserved_flags: ", line)
        process.terminate()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_sentences_for_people_name_the_url() -> None:
    process = subprocess.Popen(
        [*COMMAND, "serve", ANY], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert re.fullmatch(r"ackline: listening on micromsg://127\.0\.0\.1:\d+\n", line)
        process.terminate()
        assert process.communicate(timeout=DEADLINE) == (b"", b"")
    assert process.returncode == 0


def test_a_receiver_that_holds_messages_is_cut_at_the_drain_timeout(broker: Broker) -> None:
    running = broker("--drain-timeout", "300ms")
    with suppress(AcklineError), micromsg.connect(running.url, ack_policy="manual") as connection:
        connection.subscribe("queue/q")
        connection.send(b"one", "queue/q")
        assert connection.receive(timeout=DEADLINE) is not None
        assert running.stop() == 4
        connection.abort()
    assert running.lines[-1] == running.lines[-1] | {"event": "stopped", "cut": 1}


WRONG = [
    ([], "'nonsense' is not a URL: write bpmux://host:port or micromsg://host:port"),
    ([ANY, ANY], "a broker has one URL"),
    ([ANY, "bpmux://127.0.0.1:0"], "the URLs are of several protocols"),
    ([ANY, "--echo"], "--echo is an option of bpmux"),
    ([ANY, "--max-entities", "3"], "--max-entities is an option of bpmux"),
    ([ANY, "--spool", ""], "--spool is empty"),
    ([ANY, "--budget", "1GiB"], "--budget needs --spool DIR"),
    (
        [ANY, "--queue", "a*b"],
        '--queue has "a*b": a name of at most 255 bytes of ASCII, or a beginning and *',
    ),
    ([ANY, "--queue", ""], '--queue has "": a name has 1 to 255 characters, and no semicolon'),
    ([ANY, "--queue", "a;b"], '--queue has "a;b": a name has 1 to 255 characters'),
    ([ANY, "--queue", "x" * 256], "a name has 1 to 255 characters"),
    ([ANY, "--max-queues", "0"], "--max-queues is 0; it is"),
    ([ANY, "--memory", "1KiB"], "--memory is 1KiB; it is"),
    ([ANY, "--drain-timeout", "soon"], "'soon' is not a time"),
    (["micromsg://127.0.0.1:0/topic"], 'the URL names the topic "topic"; leave it out'),
    (["micromsg+tls://127.0.0.1:0"], "cert"),
    (["bpmux://127.0.0.1:0", "--echo", "--spool", "x"], "--spool is an option of MicroMsg2"),
    (["bpmux://127.0.0.1:0", "--echo", "--queue", "x"], "--queue is an option of MicroMsg2"),
    (["reactive://127.0.0.1:0"], "use `ackline publish --listen`"),
]


@pytest.mark.parametrize(("arguments", "why"), WRONG)
def test_a_wrong_command_line_is_refused(arguments: list[str], why: str) -> None:
    run = ackline("serve", *(arguments or ["nonsense"]))
    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    assert why in run.stderr
    assert "Traceback" not in run.stderr


def test_a_kept_queue_that_is_not_named_again_is_refused(broker: Broker, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    running = broker("--spool", spool, "--queue", "jobs")
    published(f"{running.url}/jobs", "one")
    assert running.stop() == 0
    run = ackline("serve", ANY, "--spool", str(spool))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == (
        'ackline: --queue does not name "jobs", a queue of the spool: name it, or remove its '
        "consumer micromsg.jobs from the spool\n"
    )
    running = broker("--spool", spool, "--queue", "jobs")
    assert running.next("stats")["queues"] == 1


def test_a_receiver_with_a_wrong_url_leaves_no_spool_behind(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    for arguments in (["micromsg://127.0.0.1:0/t"], ["--connect", "micromsg://127.0.0.1:1"]):
        run = ackline("receive", *arguments, "--spool", str(spool))
        assert (run.returncode, run.stdout) == (2, "")
        assert "topic" in run.stderr
        assert not spool.exists()


def test_an_address_in_use_and_a_locked_spool_are_told(broker: Broker, tmp_path: Path) -> None:
    running = broker("--spool", tmp_path / "spool")
    run = ackline("serve", running.url)
    assert run.returncode == 1
    assert "in use" in run.stderr
    run = ackline("serve", ANY, "--spool", str(tmp_path / "spool"))
    assert run.returncode in {1, 74}
    assert "Traceback" not in run.stderr
    assert os.path.basename(tmp_path / "spool") in run.stderr  # noqa: PTH119 (a text)
