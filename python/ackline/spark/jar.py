"""The jar with which Spark reads spools without Python workers.

A session finds `format("ackline")` in the jar where it is on the class path, and in Python where it
is not. Both read the same, and a query that one has begun the other continues. The command
`python -m ackline.spark.jar` prints the path of the jar.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON: Final = "spark.ackline.python"
"""The Python of the process that plans: the name of a property of the JVM, and of a setting."""

_JAR: Final = Path(__file__).with_name("ackline-spark.jar")
_PROVIDER: Final = "ackline.spark.AcklineProvider"


def path() -> str | None:
    """Return the jar's path, or None if this installation has none.

    Wheels for Linux on x86-64 have it. One that was built without a JDK has not.
    """
    return str(_JAR) if _JAR.is_file() else None


def add(spark: SparkSession) -> bool:
    """Put the jar on the class path of a session that runs, unless it is there already.

    Args:
        spark: A session whose driver is this process's, so not one of Spark Connect.

    Returns:
        Whether it is there: not if this installation has none, or Spark does not allow it.
    """
    jar, context = path(), spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - the only way to the class path
    if jar is None or jvm is None:
        return False
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if not _knows(jvm, loader):
        # A driver with a class loader of its own may take no more paths.
        with suppress(Exception):
            loader.addURL(jvm.java.io.File(jar).toURI().toURL())
            if (context.master or "").startswith("local-cluster"):
                of_java: Any = context._jsc  # noqa: SLF001
                of_java.addJar(jar)
    is_there = _knows(jvm, loader)
    if is_there:
        jvm.java.lang.System.setProperty(PYTHON, sys.executable)
    return is_there


def _knows(jvm: Any, loader: Any) -> bool:  # noqa: ANN401 - objects of Java
    try:
        jvm.java.lang.Class.forName(_PROVIDER, True, loader)
    except Exception:  # noqa: BLE001 - an error of Py4J, which is not imported here
        return False
    return True


def main() -> int:
    """Print the jar's path, for `--jars` and `spark.jars`."""
    jar = path()
    if jar is None:
        sys.stderr.write(
            "ackline-spark.jar is not in this installation: it was built without a JDK\n"
        )
        return 1
    sys.stdout.write(f"{jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
