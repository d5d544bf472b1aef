"""Packages for the tests of the lakehouse pages, fetched into target/lakehouse.

Delta Lake comes from Maven Central and PyIceberg from PyPI, each once for the file that pins it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
FETCHED = ROOT / "target" / "lakehouse"


def run(*command: str | Path) -> None:
    words = [str(word) for word in command]
    # Standard output is left to the tests.
    subprocess.run(words, cwd=ROOT, check=True, stdout=sys.stderr, timeout=570)


def delta(into: Path) -> None:
    """Copy Delta Lake's own jars; Spark has the others that they need."""
    maven = ("mvn", "-q", "-B", "-f", HERE / "delta.xml", f"-Dmaven.repo.local={FETCHED / 'm2'}")
    run(*maven, "dependency:copy-dependencies", "-DincludeGroupIds=io.delta",
        f"-DoutputDirectory={into}")  # fmt: skip


def iceberg(into: Path) -> None:
    """Install PyIceberg and its requirements."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--upgrade", "--no-deps", "--require-hashes", "--target", into,
        "-r", HERE / "iceberg.lock")  # fmt: skip


def fetched(fetch: Callable[[Path], None], pins: str) -> Path:
    """Return the folder that a function fills; it is filled again when its pins change."""
    into = FETCHED / fetch.__name__
    stamp = into / ".stamp"
    digest = hashlib.sha256((HERE / pins).read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text("ascii") != digest:
        into.mkdir(parents=True, exist_ok=True)
        fetch(into)
        stamp.write_text(digest, "ascii")
    return into


def delta_jars() -> list[Path]:
    jars = sorted(fetched(delta, "delta.xml").glob("*.jar"))
    assert any(jar.name.startswith("delta-spark_4.2_2.13-") for jar in jars)
    return jars


def pyiceberg_path() -> Path:
    return fetched(iceberg, "iceberg.lock")


def spark42_path() -> Path:
    """Return the folder of Spark 4.2, the newest that Delta Lake works with."""
    if not (ROOT / "target" / "spark42" / ".stamp").exists():
        run("make", "spark42")
    return ROOT / "target" / "spark42"
