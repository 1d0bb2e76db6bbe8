"""P4, X9: one Kafka transaction commits the output of a batch, its dead letters and its positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.dead_letters import checked, flights, forget_last_commit, letters_in, run, without_topic_id
from integration_tests.tiers import LONG
from streamgroups.errors import InvalidOption, RecordRejected
from streamgroups_kafka.write.record_batches import encode
from streamgroups_spark.bridge.user_process import OUTPUT
from streamgroups_spark.sinks.batch_info import query_id_of
from streamgroups_spark.sinks.letters.kafka_rejections import with_rejections
from streamgroups_spark.sinks.sink_options import parse_sink
from streamgroups_testkit.producing import ordered_producer
from streamgroups_testkit.reading import committed_offsets, read_committed


@LONG
def test_P4_X9_letters_are_in_the_transaction_of_the_output(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board, dead = new_topic(2), new_topic(3), new_topic(2)
    checkpoint = tmp_path / "checkpoint"
    producer = ordered_producer(bootstrap)

    def depart(first: int, last: int) -> None:
        for n in range(first, last):
            headers = {"trace": str(n).encode()} | ({"streamgroups.dlq.attempt": b"2"} if n == 5 else {})
            value = f"{n}!" if n % 5 == 0 else str(n)
            producer.produce(topic, key=f"k{n}", value=value, partition=n % 2, headers=list(headers.items()))
        assert producer.flush(30) == 0

    def run_again(**limits: Any) -> None:
        rows = checked(flights(spark, bootstrap, topic, group)).select("key", "value", "dead_letter")
        letters = sg.DeadLetters(sink=sg.KafkaSink(bootstrap_servers=bootstrap, topic=dead), **limits)
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=board)
        writer = sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(checkpoint))
        run(writer.queryName("departures"))

    depart(0, 20)
    run_again()
    depart(20, 40)
    with pytest.raises(
        StreamingQueryException, match=r"has 4 dead letters of 20 records \(check: 4\).*max_per_batch is 3"
    ):
        run_again(max_per_batch=3)
    assert committed_offsets(bootstrap, group, topic) == {0: 10, 1: 10}, "nothing of the batch is committed"
    assert len(letters_in(bootstrap, dead)) == 4
    run_again()
    forget_last_commit(checkpoint)
    run_again()

    assert sorted(int(it.value) for it in read_committed(bootstrap, board)) == [n for n in range(40) if n % 5]
    assert committed_offsets(bootstrap, group, topic) == {0: 20, 1: 20}
    found = {it.value: it for it in letters_in(bootstrap, dead)}
    assert found.keys() == {f"{n}!".encode() for n in range(0, 40, 5)}
    assert len(letters_in(bootstrap, dead)) == 8
    letter = found[b"5!"]
    assert without_topic_id(letter.id) == f"{group}/{topic}/1/2/check"
    assert (letter.query, letter.key, letter.headers, letter.attempt) == ("departures", b"k5", (("trace", b"5"),), 3)
    assert (letter.error_class, letter.error) == ("Poison", "It has a mark, password=***, and no flight.")
    assert letter.origin is not None
    assert letter.origin.timestamp_ms is not None
    assert letter.origin.timestamp_ms <= letter.failed_at_ms
    assert found[b"0!"].attempt == 1
    query_id = query_id_of(str(checkpoint))
    assert query_id is not None
    assert OUTPUT.letters()[query_id] == {"check": 8}, "a batch that fails, and a replay, do not count"


@LONG
def test_P4_W7_windows_return_the_letters_of_earlier_steps_beside_their_own(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board, dead = new_topic(1, retention_ms="-1"), new_topic(1), new_topic(1)
    producer = ordered_producer(bootstrap)
    for at_s, value in ((1, "a"), (2, "b!"), (30, "c"), (3, "late"), (4, "d!")):
        producer.produce(topic, value, "k", 0, timestamp=1_700_000_000_000 + at_s * 1_000)
    assert producer.flush(30) == 0
    records = checked(flights(spark, bootstrap, topic, group, stateLocation=str(tmp_path / "state")))
    counts = sg.windows(
        records.withWatermark("timestamp", "0 seconds"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("10s"),
        aggregate={"n": "count(*)"},
        dead_letters=True,
    )
    rows = counts.select("key", F.col("n").cast("string").alias("value"), "dead_letter")
    sink, letters = (sg.KafkaSink(bootstrap_servers=bootstrap, topic=it) for it in (board, dead))
    run(sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(tmp_path / "checkpoint")))
    assert [it.value for it in read_committed(bootstrap, board)] == [b"1"]
    found = {it.value: (it.step, it.error_class, it.details.get("why")) for it in letters_in(bootstrap, dead)}
    assert found == {
        b"b!": ("check", "Poison", None),
        b"d!": ("check", "Poison", None),
        b"late": ("windows", "LateRecord", "late"),
    }


@LONG
def test_P4_rows_that_kafka_rejects_are_letters(spark: SparkSession) -> None:
    """The expressions of Spark agree with the encoder about each size."""
    limit = 260
    given = {
        "kafka.bootstrap.servers": "nowhere:9092",
        "checkpointLocation": "/c",
        "kafka.max.request.size": str(limit),
    }
    options = parse_sink(given)
    sizes: list[tuple[int | None, int | None, int]] = [
        (key, value, headers) for key in (None, 0, 63, 64) for value in range(110, 200) for headers in range(3)
    ]
    sizes += [(None, None, 0), (None, 0, 1)]
    rows = [
        (
            i,
            None if key is None else b"k" * key,
            None if value is None else b"v" * value,
            [("name", b"x" * h if h % 2 else None) for h in range(headers)],
            "board",
        )
        for i, (key, value, headers) in enumerate(sizes)
    ]
    ddl = "id int, key binary, value binary, headers array<struct<key: string, value: binary>>, topic string"
    df = spark.createDataFrame(rows, ddl).coalesce(1)
    found = with_rejections(df, options, {"board": 1}).orderBy("id")
    rejected = {row.id for row in found.where("dead_letter IS NOT NULL").collect()}
    expected = set()
    for batch in df.toArrow().to_batches(max_chunksize=1):
        try:
            encode(
                batch.append_column("partition", pa.array([0], pa.int32())), options.batches, topic="board", now_ms=0
            )
        except RecordRejected:
            expected.add(batch["id"][0].as_py())
    assert rejected == expected
    assert 100 < len(expected) < len(rows) - 100

    wrong = [
        ("board", 0, 0, [("name", None)], None),
        ("board", 1, 0, [], "has no such partition"),
        ("board", -1, 0, [], "has no such partition"),
        (None, 0, 0, [], "has no topic"),
        ("board", 0, -1, [], "before 1970"),
        ("board", 0, 0, [(None, b"x")], "header has no name"),
    ]
    df = spark.createDataFrame(
        [(b"v", *row[:4]) for row in wrong],
        "value binary, topic string, partition int, us bigint, headers array<struct<key: string, value: binary>>",
    )
    df = df.withColumn("timestamp", F.timestamp_micros("us"))
    letters = [row.dead_letter for row in with_rejections(df, options, {"board": 1}).collect()]
    for letter, (*_, why) in zip(letters, wrong, strict=True):
        assert (letter is None) == (why is None)
        if letter is not None:
            assert str(why) in letter.error
            assert (letter.step, letter.value, letter.topic, letter.offset) == ("sink", b"v", None, None)


def test_P4_records_that_the_broker_rejects_are_letters_and_all_others_are_written_once(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, dead = new_topic(2), new_topic(1)
    board = new_topic(
        3, cleanup_policy="compact", max_message_bytes="2000", message_timestamp_after_max_ms=str(3_600_000)
    )
    producer = ordered_producer(bootstrap)
    for n in range(60):
        producer.produce(topic, key=f"k{n}", value=str(n), partition=n % 2)
    assert producer.flush(30) == 0
    number = F.col("value").cast("string").cast("int") % 10
    rows = flights(spark, bootstrap, topic, group).select(
        F.when(number != 0, F.col("key")).alias("key"),
        F.when(number == 7, F.rpad(F.col("value").cast("string"), 3_000, ".").cast("binary"))
        .otherwise(F.col("value"))
        .alias("value"),
        F.when(number == 5, F.col("timestamp") + F.expr("INTERVAL 2 HOURS"))
        .otherwise(F.col("timestamp"))
        .alias("timestamp"),
    )
    sink, letters = (sg.KafkaSink(bootstrap_servers=bootstrap, topic=it) for it in (board, dead))
    writer = sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(tmp_path / "checkpoint"))
    run(writer)
    written = sorted(int(it.value) for it in read_committed(bootstrap, board))
    assert written == [n for n in range(60) if n % 10 not in (0, 5, 7)]
    assert committed_offsets(bootstrap, group, topic) == {0: 30, 1: 30}
    found = letters_in(bootstrap, dead)
    assert {(it.step, it.error_class) for it in found} == {("sink", "RecordRejected")}
    of_values = sorted(int(it.value) for it in found if it.value is not None)
    assert of_values == [n for n in range(60) if n % 10 in (0, 5)]
    too_large = [(it.key, it.details["value_bytes"]) for it in found if it.value is None]
    assert set(too_large) == {(f"k{n}".encode(), "3000") for n in range(7, 60, 10)}
    assert len(too_large) == 6
    assert all("The broker rejects row" in it.error for it in found)
    assert {it.details["output_topic"] for it in found} == {board}
    assert all("output_timestamp_ms" in it.details for it in found)


def test_P4_a_letter_that_its_topic_rejects_is_written_without_its_value(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board, dead = new_topic(1), new_topic(1), new_topic(1, max_message_bytes="200000")
    producer = ordered_producer(bootstrap)
    for n, value in enumerate(["0", "1!", "2" * 500_000 + "!", "3", "4!"]):
        producer.produce(topic, key=f"k{n}", value=value, partition=0)
    assert producer.flush(30) == 0
    rows = checked(flights(spark, bootstrap, topic, group)).select("key", "value", "dead_letter")
    sink, letters = (sg.KafkaSink(bootstrap_servers=bootstrap, topic=it) for it in (board, dead))
    run(sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(tmp_path / "checkpoint")))
    assert [it.value for it in read_committed(bootstrap, board)] == [b"0", b"3"]
    assert committed_offsets(bootstrap, group, topic) == {0: 5}
    found = {it.key: it for it in letters_in(bootstrap, dead)}
    assert {key: it.value for key, it in found.items()} == {b"k1": b"1!", b"k2": None, b"k4": b"4!"}
    assert len(letters_in(bootstrap, dead)) == 3
    large = found[b"k2"]
    assert large.details["value_bytes"] == "500001"
    assert large.details["rejected"].startswith("value: The broker rejects row")


def test_X9_a_compacted_topic_of_dead_letters_is_rejected_at_the_start(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board, dead = new_topic(1), new_topic(1), new_topic(1, cleanup_policy="compact")
    rows = checked(flights(spark, bootstrap, topic, group)).select("key", "value", "dead_letter")
    sink, letters = (sg.KafkaSink(bootstrap_servers=bootstrap, topic=it) for it in (board, dead))
    writer = sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(InvalidOption, match=rf"Topic '{dead}' has cleanup\.policy=compact, so the broker rejects"):
        run(writer)


def test_P4_rows_of_topics_that_the_query_cannot_write_to_are_letters(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board, dead, later = new_topic(1), new_topic(3), new_topic(1), f"later-{group}"
    producer = ordered_producer(bootstrap)
    for i, to in enumerate((board, later, dead, "a b", "")):
        for key in (f"k{i}", None):
            producer.produce(topic, key=key, value=to)
    assert producer.flush(30) == 0
    rows = flights(spark, bootstrap, topic, group).selectExpr("key", "value", "cast(value AS string) AS topic")
    sink, letters = sg.KafkaSink(bootstrap_servers=bootstrap), sg.KafkaSink(bootstrap_servers=bootstrap, topic=dead)
    writer = sg.exactly_once(rows, sink=sink, dead_letters=letters, checkpoint=str(tmp_path / "checkpoint"))
    new_topic(1, name=later)
    run(writer)
    assert sorted(str(it.key) for it in read_committed(bootstrap, board)) == ["None", "b'k0'"]
    unknown, own = "The topic did not exist when the query started.", "The topic is that of the dead letters."
    found = {(it.value, it.key): it.error for it in letters_in(bootstrap, dead)}
    assert all(it.details["output_topic"] == (it.value or b"").decode() for it in letters_in(bootstrap, dead))
    expected = {later: unknown, dead: own, "a b": unknown, "": unknown}
    assert found == {
        (to.encode(), key): expected[to]
        for i, to in enumerate((later, dead, "a b", ""), 1)
        for key in (f"k{i}".encode(), None)
    }


def test_P4_rows_with_letters_are_never_written_as_rows(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(1)
    rows = checked(flights(spark, bootstrap, topic, group)).select("value", "dead_letter")
    sink, checkpoint = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic), str(tmp_path / "checkpoint")
    wrong: list[tuple[DataFrame, Any, str]] = [
        (rows, None, "'dead_letters' is not set"),
        (rows.withColumn("dead_letter", F.lit("no")), None, "is no dead letter"),
        (rows.select("value", "DEAD_LETTER"), None, "has the name 'DEAD_LETTER'"),
        (rows.select("value", "DEAD_LETTER"), sg.KafkaSink(bootstrap_servers=bootstrap, topic="dead"), "has the name"),
        (rows, sink, "is the topic of the output and of the dead letters"),
        (rows, sg.KafkaSink(bootstrap_servers=bootstrap), "has no topic"),
        (rows, "dead", "is str, which is no sink"),
    ]
    for df, dead_letters, what in wrong:
        with pytest.raises(InvalidOption, match=what):
            sg.exactly_once(df, sink=sink, dead_letters=dead_letters, checkpoint=checkpoint)
    with pytest.raises(InvalidOption, match="has the name 'DEAD_LETTER'"):
        sg.dedup(rows.select("value", "DEAD_LETTER"), id="value", horizon="1 hour")


@pytest.mark.parametrize("mode", ["complete", "Update"])
def test_X1_a_sink_that_adds_rows_rejects_other_output_modes(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, mode: str
) -> None:
    topic = new_topic(1)
    rows = flights(spark, bootstrap, topic, group).select("value")
    sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic)
    writer = sg.exactly_once(rows, sink=sink, checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(InvalidOption, match=f"Output mode '{mode}'"):
        writer.outputMode(mode)
    writer.outputMode("append")
