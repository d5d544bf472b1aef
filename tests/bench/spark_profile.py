"""Where the JVM's processor time goes: our stream source and Parquet's, by thread and by layer.

Usage: spark_profile.py SPOOL DIRECTORY [FLAMES]. Each side of each measurement of `spark_rows`
runs once to warm up and once under the JDK's flight recorder. One table has the CPU seconds of the
JVM's threads, from /proc; the other has the samples of the tasks by the layer of the code that ran.
With FLAMES, a directory, each run's flame graph is written there as SVG.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from spark_rows import SHAPES, TICK, Shape, files_of, ours, parquet, rows_of, session, write_parquet

from ackline.spark.svg import box, page, text

THREADS = (
    ("tasks", "Executor task"),
    ("compiler", "C2 CompilerThre", "C1 CompilerThre"),
    ("garbage collection", "GC Thread", "G1 "),
)
"""Threads by what they do, and the beginnings of their names; the kernel keeps 15 characters."""

LAYERS = (
    ("reading the spool, in Rust", "ackline.spark.Native"),
    ("our Java", "ackline.spark."),
    ("zstd", "com.github.luben.zstd", "zstd"),
    ("Parquet", "org.apache.parquet", "org.apache.spark.sql.execution.datasources.parquet"),
    ("generated code of Spark", "org.apache.spark.sql.catalyst.expressions.GeneratedClass"),
    ("Arrow and Spark's columns", "org.apache.arrow", "org.apache.spark.sql.vectorized"),
    ("rows of Spark", "org.apache.spark.sql.catalyst", "org.apache.spark.unsafe"),
    ("else",),
)
"""Layers, and the beginnings of their classes' names: the innermost that fits counts."""

LEAST_SHARE = 0.004
"""The smallest share of the samples that a flame graph shows."""


def pid_of_jvm(spark: SparkSession) -> int:
    """Return the process of the session's JVM."""
    java: Any = spark.sparkContext._jvm
    return int(java.java.lang.ProcessHandle.current().pid())


def thread_seconds(pid: int) -> Counter[str]:
    """Return the CPU seconds so far by what threads do; those of the query end with it."""
    found: Counter[str] = Counter()
    whole = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            head, rest = path.read_text(encoding="utf-8").rsplit(")", 1)
        except OSError:  # the thread has ended
            continue
        name, fields = head.split("(", 1)[1], rest.split()
        for kind, *names in THREADS:
            if name.startswith(tuple(names)):
                found[kind] += (int(fields[11]) + int(fields[12])) / TICK
    found["query and others"] = (int(whole[11]) + int(whole[12])) / TICK - found.total()
    return found


def recorded(pid: int, file: Path, run: Any) -> list[list[str]]:
    """Run under the flight recorder; return the stacks of tasks, the outermost method first."""
    jcmd = ["jcmd", str(pid)]
    start = [*jcmd, "JFR.start", "name=ackline", "settings=profile"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL)
    run()
    stop = [*jcmd, "JFR.stop", "name=ackline", f"filename={file}"]
    subprocess.run(stop, check=True, stdout=subprocess.DEVNULL)
    events = "jdk.ExecutionSample,jdk.NativeMethodSample"
    command = ["jfr", "print", "--events", events, "--stack-depth", "64", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as printed:
        assert printed.stdout is not None
        return list(stacks(printed.stdout))


def stacks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Read the printed samples. A sample of native code counts twice: it is taken half as often."""
    methods: list[str] = []
    times, is_task, is_stack = 1, False, False
    for line in lines:
        words = line.strip()
        if line.startswith("jdk."):
            methods, is_task, is_stack = [], False, False
            times = 2 if "NativeMethodSample" in words else 1
        elif words.startswith("sampledThread"):
            is_task = "Executor task" in words
        elif words.startswith("stackTrace"):
            is_stack = True
        elif words == "]":
            is_stack = False
        elif words == "}" and is_task and methods and is_busy(methods[0], times):
            for _ in range(times):
                yield methods[::-1]
        elif is_stack and (found := re.match(r"([\w.$/<>]+)\(", words)):
            methods.append(found[1])


def is_busy(innermost: str, times: int) -> bool:
    """Tell whether a thread in native code works; one that waits there is sampled, too."""
    return times == 1 or innermost.startswith(("ackline.", "com.github.luben.zstd"))


def layer_of(stack: list[str]) -> str:
    """Return the layer of the innermost method that belongs to one."""
    for method in reversed(stack):
        for layer, *beginnings in LAYERS:
            if method.startswith(tuple(beginnings)) and beginnings:
                return layer
    return LAYERS[-1][0]


class Flame:
    """Samples by method: a tree from the outermost to the innermost."""

    def __init__(self) -> None:
        """Begin with no sample."""
        self.samples = 0
        self.inner: dict[str, Flame] = {}

    def add(self, stack: list[str]) -> None:
        """Add a sample."""
        self.samples += 1
        if stack:
            self.inner.setdefault(stack[0], Flame()).add(stack[1:])

    def drawn(self, whole: int, width: float, left: float, depth: int) -> Iterator[str]:
        """Yield boxes, the outermost on top."""
        for name, inner in sorted(self.inner.items()):
            share = inner.samples / whole
            if share >= LEAST_SHARE:
                short = ".".join(name.rsplit(".", 2)[-2:])
                color = "#4477aa" if name.startswith("ackline.") else "#ccbb44"
                title = f"{name}: {100 * share:.1f} %"
                yield box(left, 30 + 16 * depth, (share * width - 1, 15), color, title)
                letters = int(share * width / 7)
                if letters > 3:
                    yield text(left + 2, 42 + 16 * depth, short[:letters])
                yield from inner.drawn(whole, width, left, depth + 1)
            left += share * width

    def depth(self, whole: int) -> int:
        """Return the number of rows of the graph."""
        shown = [one for one in self.inner.values() if one.samples / whole >= LEAST_SHARE]
        return 1 + max((one.depth(whole) for one in shown), default=0)


def flame_graph(stacks: list[list[str]], title: str) -> str:
    """Return a flame graph as SVG."""
    tree = Flame()
    for stack in stacks:
        tree.add(stack)
    whole, width = max(1, tree.samples), 1200
    drawn = [text(8, 20, f"{title}: {tree.samples} samples of the tasks")]
    drawn += tree.drawn(whole, width - 16, 8, 0)
    return page(width, 40 + 16 * tree.depth(whole), drawn)


def profiled(
    spark: SparkSession, spool: Path, directory: Path, shape: Shape, sink: str
) -> Iterator[tuple[str, Counter[str], list[list[str]]]]:
    """Yield each side's name, the CPU seconds of threads for a million rows, and its stacks."""
    files, pid, millions = files_of(directory, shape), pid_of_jvm(spark), rows_of(spool) / 1e6
    if not files.exists():
        write_parquet(spark, spool, files, shape)
    place = directory / "profiled"
    runs = {
        "ackline": lambda: ours(spark, spool, shape, sink, place),
        "Parquet": lambda: parquet(spark, files, sink, place),
    }
    for name, run in runs.items():
        run()
        before = thread_seconds(pid)
        found = recorded(pid, directory / "recording.jfr", run)
        after = thread_seconds(pid)
        used = Counter({kind: (after[kind] - before[kind]) / millions for kind in after})
        yield name, used, found


def main() -> None:
    """Profile all measurements, and print both tables."""
    spool, directory = Path(sys.argv[1]), Path(sys.argv[2])
    flames = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    spark = session()
    kinds = [kind for kind, *_ in THREADS] + ["query and others"]
    layers = [layer for layer, *_ in LAYERS]
    by_thread = [["into, columns, side", *kinds]]
    by_layer = [["into, columns, side", *layers]]
    for sink in ("noop", "parquet"):
        for shape in SHAPES:
            for side, used, found in profiled(spark, spool, directory, shape, sink):
                name = f"{sink}, {shape.name}, {side}"
                by_thread.append([name, *(f"{used[kind]:.2f}" for kind in kinds)])
                counted = Counter(map(layer_of, found))
                whole = max(1, counted.total())
                by_layer.append([name, *(f"{100 * counted[each] / whole:.0f}" for each in layers)])
                if flames is not None:
                    file = re.sub(r"\W+", "-", name) + ".svg"
                    flames.mkdir(parents=True, exist_ok=True)
                    (flames / file).write_text(flame_graph(found, name), encoding="utf-8")
    for title, rows in (
        ("CPU seconds of the JVM's threads for a million rows", by_thread),
        ("Samples of the tasks by layer, %", by_layer),
    ):
        sys.stdout.write(f"\n### {title}\n\n")
        for number, cells in enumerate(rows):
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
            if number == 0:
                sys.stdout.write(f"|{'---|' * len(cells)}\n")
    if flames is not None:
        sys.stdout.write(f"\nFlame graphs: {flames}\n")
    spark.stop()


if __name__ == "__main__":
    main()
