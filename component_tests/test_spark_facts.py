"""The private facts of Spark and PySpark on which this library depends: one test for each of them, with one small query.

A new PySpark can change any of them. The failure of a test names the fact, the version and the modules that depend on it.
``internals.private_spark`` lists the versions that have been seen. ``make test-matrix`` runs this file with all of them.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from component_tests.tiny_source import NAME, ROWS, TinySource, attempt_id
from streamgroups.checkpoints.spark_logs import parse_offsets
from streamgroups_spark.bridge import direct, plan
from streamgroups_spark.bridge.active_queries import ActiveQueries
from streamgroups_spark.bridge.channel import Channel
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.bridge.direct import Conversion, DirectColumn, direct_records
from streamgroups_spark.bridge.plan import (
    STAGE,
    analyzed,
    columns_of,
    leaves,
    read_streams,
    source_name,
    source_options,
)
from streamgroups_spark.internals import pickle_checks, private_spark
from streamgroups_spark.internals.kept_progress import DEFAULT_RETENTION, MIN_RETENTION, RETENTION
from streamgroups_spark.internals.pickle_checks import shipped_class, shipped_function
from streamgroups_spark.internals.private_spark import main_module, number_for_each_task, pickled, unpickled
from streamgroups_spark.internals.spark_api import to_arrow_schema
from streamgroups_spark.messages.query import DurationRequest, FinishedRequest, QueryFacts, QueryRequest
from streamgroups_testkit.waits import wait_until


@dataclass(frozen=True, slots=True)
class Ran:
    """A query that has written one batch, and still runs.

    Args:
        spark: the session.
        rows: its rows.
        query: the query.
        directory: the records of its processes.
        reports: what its tasks have sent by an accumulator.
    """

    spark: SparkSession
    rows: DataFrame
    query: StreamingQuery
    directory: Path
    reports: list[str]

    @property
    def checkpoint(self) -> str:
        """Its checkpoint."""
        return str(self.directory / "checkpoint")

    @property
    def source(self) -> dict[str, Any]:
        """The process of its source."""
        found: dict[str, Any] = json.loads((self.directory / "source.json").read_text(encoding="utf-8"))
        return found

    @property
    def in_jvm(self) -> Any:
        """Spark's object of the query."""
        [query] = private_spark.active_queries(self.spark)
        return query

    @property
    def written(self) -> list[Any]:
        """The attempts of reader and function, and the module of the process, for each row."""
        return [json.loads(line) for line in (self.directory / "rows").read_text(encoding="utf-8").splitlines()]


Check: TypeAlias = Callable[[Ran], None]


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about Spark.

    Args:
        text: the fact.
        modules: the modules of ``streamgroups_spark`` that depend on it.
        check: raises if it is not true.
    """

    text: str
    modules: str
    check: Check


FACTS: list[Fact] = []


def fact(text: str, modules: str) -> Callable[[Check], Check]:
    """Adds a fact. The name of its function is the name of the test."""

    def add(check: Check) -> Check:
        FACTS.append(Fact(text, modules, check))
        return check

    return add


def stage(channel: Channel[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function of ``mapInArrow`` that adds the attempt of its task, and the module of its process."""

    def function(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            channel.send([f"{batch.num_rows} rows"])
            own = {"attempt": [attempt_id()] * batch.num_rows, "main": [main_module()] * batch.num_rows}
            yield pa.record_batch({**{name: batch[name] for name in batch.schema.names}, **own})

    function.__name__ = f"{STAGE}facts:flushes"
    return function


# ---- plans -------------------------------------------------------------------------------------------------------------


@fact("the leaf of a stream in the analyzed plan is StreamingRelationV2, with its format and options", "bridge.plan")
def leaf_of_a_stream(ran: Ran) -> None:
    [leaf] = leaves(analyzed(ran.rows))
    assert plan.is_data_source(leaf)
    assert leaf.isStreaming()
    assert source_name(leaf) == NAME
    assert source_options(leaf)["group.id"] == "facts"


@fact("the leaf of bounded data is DataSourceV2Relation, with the name of its table and its options", "bridge.plan")
def leaf_of_bounded_data(ran: Ran) -> None:
    bounded = ran.spark.read.format(NAME).options(directory=str(ran.directory)).load()
    [leaf] = leaves(analyzed(bounded))
    assert (leaf.nodeName(), source_name(leaf)) == ("DataSourceV2Relation", NAME)
    assert source_options(leaf) == {"directory": str(ran.directory)}


@fact(
    "all queries of a registered source share one map of environment variables, of the class that it was registered with",
    "internals.private_spark",
)
def environment_of_a_source(ran: Ran) -> None:
    in_jvm: Any = ran.spark
    manager = in_jvm._jsparkSession.sessionState().dataSourceManager()
    shared = manager.lookupDataSource(NAME).dataSourceCls().envVars()
    assert shared.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert shared.containsKey("SPARK_LOCAL_DIRS"), "Spark has put it there at the start of the query"
    assert isinstance(ran.spark.sparkContext.environment, dict)


@fact("a SparkContext shows whether it has stopped", "internals.private_spark, bridge.active_queries")
def end_of_an_application(ran: Ran) -> None:
    # A stop in Python removes the object of the JVM. No session of these tests may stop the shared application.
    assert not private_spark.has_stopped(ran.spark)


@fact("the plan contains the name of a function of mapInArrow", "bridge.plan, bridge.stage_name, state.stage")
def name_of_a_function(ran: Ran) -> None:
    [stream] = read_streams(analyzed(ran.rows))
    assert stream.stages == ("facts:flushes",)


@fact(
    "repartition by an int sends a row to the task pmod(Murmur3 of it, tasks)",
    "internals.private_spark, sinks.exactly_once",
)
def tasks_of_numbers(ran: Ran) -> None:
    numbers = number_for_each_task(7)
    rows = ran.spark.createDataFrame([(it,) for it in numbers], "number int").repartition(7, "number")
    assert [
        it.number for it in rows.select("number", F.spark_partition_id().alias("task")).orderBy("task").collect()
    ] == numbers


@fact("a column keeps the id of its expression if it is selected, and has another one if it is computed", "bridge.plan")
def ids_of_columns(ran: Ran) -> None:
    records = _records(ran)
    own, selected = columns_of(next(leaves(analyzed(records)))), columns_of(analyzed(records.select("offset", "key")))
    assert {own[it] for it in selected} == {"offset", "key"}
    assert own.keys().isdisjoint(columns_of(analyzed(records.select(F.upper("key").alias("key")))))


@fact(
    "Project, Alias, Cast, UnixMillis and EventTimeWatermark are the nodes of selected and converted columns, and of a watermark",
    "bridge.direct",
)
def nodes_of_direct_records(ran: Ran) -> None:
    records = _records(ran).withColumn("key", F.expr("cast(key AS string)")).withWatermark("timestamp", "1 second")
    chosen = records.select("partition", F.col("key").alias("k0"), F.unix_millis("timestamp").alias("time"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "FORMAT", NAME)
        found = direct_records(chosen)
        assert direct_records(chosen.where("time > 0")) is None, "a filter needs the records"
    assert found is not None
    assert found.columns == (
        DirectColumn("partition", "partition"),
        DirectColumn("k0", "key", Conversion.TEXT),
        DirectColumn("time", "timestamp", Conversion.MILLISECONDS),
    )
    assert found.event_times == {"timestamp"}


@fact("the optimizer moves no filter past one with spark_partition_id()", "event_time.with_event_time")
def filters_that_stay(ran: Ran) -> None:
    timed = _records(ran).withWatermark("timestamp", "1 second")
    stays = timed.where(F.col("timestamp").isNotNull() & (F.spark_partition_id() >= 0)).where("key is not null")
    in_jvm: Any = stays
    explained = in_jvm.sparkSession._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.explainString(
        in_jvm._jdf.queryExecution(), "extended"
    )
    lines = explained.partition("== Optimized Logical Plan ==")[2].splitlines()
    order = [
        next((i for i, line in enumerate(lines) if it in line), -1)
        for it in ("isnotnull(key", "PARTITION_ID", "EventTimeWatermark")
    ]
    assert -1 not in order, lines
    assert order == sorted(order), lines


# ---- queries -----------------------------------------------------------------------------------------------------------


@fact(
    "the fields logicalPlan, runner, pythonWorkerFactory and simpleWorkers lead from a query to the process of its source",
    "internals.private_spark, bridge.active_queries",
)
def query_of_a_process(ran: Ran) -> None:
    found = ActiveQueries(ran.spark).answer(QueryRequest(frozenset(ran.source["ids"]), "other"))
    assert isinstance(found, QueryFacts), "no query has this process"
    assert found.is_read_once
    assert found.stages == {("facts:flushes",)}
    assert not found.operators | found.unknown_operators
    assert found.checkpoint == f"file:{ran.checkpoint}"
    assert found.trigger == "ProcessingTimeTrigger"


@fact("a query has its committed offsets by its source, and the JSON of its progress", "bridge.active_queries")
def finished_batch(ran: Ran) -> None:
    active, ids = ActiveQueries(ran.spark), frozenset(ran.source["ids"])
    active.answer(QueryRequest(ids, "facts"))
    assert active.answer(FinishedRequest(ids, {"next": ROWS})) is True
    assert active.answer(FinishedRequest(ids, {"next": ROWS + 1})) is False
    assert isinstance(active.answer(DurationRequest(ids, {"next": ROWS})), int)


@fact(
    "a query has its committed offsets by its source, and its session the number of kept reports of progress",
    "internals.private_spark, internals.kept_progress, ops.run_progress, bridge.active_queries",
)
def committed_offsets(ran: Ran) -> None:
    assert [json.loads(it or "") for it in private_spark.committed_offsets(ran.query)] == [{"next": ROWS}]
    assert private_spark.progress_retention(ran.query) == DEFAULT_RETENTION
    assert ran.in_jvm.sparkSession().conf().get(RETENTION) == str(DEFAULT_RETENTION)


@fact("the definition of a temporary view can be taken out of a session and put back", "internals.private_spark")
def views(ran: Ran) -> None:
    ran.spark.sql("CREATE OR REPLACE TEMPORARY VIEW input AS SELECT 42 AS mine")
    try:
        with private_spark.view_of(ran.spark.range(2), "input"):
            assert ran.spark.table("input").count() == 2
        assert [row.mine for row in ran.spark.table("input").collect()] == [42]
    finally:
        ran.spark.catalog.dropTempView("input")
    with private_spark.view_of(ran.spark.range(2), "input"):
        pass
    assert not ran.spark.catalog.tableExists("input")


@fact("with a retention of 2 Spark keeps one report of progress, and with 1 none", "internals.kept_progress")
def kept_progress(ran: Ran) -> None:
    assert [len(_progress_of_a_query(ran, it)) for it in (MIN_RETENTION, MIN_RETENTION - 1)] == [1, 0]


def _progress_of_a_query(ran: Ran, retention: int) -> list[Any]:
    """The progress that Spark has kept after some batches."""
    ran.spark.conf.set(RETENTION, str(retention))
    try:
        rows = ran.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        checkpoint = str(ran.directory / f"retention-{retention}")
        query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        wait_until(
            lambda: any(json.loads(it or "")["offset"] > 2 for it in private_spark.committed_offsets(query)), "batches"
        )
        query.stop()
        return list(query.recentProgress)
    finally:
        ran.spark.conf.unset(RETENTION)


@fact(
    "the sink of a query in Python is a PythonTable with its format, and the field extraOptions its options",
    "internals.private_spark, bridge.active_queries",
)
def sink_of_a_query(ran: Ran) -> None:
    sink = ran.in_jvm.sink()
    assert (sink.getClass().getSimpleName(), str(sink.name())) == (private_spark.PYTHON_SINK, NAME)
    options = private_spark.PrivateFields(ran.spark).sink_options(ran.in_jvm)
    assert options["topic"] == "facts"


@fact("Spark resolves the checkpoint of a query to a URI", "ops.supervise, internals.private_spark")
def checkpoint_of_a_query(ran: Ran) -> None:
    assert private_spark.checkpoint_of(ran.query) == f"file:{ran.checkpoint}"
    assert private_spark.qualified_path(ran.spark, ran.checkpoint) == f"file:{ran.checkpoint}"


@fact(
    "the offset log, the commit log and metadata of a checkpoint have version v1 and Spark's fields",
    "bridge.checkpoint_log",
)
def logs_of_a_checkpoint(ran: Ran) -> None:
    log = CommitLog(ran.checkpoint)
    assert (log.newest(), log.is_done(0)) == (0, True)
    assert [*log.ends(0).values()] == [{"next": ROWS}]
    assert log.query_id() == ran.query.id
    assert log.has_finished({"next": ROWS})
    assert not log.has_state()
    assert abs(parse_offsets(log.offsets(0)).time_ms - dt.datetime.now().timestamp() * 1_000) < 3_600_000


# ---- processes ---------------------------------------------------------------------------------------------------------


@fact(
    "__main__ of a source is Spark's runner of sources, and that of a task begins with pyspark.",
    "internals.python_worker",
)
def modules_of_processes(ran: Ran) -> None:
    assert ran.source["main"] == private_spark.SOURCE_RUNNER
    assert all(main.startswith(private_spark.PROCESSES) for _, _, main in ran.written)


@fact("the environment of a task has a local directory of its executor", "state.stage")
def directory_of_a_task(ran: Ran) -> None:
    [found] = ran.spark.sparkContext.parallelize([0], 1).map(lambda _: str(private_spark.local_directory())).collect()
    assert Path(found).is_dir()
    assert Path(found).name.startswith("blockmgr-"), "Spark does not delete it"


@fact("reader and function of one stage have the id of the same attempt", "bridge.handoff, state.stage")
def attempts_of_a_task(ran: Ran) -> None:
    assert len(ran.written) == ROWS
    assert all(reader == function for reader, function, _ in ran.written)


@fact("Spark merges the accumulator of a task before the batch ends", "bridge.channel")
def accumulators(ran: Ran) -> None:
    assert ran.reports == [f"{ROWS} rows"]


@fact(
    "Spark pickles a writer on the driver after it has logged the offsets of the batch, and before the commit",
    "bridge.pickled_begin, sinks.base",
)
def begin_of_a_batch(ran: Ran) -> None:
    lines = (ran.directory / "pickled").read_text(encoding="utf-8").splitlines()
    assert lines, "Spark has not pickled it"
    assert all(json.loads(line)[1:] == [True, False] for line in lines), lines


@fact("a class that Spark pickles has the bases that __mro_entries__ replaces", "internals.pickle_checks")
def bases_of_a_pickled_class(ran: Ran) -> None:
    made = shipped_class(TinySource, {"session": "5f2c"})
    again = unpickled(pickled(made))
    assert (again.__mro__[1], again.session, again.name()) == (TinySource, "5f2c", NAME)
    assert b"base_named" in pickled(made), "the base is pickled without the check of the library"


@fact("cloudpickle pickles the attributes of a nested function before its globals", "internals.pickle_checks")
def attributes_of_a_pickled_function(ran: Ran) -> None:
    def length(values: Any) -> int:
        return len(TinySource.name()) + len(values)

    found = pickled(shipped_function(length))
    assert unpickled(found)("ab") == len(NAME) + 2
    assert 0 <= found.find(b"CHECK") < found.find(TinySource.__module__.encode()), "the check comes too late"
    assert pickle_checks.CHECK is not None


# ---- sessions and types ------------------------------------------------------------------------------------------------


@fact("SparkSession._activeSession and the active session of the JVM belong to the thread", "internals.active_session")
def active_session(ran: Ran) -> None:
    found = []

    def other_thread() -> None:
        with private_spark.active_in_thread(ran.spark):
            found.append(SparkSession.getActiveSession())

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert found == [ran.spark]


@fact("SparkConf has the master of the start of the JVM", "workers.worker_session")
def master_of_the_configuration(ran: Ran) -> None:
    assert private_spark.configured_master({}) == ran.spark.sparkContext.master


@fact(
    "SparkContext._gateway calls the JVM, and the status tracker counts the driver as an executor",
    "ops.supervise, ops.executors",
)
def status_of_the_application(ran: Ran) -> None:
    assert not private_spark.jvm_is_gone()
    assert pyspark.SparkContext._gateway is not None
    assert private_spark.registered_executors(ran.spark) == 0


@fact("PySpark converts types from SQL, from Arrow and to Arrow", "internals.spark_api, dlq, decoding")
def types(ran: Ran) -> None:
    row = private_spark.type_of("struct<at: timestamp, n: bigint>")
    assert row.simpleString() == "struct<at:timestamp,n:bigint>"
    assert private_spark.type_of("TIMESTAMP_LTZ").simpleString() == "timestamp"
    schema = to_arrow_schema(ran.spark.createDataFrame([], "at timestamp, n bigint").schema, timezone="UTC")
    assert schema == pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    local = private_spark.from_arrow_type(pa.timestamp("us"), prefer_timestamp_ntz=True)
    assert local.simpleString() == "timestamp_ntz"


@fact(
    "Spark ends the process of a source with SIGTERM, and SystemExit passes through its runner to stop",
    "internals.python_worker",
)
def end_of_a_source(ran: Ran) -> None:
    ran.query.stop()
    wait_until((ran.directory / "stopped").exists, "the source is stopped")


def _records(ran: Ran) -> DataFrame:
    return ran.spark.readStream.format(NAME).options(directory=str(ran.directory)).load()


# ---- the test ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ran(local_spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    directory, reports = tmp_path_factory.mktemp("facts"), list[str]()
    private_spark.register_source(local_spark, TinySource)
    channel: Channel[str] = Channel(local_spark, reports.extend)
    options = {"directory": str(directory), "group.id": "facts"}
    records = local_spark.readStream.format(NAME).options(**options).load()
    rows = records.mapInArrow(
        stage(channel), "key binary, partition int, offset bigint, timestamp timestamp, attempt bigint, main string"
    )
    writer = rows.writeStream.format(NAME).options(directory=str(directory), topic="facts")
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    try:
        query.processAllAvailable()
        yield Ran(local_spark, rows, query, directory, reports)
    finally:
        query.stop()


#: Changes of facts, by the name of the check: the patched name and its value.
CHANGES: dict[str, tuple[str, Any]] = {
    "leaf_of_a_stream": ("bridge.plan.is_data_source", lambda leaf: leaf.nodeName() == "StreamingRelationV3"),
    "name_of_a_function": ("bridge.plan.STAGE", "other:"),
    "query_of_a_process": ("internals.private_spark.PrivateFields.process_ids", lambda *_: iter(())),
    "sink_of_a_query": ("internals.private_spark.PYTHON_SINK", "PythonSink"),
    "modules_of_processes": ("internals.private_spark.SOURCE_RUNNER", "pyspark.sql.streaming.runner"),
    "logs_of_a_checkpoint": ("bridge.checkpoint_log.CommitLog.newest", lambda _: None),
    "active_session": ("internals.private_spark.active_in_thread", lambda _: nullcontext()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_fact_has_a_clear_text(ran: Ran, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    [known] = [it for it in FACTS if it.check.__name__ == name]
    target, value = CHANGES[name]
    known.check(ran)
    monkeypatch.setattr(f"streamgroups_spark.{target}", value)
    with pytest.raises(pytest.fail.Exception) as failure:
        test_a_fact_of_spark(ran, known)
    message = f"PySpark {pyspark.__version__}: this private fact is not true: {known.text}. "
    assert str(failure.value).startswith(
        f"{message}These modules of streamgroups_spark depend on it: {known.modules}. "
    )


@pytest.mark.parametrize("name", sorted({name for it in FACTS for name in it.modules.split(", ")}))
def test_a_module_that_depends_on_a_fact_exists(name: str) -> None:
    assert find_spec(f"streamgroups_spark.{name}") is not None


@pytest.mark.parametrize("known", FACTS, ids=lambda it: it.check.__name__)
def test_a_fact_of_spark(ran: Ran, known: Fact) -> None:
    try:
        known.check(ran)
    except Exception as e:
        pytest.fail(
            f"PySpark {pyspark.__version__}: this private fact is not true: {known.text}. These modules of streamgroups_spark "
            f"depend on it: {known.modules}. {type(e).__name__}: {e}",
            pytrace=False,
        )
