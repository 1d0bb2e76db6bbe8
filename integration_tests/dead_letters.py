"""Queries with dead letters, and independent readers of the letters, for tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.record_headers import parse_headers
from streamgroups_spark.dlq.failure_column import failure, with_letter
from streamgroups_testkit.reading import committed_messages


def flights(spark: SparkSession, bootstrap: str, topic: str, group: str, **options: str) -> DataFrame:
    """A stream of a topic with headers."""
    usual = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group.id": group,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "kafka.session.timeout.ms": "6000",
    }
    return spark.readStream.format("streamgroups").options(**{**usual, **options}).load()


def checked(df: DataFrame) -> DataFrame:
    """A step that rejects values with a ``!``."""
    bad = F.col("value").cast("string").contains("!")
    letter = failure(
        df, step="check", error_class=F.lit("Poison"), error=F.lit("It has a mark, password=hunter2, and no flight.")
    )
    return df.select("*", with_letter(df, F.when(bad, letter)))


def run(writer: DataStreamWriter) -> None:
    """Runs a query until it has read all records."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def forget_last_commit(checkpoint: Path) -> None:
    """Leaves the checkpoint of a driver that failed between the commit of the sink and Spark's entry in its log."""
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()


def letters_in(bootstrap: str, topic: str) -> list[DeadLetter]:
    """The committed dead letters of a topic, by their ids."""
    found: list[DeadLetter] = []
    for message in committed_messages(bootstrap, topic):
        headers: Any = message.headers() or []
        key: Any = message.key()
        letter = parse_headers(headers, key=key, value=message.value())
        assert letter is not None
        found.append(letter)
    return sorted(found, key=lambda it: it.id)


def without_topic_id(letter_id: str) -> str:
    """Returns the id of a letter without the id of the topic.

    >>> without_topic_id("board/orders@AbC1x9Qw/3/42/decode")
    'board/orders/3/42/decode'
    """
    return re.sub(r"@[\w-]{8}(?=/\d+/\d+/)", "", letter_id)
