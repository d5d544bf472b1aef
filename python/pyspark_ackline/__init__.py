"""The entry by which Spark finds `format("ackline")` by itself.

Spark looks for packages named `pyspark_*` where its Python lives, and takes the class
`DefaultSource` of each. So SQL, Scala and Spark Connect need no call of `ackline.spark.register`.
"""

from ackline.spark.source import AcklineSource as DefaultSource

__all__ = ["DefaultSource"]
