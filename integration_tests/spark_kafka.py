"""Spark's own ``kafka`` source, for parity tests and benchmarks.

Called by tests and benchmarks before they create a Spark session. The library itself does not use it. Its
jars are not part of PySpark's wheel. They come from a Maven repository into the cache of the embedded broker's jars.
Source: Spark's "Structured Streaming + Kafka Integration Guide", Deploying.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyspark

from streamgroups.errors import StreamGroupsError
from streamgroups.spark_features import release_of
from streamgroups_broker._cache import cached_jars
from streamgroups_broker._ivy import fetch_exactly
from streamgroups_broker._java import find_java

#: The connector of each minor release of PySpark: its first release, which serves all of them. The repository has none of 4.3.
_CONNECTORS = {(4, 0): "4.0.0", (4, 1): "4.1.0", (4, 2): "4.2.0", (4, 3): "4.2.0"}
VERSION = _CONNECTORS.get(release_of(pyspark.__version__), "4.2.0")
#: The connector, and its dependencies that Spark does not include. Not each release has a token provider; the first one is
#: sufficient, because no test uses delegation tokens.
COORDINATES = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)


@dataclass(frozen=True, slots=True)
class SparkKafkaJars:
    """The connector, or the reason why it is unavailable.

    Args:
        paths: the paths of the jars; empty if they are unavailable.
        why_not: the reason if they are unavailable.
    """

    paths: tuple[Path, ...]
    why_not: str = ""

    @property
    def option(self) -> str:
        """The value of Spark's setting ``spark.jars``; empty without the connector."""
        return ",".join(map(str, self.paths))


@cache
def spark_kafka_jars() -> SparkKafkaJars:
    """The jars, from the cache or, once, from the network."""
    try:
        java = find_java()
        jars = cached_jars(
            f"spark-sql-kafka-{VERSION}", VERSION, lambda directory, _: fetch_exactly(directory, COORDINATES, java)
        )
    except StreamGroupsError as e:
        return SparkKafkaJars((), f"Spark's own kafka source is not to be had: {e}")
    return SparkKafkaJars(tuple(jars.directory / name for name in jars.jars))
