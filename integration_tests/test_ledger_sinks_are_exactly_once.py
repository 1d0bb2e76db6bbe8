"""X2, X4, S6: queries that write to PostgreSQL and to Delta tables change output and positions together; the group
follows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests.test_kafka_sink_is_exactly_once import forget_last_commit_of, run
from integration_tests.tiers import EITHER_SINK, LONG
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.errors import InvalidOption
from streamgroups.groups.gaps import Cause, Gaps
from streamgroups.ledgers.staging import StagingSink
from streamgroups_testkit.postgres import PostgresServer
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_metadata, committed_offsets
from streamgroups_testkit.waits import wait_until

N = 200
ReadBack = Callable[[], list[int]]


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[StagingSink[Any, Any, Any, Any], ReadBack]:
    """A sink, and its output as another reader sees it."""
    if request.param == "postgres":
        conninfo = request.getfixturevalue("postgres")

        def rows() -> list[int]:
            with psycopg.connect(conninfo) as db:
                return sorted(n for (n,) in db.execute("SELECT number FROM board").fetchall())

        return sg.PostgresSink(conninfo=conninfo, table="board"), rows
    path = str(tmp_path / "board")
    return sg.DeltaSink(uri=path), lambda: sorted(DeltaTable(path).to_pyarrow_table().column("number").to_pylist())


class Board:
    """A query that writes the numbers of records to a sink."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, topic: str, group: str, checkpoint: Path, sink: Any
    ) -> None:
        self.spark, self.bootstrap, self.topic, self.group = spark, bootstrap, topic, group
        self.checkpoint, self.sink = checkpoint, sink
        self.protocol = "classic"

    def numbers(self, **options: str) -> DataFrame:
        usual = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "group.id": self.group,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "120",
            "kafka.group.protocol": self.protocol,
        }
        source = self.spark.readStream.format("streamgroups").options(**{**usual, **options}).load()
        return source.select(F.col("key").cast("string").cast("int").alias("number"))

    def run(self, df: DataFrame | None = None) -> None:
        run(sg.exactly_once(self.numbers() if df is None else df, sink=self.sink, checkpoint=str(self.checkpoint)))


@pytest.fixture
def board(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    target: tuple[StagingSink[Any, Any, Any, Any], ReadBack],
) -> Board:
    """See `Board`; its topic has `N` records."""
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    return Board(spark, bootstrap, topic, group, tmp_path / "checkpoint", target[0])


@pytest.fixture
def read_back(target: tuple[StagingSink[Any, Any, Any, Any], ReadBack]) -> ReadBack:
    """The output of the sink."""
    return target[1]


@LONG
@EITHER_SINK
def test_X2_X4_once_whatever_becomes_of_the_checkpoint(board: Board, read_back: ReadBack) -> None:
    board.run()
    assert read_back() == list(range(N))
    # Spark's entry for the last batch is lost.
    forget_last_commit_of(board.checkpoint)
    board.run()
    # The whole checkpoint is lost.
    board.checkpoint = board.checkpoint.with_name("another")
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N)
    board.run()
    assert read_back() == list(range(N + 10))
    there = {0: N // 2 + 5, 1: N // 2 + 5}
    wait_until(lambda: committed_offsets(board.bootstrap, board.group, board.topic) == there, "the group follows")


@LONG
@EITHER_SINK
def test_X2_a_batch_that_fails_leaves_nothing(board: Board, read_back: ReadBack) -> None:
    """With the broker's own protocol; the other tests use the classic one."""
    board.protocol = "consumer"
    board.run()
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N)
    broken = board.numbers().select(
        F.when(F.col("number") == N + 5, F.raise_error(F.lit("no such flight")))
        .otherwise(F.col("number"))
        .cast("int")
        .alias("number")
    )
    with pytest.raises(StreamingQueryException, match="no such flight"):
        board.run(broken)
    assert read_back() == list(range(N))
    board.run()
    assert read_back() == list(range(N + 10))


@LONG
@EITHER_SINK
def test_S11_a_recreated_topic_is_recognised_by_the_ledger_alone(
    board: Board, read_back: ReadBack, admin: AdminClient, new_topic: Callable[..., str]
) -> None:
    """Kafka deletes the committed offsets with the topic, and the checkpoint is lost. The new topic is longer than the
    old position.
    """
    board.run()
    admin.delete_topics([board.topic])[board.topic].result(30)
    wait_until(lambda: board.topic not in admin.list_topics(timeout=10).topics, "the topic is gone")
    new_topic(2, name=board.topic)
    produce(board.bootstrap, board.topic, 2 * N, partitions=2, first=1_000)
    board.checkpoint = board.checkpoint.with_name("another")
    with pytest.raises(StreamingQueryException, match=rf"{board.topic}-0 \(position {N // 2} of topic id .*recreated"):
        board.run()
    assert read_back() == list(range(N))
    board.run(board.numbers(onDataLoss="earliest"))
    assert read_back() == [*range(N), *range(1_000, 1_000 + 2 * N)]
    metadata = committed_metadata(board.bootstrap, gaps_group_of(board.group), board.topic)
    gaps = [gap for text in metadata.values() for gap in Gaps.decode(text).newest]
    assert [(gap.from_offset, gap.to_offset, gap.cause) for gap in gaps] == [(N // 2, 0, Cause.RECREATED)] * 2


def _has_reached(committed_now: Callable[[], dict[int, int]], total: int) -> bool:
    return sum(committed_now().values()) == total


@LONG
@EITHER_SINK
def test_X2_a_join_moves_the_positions_of_both_groups_with_its_output(
    board: Board, read_back: ReadBack, new_topic: Callable[..., str]
) -> None:
    fares = new_topic(1)
    fares_group = f"{board.group}-fares"

    def joined() -> DataFrame:
        exclusive = {"membership": "exclusive"}
        flights = board.numbers(**exclusive)
        other = board.numbers(**exclusive, **{"subscribe": fares, "group.id": fares_group})
        return flights.join(other, "number")

    produce(board.bootstrap, fares, N, partitions=1)
    board.run(joined())
    assert read_back() == list(range(N))
    # The driver fails between the commit of the sink and Spark's entry in its commit log.
    forget_last_commit_of(board.checkpoint)
    board.run(joined())
    for topic, partitions in ((board.topic, 2), (fares, 1)):
        produce(board.bootstrap, topic, 10, partitions=partitions, first=N)
    board.run(joined())
    assert read_back() == list(range(N + 10))
    for group, topic in ((board.group, board.topic), (fares_group, fares)):
        there = partial(committed_offsets, board.bootstrap, group, topic)
        wait_until(partial(_has_reached, there, N + 10), f"group {group} follows")


class TestTheTable:
    """A write error is reported with its remedy and leaves no output of the batch. The query resumes after the
    repair.
    """

    @LONG
    def test_of_postgres(
        self,
        spark: SparkSession,
        bootstrap: str,
        new_topic: Callable[..., str],
        group: str,
        tmp_path: Path,
        postgres: str,
    ) -> None:
        topic = new_topic(2)
        produce(bootstrap, topic, N, partitions=2)
        sink = sg.PostgresSink(conninfo=postgres, table="board", create_table=False)
        board = Board(spark, bootstrap, topic, group, tmp_path / "checkpoint", sink)
        number = F.col("number")
        named = board.numbers(maxOffsetsPerTrigger="1000").select(
            number, F.when(number == 77, "seventy-seven").otherwise("n").alias("name")
        )
        with psycopg.connect(postgres, autocommit=True) as db:
            for mend, reported in (
                ("SELECT 1", r"Table .*board does not exist.*Create it"),
                ("CREATE TABLE board (number text, name varchar(5))", r"column 'number'.*ALTER TABLE"),
                (
                    "ALTER TABLE board ALTER number TYPE int USING 0",
                    r"column 'name' in row \d+ .*too long for type character varying\(5\)",
                ),
                ("ALTER TABLE board ALTER name TYPE text, ADD CHECK (number <> 78)", "violates check constraint"),
            ):
                db.execute(mend)
                with pytest.raises(StreamingQueryException, match=reported):
                    board.run(named)
                assert not any(committed_offsets(bootstrap, group, topic).values())
            assert db.execute("SELECT count(*) FROM board").fetchone() == (0,)
            db.execute("ALTER TABLE board DROP CONSTRAINT board_number_check")
            board.run(named)
            found = db.execute("SELECT number, name FROM board ORDER BY number").fetchall()
        assert [n for n, _ in found] == list(range(N))
        assert found[77][1] == "seventy-seven"

    @LONG
    def test_of_delta(
        self, spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
    ) -> None:
        topic = new_topic(2)
        produce(bootstrap, topic, N, partitions=2)
        path = tmp_path / "board"
        board = Board(
            spark, bootstrap, topic, group, tmp_path / "checkpoint", sg.DeltaSink(uri=str(path), create_table=False)
        )
        with pytest.raises(StreamingQueryException, match=r"Delta table .* does not exist.* create_table=True"):
            board.run()
        DeltaTable.create(str(path), pa.schema([("number", pa.string())]))
        with pytest.raises(StreamingQueryException, match="number"):
            board.run()
        assert DeltaTable(path).to_pyarrow_table().num_rows == 0
        shutil.rmtree(path)
        DeltaTable.create(str(path), pa.schema([("number", pa.int32())]))
        board.run()
        assert sorted(DeltaTable(path).to_pyarrow_table().column("number").to_pylist()) == list(range(N))


@LONG
def test_a_server_that_is_down_and_back(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    postgres: str,
    postgres_server: PostgresServer,
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    board = Board(spark, bootstrap, topic, group, tmp_path / "c", sg.PostgresSink(conninfo=postgres, table="board"))
    writer = sg.exactly_once(board.numbers(), sink=board.sink, checkpoint=str(board.checkpoint))
    query = writer.trigger(processingTime="1 second").start()
    try:
        wait_until(lambda: sum(committed_offsets(bootstrap, group, topic).values()) == N, "all is written")
        postgres_server.stop()
        try:
            produce(bootstrap, topic, 10, partitions=2, first=N)
            with pytest.raises(
                StreamingQueryException, match=r"PostgreSQL cannot be reached.*Check that the server runs"
            ):
                query.awaitTermination(120)
        finally:
            postgres_server.start()
    finally:
        query.stop()
    board.run()
    with psycopg.connect(postgres) as db:
        assert sorted(n for (n,) in db.execute("SELECT number FROM board").fetchall()) == list(range(N + 10))


@EITHER_SINK
def test_two_sinks_of_one_group_are_rejected_while_one_is_written_to(board: Board, tmp_path: Path) -> None:
    other = sg.DeltaSink(uri=str(tmp_path / "other"))
    writer = sg.exactly_once(board.numbers(), sink=board.sink, checkpoint=str(board.checkpoint))
    query = writer.trigger(processingTime="1 second").start()
    try:
        with pytest.raises(InvalidOption, match=rf"Group '{board.group}' already has a ledger in "):
            sg.exactly_once(board.numbers(), sink=other, checkpoint=str(tmp_path / "c")).start()
    finally:
        query.stop()


@LONG
@EITHER_SINK
def test_X4_a_query_is_edited_and_run_again_in_one_process(board: Board, read_back: ReadBack, tmp_path: Path) -> None:
    """An earlier query of the group has no effect on a later one that replaces it: neither its sink nor its existence."""
    board.run()
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N)
    edited = board.numbers(onOtherProgram="continue")
    plain = edited.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "plain"))
    query = plain.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sum(committed_offsets(board.bootstrap, board.group, board.topic).values()) == N + 10
    assert read_back() == list(range(N)), "the plain query has no ledger, and moved none"
    other = str(tmp_path / "other")
    board.sink, board.checkpoint = sg.DeltaSink(uri=other), tmp_path / "edited"
    produce(board.bootstrap, board.topic, 10, partitions=2, first=N + 10)
    board.run(edited)
    assert sorted(DeltaTable(other).to_pyarrow_table().column("number").to_pylist()) == list(range(N + 10, N + 20))


@LONG
@EITHER_SINK
def test_secrets_reach_no_plan(board: Board, capfd: pytest.CaptureFixture[str]) -> None:
    if not isinstance(board.sink, sg.PostgresSink):
        pytest.skip("a local Delta table has no login")
    writer = sg.exactly_once(board.numbers(), sink=board.sink, checkpoint=str(board.checkpoint))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
        query.explain(True)
        assert board.sink.conninfo not in capfd.readouterr().out + str(query.lastProgress)
    finally:
        query.stop()
