"""X1: a batch write is one Kafka transaction: readers of committed records see all rows or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups_testkit.reading import read_committed

N = 100
ALL = Counter(map(str, range(N)))


def active_session(spark: SparkSession) -> str:
    """The active session of this thread in the JVM."""
    assert spark._jvm is not None
    return str(SparkSession._get_j_spark_session_class(spark._jvm).getActiveSession().get().sessionUUID())


def rows(spark: SparkSession, tasks: int = 1) -> DataFrame:
    number = F.col("id").cast("string")
    return spark.range(0, N, 1, tasks).select(number.alias("key"), number.alias("value"))


def save(df: DataFrame, bootstrap: str, mode: str = "append", source: str = "streamgroups", **options: str) -> None:
    df.write.format(source).options(**{"kafka.bootstrap.servers": bootstrap, **options}).mode(mode).save()


def values(bootstrap: str, topic: str) -> Counter[str]:
    return Counter(message.value.decode() for message in read_committed(bootstrap, topic))


def contents(spark: SparkSession, bootstrap: str, topic: str) -> list[Row]:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    found = spark.read.format("kafka").options(**given).load().select("key", "value", "partition", "headers")
    return sorted(found.collect(), key=lambda row: bytes(row.value))


@LONG
def test_X1_the_columns_and_options_of_sparks_sink(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    own, other, named = new_topic(4), new_topic(4), new_topic(4)
    header = F.when(F.col("key") < "5", F.array(F.struct(F.lit("kind").alias("key"), F.col("value").cast("binary"))))
    header = header.cast("array<struct<key:string,value:binary>>")
    given = F.when(F.col("key").startswith("7"), F.lit(3)).cast("int")
    df = rows(spark).withColumns({"headers": header, "partition": given, "topic": F.lit(named)})
    save(df, bootstrap, source="kafka", topic=other)
    save(df, bootstrap, topic=own)
    assert contents(spark, bootstrap, own) == contents(spark, bootstrap, other), "the option overrides the column"
    assert not values(bootstrap, named)
    save(df, bootstrap, includeHeaders="false")
    assert contents(spark, bootstrap, named) == [
        Row(**{**row.asDict(), "headers": None}) for row in contents(spark, bootstrap, own)
    ]


@LONG
def test_X1_keys_in_many_tasks(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic, other, named = new_topic(3), new_topic(3), new_topic(2)
    df = rows(spark, 4)
    sg.write(df, sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic))
    save(df, bootstrap, source="kafka", topic=other)
    assert contents(spark, bootstrap, topic) == contents(spark, bootstrap, other), "keys have the partitions of Kafka"
    sink = sg.KafkaSink(bootstrap_servers=bootstrap)
    sg.write(df.drop("key").withColumn("topic", F.lit(named)), sink=sink)
    assert values(bootstrap, named) == ALL
    sg.write(df.where("false").withColumn("topic", F.lit(named)), sink=sink)
    assert values(bootstrap, named) == ALL


def test_X1_a_job_that_fails_shows_nothing(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    is_bad = F.col("key") == "77"
    broken = rows(spark, 4).withColumn(
        "value", F.when(is_bad, F.raise_error(F.lit("no such gate"))).otherwise(F.col("value"))
    )
    with pytest.raises(PySparkException, match="no such gate"):
        save(broken.coalesce(1), bootstrap, topic=topic)
    with pytest.raises(PySparkException, match="no such gate"):
        sg.write(broken, sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic))
    assert not values(bootstrap, topic)


@LONG
def test_X1_tasks_that_share_a_partition(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    with pytest.raises(PySparkException, match=r"(Another task|Several tasks).*sg\.write\(df, "):
        save(rows(spark, 2), bootstrap, topic=topic)
    assert not values(bootstrap, topic)
    save(rows(spark, 2), bootstrap, topic=topic, delivery="at-least-once")
    assert values(bootstrap, topic) == ALL


@LONG
def test_X1_the_registered_number_of_tasks_divides_the_partitions(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic, session = new_topic(4), spark.newSession()
    sg.register(session, parallelism=1)
    try:
        # Two tasks with two chunks of records each: a task uses another one of its partitions for each chunk.
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
        large = session.range(0, 80, 1, 2).selectExpr("repeat(cast(id % 10 AS string), 450000) value")
        settings = {"compression.type": "zstd"}
        sg.write(large, sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic, settings=settings))
    finally:
        sg.register(spark)
    assert len(read_committed(bootstrap, topic)) == 80


@LONG
def test_X1_a_batch_of_foreach_batch(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    source, target = new_topic(3), new_topic(2)
    sg.write(rows(spark, 4), sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic=source))
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=target)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "group.id": f"{target}-copies"}
    stream = spark.readStream.format("streamgroups").options(**given, startingOffsets="earliest").load()

    def write(batch: DataFrame, batch_id: int) -> None:
        of_thread = active_session(spark)
        sg.write(batch.select("key", "value"), sink=sink)
        assert active_session(spark) == of_thread, "the write leaves the session of Spark's thread as it is"

    query = stream.writeStream.foreachBatch(write).trigger(availableNow=True).start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()
    assert values(bootstrap, target) == ALL


def test_what_is_rejected_before_a_task_runs(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]
) -> None:
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=new_topic(1))
    with pytest.raises(InvalidOption, match=r"is a stream.*Use sg\.exactly_once"):
        sg.write(spark.readStream.format("rate").load(), sink=sink)
    with pytest.raises(InvalidOption, match=r"Column 'carrier' is not a column of the Kafka sink"):
        sg.write(rows(spark).withColumn("carrier", F.lit("UA")), sink=sink)
    with pytest.raises(InvalidOption, match=r"'dead_letter', and a batch write has no sink"):
        sg.write(rows(spark).withColumn("dead_letter", F.lit(None)), sink=sink)
    with pytest.raises(InvalidOption, match=r"'sink' is str.*Pass sg\.KafkaSink"):
        sg.write(rows(spark), sink="jdbc")  # type: ignore[arg-type]
    with pytest.raises(UnknownTopic, match=r"'nowhere' does not exist"):
        sg.write(rows(spark), sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic="nowhere"))


def test_a_timeout_that_the_broker_does_not_allow_is_one_error(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(1)
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic, transaction_timeout="1d")
    with pytest.raises(InvalidOption, match=r"longer than the broker allows.*transaction\.max\.timeout\.ms"):
        sg.write(rows(spark), sink=sink)
    assert "Traceback" not in "".join(capfd.readouterr())
    assert not values(bootstrap, topic)


def test_the_plan_contains_no_secret(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic, settings={"ssl.key.pem": "hunter2"})
    sg.write(rows(spark), sink=sink)
    assert values(bootstrap, topic) == ALL
    assert spark._jsparkSession is not None
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(i).physicalPlanDescription() for i in range(executions.size())]
    assert any("AppendData streamgroups" in plan for plan in plans)
    assert not [plan for plan in plans if "hunter2" in plan]


def test_other_modes(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1)
    with pytest.raises(PySparkException, match=r'cannot be overwritten.*mode\("append"\)'):
        save(rows(spark), bootstrap, "overwrite", topic=topic)
    for mode in ("error", "ignore"):
        with pytest.raises(PySparkException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            save(rows(spark), bootstrap, mode, topic=topic)
    assert not values(bootstrap, topic)
