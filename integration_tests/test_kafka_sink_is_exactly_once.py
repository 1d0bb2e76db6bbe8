"""X1, X2, X4: one transaction commits the Kafka output of a query and its positions: no record is lost or
duplicated.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.readwriter import DataStreamWriter

import streamgroups as sg
from integration_tests.tiers import EITHER_PROTOCOL, LONG
from integration_tests.transaction_process import config_of
from streamgroups.errors import FencedMember, InvalidOption, UnknownTopic
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups_kafka.transactions.coordinator import Transactions
from streamgroups_kafka.write.partitioner import partitions_of_keys
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_spark.sinks.kafka import transactional_id_of
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_metadata, committed_offsets, read_committed
from streamgroups_testkit.waits import wait_until

N = 400
#: Three batches or more of the records of a test.
SEVERAL_BATCHES = {"maxOffsetsPerTrigger": "150"}


@pytest.fixture
def flights(bootstrap: str, new_topic: Callable[..., str]) -> str:
    """A topic of records with keys."""
    topic = new_topic(4)
    produce(bootstrap, topic, N, partitions=4)
    return topic


class Query:
    """A query from one topic to another, which runs until it has read all records."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, group: str, checkpoint: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.group = spark, bootstrap, topic, group
        self.checkpoint = str(checkpoint)

    def options(self, **options: str) -> dict[str, str]:
        usual = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "group.id": self.group,
            "startingOffsets": "earliest",
            # With KIP-848 the broker configures the timeout.
            **({} if "kafka.group.protocol" in options else {"kafka.session.timeout.ms": "6000"}),
        }
        return {**usual, **options}

    def source(self, **options: str) -> DataFrame:
        return self.spark.readStream.format("streamgroups").options(**self.options(**options)).load()

    def exactly_once(self, df: DataFrame, topic: str | None, **arguments: Any) -> DataStreamWriter:
        sink = sg.KafkaSink(**{"bootstrap_servers": self.bootstrap, "topic": topic, **arguments})
        return sg.exactly_once(df, sink=sink, checkpoint=self.checkpoint)

    def plain(self, df: DataFrame, topic: str, **options: str) -> DataStreamWriter:
        to = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, "checkpointLocation": self.checkpoint}
        return df.writeStream.format("streamgroups").options(**to, **options)


def run(writer: DataStreamWriter) -> int:
    """Runs a query until it has read all records; returns the number of batches with records."""
    # Before Spark 4.2 the trigger ``availableNow`` has a single batch.
    query = (writer.trigger(availableNow=True) if FEATURES.passes_start else writer).start()
    try:
        if FEATURES.passes_start:
            assert query.awaitTermination(120)
        else:
            query.processAllAvailable()
        return sum(p.numInputRows > 0 for p in query.recentProgress)
    finally:
        query.stop()


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, flights: str, group: str, tmp_path: Path) -> Query:
    """See `Query`."""
    return Query(spark, bootstrap, flights, group, tmp_path / "checkpoint")


def values(bootstrap: str, topic: str) -> Counter[str]:
    return Counter(m.value.decode().rstrip(".") for m in read_committed(bootstrap, topic))


def forget_last_commit_of(checkpoint: Path) -> None:
    """Leaves the checkpoint of a driver that failed between the commit of the sink and Spark's entry in the
    commit log.
    """
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()


ALL = Counter(map(str, range(N)))


@EITHER_PROTOCOL
def test_X2_output_and_offsets_of_several_batches(query: Query, new_topic: Callable[..., str], protocol: str) -> None:
    board = new_topic(3)
    source = query.source(**{"kafka.group.protocol": protocol}, **SEVERAL_BATCHES)
    assert run(query.exactly_once(source.select("key", "value"), board)) >= 3
    assert values(query.bootstrap, board) == ALL
    assert committed_offsets(query.bootstrap, query.group, query.topic) == dict.fromkeys(range(4), N // 4)
    # Records go to the partitions that Kafka's own clients choose.
    found = read_committed(query.bootstrap, board)
    where = partitions_of_keys(pa.array([m.key for m in found]), 3).to_pylist()
    assert [m.partition for m in found] == where
    assert len(set(where)) == 3


@pytest.mark.parametrize(
    ("columns", "partitions"),
    [
        (["value", "partition"], 4),
        # Fewer partitions than tasks.
        pytest.param(["value"], 1, marks=LONG),
        *(pytest.param(it, 4, marks=LONG) for it in (["value"], ["value", "headers", "timestamp"])),
    ],
)
def test_records_without_a_key(
    query: Query, new_topic: Callable[..., str], columns: list[str], partitions: int
) -> None:
    board = new_topic(partitions)
    source = query.source(includeHeaders="true", minPartitions="4")
    run(query.exactly_once(source.select(*columns), board))
    found = read_committed(query.bootstrap, board)
    assert Counter(m.value.decode().rstrip(".") for m in found) == ALL
    if "partition" in columns:
        assert all(int(m.value.rstrip(b".")) % 4 == m.partition for m in found)


@LONG
def test_several_topics_by_the_column(query: Query, new_topic: Callable[..., str]) -> None:
    even, odd = new_topic(2), new_topic(3)
    number = F.col("key").cast("string").cast("int")
    to = F.when(number % 2 == 0, even).otherwise(odd).alias("topic")
    run(query.exactly_once(query.source().select("key", "value", to), None))
    assert values(query.bootstrap, even) + values(query.bootstrap, odd) == ALL
    assert all(int(v) % 2 == 0 for v in values(query.bootstrap, even))


@LONG
def test_X1_at_least_once_and_the_plain_format(query: Query, new_topic: Callable[..., str]) -> None:
    board = new_topic(3)
    run(query.plain(query.source().select("key", "value"), board, delivery="at-least-once"))
    assert values(query.bootstrap, board) == ALL
    query.checkpoint, query.group = f"{query.checkpoint}-2", f"{query.group}-2"
    again = new_topic(4)
    run(query.plain(query.source().select("value"), again, **{"kafka.compression.type": "zstd"}))
    assert values(query.bootstrap, again) == ALL


@LONG
def test_X4_a_new_checkpoint_and_a_lost_one_repeat_nothing(query: Query, new_topic: Callable[..., str]) -> None:
    board = new_topic(3)
    first = query.source().select("key", "value")
    run(query.exactly_once(first, board))
    for _ in range(2):
        produce(query.bootstrap, query.topic, 10, partitions=4, first=N)
        query.checkpoint = f"{query.checkpoint}-again"
        run(query.exactly_once(first, board))
    assert values(query.bootstrap, board) == ALL + Counter({str(n): 2 for n in range(N, N + 10)})


@pytest.fixture
def named_sources(spark: SparkSession) -> Iterator[None]:
    """Named sources; Spark stores the names in version 2 of its offset log."""
    settings = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@LONG
def test_a_source_with_a_name(named_sources: None, query: Query, new_topic: Callable[..., str]) -> None:
    """A batch is identified by the offsets of its source, whose line begins with the name; also the last batch of a
    stopped query.
    """
    board = new_topic(2)
    reader = query.spark.readStream.name("flights_of_today").format("streamgroups")
    options = query.options()
    run(query.exactly_once(reader.options(**options).load().select("key", "value"), board))
    offsets = (Path(query.checkpoint) / "offsets" / "0").read_text().splitlines()
    assert (offsets[0], offsets[2].partition(":")[0]) == ("v2", "flights_of_today")
    forget_last_commit_of(Path(query.checkpoint))
    produce(query.bootstrap, query.topic, 10, partitions=4, first=N)
    again = query.spark.readStream.name("flights_of_today").format("streamgroups").options(**options).load()
    run(query.exactly_once(again.select("key", "value"), board))
    assert values(query.bootstrap, board) == Counter(map(str, range(N + 10)))


def leave_unstarted(checkpoint: Path) -> None:
    """Leaves the checkpoint of a query that was killed while Spark wrote the offsets of the first batch."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}')
    for name in (f".0.{uuid.uuid4()}.tmp", f"..0.{uuid.uuid4()}.tmp.crc"):
        (checkpoint / "offsets" / name).write_bytes(b"v1")


@LONG
def test_a_kill_before_the_first_batch(query: Query, new_topic: Callable[..., str]) -> None:
    board, records = new_topic(2), query.source().select("key", "value")
    leave_unstarted(Path(query.checkpoint))
    with pytest.raises(StreamingQueryException, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        run(query.plain(records, board))
    run(query.exactly_once(records, board))
    assert values(query.bootstrap, board) == ALL


@LONG
def test_a_kill_before_the_first_batch_of_a_supervised_query(query: Query) -> None:
    leave_unstarted(Path(query.checkpoint))
    writer = query.source().writeStream.format("noop").option("checkpointLocation", query.checkpoint)
    outcome = sg.supervise(lambda: writer.trigger(availableNow=True).start())
    assert outcome.restarts == 1
    assert committed_offsets(query.bootstrap, query.group, query.topic) == dict.fromkeys(range(4), N // 4)


def test_X3_an_exclusive_query_fences_its_older_runs(query: Query, new_topic: Callable[..., str]) -> None:
    """The older run is fenced independently of its checkpoint. But a query that is rejected later does not fence the
    running one.
    """
    board, client = new_topic(1), config_of(query.bootstrap)
    alone = query.source(membership="exclusive").select("key", "value")
    holder = Consumer({"bootstrap.servers": query.bootstrap, "group.id": query.group})
    with closing(holder), closing(Transactions(client, transactional_id_of(query.group))) as older:
        holder.subscribe([query.topic])
        wait_until(lambda: holder.poll(0.1) or holder.assignment(), "the group has a member")
        begun = older.begin()
        query.exactly_once(alone, board).start().stop()
        older.abort(begun)
        older.begin()
        holder.close()
        query.exactly_once(alone, board).start().stop()
        with pytest.raises(FencedMember):
            older.begin()


def test_X2_a_batch_that_is_run_again_after_its_commit_writes_nothing(
    query: Query, new_topic: Callable[..., str]
) -> None:
    """Spark has lost its entry in the commit log; the output and the group's offsets are committed."""
    board = new_topic(3)
    stateless = query.source(**SEVERAL_BATCHES).select("key", "value")
    run(query.exactly_once(stateless, board))
    forget_last_commit_of(Path(query.checkpoint))
    produce(query.bootstrap, query.topic, 10, partitions=4, first=N)
    run(query.exactly_once(stateless, board))
    assert values(query.bootstrap, board) == Counter(map(str, range(N + 10)))


@LONG
def test_X1_state_is_exactly_once_too(query: Query, new_topic: Callable[..., str]) -> None:
    """A batch that is run again is read again for its state, and its output is not written again."""
    board = new_topic(2)
    seen_first = (
        query.source(membership="exclusive", **SEVERAL_BATCHES).select("key", "value").dropDuplicates(["value"])
    )
    run(query.exactly_once(seen_first, board))
    forget_last_commit_of(Path(query.checkpoint))
    run(query.exactly_once(seen_first, board))
    assert values(query.bootstrap, board) == ALL
    # The state contains all records, also those of the batch that was read twice.
    produce(query.bootstrap, query.topic, N + 10, partitions=4)
    run(query.exactly_once(seen_first, board))
    assert values(query.bootstrap, board) == Counter(map(str, range(N + 10)))


@LONG
def test_X2_two_groups_in_one_session_are_not_taken_for_each_other(query: Query, new_topic: Callable[..., str]) -> None:
    """Both read the same ranges in batches with the same numbers. Requests for a batch are served by the source of its
    own group.
    """
    topics_read = [new_topic(2) for _ in range(3)]
    groups = [f"{query.group}-{i}" for i in range(3)]
    queries = []
    try:
        for board, query.group in zip(topics_read, groups, strict=True):
            query.checkpoint = f"{query.checkpoint}-{query.group}"
            queries.append(query.exactly_once(query.source(**SEVERAL_BATCHES).select("value"), board).start())
            queries[-1].processAllAvailable()
    finally:
        for each in queries:
            each.stop()
    assert [values(query.bootstrap, board) for board in topics_read] == [ALL] * 3
    for group in groups:
        assert committed_offsets(query.bootstrap, group, query.topic) == dict.fromkeys(range(4), N // 4)
        marks = committed_metadata(query.bootstrap, group, query.topic)
        assert all(mark is not None and mark.written for mark in map(CommitMark.parse, marks.values())), (
            "its own transactions have moved it"
        )


@LONG
def test_X3_a_checkpoint_that_was_set_back_writes_nothing_again(query: Query, new_topic: Callable[..., str]) -> None:
    """The last batch had no output; the metadata of the group still contains the earlier write of the sink."""
    board = new_topic(2)
    alone = query.source(membership="exclusive", **SEVERAL_BATCHES)
    first = alone.where(F.col("key").cast("string").cast("int") < 100).select("value")
    assert run(query.exactly_once(first, board)) >= 3
    written = values(query.bootstrap, board)
    assert written == Counter(map(str, range(100)))
    for file in Path(query.checkpoint).glob("[oc]*s/*[1-9]*"):
        file.unlink()
    with pytest.raises(StreamingQueryException, match="onRestart"):
        run(query.exactly_once(first, board))
    assert values(query.bootstrap, board) == written


class TestRejections:
    """A query that cannot be exactly once is rejected before its first write, with a remedy."""

    def test_sources_of_others(self, query: Query, spark: SparkSession) -> None:
        rate = spark.readStream.format("rate").load().select(F.col("value").cast("string"))
        with pytest.raises(InvalidOption, match=r"reads a stream of format '.*rate.*'.*Read it with format"):
            query.exactly_once(rate, "out")

    def test_state_in_a_shared_group(self, query: Query) -> None:
        counted = query.source().groupBy("value").count().select("value")
        with pytest.raises(InvalidOption, match=r"is stateful \(Aggregate\).*membership=exclusive"):
            query.exactly_once(counted, "out")

    @LONG
    def test_output_of_a_batch_that_reads_nothing_and_is_not_recorded(
        self, query: Query, new_topic: Callable[..., str]
    ) -> None:
        numbers = query.source(membership="exclusive", maxOffsetsPerTrigger="10000").select(
            F.timestamp_seconds(F.col("key").cast("string").cast("int")).alias("at")
        )
        counted = numbers.withWatermark("at", "0 seconds").groupBy(F.window("at", "1 second")).count()
        counted = counted.select(F.lit("n").alias("value"))
        board = new_topic(1)
        with pytest.raises(StreamingQueryException, match=r"has read no records.*option 'group\.id'"):
            run(query.plain(counted.coalesce(1), board))
        assert not values(query.bootstrap, board)
        run(query.plain(counted.coalesce(1), board, **{"group.id": query.group}))
        assert values(query.bootstrap, board)["n"] == N - 1, "the last window is open"

    def test_a_sink_on_another_cluster(self, query: Query) -> None:
        other = Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = other.list_topics(timeout=30).brokers.values()
        there = {"bootstrap_servers": f"{broker.host}:{broker.port}"}
        values = query.source().select("value")
        with pytest.raises(
            InvalidOption, match=rf"'{query.group}' and the sink use different clusters.*delivery=at-least-once"
        ):
            query.exactly_once(values, "out", **there)
        query.exactly_once(values, "out", **there, delivery="at-least-once")

    def test_a_topic_that_is_not_there(self, query: Query) -> None:
        with pytest.raises(UnknownTopic, match=r"Topic 'nowhere' does not exist"):
            query.exactly_once(query.source().select("key", "value"), "nowhere")

    def test_a_batch(self, query: Query, spark: SparkSession) -> None:
        with pytest.raises(InvalidOption, match="not a streaming DataFrame"):
            query.exactly_once(spark.range(1).select(F.col("id").cast("string").alias("value")), "out")

    @LONG
    def test_tasks_that_share_a_partition(self, query: Query, new_topic: Callable[..., str]) -> None:
        keyed = query.source(minPartitions="4").select("key", "value")
        with pytest.raises(StreamingQueryException, match=r"Another task.*sg\.exactly_once|Several tasks"):
            run(query.plain(keyed, new_topic(1)))

    @LONG
    def test_assign(self, query: Query, new_topic: Callable[..., str]) -> None:
        assigned = query.spark.readStream.format("streamgroups").options(
            **{
                "kafka.bootstrap.servers": query.bootstrap,
                "assign": f'{{"{query.topic}":[0]}}',
                "group.id": f"{query.group}-{uuid.uuid4().hex[:4]}",
            }
        )
        with pytest.raises(StreamingQueryException, match=r"uses 'assign' and is not a member"):
            run(query.plain(assigned.load().select("value"), new_topic(2)))
