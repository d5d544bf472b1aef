"""Spark keeps the plan of a frame: the frame and its views stand still after their first action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Receiver, numbered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Receive = Callable[..., Receiver]

pytestmark = pytest.mark.timeout(240)


def test_views_stand_still_after_their_first_action_until_they_are_made_anew(
    spark: SparkSession, receive: Receive, tmp_path: Path
) -> None:
    receiver = receive(tmp_path / "spool")
    spool = str(receiver.spool)
    using = f"CREATE OR REPLACE TEMPORARY VIEW of_sql USING ackline OPTIONS (spool '{spool}')"

    def load() -> DataFrame:
        return spark.read.format("ackline").option("spool", spool).load()

    def counted(frame: DataFrame) -> dict[str, int]:
        return {
            "frame": frame.count(),
            "filtered": frame.where("position >= 0").count(),
            "view": spark.table("of_frame").count(),
            "sql": spark.table("of_sql").count(),
        }

    receiver.send(numbered(0, 10))
    frame = load()
    frame.createOrReplaceTempView("of_frame")
    spark.sql(using)
    assert set(counted(frame).values()) == {10}
    receiver.send(numbered(10, 10))
    assert set(counted(frame).values()) == {10}, "Spark has the plan of the first action"
    # Neither of these has Spark ask the source again.
    spark.sql("REFRESH TABLE of_frame")
    spark.catalog.refreshTable("of_sql")
    frame.createOrReplaceTempView("of_frame")
    assert set(counted(frame).values()) == {10}
    frame = load()
    frame.createOrReplaceTempView("of_frame")
    spark.sql(using)
    assert set(counted(frame).values()) == {20}
