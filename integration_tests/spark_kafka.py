"""Spark's own ``kafka`` source, for what compares ours with it: parity tests and benchmarks.

Called by ``conftest`` and ``benchmarks`` before they make a Spark session. The library itself never needs it. Its jars are not
in PySpark's wheel; they come from a Maven repository, as Kafka's do for the embedded broker, into the same cache. Source:
Spark's "Structured Streaming + Kafka Integration Guide", Deploying.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from streamgroups.errors import StreamGroupsError
from streamgroups_broker._cache import cached_jars
from streamgroups_broker._ivy import fetch_exactly
from streamgroups_broker._java import find_java

#: The connector that is published for the newest Spark, and what it needs beside Spark's own jars. The token provider was not
#: published with it; an older one serves, since nothing here uses delegation tokens.
VERSION = "4.2.0"
COORDINATES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


@dataclass(frozen=True, slots=True)
class SparkKafkaJars:
    """The connector, or why there is none.

    Args:
        paths: of the jars; empty if they could not be had.
        why_not: the reason then.
    """

    paths: tuple[Path, ...]
    why_not: str = ""

    @property
    def option(self) -> str:
        """The value of Spark's setting ``spark.jars``; empty if there is no connector."""
        return ",".join(map(str, self.paths))


@cache
def spark_kafka_jars() -> SparkKafkaJars:
    """The jars, from the cache or (once) from the network."""
    try:
        java = find_java()
        jars = cached_jars(
            f"spark-sql-kafka-{VERSION}", VERSION, lambda directory, _: fetch_exactly(directory, COORDINATES, java)
        )
    except StreamGroupsError as e:
        return SparkKafkaJars((), f"Spark's own kafka source is not to be had: {e}")
    return SparkKafkaJars(tuple(jars.directory / name for name in jars.jars))
