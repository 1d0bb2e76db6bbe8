"""Adds to rows that are to be written the partition that Kafka's own clients would choose for their key.

Called on the driver, by what writes to Kafka, before output is shuffled so that no two tasks write to one partition. Source: the
columns of Spark's Kafka sink (``KafkaWriter``); DESIGN, "Exactly once".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BinaryType, StringType

from streamgroups.errors import InvalidOption, RecordRejected, UnknownTopic
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.internals.shipping import shipped_function


def with_partitions(records: DataFrame, partition_counts: Mapping[str, int], *, topic: str | None = None) -> DataFrame:
    """Rows with a column ``partition``, an int: murmur2 of the key, as Kafka's default partitioner has it.

    A row that has a partition keeps it. A row without a key gets null: any partition may have it.

    Args:
        records: rows with a column ``key`` (binary or string; may be missing or null), and ``topic`` unless it is given here.
            A column ``partition`` may be there.
        partition_counts: how many partitions each topic has.
        topic: where all rows go, whatever a column ``topic`` says.

    Returns:
        The rows with all their columns; ``partition`` is replaced or comes last.

    Raises:
        InvalidOption: if ``key`` is of another type, there is no topic, or a number of partitions cannot be.
        UnknownTopic: if the given topic has no number of partitions. The query fails with it where a row's topic has none, and
            with RecordRejected where a row with a key has no topic.

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
    # Where there is a partition already, the key is not sent to Python.
    key = sf.when(given.isNull(), sf.col("key")) if "partition" in records.columns else sf.col("key")
    return records.withColumn("partition", sf.coalesce(given, _chosen(records, key, dict(partition_counts), topic)))


def _chosen(records: DataFrame, key: Column, counts: dict[str, int], topic: str | None) -> Column:
    for n_partitions in counts.values():
        # Refused here, if it cannot be, and not in the first task.
        partitions_of_keys(pa.array([], pa.binary()), n_partitions)
    if topic is not None:
        if topic not in counts:
            raise _unknown(topic)
        of_topic = counts[topic]
        return _int_udf(lambda keys: partitions_of_keys(keys, of_topic))(key)
    if "topic" not in records.columns:
        raise InvalidOption(
            "The rows have no column 'topic'.", remedy="Add a column 'topic', or set the option 'topic'."
        )

    def partitions(keys: pa.Array, topics: pa.Array) -> pa.Array:
        return partitions_of_keys(keys, counts_of_rows(keys, topics, counts))

    return _int_udf(partitions)(key, sf.col("topic"))


def _int_udf(function: Callable[..., pa.Array]) -> Callable[..., Column]:
    # Its annotations demand the type of function that it warns against naming.
    udf: Callable[..., Column] = arrow_udf(shipped_function(function), "int")  # type: ignore[call-overload]
    return udf


def counts_of_rows(keys: pa.Array, topics: pa.Array, counts: dict[str, int]) -> pa.Array:
    """How many partitions each row's topic has; null where there is no key to need it."""
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
