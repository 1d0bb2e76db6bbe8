"""X1, X2, W14: windows on our watermark are written once to Kafka, PostgreSQL and Delta, although they close in no-data
batches.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_END
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from integration_tests import windows_query
from integration_tests.command_line import streamgroups
from integration_tests.event_times import START_MS, depart, departures, windows
from integration_tests.programs import running
from integration_tests.test_kafka_sink_is_exactly_once import forget_last_commit_of, run
from integration_tests.tiers import LONG
from streamgroups.coordination.reset_protocol import no_data_group_of
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.transactions.task_output import OutputSettings, write_records
from streamgroups_spark.session import SESSION
from streamgroups_spark.sinks.base import TaskOutput
from streamgroups_spark.sinks.batch_info import logged_batch
from streamgroups_spark.sinks.kafka import KafkaStreamWriter, transactional_id_of
from streamgroups_spark.sinks.sink_options import parse_sink
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import read_committed, wait_until_group_is_empty
from streamgroups_testkit.waits import wait_until

HOUR = range(60)
SINKS = ("kafka", "postgres", "delta")
#: The windows that are closed after the flights up to minute 31, and after all flights.
HALF = dict.fromkeys(range(0, 30, 5), 10)
WHOLE = dict.fromkeys(range(0, 60, 5), 10)


class Board:
    """A sink, and the windows that another reader finds there."""

    def __init__(self, sink: Any, read: Callable[[], list[tuple[int, int]]]) -> None:
        self.sink, self._read = sink, read

    def rows(self, windowed: DataFrame) -> DataFrame:
        """Windows as rows for the sink."""
        begins = F.unix_millis("window.start")
        if isinstance(self.sink, sg.KafkaSink):
            return windowed.select(F.concat_ws(" ", begins, "flights").alias("value"))
        return windowed.select(begins.alias("begins_ms"), "flights")

    def flights(self) -> dict[int, int]:
        """The flights in each window, by the minute at which it begins."""
        found = [((begins_ms - START_MS) // 60_000, flights) for begins_ms, flights in self._read()]
        assert not [minute for minute, times in Counter(minute for minute, _ in found).items() if times > 1], "twice"
        return dict(sorted(found))


def in_kafka(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    values = (m.value.decode().rstrip(".").split() for m in read_committed(bootstrap, topic))
    return [(int(begins_ms), int(flights)) for begins_ms, flights in values]


@pytest.fixture
def board(request: pytest.FixtureRequest, bootstrap: str, new_topic: Callable[..., str], tmp_path: Path) -> Board:
    """Each of the sinks."""
    if request.param == "kafka":
        topic = new_topic(2)
        sink = sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic)
        return Board(sink, lambda: in_kafka(bootstrap, topic))
    if request.param == "postgres":
        conninfo = request.getfixturevalue("postgres")

        def in_postgres() -> list[tuple[int, int]]:
            with psycopg.connect(conninfo) as db:
                return db.execute("SELECT begins_ms, flights FROM board").fetchall()

        return Board(sg.PostgresSink(conninfo=conninfo, table="board"), in_postgres)
    path = str(tmp_path / "board")

    def in_delta() -> list[tuple[int, int]]:
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        return [(row["begins_ms"], row["flights"]) for row in rows]

    return Board(sg.DeltaSink(uri=path), in_delta)


def run_once(spark: SparkSession, board: Board, options: Mapping[str, str], checkpoint: Path, whose: str) -> None:
    """Runs the windows over all records that exist."""
    flights = departures(spark, options)
    if whose == "ours":
        timed = sg.with_event_time(flights, "timestamp", watermark_delay="0s")
    else:
        timed = flights.withWatermark("timestamp", "0 seconds")
    run(sg.exactly_once(board.rows(windows(timed)), sink=board.sink, checkpoint=str(checkpoint)))


@pytest.mark.parametrize(
    ("board", "whose"),
    [
        *(pytest.param(sink, "ours", marks=pytest.mark.long) for sink in SINKS),
        pytest.param("kafka", "spark's", marks=pytest.mark.long),
    ],
    indirect=["board"],
)
def test_a_batch_that_reads_nothing_is_run_again(
    spark: SparkSession,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    board: Board,
    whose: str,
) -> None:
    topic = new_topic(2, retention_ms="-1")
    checkpoint = tmp_path / "checkpoint"
    options = shared_options(bootstrap, group, topic, "classic") | {"membership": "exclusive"}

    depart(bootstrap, topic, {0: HOUR[:33], 1: HOUR[:32]})
    run_once(spark, board, options, checkpoint, whose)
    assert board.flights() == HALF
    assert logged_batch(str(checkpoint)).no_data_batch is not None, "the windows close without a record"
    forget_last_commit_of(checkpoint)
    depart(bootstrap, topic, {0: [*HOUR[33:], 120], 1: [*HOUR[32:], 120]})
    run_once(spark, board, options, checkpoint, whose)
    assert board.flights() == WHOLE


@LONG
@pytest.mark.parametrize("board", SINKS, indirect=True)
def test_X4_a_checkpoint_from_before_a_batch_that_reads_nothing_repeats_no_window(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path, board: Board
) -> None:
    """Its positions are those of the group. After the restart Spark runs a batch with records under the same number."""
    topic = new_topic(2, retention_ms="-1")
    checkpoint = tmp_path / "checkpoint"
    options = shared_options(bootstrap, group, topic, "classic") | {"membership": "exclusive"}
    depart(bootstrap, topic, {0: HOUR[:33], 1: HOUR[:32]})
    run_once(spark, board, options, checkpoint, "ours")
    assert board.flights() == HALF
    last = logged_batch(str(checkpoint))
    assert last.no_data_batch is not None
    forget_last_commit_of(checkpoint)
    for path in (checkpoint / "offsets").glob(f"*{last.batch_id}*"):
        path.unlink()
    depart(bootstrap, topic, {0: [*HOUR[33:], 120], 1: [*HOUR[32:], 120]})
    with pytest.raises(StreamingQueryException, match=f"the sink already contains no-data batch {last.batch_id}"):
        run_once(spark, board, options, checkpoint, "ours")
    assert board.flights() == HALF


@LONG
@pytest.mark.parametrize("board", ["kafka"], indirect=True)
@pytest.mark.parametrize("whose", ["ours", "spark's"])
@pytest.mark.parametrize("is_written", [True, False])
def test_F5_the_remedy_if_kafka_has_forgotten_whether_a_batch_that_reads_nothing_is_written(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    board: Board,
    whose: str,
    is_written: bool,
) -> None:
    topic = new_topic(2, retention_ms="-1")
    checkpoint = tmp_path / "checkpoint"
    options = shared_options(bootstrap, group, topic, "classic") | {"membership": "exclusive"}
    depart(bootstrap, topic, {0: HOUR[:33], 1: HOUR[:32]})
    run_once(spark, board, options, checkpoint, whose)
    assert board.flights() == HALF
    forget_last_commit_of(checkpoint)
    if not is_written:
        ends = [KafkaPartition(board.sink.topic, p, OFFSET_END) for p in range(2)]
        for deleted in admin.delete_records(ends).values():
            deleted.result(30)
    wait_until_group_is_empty(admin, group)
    for it in (group, no_data_group_of(group)):
        admin.delete_consumer_groups([it])[it].result(30)
    with pytest.raises(StreamingQueryException, match="only the entry shows whether its output is written") as raised:
        run_once(spark, board, options, checkpoint, whose)
    if is_written:
        source, target = re.findall(r"commits/\d+", str(raised.value))[:2]
        shutil.copy(checkpoint / source, checkpoint / target)
    else:
        for partition, offset in ((0, 33), (1, 32)):
            place = ["--topic", f"{topic}:{partition}", "--to-offset", str(offset)]
            done = streamgroups("groups", "reset", group, *place, "--execute", "-b", bootstrap)
            assert done.returncode == 0, done.stdout + done.stderr
    run_once(spark, board, options, checkpoint, whose)
    assert board.flights() == HALF
    depart(bootstrap, topic, {0: [*HOUR[33:], 120], 1: [*HOUR[32:], 120]})
    run_once(spark, board, options, checkpoint, whose)
    assert board.flights() == WHOLE


@LONG
def test_a_zombie_that_began_before_the_batch_was_recorded(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    """X3: an older run is frozen before it reads the positions, and resumes after a newer run has finished a batch. It
    begins and must not commit.
    """
    topic, to = new_topic(2, retention_ms="-1"), new_topic(2)
    checkpoint = str(tmp_path / "checkpoint")
    depart(bootstrap, topic, {0: HOUR[:33], 1: HOUR[:32]})
    timed = sg.with_event_time(
        departures(spark, shared_options(bootstrap, group, topic, "classic") | {"membership": "exclusive"}),
        "timestamp",
        watermark_delay="0s",
    )
    board = Board(sg.KafkaSink(bootstrap_servers=bootstrap, topic=to), lambda: in_kafka(bootstrap, to))
    run(sg.exactly_once(board.rows(windows(timed)), sink=board.sink, checkpoint=checkpoint))
    assert board.flights() == HALF
    no_data = logged_batch(checkpoint)
    assert no_data.no_data_batch is not None
    # As sg.exactly_once sets it for a query that is the only member of its group.
    own_id = {"kafka.transactional.id": transactional_id_of(group)}
    options = parse_sink({**board.sink.options, **own_id, "checkpointLocation": checkpoint, "group.id": group})
    zombie = KafkaStreamWriter(options, SESSION, 1)
    with closing(Transactions(options.client, transactional_id_of(group), timeout_ms=10_000)) as transactions:
        begun = transactions.begin()
    again = pa.record_batch({"value": pa.array([f"{START_MS} 10".encode()], pa.binary())})
    output = OutputSettings(options.topic, options.batches, options.with_headers, 1)
    written = write_records(iter([again]), options.client, output, begun, task=0)
    assert written.records == 1
    zombie.commit([TaskOutput(begun, written, written.records, batch=no_data)], no_data.batch_id)
    assert board.flights() == HALF


@pytest.mark.long
def test_kill_after_the_commit_of_a_batch_that_reads_nothing(
    rocksdb: None,
    spark: SparkSession,
    admin: AdminClient,
    bootstrap: str,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
) -> None:
    """An idle source closes the windows of our own state. The program is killed between the sink's commit and Spark's
    entry in the commit log.
    """
    topic, to = new_topic(2, retention_ms="-1"), new_topic(2)
    requested: dict[str, Any] = {
        "options": shared_options(bootstrap, group, topic, "classic") | {"membership": "exclusive"},
        "checkpoint": str(tmp_path / "checkpoint"),
        "event_time": {"watermark_delay": "0s"},
        "windows": {"idle_timeout": "2s"},
        "to": {"bootstrap_servers": bootstrap, "topic": to},
    }
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    (deaths / "after-commit").write_text("windows")
    dying = str(Path(__file__).parent / "dying")
    killable = {
        "STREAMGROUPS_DEATHS": str(deaths),
        "STREAMGROUPS_MEMBER": "windows",
        "PYTHONPATH": os.pathsep.join([dying, *sys.path]),
    }
    depart(bootstrap, topic, {0: [0, 1, 6], 1: [2]})
    with running("windows_query", requested, tmp_path / "log", killable) as program:

        def is_reached() -> bool:
            program.check()
            reached = next(deaths.glob("reached.*"), None)
            if reached is None or read_committed(bootstrap, to):
                return reached is not None
            # The batch that read the flights and closed no window. The next batch may have started.
            (deaths / "after-commit").write_text("windows")
            reached.unlink()
            return False

        wait_until(is_reached, "windows are committed", timeout_s=120)
    seen = logged_batch(requested["checkpoint"])
    assert seen.no_data_batch is not None
    assert not (tmp_path / "checkpoint" / "commits" / str(seen.batch_id)).exists()
    # An exclusive query is rejected as long as the killed one is a member.
    wait_until_group_is_empty(admin, group)
    again = windows_query.start(spark, requested)
    try:
        depart(bootstrap, topic, {0: [31], 1: [30]})
        wait_until(lambda: len(read_committed(bootstrap, to)) >= 3, "the next windows are there", timeout_s=60)
    finally:
        again.stop()
    reported = [json.loads(m.value) for m in read_committed(bootstrap, to)]
    assert sorted((row["minute"], row["flights"]) for row in reported) == [(0, 3), (5, 1), (30, 2)]
