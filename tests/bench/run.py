"""The figures of docs/performance.md, measured again: `make bench`.

Both sides run on this machine, in interleaved rounds; CPU is user and system time of a server's
process tree. Nothing here is a test: it prints what it finds, as Markdown tables and as JSON.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")
EVENTS_PER_WINDOW = 2048
IDLE_CONNECTIONS = 1000


# ---- processes ----


def tree(pid: int) -> list[int]:
    """Return a process and its living descendants."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process tree, with its children that have ended."""
    total = 0
    for each in tree(pid):
        stat = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        total += sum(int(stat[index]) for index in (11, 12, 13, 14))
    return total / TICK


def resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process tree."""
    total = 0
    for each in tree(pid):
        status = Path(f"/proc/{each}/status").read_text(encoding="ascii")
        total += 1024 * int(status.split("VmRSS:")[1].split()[0])
    return total


@contextmanager
def server(command: list[str]) -> Iterator[tuple[int, str]]:
    """Run a server that prints a `listening` line; yields its pid and its address."""
    with tempfile.TemporaryFile("w+") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=subprocess.DEVNULL)
        try:
            yield process.pid, address(process, lines)
        finally:
            process.terminate()
            process.wait(30)


def address(process: subprocess.Popen[bytes], lines: Any) -> str:
    """Wait for the address that the server says it listens on."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        lines.seek(0)
        first = lines.readline()
        if first.endswith("\n"):
            return str(json.loads(first)["urls"][0]).removeprefix("lumberjack://")
        time.sleep(0.02)
    raise SystemExit(f"{process.args!r} did not listen")


def send(
    target: str, load: Path, seconds: float, windows: int | None = None, shape: tuple[str, ...] = ()
) -> Callable[[], Any]:
    """Prepare a load generator; what is returned starts it and gives back its result."""
    limit = [] if windows is None else [str(windows)]
    process = subprocess.Popen(
        [load, *shape, target, str(seconds), *limit],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()

    def start() -> Any:
        output, _ = process.communicate("go\n", timeout=seconds + 300)
        if process.returncode:
            raise SystemExit(f"the load generator ended with {process.returncode}")
        return json.loads(output.splitlines()[-1])

    return start


# ---- what is measured ----


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


def receive(load: Path, peer: Path, rounds: int, seconds: float) -> list[Rounds]:
    """Receive by four servers in turn."""
    contenders = {
        "ackline, counting (`--discard`)": lambda _: ["--discard"],
        "ackline, landing with fsync": lambda spool: ["--spool", spool, "--budget", "200GiB"],
        "go-lumber 0.2.0 as shipped": None,
        "go-lumber 0.2.0, its decoder keeping the bytes": None,
    }
    results = [Rounds(name) for name in contenders]
    for number in range(rounds):
        for result, arguments in zip(results, contenders.values(), strict=True):
            with tempfile.TemporaryDirectory(prefix="ackline-bench-") as directory:
                spool = str(Path(directory) / "spool")
                if arguments is None:
                    command = [str(peer), *(["-bytes"] if "bytes" in result.name else [])]
                else:
                    url = "lumberjack://127.0.0.1:0"
                    command = [ackline(), "receive", url, *arguments(spool), "--json"]
                with server(command) as (pid, target):
                    start = send(target, load, seconds)
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


def raise_file_limit() -> None:
    """Allow a thousand sockets, here and in what is started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))


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


def project(load: Path, seconds: float) -> list[str]:
    """Project the load's events to columns, on one core, from memory to memory."""
    command = [str(load), "project", str(seconds)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = [json.loads(line) for line in output.splitlines()]
    return [f"* {each['columns']}: {each['us_per_event']:.2f} µs an event" for each in found]


def report(name: str, lines: list[str]) -> None:
    """Print one table."""
    sys.stdout.write(f"\n### {name}\n\n" + "\n".join(lines) + "\n")
    sys.stdout.flush()


def report_receive(results: list[Rounds]) -> None:
    """Print the servers side by side; the goals refer to go-lumber as shipped."""
    base = statistics.median(results[2].cpu_us_per_event)
    lines = [
        "| server | events/s | CPU per event, us | go-lumber's CPU / ours |",
        "|---|---|---|---|",
    ]
    for each in results:
        ratio = base / statistics.median(each.cpu_us_per_event)
        rate, cpu = spread(each.events_per_second, 0), spread(each.cpu_us_per_event, 3)
        lines.append(f"| {each.name} | {rate} | {cpu} | {ratio:.1f} |")
    report("Receiving: median (lowest-highest)", lines)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round of receiving")
    parser.add_argument("--rows", type=int, default=3_000_000, help="of reading back and of Spark")
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    wanted = {options.only} if options.only else set(PARTS)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}"
    sys.stdout.write(f"Machine: {machine}, load {os.getloadavg()[0]:.1f} at the start.\n")
    with tempfile.TemporaryDirectory(prefix="ackline-bench-") as name:
        measure(wanted, options, Path(name))


def measure(wanted: set[str], options: argparse.Namespace, directory: Path) -> None:
    """Measure the wanted parts, one after the other."""
    load, peer = build(directory)
    rounds = str(options.rounds)
    if "receive" in wanted:
        report_receive(receive(load, peer, options.rounds, options.seconds))
    if "commit" in wanted:
        report("Group commit", group_commits(load, options.seconds / 2))
    if "memory" in wanted:
        found = idle_memory()
        lines = [f"* {key}: {value / 2**20:.1f} MiB" for key, value in found.items()]
        each = (found["idle_connections"] - found["empty"]) / IDLE_CONNECTIONS / 1024
        report("Resident memory", [*lines, f"* per idle connection: {each:.1f} KiB"])
    if "project" in wanted:
        report("Projecting JSON to columns", project(load, options.seconds))
    if wanted & {"read", "spark"}:
        say(f"landing {options.rows:,} rows to read back")
        spool = fill(directory, load, options.rows)
        if "read" in wanted:
            results = read_back(spool, options.rounds)
            lines = [f"* {key}: {spread(values, 0)}" for key, values in results.items()]
            report("Reading the spool into Arrow", lines)
        if "spark" in wanted:
            command = [sys.executable, str(HERE / "spark_rows.py"), str(spool), str(directory)]
            subprocess.run([*command, rounds], check=True)
    if "latency" in wanted:
        place = str(directory / "latency")
        command = [sys.executable, str(HERE / "spark_latency.py"), place, rounds]
        subprocess.run([*command, str(options.seconds)], check=True)


PARTS = ["receive", "commit", "memory", "project", "read", "spark", "latency"]


if __name__ == "__main__":
    main()
