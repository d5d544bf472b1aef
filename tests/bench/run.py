"""The figures of docs/performance.md, measured again: `make bench`.

Both sides run on this machine, in interleaved rounds; CPU is user and system time of a server's
process tree. Nothing here is a test: it prints the figures, as Markdown tables and as JSON.
"""

import argparse
import json
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import bpmux
import micromsg
import reactive
import relink
from processes import cpu_seconds, raise_file_limit, resident_bytes, send, server

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
EVENTS_PER_WINDOW = 2048
IDLE_CONNECTIONS = 1000


@dataclass
class Rounds:
    """The rounds of one contender."""

    name: str
    events_per_second: list[float] = field(default_factory=list)
    cpu_us_per_event: list[float] = field(default_factory=list)


def spread(values: list[float], digits: int) -> str:
    """Return median and range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def ackline() -> str:
    """Return the command line of this environment."""
    return str(Path(sys.executable).with_name("ackline"))


def build(directory: Path) -> tuple[Path, Path]:
    """Build the load generator and go-lumber's server."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "ackline-bench"]
    subprocess.run(command, cwd=ROOT, check=True)
    peer = directory / "golumber"
    subprocess.run(
        ["go", "build", "-mod=readonly", "-o", str(peer), "."], cwd=HERE / "golumber", check=True
    )
    return target / "release" / "ackline-bench", peer


@dataclass(frozen=True)
class Server:
    """A receiver, as a command line."""

    name: str
    command: Callable[[str], list[str]]
    shape: tuple[str, ...] = ()


def ours(
    name: str, *arguments: str, url: str = "127.0.0.1:0", shape: tuple[str, ...] = ()
) -> Server:
    """Return our receiver; `SPOOL` stands for a new directory."""
    scheme = "lumberjack+tls" if url.startswith("localhost") else "lumberjack"
    command = [ackline(), "receive", f"{scheme}://{url}", *arguments, "--json"]
    return Server(
        name, lambda spool: [spool if each == "SPOOL" else each for each in command], shape
    )


COUNT = "ackline, counting (`--discard`)"
LAND = "ackline, landing with fsync"
LUMBER = "go-lumber 0.2.0 as shipped"


def contenders(peer: Path) -> list[Server]:
    """Return the receivers that are always compared: the goals refer to the last one."""
    return [
        ours(COUNT, "--discard"),
        ours(LAND, "--spool", "SPOOL", "--budget", "200GiB"),
        Server(LUMBER, lambda _: [str(peer)]),
    ]


def floors(load: Path) -> list[Server]:
    """Return the least that a receiver can do, as programs: nothing bounded, nothing recovered."""
    floor = str(load.with_name("ackline-floor"))
    return [
        Server("floor, counting", lambda _: [floor]),
        Server("floor, landing: one file, one fdatasync", lambda spool: [floor, spool]),
    ]


def receive(
    load: Path, servers: list[Server], rounds: int, seconds: float, shape: tuple[str, ...] = ()
) -> list[Rounds]:
    """Receive by the servers in turn."""
    raise_file_limit()
    results = [Rounds(each.name) for each in servers]
    for number in range(rounds):
        for result, each in zip(results, servers, strict=True):
            with tempfile.TemporaryDirectory(prefix="ackline-bench-") as directory:
                command = each.command(str(Path(directory) / "spool"))
                with server(command) as (pid, target):
                    start = send(target, load, seconds, shape=(*shape, *each.shape))
                    before = cpu_seconds(pid)
                    done = start()
                    used = cpu_seconds(pid) - before
            result.events_per_second.append(done["events"] / done["seconds"])
            result.cpu_us_per_event.append(1e6 * used / done["events"])
            say(
                f"round {number + 1}: {result.name}: {result.events_per_second[-1]:,.0f} events/s, "
                f"{result.cpu_us_per_event[-1]:.3f} us/event"
            )
    return results


# The loads beside one connection with full windows at zlib 3.
SHAPES = {
    "4 connections": ("--connections", "4"),
    "1,000 connections": ("--connections", "1000"),
    "no compression": ("--level", "0"),
    "windows of 50 events": ("--events", "50"),
    "windows of 50 events, 100 connections": ("--events", "50", "--connections", "100"),
}


def receive_shapes(
    load: Path, peer: Path, rounds: int, seconds: float, wanted: str | None
) -> list[str]:
    """Return a line for each shape and server, against go-lumber in the same rounds."""
    lines = [
        "| sent | server | events/s | CPU us per event | go's CPU / ours (goal) | rate / go's |",
        "|---|---|---|---|---|---|",
    ]
    goals = {COUNT: "50", LAND: "30"}
    servers = [*floors(load), *contenders(peer)]
    for name, shape in SHAPES.items():
        if wanted not in {None, name}:
            continue
        results = receive(load, servers, rounds, seconds, shape)
        base = results[-1]
        for each in results:
            cpu = ratios(base.cpu_us_per_event, each.cpu_us_per_event)
            rate = ratios(each.events_per_second, base.events_per_second)
            goal = f" ({goals[each.name]})" if each.name in goals else ""
            lines.append(
                f"| {name} | {each.name} | {spread(each.events_per_second, 0)} "
                f"| {spread(each.cpu_us_per_event, 3)} | {spread(cpu, 1)}{goal} "
                f"| {spread(rate, 1)} |"
            )
            say(lines[-1])
    return lines


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Return the ratios of the rounds."""
    return [one / other for one, other in zip(above, below, strict=True)]


def receive_tls(load: Path, directory: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for TLS against plain, with and without compression."""
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    ca, cert, key = (str(directory / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    own = ("--discard", "--cert", cert, "--key", key)
    servers = [
        ours("plain", "--discard"),
        ours("TLS", *own, url="localhost:0", shape=("--ca", ca)),
    ]
    lines = [
        "| sent | plain, events/s | TLS, events/s | TLS / plain (goal 0.6) | CPU us, both |",
        "|---|---|---|---|---|",
    ]
    for name, shape in {"zlib 3": (), "no compression": ("--level", "0")}.items():
        plain, secure = receive(load, servers, rounds, seconds, shape)
        ratio = ratios(secure.events_per_second, plain.events_per_second)
        cpu = " and ".join(spread(each.cpu_us_per_event, 3) for each in (plain, secure))
        lines.append(
            f"| {name} | {spread(plain.events_per_second, 0)} "
            f"| {spread(secure.events_per_second, 0)} | {spread(ratio, 2)} | {cpu} |"
        )
    return lines


def send_ready(load: Path, peer: Path, directory: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each writer of ready bytes, each to a receiver that counts."""
    events = directory / "events.jsonl"
    with events.open("wb") as lines_of:
        subprocess.run([load, "lines", str(4 * EVENTS_PER_WINDOW)], stdout=lines_of, check=True)
    script = [sys.executable, str(HERE / "senders.py")]
    senders: dict[str, list[str]] = {
        "ackline (Python)": [*script, "ackline"],
        "pylogbeat 2.1.0": [*script, "pylogbeat"],
        "go-lumber 0.2.0": [str(peer), "-seconds", str(seconds), "-send"],
    }
    results = [Rounds(name) for name in senders]
    counting = ours(COUNT, "--discard")
    for _ in range(rounds):
        for result, command in zip(results, senders.values(), strict=True):
            with server(counting.command("")) as (_, target), events.open("rb") as ready:
                tail = [target] if "-send" in command else [target, str(seconds)]
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                run = subprocess.run(
                    [*command, *tail], stdin=ready, stdout=subprocess.PIPE, check=True
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = json.loads(run.stdout.splitlines()[-1])
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            result.events_per_second.append(done["events"] / done["seconds"])
            result.cpu_us_per_event.append(1e6 * used / done["events"])
            say(f"{result.name}: {result.events_per_second[-1]:,.0f} events/s")
    lines = [
        "| writer | events/s | CPU per event, us | ackline's events/s / its (goal) |",
        "|---|---|---|---|",
    ]
    goals = {"pylogbeat 2.1.0": " (5)", "go-lumber 0.2.0": " (1)"}
    for each in results:
        ratio = ratios(results[0].events_per_second, each.events_per_second)
        lines.append(
            f"| {each.name} | {spread(each.events_per_second, 0)} "
            f"| {spread(each.cpu_us_per_event, 3)} | {spread(ratio, 2)}{goals.get(each.name, '')} |"
        )
    return lines


def project(load: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each number of columns that events are projected to."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        run = subprocess.run([load, "project", str(seconds)], stdout=subprocess.PIPE, check=True)
        for line in map(json.loads, run.stdout.splitlines()):
            found.setdefault(line["columns"], []).append(line["us_per_event"])
    lines = ["| columns | us per event of 837 bytes (goal of 4 of 12: 1.5) |", "|---|---|"]
    return [*lines, *(f"| {name} | {spread(values, 3)} |" for name, values in found.items())]


def packets(load: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each size of payload that Relink's packets are decoded and encoded with."""
    kinds = ("packets_per_second", "with_copy_per_second", "encoded_per_second")
    found: dict[int, list[list[float]]] = {}
    for _ in range(rounds):
        command = [load, "relink", "decode", str(seconds / 10)]
        run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        for line in map(json.loads, run.stdout.splitlines()):
            found.setdefault(line["payload_bytes"], []).append([line[kind] / 1e6 for kind in kinds])
    lines = [
        "| payload | decoded, M/s (goal at 64 B: 20) | decoded and copied, M/s | encoded, M/s |",
        "|---|---|---|---|",
    ]
    for size, values in found.items():
        cells = " | ".join(spread(list(one), 1) for one in zip(*values, strict=True))
        lines.append(f"| {size} B | {cells} |")
    return lines


LINK_GOALS = {
    ("large", "ratio"): "64 KiB messages, bytes/s of a bare pair (goal 0.85)",
    ("small", "messages_per_second"): "64 B messages/s, acknowledged in batches (goal 3,000,000)",
    ("round_trip", "us"): "round trip of 64 B, us",
    ("round_trip", "ratio"): "round trip, of a bare pair's (goal 1.5)",
    ("resume", "transfer_ms"): "100,000 messages of 64 B on a new link, ms",
    ("resume", "ratio"): "the same sent again after a cut, of that time (goal 1)",
}


def links(load: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each figure of Relink's links in Rust."""
    return figures([load, "relink", "links", str(seconds / 5)], rounds, LINK_GOALS)


def figures(command: list[str | Path], rounds: int, goals: dict[tuple[str, str], str]) -> list[str]:
    """Return a line for each figure that a command tells."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        for line in map(json.loads, run.stdout.splitlines()):
            for key in goals:
                if key[0] == line["event"]:
                    found.setdefault(key, []).append(line[key[1]])
    lines = ["| what | median (lowest-highest) |", "|---|---|"]
    for key, text in goals.items():
        lines.append(f"| {text} | {spread(found[key], 0 if max(found[key]) > 1000 else 2)} |")
    return lines


CONNECTION_GOALS = {
    ("large", "ratio"): "64 KiB messages on one sink, bytes/s of a bare pair's (goal 0.85)",
    ("large", "yamux_ratio"): "the same, of yamux's (goal 1)",
    ("many", "messages_per_second"): "1 KiB messages/s on 1,000 sinks",
    ("many", "yamux_ratio"): "the same, of yamux's (goal 2)",
    ("requests", "requests_per_second"): "requests/s, 64 on their way (goal 500,000)",
    ("round_trip", "us"): "a request of 64 B and its response, us",
    ("round_trip", "ratio"): "the same, of a bare pair's round trip (goal 1.5)",
    ("round_trip", "yamux_ratio"): "the same, of yamux's",
    ("trickle", "idle_p99_us"): "64 B on 10,000 streams, p99 us, nothing else going on",
    ("trickle", "p99_us"): "the same beside 100 MB each way on one duplex",
    ("trickle", "ratio"): "the second of the first (goal 5)",
}


def connections(load: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each figure of bpmux's connections in Rust."""
    return figures([load, "bpmux", "connections", str(seconds / 5)], rounds, CONNECTION_GOALS)


STREAM_GOALS = {
    ("packed", "elements_per_second"): "packed elements of 8 B/s (goal 100,000,000)",
    ("packed", "ratio"): "the same, bytes/s of a bare pair's",
    ("packed", "cpu_us_per_mb"): "the same, CPU us for a MB, both ends",
    ("kib", "elements_per_second"): "elements of 1 KiB/s",
    ("kib", "ratio"): "the same, bytes/s of a bare pair's (goal 0.8)",
    ("kib", "cpu_us_per_mb"): "the same, CPU us for a MB, both ends",
    ("kib", "raw_cpu_us_per_mb"): "the bare pair, CPU us for a MB, both ends",
}


def streams(load: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each figure of Reactive Streams in Rust."""
    return figures([load, "reactive", "streams", str(seconds / 5)], rounds, STREAM_GOALS)


MESSAGE_GOALS = {
    ("batch-ack", "messages_per_second"): "messages of 256 B/s, acknowledged (goal 1,000,000)",
    ("batch-ack", "ratio"): "the same, bytes/s of a bare pair's",
    ("batch-ack", "cpu_ns_per_message"): "the same, CPU ns for a message, both ends",
    ("filters", "evaluations_per_second"): "filters of three conditions/s (goal 20,000,000)",
    ("fan-out", "deliveries_per_second"): "deliveries to 100 subscribers/s (goal 5,000,000)",
    ("fan-out", "cpu_ns_per_delivery"): "the same, CPU ns for a delivery, all ends and the broker",
}


def messages(load: Path, rounds: int, seconds: float) -> list[str]:
    """Return a line for each figure of MicroMsg2 in Rust."""
    return figures([load, "micromsg", "messages", str(seconds / 5)], rounds, MESSAGE_GOALS)


def group_commits(load: Path, seconds: float) -> list[str]:
    """Return a line for each number of connections and events in a window."""
    lines = [
        "| connections | window | events/s | fsyncs/s | windows a commit | ack p50, p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    raise_file_limit()
    for connections in (1, 10, 1000):
        for events in (1, 50, EVENTS_PER_WINDOW):
            shape = ("--connections", str(connections), "--events", str(events))
            with tempfile.TemporaryDirectory(prefix="ackline-bench-") as name:
                spool = Path(name) / "spool"
                command = [ackline(), "receive", "lumberjack://127.0.0.1:0", "--json"]
                with server([*command, "--spool", str(spool), "--budget", "200GiB"]) as (_, target):
                    done = send(target, load, seconds, shape=shape)()
                    time.sleep(1.5)  # the last numbers are published once a second
                    status = json.loads((spool / "status.json").read_text(encoding="utf-8"))
            windows, took = done["windows"], done["seconds"]
            lines.append(
                f"| {connections:,} | {events:,} | {done['events'] / took:,.0f} "
                f"| {status['fsyncs'] / took:,.0f} | {windows / status['groups']:,.1f} "
                f"| {done['ack_p50_ms']:.1f}, {done['ack_p99_ms']:.1f} |"
            )
            say(lines[-1])
    return lines


def idle_memory() -> dict[str, int]:
    """Return the receiver's resident bytes without and with idle connections."""
    raise_file_limit()
    command = [ackline(), "receive", "lumberjack://127.0.0.1:0", "--discard", "--json"]
    with server([*command, "--first-byte-timeout", "10min"]) as (pid, target):
        time.sleep(1)
        empty = resident_bytes(pid)
        host, port = target.rsplit(":", 1)
        peers = [socket.create_connection((host, int(port))) for _ in range(IDLE_CONNECTIONS)]
        for peer in peers:
            peer.sendall(b"2W\0\0\0\0")
            assert peer.recv(6) == b"2A\0\0\0\0"
        time.sleep(1)
        full = resident_bytes(pid)
        for peer in peers:
            peer.close()
    return {"empty": empty, "idle_connections": full}


def fill(directory: Path, load: Path, rows: int) -> Path:
    """Land `rows` events in a new spool."""
    spool = directory / "spool"
    url = "lumberjack://127.0.0.1:0"
    command = [ackline(), "receive", url, "--spool", str(spool), "--budget", "200GiB", "--json"]
    with server(command) as (_, target):
        send(target, load, 600, -(-rows // EVENTS_PER_WINDOW))()
    return spool


def read_back(spool: Path, rounds: int) -> dict[str, list[float]]:
    """Return rows/s of reading the spool into Arrow on one core and on all."""
    import ackline as package

    reader = package.Spool(str(spool))
    end = reader.durable()
    results: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, columns, threads in (
            ("all columns, 1 thread", None, 1),
            ("position, received_at, payload, 1 thread", ["position", "received_at", "payload"], 1),
            ("all columns, 2 threads", None, 2),
        ):
            started, cpu, rows = time.perf_counter(), time.process_time(), 0
            for batch in reader.read(0, end, columns=columns, threads=threads):
                rows += batch.num_rows
            took, used = time.perf_counter() - started, time.process_time() - cpu
            assert rows == end
            results.setdefault(f"{name}: rows/s", []).append(rows / took)
            results.setdefault(f"{name}: rows per CPU second", []).append(rows / used)
    return results


def say(text: str) -> None:
    """Show progress on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def report(name: str, lines: list[str]) -> None:
    """Print one table."""
    sys.stdout.write(f"\n### {name}\n\n" + "\n".join(lines) + "\n")
    sys.stdout.flush()


def report_receive(results: list[Rounds]) -> None:
    """Print the servers side by side; the goals refer to go-lumber as shipped."""
    base = results[2]
    lines = [
        "| server | events/s | CPU us per event | go's CPU / ours | rate / go's |",
        "|---|---|---|---|---|",
    ]
    for each in results:
        ratio = spread(ratios(base.cpu_us_per_event, each.cpu_us_per_event), 1)
        faster = spread(ratios(each.events_per_second, base.events_per_second), 1)
        rate, cpu = spread(each.events_per_second, 0), spread(each.cpu_us_per_event, 3)
        lines.append(f"| {each.name} | {rate} | {cpu} | {ratio} | {faster} |")
    report("Receiving: median (lowest-highest)", lines)


def main() -> None:
    """Run the chosen measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round of receiving")
    parser.add_argument("--rows", type=int, default=3_000_000, help="of reading back and of Spark")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--shape", choices=SHAPES, help="with --only shapes: this one alone")
    options = parser.parse_args()
    wanted = {options.only} if options.only else set(PARTS)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}"
    sys.stdout.write(f"Machine: {machine}, load {os.getloadavg()[0]:.1f} at the start.\n")
    with tempfile.TemporaryDirectory(prefix="ackline-bench-") as name:
        measure(wanted, options, Path(name))


def measure_links(
    wanted: set[str], options: argparse.Namespace, directory: Path, built: tuple[Path, Path]
) -> None:
    """Run the measurements with connections and those without."""
    load, peer = built
    if "receive" in wanted:
        bytes_kept = Server(
            f"{LUMBER[:-11]}, its decoder keeping the bytes", lambda _: [str(peer), "-bytes"]
        )
        servers = [*contenders(peer), bytes_kept]
        report_receive(receive(load, servers, options.rounds, options.seconds))
    if "shapes" in wanted:
        lines = receive_shapes(load, peer, options.rounds, options.seconds, options.shape)
        report("Receiving other shapes: median (lowest-highest)", lines)
    if "tls" in wanted:
        report("TLS", receive_tls(load, directory, options.rounds, options.seconds))
    if "writer" in wanted:
        lines = send_ready(load, peer, directory, options.rounds, options.seconds)
        report("Writing ready bytes", lines)
    if "project" in wanted:
        report("Projecting JSON", project(load, options.rounds, options.seconds))
    if "relink-decode" in wanted:
        report("Relink's packets in memory", packets(load, options.rounds, options.seconds))
    in_rust = {
        "relink-links": (links, "Relink's links, beside a bare pair of sockets"),
        "bpmux-connections": (
            connections,
            "bpmux's connections, beside yamux and a bare pair of sockets",
        ),
        "reactive-streams": (streams, "Reactive Streams' elements, beside a bare pair of sockets"),
        "micromsg-messages": (messages, "MicroMsg2's messages, beside a bare pair of sockets"),
    }
    for part, (measured, title) in in_rust.items():
        if part in wanted:
            report(title, measured(load, options.rounds, options.seconds))
    if "instructions" in wanted:
        command = [sys.executable, str(HERE / "instructions.py"), "--times", "2"]
        report("Instructions for each event", [""])
        subprocess.run(command, check=True)


def measure(wanted: set[str], options: argparse.Namespace, directory: Path) -> None:
    """Measure the wanted parts, one after the other."""
    from_python = {
        "relink-python": (relink.measure, "Messages from Python, beside pyzmq"),
        "bpmux-python": (bpmux.measure, "Calls and streams from Python, beside grpcio, rsocket-py"),
        "reactive-python": (
            reactive.measure,
            "Elements from Python, beside rsocket-py, grpcio, Arrow Flight",
        ),
        "micromsg-python": (micromsg.measure, "Messages from Python, beside nats-py"),
    }
    for part, (measured, title) in from_python.items():
        if part in wanted:
            report(title, measured(options.rounds, options.seconds / 4))
    if wanted <= set(from_python):
        return
    load, peer = build(directory)
    measure_links(wanted, options, directory, (load, peer))
    if "commit" in wanted:
        report("Group commit", group_commits(load, options.seconds / 2))
    if "memory" in wanted:
        found = idle_memory()
        lines = [f"* {key}: {value / 2**20:.1f} MiB" for key, value in found.items()]
        each = (found["idle_connections"] - found["empty"]) / IDLE_CONNECTIONS / 1024
        report("Resident memory", [*lines, f"* per idle connection: {each:.1f} KiB"])
    if wanted & {"read", "spark", "profile"}:
        measure_spool(wanted, options, directory, load)
    if "latency" in wanted:
        place = str(directory / "latency")
        command = [sys.executable, str(HERE / "spark_latency.py"), place, str(options.rounds)]
        subprocess.run([*command, str(options.seconds)], check=True)


def measure_spool(
    wanted: set[str], options: argparse.Namespace, directory: Path, load: Path
) -> None:
    """Fill a spool, and measure what reads it."""
    say(f"landing {options.rows:,} rows to read back")
    spool = fill(directory, load, options.rows)
    if "read" in wanted:
        results = read_back(spool, options.rounds)
        lines = [f"* {key}: {spread(values, 0)}" for key, values in results.items()]
        report("Reading the spool into Arrow", lines)
    places = [str(spool), str(directory)]
    if "spark" in wanted:
        command = [sys.executable, str(HERE / "spark_rows.py"), *places, str(options.rounds)]
        subprocess.run(command, check=True)
    if "profile" in wanted:
        flames = str(ROOT / "target" / "flames")
        command = [sys.executable, str(HERE / "spark_profile.py"), *places, flames]
        subprocess.run(command, check=True)


PARTS = [
    "receive",
    "shapes",
    "tls",
    "writer",
    "project",
    "relink-decode",
    "relink-links",
    "relink-python",
    "bpmux-connections",
    "bpmux-python",
    "reactive-streams",
    "reactive-python",
    "micromsg-messages",
    "micromsg-python",
    "instructions",
    "commit",
    "memory",
    "read",
    "spark",
    "profile",
    "latency",
]


if __name__ == "__main__":
    main()
