"""Adds the partition that Kafka's default partitioner chooses for the key of each row.

Called on the driver by ``sinks.exactly_once``, before output is shuffled so that no two tasks write to one partition.
Source: the columns of Spark's Kafka sink (``KafkaWriter``); docs/sinks.rst, "Kafka sink".
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StringType

from streamgroups.errors import InvalidOption, RecordRejected, UnknownTopic
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.frames.columns import column
from streamgroups_spark.internals.arrow_functions import plain_function


def with_partitions(records: DataFrame, partition_counts: Mapping[str, int], *, topic: str | None = None) -> DataFrame:
    """Adds a column ``partition``, an int: murmur2 of the key, as in Kafka's default partitioner.

    A row keeps a given partition. A row without a key gets null, which permits any partition.

    Args:
        records: rows with a column ``key`` (binary or string, can be missing or null), and ``topic`` unless it is an
            argument. A column ``partition`` is optional.
        partition_counts: the number of partitions of each topic.
        topic: the topic of all rows. It overrides a column ``topic``.

    Returns:
        The rows with all their columns. ``partition`` is replaced or comes last.

    Raises:
        InvalidOption: if ``key`` is of another type, the topic is missing, or a number of partitions is invalid.
        UnknownTopic: if the number of partitions of the topic is missing. The query fails with this error for the topic
            of a row, and with RecordRejected for a row with a key and without a topic.

    Example::

        with_partitions(flights.select("key", "value"), {"departures": 12}, topic="departures")
    """
    given = sf.col("partition").cast("int") if "partition" in records.columns else sf.lit(None).cast("int")
    if "key" not in records.columns:
        return records.withColumn("partition", given)
    key_type = records.schema["key"].dataType
    if not isinstance(key_type, BinaryType | StringType):
        raise InvalidOption(
            f"Column 'key' is of type {key_type.simpleString()}, which cannot be written to Kafka.",
            remedy="Cast it to binary or string.",
        )
    # A key is sent to Python only if the row has no partition.
    key = sf.when(given.isNull(), sf.col("key")) if "partition" in records.columns else sf.col("key")
    return records.withColumn("partition", sf.coalesce(given, _chosen(records, key, dict(partition_counts), topic)))


def _chosen(records: DataFrame, key: Column, counts: dict[str, int], topic: str | None) -> Column:
    key_type = pa.string() if isinstance(records.schema["key"].dataType, StringType) else pa.binary()
    types = (key_type, pa.string())
    for n_partitions in counts.values():
        # Rejects an invalid number here, before the first task runs.
        partitions_of_keys(pa.array([], pa.binary()), n_partitions)
    if topic is not None:
        if topic not in counts:
            raise _unknown(topic)
        of_topic = counts[topic]
        chosen: Column = plain_function(lambda keys: partitions_of_keys(keys, of_topic), "int", types[:1])(key)
        return chosen
    if "topic" not in records.columns:
        raise InvalidOption(
            "The rows have no column 'topic'.", remedy="Add a column 'topic', or set the option 'topic'."
        )

    def partitions(keys: pa.Array, topics: pa.Array) -> pa.Array:
        return partitions_of_keys(keys, counts_of_rows(keys, topics, counts))

    of_topics: Column = plain_function(partitions, "int", types)(key, sf.col("topic"))
    return of_topics


def first_numbers(partition_counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of the first partition of each topic, if the partitions of all topics are numbered in one order.

    Args:
        partition_counts: the number of partitions of each topic.

    >>> first_numbers({"departures": 12, "arrivals": 3})
    {'arrivals': 0, 'departures': 3}
    """
    topics = sorted(partition_counts)
    return dict(zip(topics, accumulate((partition_counts[it] for it in topics), initial=0), strict=False))


def number_of_topic(numbers: Mapping[str, int], topic: str | None) -> Column:
    """Returns the number of the topic of each row; null for a topic without one.

    Args:
        numbers: a number of each topic, such as that of its partitions.
        topic: the topic of all rows; ``None`` if the column ``topic`` contains it.
    """
    if topic is not None:
        return sf.lit(numbers[topic])
    return sf.create_map(*(sf.lit(it) for pair in numbers.items() for it in pair))[column("topic")]


def counts_of_rows(keys: pa.Array, topics: pa.Array, counts: dict[str, int]) -> pa.Array:
    """Returns the number of partitions of the topic of each row. Null for rows without a key, which do not need it."""
    coded = pc.if_else(keys.is_valid(), topics, None).dictionary_encode()
    if coded.null_count > keys.null_count:
        raise RecordRejected("A row has no topic.", remedy="Fill the column 'topic', or set the option 'topic'.")
    found = [counts.get(topic) for topic in coded.dictionary.to_pylist()]
    if None in found:
        raise _unknown(coded.dictionary[found.index(None)].as_py())
    return pa.array(found, pa.int64()).take(coded.indices)


def _unknown(topic: str) -> UnknownTopic:
    return UnknownTopic(
        f"The number of partitions of topic '{topic}' is not available.",
        remedy="Check its name, and that it existed when the query started.",
    )
