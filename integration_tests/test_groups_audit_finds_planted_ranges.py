"""O6: ``groups audit`` has no finding for a real exactly-once query, and finds what a test plants, from the records of a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests.command_line import streamgroups
from integration_tests.test_kafka_sink_is_exactly_once import Query, run
from integration_tests.tiers import EITHER_PROTOCOL, LONG
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups_testkit.producing import produce

N = 400


def audit(bootstrap: str, group: str, *options: str) -> tuple[int, dict[str, Any]]:
    result = streamgroups("groups", "audit", group, "-o", "json", "-b", bootstrap, *options)
    assert result.stdout, result.stderr
    return result.returncode, json.loads(result.stdout)


def ranges(document: dict[str, Any]) -> list[tuple[int, int, int, str]]:
    return [(it["partition"], it["from_offset"], it["to_offset"], it["verdict"]) for it in document["ranges"]]


def set_by_hand(bootstrap: str, group: str, topic: str, offsets: dict[int, int], metadata: str = "") -> None:
    """Commits as a tool without marks does."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    places = [KafkaTopicPartition(topic, p, n, metadata) for p, n in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@EITHER_PROTOCOL
def test_O6_a_kafka_sink_is_audited(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, protocol: str
) -> None:
    topic, board = new_topic(2), new_topic(1)
    produce(bootstrap, topic, N, partitions=2)

    def copy(run_number: int) -> None:
        query = Query(spark, bootstrap, topic, group, tmp_path / f"checkpoint-{run_number}")
        options = {"kafka.group.protocol": protocol, "maxOffsetsPerTrigger": "150"}
        run(query.exactly_once(query.source(**options).select("key", "value"), board))

    copy(1)
    produce(bootstrap, topic, 40, partitions=2, first=N)
    copy(2)
    code, document = audit(bootstrap, group, "--since", "1h")
    assert (code, ranges(document), document["complete"]) == (0, [], True)
    assert (document["output_evidence"], document["totals"]["once"]) == ("transaction", N + 40)
    # A tool sets the positions without a reset record: forward, and back.
    produce(bootstrap, topic, 40, partitions=2, first=N + 40)
    set_by_hand(bootstrap, group, topic, {0: 230, 1: 205})
    copy(3)
    code, document = audit(bootstrap, group)
    assert (code, ranges(document)) == (5, [(0, 220, 230, "missing"), (1, 205, 220, "double")])


def test_O6_a_ledger_in_postgresql_is_audited(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, postgres: str
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    query = Query(spark, bootstrap, topic, group, tmp_path / "checkpoint")
    rows = query.source(maxOffsetsPerTrigger="150").selectExpr("CAST(CAST(key AS STRING) AS INT) AS number")
    sink = sg.PostgresSink(conninfo=postgres, table="audited", ledger_table="audited_ledger")
    run(sg.exactly_once(rows, sink=sink, checkpoint=query.checkpoint))
    options = ("--postgres", postgres, "--ledger-table", "audited_ledger")
    code, document = audit(bootstrap, group, *options)
    assert (code, ranges(document), document["output_evidence"]) == (0, [], "ledger")
    assert document["totals"]["once"] == N
    # The database is restored from an older copy.
    with psycopg.connect(postgres) as db:
        db.execute(
            "UPDATE audited_ledger SET next_offset = next_offset - 10 WHERE topic = %s AND partition = 1", [topic]
        )
    code, document = audit(bootstrap, group, *options)
    assert (code, ranges(document)) == (5, [(1, 190, 200, "missing")])


@LONG
def test_O6_ten_million_records_are_audited(
    bootstrap: str, new_topic: Callable[..., str], group: str, record_property: Callable[[str, object], None]
) -> None:
    """The time grows with the commits: 20,000 batches of 500 records here."""
    records, partitions, batch, planted = 10_000_000, 4, 500, (7, 7, -5, -5)
    topic = new_topic(partitions)
    produce(bootstrap, topic, records, partitions=partitions)
    each = records // partitions
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    for end in range(batch, each + 1, batch):
        # The second half has another owner. It begins too late in two partitions, and too early in the others.
        is_second = end > each // 2
        marks = [
            CommitMark(
                False, True, epoch=2 if is_second else 1, from_offset=each // 2 + by if is_second else 0
            ).encode()
            for by in planted
        ]
        places = [KafkaTopicPartition(topic, p, end, mark) for p, mark in enumerate(marks)]
        consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    began_s = time.monotonic()
    code, document = audit(bootstrap, group)
    took_s = time.monotonic() - began_s
    middle = each // 2
    assert (code, ranges(document)) == (
        5,
        [
            (0, middle, middle + 7, "missing"),
            (1, middle, middle + 7, "missing"),
            (2, middle - 5, middle, "double"),
            (3, middle - 5, middle, "double"),
        ],
    )
    assert document["totals"]["once"] == records - 2 * 7 - 2 * 5
    record_property("audit_s", round(took_s, 1))
