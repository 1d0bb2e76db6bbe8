"""Queries of a group with an operator, whose rows are collected or written to a topic, and fixtures for savepoints of them.

Used by the tests of savepoints.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.collected_rows import CollectedRows
from integration_tests.savepoint_commands import SavepointCommands
from integration_tests.savepoint_operators import PARTITIONS, Operator, Positions, Row
from streamgroups.groups.commit_metadata import mark_of
from streamgroups.partitions import TopicPartition
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_metadata, committed_offsets, read_committed
from streamgroups_testkit.waits import wait_until


class Output(CollectedRows[Row]):
    """The rows of the queries of a group."""

    def read_batch(self, batch: DataFrame) -> list[Row]:
        return [tuple(row) for row in batch.collect()]


@dataclass
class Group:
    """Queries of one group with an operator."""

    spark: SparkSession
    name: str
    operator: Operator
    directory: Path
    commands: SavepointCommands

    def __post_init__(self) -> None:
        self.output = Output(self.directory / self.name)

    @property
    def options(self) -> dict[str, str]:
        shared = shared_options(self.commands.bootstrap, self.name, ",".join(self.operator.names), "consumer")
        return shared | {"stateLocation": str(self.commands.states), **self.operator.options}

    @contextmanager
    def running(self, checkpoint: str = "checkpoint", **options: str) -> Iterator[StreamingQuery]:
        with self.output.running(checkpoint, self.operator.rows(self.spark, self.options | options)) as query:
            yield query

    def written(self) -> Counter[Row]:
        """The rows so far."""
        return Counter(self.output.rows)

    def positions(self) -> Positions:
        return {
            TopicPartition(topic, partition): offset
            for topic in self.operator.names
            for partition, offset in committed_offsets(self.commands.bootstrap, self.name, topic).items()
        }

    def watermarks_ms(self) -> dict[int, int]:
        """The committed watermarks of the only topic, by partition. Zero without one."""
        marks = committed_metadata(self.commands.bootstrap, self.name, self.operator.names[0])
        return {
            partition: getattr(getattr(getattr(mark_of(text), "state", None), "time", None), "watermark_ms", None) or 0
            for partition, text in marks.items()
        }

    def has_begun(self) -> bool:
        positions = self.positions()
        return positions.keys() == self.operator.written.keys() and min(positions.values()) > 0

    def wait(self, query: StreamingQuery, expected: Counter[Row]) -> None:
        """Waits until all records are read, and compares the rows."""

        def is_complete() -> bool:
            assert query.isActive, query.exception()
            return self.positions() == self.operator.ends and self.written().total() >= expected.total()

        wait_until(is_complete, f"{expected.total()} rows")
        query.processAllAvailable()
        self.check(expected)

    def check(self, expected: Counter[Row]) -> None:
        """Compares the rows."""
        rows = self.written()
        missing, added = expected - rows, rows - expected
        assert (missing, added) == (Counter(), Counter()), f"missing {missing}, added {added}"


@dataclass
class ExactGroup(Group):
    """The same with exactly-once output to a topic."""

    target: str

    @contextmanager
    def running(self, checkpoint: str = "checkpoint", **options: str) -> Iterator[StreamingQuery]:
        rows = self.operator.rows(self.spark, self.options | options)
        # A name for each column, as some have none.
        named = rows.toDF(*(f"c{number}" for number in range(len(rows.columns))))
        out = named.select(F.to_json(F.struct("*")).alias("value"))
        sink = sg.KafkaSink(bootstrap_servers=self.commands.bootstrap, topic=self.target)
        query = sg.exactly_once(out, sink=sink, checkpoint=str(self.directory / self.name / checkpoint)).start()
        try:
            yield query
        finally:
            query.stop()

    def written(self) -> Counter[Row]:
        messages = read_committed(self.commands.bootstrap, self.target)
        return Counter(tuple(json.loads(it.value).values()) for it in messages)


def savepoint_commands(bootstrap: str, directory: Path) -> SavepointCommands:
    """The commands for queries whose states are in a directory."""
    return SavepointCommands(bootstrap, directory / "savepoints", directory / "states")


@pytest.fixture
def groups(spark: SparkSession, bootstrap: str, group: str, tmp_path: Path) -> Callable[[Operator, str], Group]:
    """Opens a group of an operator. The fixture deletes groups by the beginning of their names."""
    commands = savepoint_commands(bootstrap, tmp_path)
    return lambda operator, suffix: Group(spark, f"{group}{suffix}", operator, tmp_path, commands)


@pytest.fixture
def create(bootstrap: str, new_topic: Callable[..., str]) -> Callable[[type[Operator]], Operator]:
    def of(kind: type[Operator]) -> Operator:
        topics = [new_topic(PARTITIONS, retention_ms="-1") for _ in range(kind.topics)]
        return kind(bootstrap, topics, seed=7)

    return of
