"""W8, W9, W11: what ``with_event_time`` accepts and rejects, and the reports of tasks; without a Spark session."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import DateType, StructType, TimestampNTZType, TimestampType

from streamgroups.errors import InvalidOption
from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.settings import time_settings
from streamgroups.event_time.strategy import Generation, Records
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.bridge.channel import ReportParam
from streamgroups_spark.bridge.task_reports import ObservationStore, ObservedTimes
from streamgroups_spark.event_time.with_event_time import options_of_time
from streamgroups_spark.frames.columns import check_timestamp
from streamgroups_spark.source.observed_times import measured, seen_in
from streamgroups_spark.source.source_options import parse

SOURCE = {"kafka.bootstrap.servers": "broker:9092", "group.id": "airline", "subscribe": "flights"}
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class TestSettings:
    def test_W11_those_of_the_source_are_defaults(self) -> None:
        given = {**SOURCE, "EMITEVERY": "10 records", "watermarkDelay": "5s"}
        assert parse(given, streaming=True).group_id == "airline"
        assert time_settings(options_of_time(given), {"watermarkDelay": "1s"}).generation == Generation(
            Records(10), 1_000
        )

    @pytest.mark.parametrize(
        ("options", "rejection"),
        [
            ({}, "The watermark strategy is missing"),
            ({"watermarkDelay": "0s", "onViolation": "skip"}, "Option 'onViolation' is 'skip'. Allowed values"),
            ({"watermarkDelay": "0s", "partitionIdleTimeout": "-1s"}, "which is negative"),
            ({"emitEvery": "5"}, "can be a number of records or a duration"),
        ],
    )
    def test_invalid_arguments_are_rejected(self, options: dict[str, str], rejection: str) -> None:
        with pytest.raises(InvalidOption, match=rejection):
            time_settings({}, options)

    def test_the_column_must_be_a_timestamp(self) -> None:
        schema = StructType().add("ts", TimestampType()).add("day", DateType()).add("local", TimestampNTZType())
        df: Any = SimpleNamespace(schema=schema, columns=schema.names)
        check_timestamp(df, "ts")
        for wrong in ("day", "local"):
            with pytest.raises(
                InvalidOption, match=f"Column '{wrong}' is of type .* Cast it to timestamp_ltz: an event time must be a"
            ):
                check_timestamp(df, wrong)
        with pytest.raises(InvalidOption, match=r"Column 'tz' does not exist. The columns are ts, day, local"):
            check_timestamp(df, "tz")


def batch(*rows: tuple[int, int, int | None]) -> pa.RecordBatch:
    partitions, offsets, times = zip(*rows, strict=True)
    stamps = [None if ms is None else datetime.fromtimestamp(ms / 1_000, timezone.utc) for ms in times]
    columns = {
        "topic": ["flights"] * len(rows),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "ts": pa.array(stamps, pa.timestamp("us", "UTC")),
    }
    return pa.record_batch(columns)


class TestReportsOfTasks:
    def test_each_partition_by_itself(self) -> None:
        found = seen_in(batch((0, 5, 700), (1, 9, 100), (0, 6, 600), (0, 7, None)), "ts")
        assert sorted(found, key=lambda it: it.topic_partition) == [
            TaskObservation(P0, 5, 2, 700),
            TaskObservation(P1, 9, 1, 100),
        ]

    def test_records_without_an_event_time_have_no_effect(self) -> None:
        assert seen_in(batch((0, 5, None)), "ts") == []
        assert seen_in(batch((0, 5, None)).slice(0, 0), "ts") == []

    def test_times_before_1970(self) -> None:
        assert seen_in(batch((0, 5, -1_500)), "ts") == [TaskObservation(P0, 5, 1, -1_500)]

    def test_rows_pass_unchanged_and_are_reported_before_they_are_returned(self) -> None:
        reported: ObservedTimes = []
        channel: Any = SimpleNamespace(send=reported.extend)

        def batches() -> Iterator[pa.RecordBatch]:
            yield batch((0, 5, 700))
            yield batch((0, 6, 800))

        passing = measured(batches(), "ts", "trades", channel)
        assert next(passing) == batch((0, 5, 700))
        assert reported == [("trades", TaskObservation(P0, 5, 1, 700))], "a limit may never request more"
        assert next(passing) == batch((0, 6, 800))

    def test_it_is_collected_in_tasks_and_handed_on_at_home(self) -> None:
        store = ObservationStore()
        at_home = ReportParam(store.keep)
        in_a_task: ReportParam[tuple[str, TaskObservation]] = pickle.loads(pickle.dumps(at_home))
        reported = in_a_task.addInPlace(
            [("trades", TaskObservation(P0, 5, 1, 700))], [("trades", TaskObservation(P0, 6, 1, 800))]
        )
        assert at_home.addInPlace([], reported) == []
        assert len(store.take("trades", (OffsetRange(P0, 5, 7),))) == 2


class TestTheStore:
    def test_a_repeated_report_of_a_task_counts_once(self) -> None:
        store = ObservationStore()
        for _ in range(2):
            store.keep([("trades", TaskObservation(P0, 5, 3, 700))])
        assert store.take("trades", (OffsetRange(P0, 5, 8),)) == [TaskObservation(P0, 5, 3, 700)]

    def test_others_are_left_alone(self) -> None:
        store = ObservationStore()
        store.keep(
            [
                ("trades", TaskObservation(P0, 5, 1, 700)),
                ("prices", TaskObservation(P0, 5, 1, 900)),
                ("trades", TaskObservation(P1, 5, 1, 1)),
            ]
        )
        assert store.take("trades", (OffsetRange(P0, 0, 9),)) == [TaskObservation(P0, 5, 1, 700)]
        assert store.take("prices", (OffsetRange(P0, 0, 9),)) == [TaskObservation(P0, 5, 1, 900)]

    def test_unused_observations_are_removed_in_the_end(self) -> None:
        store = ObservationStore()
        store.keep([("trades", TaskObservation(P0, offset, 1, offset)) for offset in range(10_001)])
        found = store.take("trades", (OffsetRange(P0, 0, 10_001),))
        assert (len(found), min(it.next_offset for it in found)) == (10_000, 1)

    def test_W2_taken_observations_leave_nothing(self) -> None:
        store = ObservationStore()
        store.keep([("trades", TaskObservation(P0, 5, 1, 700)), ("trades", TaskObservation(P1, 5, 1, 700))])
        for tp in (P0, P1):
            store.take("trades", (OffsetRange(tp, 0, 9),))
        assert not store._seen

    def test_W2_the_observations_of_failed_runs_are_removed_in_the_end(self) -> None:
        """Each run has another name. A query that reports again keeps its observations."""
        store = ObservationStore()
        store.keep([("oldest", TaskObservation(P0, 5, 1, 700)), ("lives", TaskObservation(P0, 5, 1, 700))])
        for n in range(999):
            store.keep([(f"failed-{n}", TaskObservation(P0, 5, 1, 700)), ("lives", TaskObservation(P0, 6 + n, 1, 700))])
        assert len(store._seen) == 1_000
        assert store.take("oldest", (OffsetRange(P0, 0, 9),)) == []
        assert len(store.take("lives", (OffsetRange(P0, 5, 2_000),))) == 1_000
