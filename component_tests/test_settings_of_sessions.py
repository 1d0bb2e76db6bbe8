"""P4, S1: settings of Spark that change types, names and texts change no record of a session. The tests need no broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

import streamgroups as sg
from streamgroups.dlq.letter import COLUMN
from streamgroups.errors import InvalidOption, QueryGivenUp
from streamgroups.supervision.policy import RestartPolicy
from streamgroups_spark.dlq.failure_column import check_letters, failure, with_letter
from streamgroups_spark.dlq.safely import safely
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.internals.kept_progress import RETENTION
from streamgroups_spark.internals.private_spark import register_source
from streamgroups_spark.sinks.letters.good_rows import GoodRows, failures_in
from streamgroups_spark.sinks.letters.kafka_rejections import _size_bytes, with_rejections
from streamgroups_spark.sinks.sink_options import parse_sink
from streamgroups_spark.source.columns import checked_schema
from streamgroups_spark.source.source_options import parse
from streamgroups_testkit.spark_sessions import changed_settings

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "airline", "subscribe": "flights"}
AT = datetime(2026, 3, 8, 12, 30, tzinfo=timezone.utc)
AT_MS = int(AT.timestamp() * 1_000)
Setter = Callable[[str, str], None]


@pytest.fixture
def set_conf(local_spark: SparkSession) -> Iterator[Setter]:
    """Sets a setting of the session for one test."""
    with changed_settings(local_spark) as set_to:
        yield set_to


@pytest.fixture(params=["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def spark(local_spark: SparkSession, set_conf: Setter, request: pytest.FixtureRequest) -> SparkSession:
    """A session in another zone than UTC, for each type of ``TIMESTAMP``."""
    set_conf("spark.sql.session.timeZone", "America/New_York")
    set_conf("spark.sql.timestampType", request.param)
    return local_spark


# ---- spark.sql.timestampType -----------------------------------------------------------------------------------------


def test_S1_the_source_accepts_its_own_columns(spark: SparkSession) -> None:
    register_source(spark, StreamGroupsDataSource)
    given = {**OPTIONS, "includeWatermark": "true", "eventTimeHeader": "ts"}
    for reader in (spark.readStream, spark.read):
        schema = reader.format("streamgroups").options(**given).load().schema
        times = {it.name for it in schema if isinstance(it.dataType, TimestampType)}
        assert times == {"timestamp", "watermark", "eventTime"}
        assert checked_schema(schema, parse(given, streaming=True)) is schema


def records(spark: SparkSession) -> DataFrame:
    return spark.range(1).select(
        F.lit(b"value").alias("value"), F.timestamp_millis(F.lit(AT_MS).cast("bigint")).alias("timestamp")
    )


def times_of(df: DataFrame) -> list[int]:
    """The times of the letters, as the sinks read them in tasks."""
    rows = GoodRows(iter(df.select(COLUMN).toArrow().to_batches()))
    list(rows)
    letters = rows.letters(0, "query")
    assert letters is not None
    return [it["timestamp"] for it in failures_in([letters])]


def test_P4_a_letter_has_the_time_of_its_record(spark: SparkSession) -> None:
    df = records(spark)
    df = df.select("*", with_letter(df, failure(df, step="s", error_class=F.lit("E"), error=F.lit("no"))))
    check_letters(df)
    letter = df.schema[COLUMN].dataType
    assert isinstance(letter, StructType)
    assert isinstance(letter["timestamp"].dataType, TimestampType)
    assert times_of(df) == [AT_MS]


def test_P4_a_letter_of_a_function_has_the_time_of_its_record(spark: SparkSession) -> None:
    def fail(_: pa.Table) -> pa.Table:
        raise ValueError("no")

    df = safely(records(spark), fail, output="price double", takes="arrow")
    check_letters(df)
    assert times_of(df) == [AT_MS]


# ---- spark.sql.legacy.timeParserPolicy -------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["date", "timestamp", "array<struct<at: date>>"])
def test_S12_texts_of_times_are_exact_or_rejected(local_spark: SparkSession, set_conf: Setter, of: str) -> None:
    rows = local_spark.createDataFrame([], f"record struct<at: {of}>")
    columns = StructType([*rows.select("record.at").schema, StructField("id", StringType())])
    register_source(local_spark, StreamGroupsDataSource)
    sg.encode(rows, sg.schemas.Json(), column="record", into="text")
    set_conf("spark.sql.legacy.timeParserPolicy", "LEGACY")
    with pytest.raises(InvalidOption, match=r"'LEGACY', and column 'record' of sg.encode has dates or timestamps"):
        sg.encode(rows, sg.schemas.Json(), column="record", into="text")
    with pytest.raises(InvalidOption, match=r"'LEGACY', and column 'at' of sg.read_repartitioned has"):
        sg.read_repartitioned(local_spark, topic="flights", by=["id"], columns=columns, options=OPTIONS)


# ---- spark.sql.caseSensitive -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_exact", "names"), [("true", ["n", "N"]), ("false", ["N"])])
def test_P4_a_function_replaces_the_column_of_its_name(
    local_spark: SparkSession, set_conf: Setter, is_exact: str, names: list[str]
) -> None:
    set_conf("spark.sql.caseSensitive", is_exact)
    rows = local_spark.createDataFrame([(1,)], "n int")
    [row] = safely(rows, lambda it: {"N": it["n"] + 1}, output="N int", takes="record", step="next").collect()
    assert row.asDict() == {**dict(zip(names, [1, 2] if is_exact == "true" else [2], strict=True)), COLUMN: None}


# ---- settings of collections -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_string", ["true", "false"])
@pytest.mark.parametrize("size_of_null", ["true", "false"])
def test_P4_a_record_without_headers_has_a_size(
    local_spark: SparkSession, set_conf: Setter, is_string: str, size_of_null: str
) -> None:
    set_conf("spark.sql.legacy.createEmptyCollectionUsingStringType", is_string)
    set_conf("spark.sql.ansi.enabled", "false")
    set_conf("spark.sql.legacy.sizeOfNull", size_of_null)
    options = parse_sink(
        {
            "kafka.bootstrap.servers": "broker:9092",
            "topic": "board",
            "includeHeaders": "true",
            "checkpointLocation": "/data/board",
        }
    )
    header = "named_struct('key', 'h', 'value', X'00')"
    given = ", ".join([f"array({header})", f"filter(array({header}), it -> false)", "null"])
    rows = local_spark.range(3).selectExpr(
        "cast(id AS string) AS value", f"element_at(array({given}), int(id + 1)) AS headers"
    )
    sizes = [
        row.size for row in rows.select("value", _size_bytes(rows, options).alias("size")).orderBy("value").collect()
    ]
    one, empty, null = sizes
    assert empty == null == one - 4
    assert {row.dead_letter for row in with_rejections(rows, options, {"board": 1}).collect()} == {None}


# ---- spark.sql.streaming.numRecentProgressUpdates --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("finished", "message"), [(4, "This ends the test"), (0, "2 consecutive runs failed before they finished a batch")]
)
def test_supervision_counts_finished_batches_that_spark_does_not_report(
    local_spark: SparkSession, set_conf: Setter, tmp_path: Path, finished: int, message: str
) -> None:
    set_conf(RETENTION, "1")
    runs: list[int] = []

    def start() -> Any:
        if len(runs) > 4:
            raise InvalidOption("This ends the test.")
        runs.append(0)

        def write(_: DataFrame, batch_id: int) -> None:
            if runs[-1] == finished:
                raise OSError("the sink is down")
            # Longer than the interval in which a run is observed.
            time.sleep(0.3)
            runs[-1] += 1

        rows = local_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        return rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "query")).start()

    with pytest.raises(QueryGivenUp, match=message):
        sg.supervise(start, policy=RestartPolicy(first_wait_ms=1, max_failures=2))


def test_a_query_whose_progress_spark_does_not_keep_is_rejected(
    local_spark: SparkSession, set_conf: Setter, tmp_path: Path
) -> None:
    set_conf(RETENTION, "1")
    rows = local_spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        for function in (sg.event_time.explain_time, sg.reports.record_time):
            with pytest.raises(InvalidOption, match=f"{RETENTION} is below 2"):
                function(query)
    finally:
        query.stop()
