"""Wrong options on a real Spark: the last line that the user reads is our sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from queries import Query

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def last_line(text: str) -> str:
    """Return the last line of an error before Spark's own code and Java's trace."""
    text = text.partition("SQLSTATE:")[0]
    return [line.strip() for line in text.splitlines() if line.strip()][-1]


@pytest.mark.timeout(240)
def test_a_wrong_option_is_the_last_line_when_it_is_loaded(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, value, text in (
        ("bogus", "1", "format('ackline') has no option 'bogus', only spool, "),
        (
            "maxRowsPerBatch",
            "0",
            "maxRowsPerBatch must be a number from 1 to 1000000000000000, not '0'",
        ),
        ("startingPosition", "5", "startingPosition must be committed, earliest or latest, not"),
    ):
        for reader in (spark.readStream, spark.read):
            given = reader.format("ackline").option("spool", str(tmp_path)).option(name, value)
            with pytest.raises(AnalysisException) as error:
                given.load()
            line = last_line(str(error.value))
            assert text in line
            assert "UnboundLocalError" not in str(error.value)


@pytest.mark.timeout(240)
def test_a_payload_that_is_named_twice_is_refused_with_a_hint(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"spool": str(tmp_path), "payload": "variant"}
    frame = spark.read.format("ackline").options(**options).schema("message STRING").load()
    with pytest.raises(Exception, match=r"leave payload=variant out, or name 'payload VARIANT'"):
        frame.collect()
    frame = spark.read.format("ackline").options(**options).load()
    assert frame.schema["payload"].dataType.simpleString() == "variant"


@pytest.mark.timeout(240)
def test_a_refusal_of_streams_alone_comes_when_one_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, spool=str(tmp_path / "spool"), start="5")
    told = query.fail()
    assert "readStream.format('ackline') has no option 'start', only spool, " in told
    assert "UnboundLocalError" not in told
