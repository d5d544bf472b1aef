"""Ackline as a Spark data source: functions that prepare a session for `format("ackline")`.

Importing this module imports no pyspark; the functions do. The source itself is in `source`, its
options in `options`, the rules of offsets in `offsets`, the work of a task in `reader`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ackline.spark.behind import SpoolLag, lag
from ackline.spark.explained import BatchCost, Explanation, explain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "TUNED_SETTINGS",
    "BatchCost",
    "Explanation",
    "SpoolLag",
    "explain",
    "lag",
    "register",
    "tuned",
]

TUNED_SETTINGS = {
    # A Python task costs about 24 ms over a Unix socket and 49 ms over loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Halves the fixed cost of a micro-batch on a file system that renames atomically.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings that `tuned` makes, by name."""

_MINIMUM = (4, 2)


def register(spark: SparkSession, *, writes_only: bool = False, jar: bool = True) -> None:
    """Make `format("ackline")` known to a session, for reading and for writing.

    Spark finds it without this call, too. The call checks the master, and puts the jar of this
    package on the session's class path, with which Spark reads without Python workers (not that of
    Spark Connect: its server has a class path of its own). Without the jar it tells the source how
    many tasks the session runs at once, and listens to the session's queries (not those of Spark
    Connect): it logs how far they are behind, and moves a consumer's marks when a query has ended.

    Args:
        spark: A session of Spark 4.2 or newer whose master is on this machine.
        writes_only: Whether the session only writes to it; any master can do that.
        jar: Whether the jar is used where this package has it; Python workers read without it.

    Raises:
        UsageError: Spark is too old, or its executors may run on machines that do not hold the
            spool's directory.

    Example:
        >>> import ackline.spark  # doctest: +SKIP
        >>> ackline.spark.register(spark)  # doctest: +SKIP
        >>> stream = spark.readStream.format("ackline").option("spool", "spool")  # doctest: +SKIP
    """
    check_version(spark.version)
    if not writes_only:
        check_master(master_of(spark))
    is_remote = is_of_connect(spark)
    with_jar = jar and not writes_only and not is_remote and _has_jar(spark)
    if not with_jar:
        from ackline.spark.source import AcklineSource

        class Registered(AcklineSource):
            cores = cores_of(spark)

        spark.dataSource.register(Registered)
    # A program of Spark Connect with a listener would not end before it stops its session. The jar
    # needs none: a query of Java ends there.
    if not writes_only and not is_remote and not with_jar:
        from ackline.spark.watch import watch

        watch(spark)


def _has_jar(spark: SparkSession) -> bool:
    from ackline.spark.jar import add

    return add(spark)


def tuned(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Give a session's builder the two settings that make short micro-batches cheap.

    Args:
        builder: A builder whose session does not exist yet.

    Returns:
        The same builder, with `TUNED_SETTINGS` set.

    Example:
        >>> from pyspark.sql import SparkSession
        >>> spark = ackline.spark.tuned(SparkSession.builder).getOrCreate()  # doctest: +SKIP
    """
    for name, value in TUNED_SETTINGS.items():
        builder = builder.config(name, value)
    return builder


def check_version(version: str) -> None:
    """Refuse a Spark that does not tell sources the start of a batch.

    Args:
        version: As in `spark.version`.

    Raises:
        UsageError: It is older than 4.2.
    """
    from ackline.exceptions import UsageError

    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < _MINIMUM:
        message = (
            f"the ackline source needs Spark 4.2 or newer, this is {version}: "
            "older ones do not hand a source the offset that was committed"
        )
        raise UsageError(message)


def check_master(master: str | None) -> None:
    """Refuse a cluster, whose executors cannot open a directory of this machine.

    Args:
        master: As in `spark.sparkContext.master`; None when it cannot be known.

    Raises:
        UsageError: The master is not local.
    """
    from ackline.exceptions import UsageError

    if master is not None and not master.startswith("local"):
        message = (
            f"the spool is a directory of this machine and the master is {master}: "
            "use a local master, executors elsewhere cannot read it yet"
        )
        raise UsageError(message)


def is_of_connect(spark: SparkSession) -> bool:
    """Return whether a session is a client of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def cores_of(spark: SparkSession) -> int | None:
    """Return how many tasks a session runs at once, or None if it does not know (Spark Connect)."""
    master = master_of(spark) or ""
    # Its executors may not be there yet.
    cluster = re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*", master)
    if cluster is not None:
        return int(cluster[1]) * int(cluster[2])
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - Connect raises classes of its own
        return None


def master_of(spark: SparkSession) -> str | None:
    """Return a session's master, or None if the session does not know it (Spark Connect)."""
    try:
        return str(spark.conf.get("spark.master"))
    except Exception:  # noqa: BLE001 - Connect raises classes of its own; an unknown master is valid
        return None
