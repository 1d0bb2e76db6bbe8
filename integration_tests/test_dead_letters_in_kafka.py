"""P4, X9: one Kafka transaction commits the output of a batch, its dead letters and its positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.dead_letters import checked, flights, forget_last_commit, letters_in, run
from streamgroups.errors import InvalidOption
from streamgroups_testkit.reading import committed_offsets, read_committed


def test_P4_X9_letters_are_in_the_transaction_of_the_output(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, board, dead = new_topic(2), new_topic(3), new_topic(2)
    checkpoint = tmp_path / "checkpoint"
    producer = Producer({"bootstrap.servers": bootstrap})

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
    assert letter.id == f"{group}/{topic}/1/2/check"
    assert (letter.query, letter.key, letter.headers, letter.attempt) == ("departures", b"k5", (("trace", b"5"),), 3)
    assert (letter.error_class, letter.error) == ("Poison", "It has a mark, password=*** and no flight.")
    assert letter.origin is not None
    assert letter.origin.timestamp_ms is not None
    assert letter.origin.timestamp_ms <= letter.failed_at_ms
    assert found[b"0!"].attempt == 1


def test_P4_rows_with_letters_are_never_written_as_rows(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic = new_topic(1)
    rows = checked(flights(spark, bootstrap, topic, group)).select("value", "dead_letter")
    sink, checkpoint = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic), str(tmp_path / "checkpoint")
    dead = sg.KafkaSink(bootstrap_servers=bootstrap, topic=new_topic(1))
    wrong: list[tuple[DataFrame, Any, str]] = [
        (rows, None, "'dead_letters' is not set"),
        (rows.withColumn("dead_letter", F.lit("no")), None, "is no dead letter"),
        (rows.drop("dead_letter"), dead, "no column 'dead_letter'"),
        (rows, sink, "is the topic of the output and of the dead letters"),
        (rows, sg.KafkaSink(bootstrap_servers=bootstrap), "has no topic"),
        (rows, "dead", "is str, which is no sink"),
    ]
    for df, dead_letters, what in wrong:
        with pytest.raises(InvalidOption, match=what):
            sg.exactly_once(df, sink=sink, dead_letters=dead_letters, checkpoint=checkpoint)
