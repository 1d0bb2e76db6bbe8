"""S2, S9: which query a source belongs to, and what of it keeps state; with plans as small as they can be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import IllegalArgumentException

from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation
from streamgroups_spark.bridge.active_queries import ActiveQueries
from streamgroups_spark.bridge.plan import STAGE, read_streams
from streamgroups_spark.bridge.punctuation_options import options_of
from streamgroups_spark.internals.logical_operators import COMBINING, JOIN, KNOWN, MOVING, ROW_BY_ROW, STATEFUL
from streamgroups_spark.messages.query import FinishedRequest, QueryFacts, QueryRequest
from streamgroups_spark.messages.time import StreamTime
from streamgroups_spark.source.query_checks import form_of_query


class Seq(list[Any]):
    """A sequence of Scala's."""

    def size(self) -> int:
        return len(self)

    def apply(self, i: int) -> Any:
        return self[i]


@dataclass
class Node:
    """A node of a plan; without children a stream, unless it is a table."""

    name: str
    below: Seq = field(default_factory=Seq)
    source: Any = None
    options: dict[str, str] = field(default_factory=dict)
    cte: int = 0
    is_table: bool = False
    function: str = "split"

    def nodeName(self) -> str:
        return self.name

    def children(self) -> Seq:
        return self.below

    def isStreaming(self) -> bool:
        return not self.is_table

    def stream(self) -> Any:
        source = MagicMock()
        source.equals = lambda other: other is self.source
        return source

    def relation(self) -> Any:
        relation = MagicMock()
        relation.options = lambda: self.options
        return relation

    def functionExpr(self) -> Any:
        return MagicMock(**{"name.return_value": self.function})

    def extraOptions(self) -> dict[str, str]:
        return self.options

    def id(self) -> int:
        return self.cte

    cteId = id  # noqa: N815


def over(name: str, *below: Node, cte: int = 0) -> Node:
    return Node(name, Seq(below), cte=cte)


def scan(source: Any = None, group_id: str = "board") -> Node:
    return Node("StreamingDataSourceV2ScanRelation", source=source, options={"group.id": group_id})


TABLE = Node("Relation", is_table=True)
TRIGGER = "AvailableNowTrigger"


@pytest.mark.parametrize(
    ("plan", "operators"),
    [
        (over("Project", over("Filter", scan())), [set()]),
        (over("Project", over("Aggregate", over("Filter", scan()))), [{"Aggregate"}]),
        (over("GlobalLimit", over("Deduplicate", scan())), [{"GlobalLimit", "Deduplicate"}]),
        (over("Join", scan(), over("Aggregate", TABLE)), [set()]),
        (over("Aggregate", TABLE), []),
        (over("Join", scan(), over("Project", scan())), [{"Join"}, {"Join"}]),
        (over("Union", over("Aggregate", scan()), scan()), [{"Aggregate"}, set()]),
        # Spark replaces them by a join and an aggregate.
        (over("Except", scan(), TABLE), [{"Except"}]),
        (over("Intersect All", TABLE, scan()), [{"Intersect All"}]),
        (
            over(
                "WithCTE",
                over("CTERelationDef", scan(), cte=7),
                over("Aggregate", Node("CTERelationRef", cte=7)),
            ),
            [set(), {"Aggregate"}],
        ),
    ],
)
def test_S9_what_keeps_state_of_a_stream(plan: Node, operators: list[set[str]]) -> None:
    assert [set(stream.operators) for stream in read_streams(plan)] == operators


def stage(name: str, *below: Node) -> Node:
    """An operator of this library in the stage that reads."""
    node = over("MapInArrow", *below)
    node.function = f"{STAGE}{name}"
    return node


@pytest.mark.parametrize(
    ("plan", "unknown", "before"),
    [
        (over("Project", over("Filter", scan())), [], []),
        (over("Project", over("MergeStreams", over("Filter", scan()))), ["MergeStreams"], []),
        (over("MergeStreams", over("Aggregate", scan())), ["MergeStreams"], []),
        (over("Join", scan(), over("MergeStreams", TABLE)), [], []),
        (stage("windows", over("MergeStreams", scan())), ["MergeStreams"], ["MergeStreams"]),
        (over("MergeStreams", stage("windows", over("Project", scan()))), ["MergeStreams"], []),
    ],
)
def test_S9_an_unknown_operator_has_its_name(plan: Node, unknown: list[str], before: list[str]) -> None:
    [stream] = read_streams(plan)
    assert (sorted(stream.unknown), sorted(stream.unknown_before)) == (unknown, before)


def test_each_operator_has_one_effect() -> None:
    lists = (ROW_BY_ROW, COMBINING, STATEFUL, MOVING, {JOIN})
    assert sum(map(len, lists)) == len(KNOWN)


class Jvm:
    """Queries with the fields of Spark's that are read."""

    def __init__(self) -> None:
        self.queries: dict[str, Any] = {}
        self.fields: dict[tuple[int, str], Any] = {}
        self.spark = MagicMock()
        self.missing: type[Exception] = Py4JError
        self.retention = "100"
        self.spark._jsparkSession.sharedState().activeStreamingQueries().elements = self._elements
        self.spark._jvm.org.apache.commons.lang3.reflect.FieldUtils.readField = self._read

    def _elements(self) -> Any:
        waiting = list(self.queries.values())
        return MagicMock(hasMoreElements=lambda: bool(waiting), nextElement=lambda: waiting.pop(0))

    def _read(self, of: Any, name: str, force: bool) -> Any:
        assert force
        if (id(of), name) not in self.fields:
            # PySpark converts some Java exceptions to its own.
            raise self.missing(f"Cannot locate field {name} on class KafkaMicroBatchStream")
        return self.fields[id(of), name]

    def source(self, process_id: int | None) -> Any:
        source, runner, factory = MagicMock(), MagicMock(), MagicMock()
        if process_id is not None:
            workers = MagicMock()
            processes = iter([process_id])
            workers.values().iterator().hasNext.side_effect = lambda: processes.__length_hint__() > 0
            workers.values().iterator().next.side_effect = lambda: MagicMock(pid=lambda: next(processes))
            self.fields |= {(id(source), "runner"): runner, (id(factory), "simpleWorkers"): workers}
            self.fields[id(runner), "pythonWorkerFactory"] = MagicMock(get=lambda: factory)
        return source

    def start(self, name: str, plan: Node | None, *sources: Any) -> None:
        query = self.queries[name] = MagicMock()
        query.sources.return_value = Seq(sources)
        query.resolvedCheckpointRoot.return_value = f"file:/checkpoints/{name}"
        # The name of the class of an object of Scala.
        query.id().toString.return_value = f"id-of-{name}"
        query.trigger().getClass().getSimpleName.return_value = f"{TRIGGER}$"
        query.sink().getClass().getSimpleName.return_value = "ForeachBatchSink"
        query.sparkSession().conf().get = {"spark.sql.streaming.numRecentProgressUpdates": self.retention}.__getitem__
        self.fields[id(query), "logicalPlan"] = plan

    def answer(self, process_id: int, group_id: str = "board") -> QueryFacts | bool | None:
        return ActiveQueries(self.spark).answer(QueryRequest(frozenset((process_id, 1)), group_id))

    def commit(self, name: str, source: Any, end: str) -> None:
        offset = MagicMock(isDefined=lambda: True, get=lambda: MagicMock(json=lambda: end))
        nothing = MagicMock(isDefined=lambda: False)
        self.queries[name].committedOffsets().get = lambda of: offset if of is source else nothing


def facts(name: str | None, *operators: str, is_read_once: bool = True, has_query: bool = True) -> QueryFacts:
    checkpoint = None if name is None else f"file:/checkpoints/{name}"
    # The sinks of the other matching queries do not count.
    output, sink = (None, None) if name is None else ("", "ForeachBatchSink")
    return QueryFacts(
        checkpoint,
        frozenset(operators),
        is_read_once=is_read_once,
        trigger=TRIGGER,
        output=output,
        sink=sink,
        query_id=f"id-of-{name}" if has_query else None,
    )


@pytest.fixture
def jvm() -> Jvm:
    return Jvm()


def test_S9_the_process_distinguishes_queries_of_one_group(jvm: Jvm) -> None:
    plain, counted = jvm.source(11), jvm.source(12)
    jvm.start("plain", over("Project", scan(plain)), plain)
    jvm.start("counted", over("Aggregate", scan(counted)), counted)
    assert jvm.answer(12) == facts("counted", "Aggregate")


def test_S9_an_unknown_operator_over_a_stream_is_reported_to_its_source(jvm: Jvm) -> None:
    plain, merged = jvm.source(11), jvm.source(12)
    jvm.start("both", over("Union", scan(plain), over("MergeStreams", scan(merged))), plain, merged)
    assert jvm.answer(11) == facts("both")
    assert jvm.answer(12) == replace(facts("both"), unknown_operators=frozenset({"MergeStreams"}))


def test_S9_the_process_distinguishes_streams_of_one_query(jvm: Jvm) -> None:
    plain, counted = jvm.source(11), jvm.source(12)
    jvm.start("both", over("Union", scan(plain), over("Aggregate", scan(counted))), plain, counted)
    assert jvm.answer(11) == facts("both")


@pytest.mark.parametrize("missing", [Py4JError, IllegalArgumentException])
def test_S9_where_processes_are_not_to_be_found_the_group_counts(jvm: Jvm, missing: type[Exception]) -> None:
    jvm.missing = missing
    jvm.start("other", over("Aggregate", scan(group_id="other")), jvm.source(None))
    jvm.start("plain", over("Project", scan()), jvm.source(None))
    assert jvm.answer(11) == facts("plain", is_read_once=False, has_query=False)
    jvm.start("counted", over("Aggregate", scan()), jvm.source(None))
    assert jvm.answer(11) == facts(None, "Aggregate", is_read_once=False, has_query=False), (
        "one too many is rejected rather than one too few"
    )


@pytest.mark.parametrize(("retention", "keeps_progress"), [("1", False), ("2", True)])
def test_S4_the_facts_of_a_query_contain_whether_spark_keeps_durations(
    jvm: Jvm, retention: str, keeps_progress: bool
) -> None:
    source, jvm.retention = jvm.source(11), retention
    jvm.start("plain", scan(source), source)
    assert jvm.answer(11) == replace(facts("plain"), keeps_progress=keeps_progress)


def test_S9_a_query_that_still_makes_its_plan_and_other_questions(jvm: Jvm) -> None:
    jvm.start("new", None, jvm.source(None))
    assert jvm.answer(11) is None
    assert ActiveQueries(jvm.spark).answer("hello") is None


def test_S9_the_analyzed_plan_counts_while_spark_plans_the_query_of_the_source(jvm: Jvm) -> None:
    """The trigger availableNow before Spark 4.2."""
    source = jvm.source(11)
    jvm.start("new", None, source)
    read, other = (Node("StreamingRelationV2", options={"group.id": group_id}) for group_id in ("board", "other"))
    jvm.queries["new"].analyzedPlan.return_value = over("Union", over("Aggregate", read), over("Deduplicate", other))
    assert jvm.answer(11) == facts("new", "Aggregate", is_read_once=False)


def test_S2_the_last_batch_is_known_when_spark_has_forgotten_the_query(jvm: Jvm) -> None:
    one, other = jvm.source(11), jvm.source(12)
    jvm.start("both", over("Union", scan(one), scan(other)), one, other)
    active, ids = ActiveQueries(jvm.spark), frozenset((11, 1))
    assert active.answer(QueryRequest(ids, "board")) == facts("both")
    jvm.commit("both", one, '{"n":3,"ranges":{}}')
    jvm.queries.clear()
    finished = FinishedRequest(ids, {"ranges": {}, "n": 3})
    assert active.answer(FinishedRequest(frozenset((12, 1)), finished.end)) is None, "it has requested nothing before"
    assert active.answer(finished) is True


@pytest.mark.parametrize("committed", ['{"n":2,"ranges":{}}', None])
def test_S2_the_last_batch_is_not_done(jvm: Jvm, committed: str | None) -> None:
    source = jvm.source(11)
    jvm.start("plain", scan(source), source)
    active, ids = ActiveQueries(jvm.spark), frozenset((11, 1))
    active.answer(QueryRequest(ids, "board"))
    jvm.commit("plain", source if committed else None, committed or "")
    assert active.answer(FinishedRequest(ids, {"n": 3, "ranges": {}})) is False


def test_S2_a_killed_source_is_forgotten_with_its_query(jvm: Jvm) -> None:
    killed, source = jvm.source(11), jvm.source(12)
    jvm.start("killed", scan(killed), killed)
    active = ActiveQueries(jvm.spark)
    active.answer(QueryRequest(frozenset((11, 1)), "board"))
    jvm.queries.pop("killed").isActive.return_value = False
    jvm.start("plain", scan(source), source)
    active.answer(QueryRequest(frozenset((12, 1)), "board"))
    assert [*active._answered] == [frozenset((12, 1))]


@pytest.mark.parametrize(
    ("process_id", "time"),
    [
        (12, StreamTime("board", TimeSettings(Generation(delay_ms=5_000)), "5f2c", "timestamp")),
        # Another query of the group, without event time.
        (11, None),
    ],
)
def test_W2_the_rules_of_event_time_are_in_the_plan(jvm: Jvm, process_id: int, time: StreamTime | None) -> None:
    options = options_of("board", {"watermarkDelay": "5s"}, reported_as="5f2c", read_column="timestamp")
    times = Node("StreamingDataSourceV2ScanRelation", source=object(), options=options)
    plain, timed = jvm.source(11), jvm.source(12)
    jvm.start("plain", over("Project", scan(plain)), plain)
    jvm.start("timed", over("Union", scan(timed), over("Project", times)), timed)
    found = jvm.answer(process_id)
    assert found is not None
    assert found.time == time


def test_W2_each_stream_of_a_query_has_its_own_rules_also_for_a_group_name_of_two_clusters(jvm: Jvm) -> None:
    sources = [jvm.source(11), jvm.source(12)]

    def stream(source: Any, reported_as: str) -> Node:
        options = options_of("board", {"watermarkDelay": "5s"}, reported_as=reported_as, read_column=None)
        times = Node("StreamingDataSourceV2ScanRelation", source=object(), options=options)
        return over("Union", over("Union", scan(source), times), over("Project", times))

    jvm.start("both", over("Union", stream(sources[0], "first"), stream(sources[1], "second")), *sources)
    found = [jvm.answer(process_id) for process_id in (11, 12)]
    assert [it.time.reported_as for it in found if isinstance(it, QueryFacts) and it.time] == ["first", "second"]


def test_where_checkpoints_are(jvm: Jvm) -> None:
    jvm.start("one", None)
    jvm.start("two", None)
    assert ActiveQueries(jvm.spark).checkpoints() == {"file:/checkpoints/one", "file:/checkpoints/two"}


@pytest.mark.parametrize(
    ("name", "options", "commits"),
    [
        ("streamgroups", {}, True),
        ("streamgroups-kafkasink-5f2c", {"Delivery": "exactly-once"}, True),
        ("streamgroups", {"Delivery": " At-Least-Once"}, False),
        ("streamgroups", None, True),
        ("streamgroups-postgressink-5f2c", {}, False),
        ("other", {}, False),
        (None, {}, False),
    ],
)
def test_F5_the_process_reports_whether_the_sink_commits_offsets(
    jvm: Jvm, name: str | None, options: dict[str, str] | None, commits: bool
) -> None:
    source = jvm.source(11)
    jvm.start("plain", over("Project", scan(source)), source)
    query = jvm.queries["plain"]
    # Spark's own sinks can have no name.
    query.sink().name = MagicMock(return_value=name) if name else MagicMock(side_effect=Py4JError("no name"))
    query.sink().getClass().getSimpleName.return_value = "PythonTable" if name else "ForeachBatchSink"
    if options is not None:
        pairs = [MagicMock(_1=lambda k=k: k, _2=lambda v=v: v) for k, v in options.items()]
        rest = iter(pairs)
        iterator = MagicMock(hasNext=lambda: rest.__length_hint__() > 0, next=lambda: next(rest))
        jvm.fields[id(query), "extraOptions"] = MagicMock(iterator=lambda: iterator)
    for process_id in (11, 12):
        rest = iter(pairs) if options is not None else iter(())
        found = jvm.answer(process_id)
        assert isinstance(found, QueryFacts)
        assert found.commits_offsets == commits


@pytest.mark.parametrize("has_process", [True, False])
def test_S14_the_topic_of_the_sink_belongs_to_the_facts(jvm: Jvm, has_process: bool) -> None:
    source = jvm.source(11 if has_process else None)
    jvm.start("plain", scan(source), source)
    query = jvm.queries["plain"]
    query.sink().getClass().getSimpleName.return_value = "PythonTable"
    query.sink().name.return_value = "streamgroups"

    def iterator() -> MagicMock:
        left = iter([MagicMock(_1=lambda: "topic", _2=lambda: "delays")])
        return MagicMock(hasNext=lambda: left.__length_hint__() > 0, next=lambda: next(left))

    jvm.fields[id(query), "extraOptions"] = MagicMock(iterator=iterator)
    found = jvm.answer(11)
    assert isinstance(found, QueryFacts)
    assert (found.output, found.sink) == ("kafka:delays", "streamgroups")


def test_S14_a_sink_that_spark_does_not_show_is_unknown(jvm: Jvm) -> None:
    source = jvm.source(11)
    jvm.start("plain", scan(source), source)
    jvm.queries["plain"].sink.side_effect = Py4JError("no method sink")
    found = jvm.answer(11)
    assert isinstance(found, QueryFacts)
    assert (found.output, found.commits_offsets) == (None, True)
    assert form_of_query(found, None) == ""
