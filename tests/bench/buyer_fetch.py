"""Programs of the buyer's figure: Kafka, Spark's Kafka source and Filebeat, under target/buyer.

Kafka and the source come from Maven Central. Filebeat is built from the Go module of Beats, with
the requirements and replacements of its own `go.mod`. Each is made once for its version. `python
tests/bench/buyer_fetch.py` fetches all of them, which takes some minutes the first time.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILT = ROOT / "target" / "buyer"
BEATS = "github.com/elastic/beats/v7"
# The newest release with a tag that the module's path allows.
BEATS_VERSION = "v7.17.29"
# Compiling Filebeat takes minutes.
DEADLINE_S = 3600.0


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command at low priority; return its standard output."""
    words = ["nice", "-n", "15", *map(str, command)]
    done = subprocess.run(
        words,
        cwd=cwd,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        env=os.environ | {"GOTOOLCHAIN": "local"},
    )
    return done.stdout


def libraries(name: str) -> Callable[[Path], None]:
    """Return a function that copies the libraries of one pom.xml."""

    def fetch(into: Path) -> None:
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        maven = ("mvn", "-q", "-B", "-f", HERE / "buyer" / name / "pom.xml", *goal)
        run(*maven, f"-DoutputDirectory={into}", cwd=into)

    return fetch


def filebeat(into: Path) -> None:
    """Build Filebeat in a copy of the module, whose cache is read-only."""
    found = json.loads(run("go", "mod", "download", "-json", f"{BEATS}@{BEATS_VERSION}", cwd=into))
    source = into / "source"
    shutil.copytree(found["Dir"], source, copy_function=shutil.copyfile)
    for directory in [source, *(each for each in source.rglob("*") if each.is_dir())]:
        directory.chmod(0o755)
    build = ("go", "build", "-mod=readonly", "-buildvcs=false", "-o", into / "filebeat")
    run(*build, "./filebeat", cwd=source)
    shutil.rmtree(source)


PROGRAMS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "kafka": ("4.3.1", libraries("kafka")),
    "connector": ("4.2.0", libraries("connector")),
    "filebeat": (BEATS_VERSION.removeprefix("v"), filebeat),
}
"""Version of each program, and the function that makes it."""


def fetched(name: str) -> Path:
    """Return the directory of a program; fetch or build it if it is not there."""
    version, make = PROGRAMS[name]
    into = BUILT / f"{name}-{version}"
    if not into.exists():
        sys.stderr.write(f"fetching {name} {version}\n")
        begun = time.monotonic()
        partial = into.with_suffix(".new")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        make(partial)
        partial.rename(into)
        sys.stderr.write(f"{name} {version}: {time.monotonic() - begun:.0f} s\n")
    return into


def versions() -> dict[str, str]:
    """Return the version of each program."""
    return {name: version for name, (version, _) in PROGRAMS.items()}


if __name__ == "__main__":
    for each in PROGRAMS:
        sys.stdout.write(f"{fetched(each)}\n")
