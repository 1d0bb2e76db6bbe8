"""X2, X4: ``sg.ledgers.ledger`` makes a sink in ``foreachBatch`` exactly once, here with SQLite, also after loss of the
checkpoint.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import streamgroups as sg
from integration_tests.test_kafka_sink_is_exactly_once import forget_last_commit_of
from integration_tests.tiers import LONG
from streamgroups.errors import FencedBatch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

N = 200


@dataclass(frozen=True)
class SqlitePositions:
    """The table of positions in a SQLite file: the complete interface that the library requires."""

    path: str

    def read(self) -> sg.ledgers.LedgerPositions:
        with closing(sqlite3.connect(self.path)) as db:
            return positions_in(db)

    def update(self, change: Callable[[sg.ledgers.LedgerPositions], sg.ledgers.LedgerPositions]) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as db, db:
            db.execute("BEGIN IMMEDIATE")
            move(db, change(positions_in(db)))


def positions_in(db: sqlite3.Connection) -> sg.ledgers.LedgerPositions:
    return {(t, p): sg.ledgers.LedgerPosition(*row) for t, p, *row in db.execute("SELECT * FROM positions")}


def move(db: sqlite3.Connection, positions: sg.ledgers.LedgerPositions) -> None:
    db.executemany("REPLACE INTO positions VALUES (?, ?, ?, ?, ?)", [(t, p, *row) for (t, p), row in positions.items()])


class Board:
    """A query that writes values into a table of SQLite."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, group: str, directory: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.group = spark, bootstrap, topic, group
        self.path, self.checkpoint = str(directory / "board.db"), directory / "checkpoint"
        #: Fails the batch after the commit of its transaction.
        self.dies_after_commit = False
        with closing(sqlite3.connect(self.path)) as db:
            db.execute(
                "CREATE TABLE positions (topic, partition, next_offset, cluster_id, topic_id, PRIMARY KEY (topic, partition))"
            )
            db.execute("CREATE TABLE board (value)")

    def run(self) -> None:
        ledger = sg.ledgers.ledger(self.group, checkpoint=str(self.checkpoint), positions=SqlitePositions(self.path))

        def write(rows: DataFrame, batch_id: int) -> None:
            batch = ledger.batch(batch_id)
            values = [(row.value.decode().rstrip("."),) for row in rows.collect()]
            with closing(sqlite3.connect(self.path, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                if not batch.is_written(positions_in(db)):
                    db.executemany("INSERT INTO board VALUES (?)", values)
                    move(db, batch.positions)
                db.execute("COMMIT")
            if self.dies_after_commit:
                raise RuntimeError("died after its commit")

        source = self.spark.readStream.format("streamgroups").options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": self.topic,
                "group.id": self.group,
                "startingOffsets": "earliest",
            }
        )
        writer = source.load().writeStream.foreachBatch(write).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    @property
    def values(self) -> list[int]:
        with closing(sqlite3.connect(self.path)) as db:
            return sorted(int(value) for (value,) in db.execute("SELECT value FROM board"))


@pytest.fixture
def board(spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path) -> Board:
    """See `Board`; its topic has `N` records."""
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    return Board(spark, bootstrap, topic, group, tmp_path)


@LONG
def test_X2_a_batch_that_is_run_again_is_written_once(board: Board) -> None:
    board.dies_after_commit = True
    with pytest.raises(StreamingQueryException, match="died after its commit"):
        board.run()
    board.dies_after_commit = False
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N)
    board.run()
    assert board.values == list(range(N + 10))
    # Spark's entry in the commit log is lost.
    forget_last_commit_of(board.checkpoint)
    board.run()
    assert board.values == list(range(N + 10))


@LONG
def test_X4_a_new_checkpoint_continues_at_the_position_of_the_ledger(board: Board) -> None:
    board.dies_after_commit = True
    with pytest.raises(StreamingQueryException, match="died after its commit"):
        board.run()
    board.dies_after_commit = False
    board.checkpoint = board.checkpoint.with_name("another")
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N)
    board.run()
    assert board.values == list(range(N + 10))
    # The group follows the ledger, for administration tools.
    there = {0: N // 2 + 5, 1: N // 2 + 5}
    wait_until(lambda: committed_offsets(board.bootstrap, board.group, board.topic) == there, "the group follows")


def test_F1_a_batch_of_a_frozen_process_is_not_written_after_another_owner_has_taken_over(board: Board) -> None:
    """A batch at the position of the ledger, with the ownership epoch of an earlier run."""
    board.run()
    rows = SqlitePositions(board.path).read()
    before = {key: row.next_offset for key, row in rows.items() if key[0].startswith("streamgroups.epoch.")}
    assert before.keys() == {(f"streamgroups.epoch.{board.topic}", p) for p in range(2)}
    board.checkpoint = board.checkpoint.with_name("another")
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N)
    board.run()
    after = SqlitePositions(board.path).read()
    assert all(after[key].next_offset > epoch for key, epoch in before.items())
    assert board.values == list(range(N + 10))
    frozen = sg.ledgers.LedgerBatch(
        board.group,
        tuple(OffsetRange(TopicPartition(board.topic, p), 105, 106) for p in range(2)),
        epochs={TopicPartition(board.topic, p): before[f"streamgroups.epoch.{board.topic}", p] for p in range(2)},
    )
    with pytest.raises(FencedBatch, match="was taken over by another owner"):
        frozen.is_written(after)


@LONG
def test_a_ledger_that_was_set_back_with_its_output_is_the_truth(board: Board) -> None:
    board.run()
    SqlitePositions(board.path).update(lambda _: {(board.topic, 0): sg.ledgers.LedgerPosition(7)})
    with closing(sqlite3.connect(board.path)) as db, db:
        db.execute("DELETE FROM board")
    board.run()
    # The test has reset the output to the same position, so the records of this partition from there arrive again.
    assert board.values == list(range(14, N, 2))
