"""S8, S13, X3, X4: the process of a source at its start and its stop, and the facts of its batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroups.errors import InvalidOption, QueryUnknown
from streamgroups.event_time.watermark import NOT_YET
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.membership import InFlight
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_spark.bridge import rpc
from streamgroups_spark.bridge.rpc import USER, SessionServer
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_spark.messages.batch import BatchFacts, BatchRequest, BatchWritten, CommittedReply, CommittedRequest
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.messages.time import ClusterRequest, ExplanationRequest, TimeRequest
from streamgroups_spark.session import new_session, session_of_process
from streamgroups_spark.source import running_query
from streamgroups_spark.source.running_query import RunningQuery
from streamgroups_spark.source.source_options import parse


def test_S8_a_source_that_stops_closes_its_socket_before_it_leaves_its_group() -> None:
    """The next run of the query can start meanwhile, and its sink requests a batch of the earlier run."""
    done: list[str] = []
    query = RunningQuery.__new__(RunningQuery)
    query._imported = None
    vars(query)["_rpc_server"] = SimpleNamespace(close=lambda: done.append("closed"))
    vars(query)["micro_batches"] = SimpleNamespace(stop=lambda: done.append("left"))
    query.stop()
    assert done == ["closed", "left"]


@pytest.mark.parametrize(("operators", "expected"), [(("agg",), [True, True, False]), ((), [False, False, False])])
def test_X4_only_the_first_written_batch_of_a_run_can_repeat_a_no_data_batch(
    operators: tuple[str, ...], expected: list[bool]
) -> None:
    query = RunningQuery.__new__(RunningQuery)
    query.name, query._group_id, query._member, query._has_written = "one", "board", None, False
    query._states_run_id, query._form, query._tasks = None, "", 48
    batches = SimpleNamespace(run=lambda _: InFlight(3, ()), written=InFlight(0, ()), owned_before={})
    vars(query)["micro_batches"] = batches
    vars(query)["_options"] = SimpleNamespace(mode=MembershipMode.EXCLUSIVE, subscription=None)
    vars(query)["facts"] = SimpleNamespace(query_id="5f2c", operators=operators, unknown_operators=())

    def may_repeat() -> bool:
        facts = query._answer(BatchRequest({}))
        assert isinstance(facts, BatchFacts)
        assert facts.tasks == 48
        return facts.may_repeat_no_data

    found = [may_repeat(), may_repeat()]
    query._answer(BatchWritten({}))
    assert [*found, may_repeat()] == expected


def test_X3_a_query_does_not_run_without_the_ledger_of_its_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's process is gone, or has no such ledger. The next start of the query registers it."""
    monkeypatch.setattr(running_query, "request_user", lambda *_, **__: None)
    query = RunningQuery.__new__(RunningQuery)
    query._group_id, query._session, query._checkpoint = "board", "session", "file:/c"
    query.facts = QueryFacts("file:/c", frozenset(), sink="streamgroups-deltasink-1f")
    with pytest.raises(QueryUnknown, match=r"group 'board' does not return the ledger of its sink") as raised:
        query._ledger_sink()
    assert (raised.value.retriable, raised.value.group) == (True, "board")
    query.facts = replace(query.facts, sink="ForeachBatchSink")
    assert query._ledger_sink() is None


P0 = TopicPartition("flights", 0)


@pytest.fixture
def first() -> RunningQuery:
    """A query that reads for group 'board' of the cluster 'first'."""
    query = RunningQuery.__new__(RunningQuery)
    query.name, query._group_id = "one", "board"
    of_query: dict[str, Any] = vars(query)
    of_query["_cluster"] = SimpleNamespace(
        cluster_id=lambda: "first", committed=lambda group_id, partitions: dict.fromkeys(partitions, Committed(7))
    )
    of_query["_stream"] = SimpleNamespace(reported_as="5f2c")
    of_query["_time"] = SimpleNamespace(reply_to=lambda question: "the watermark")
    of_query["_states"] = SimpleNamespace(explain=lambda member: "the explanation")
    of_query["micro_batches"] = SimpleNamespace(run=lambda end: InFlight(3, ()) if end == {"n": 3} else None)
    return query


@pytest.mark.parametrize(
    ("group_id", "cluster_id", "is_meant"),
    [("board", "first", True), ("board", None, True), ("board", "second", False), ("other", "first", False)],
)
def test_W10_a_source_replies_to_requests_about_its_group_in_its_cluster(
    first: RunningQuery, group_id: str, cluster_id: str | None, is_meant: bool
) -> None:
    found = [
        first._answer(TimeRequest(group_id, NOT_YET, cluster_id=cluster_id)),
        first._answer(ExplanationRequest(group_id, cluster_id)),
    ]
    assert found == (["the watermark", "the explanation"] if is_meant else [None, None])


def test_W10_a_source_replies_with_its_cluster_to_the_punctuations_of_its_own_stream(first: RunningQuery) -> None:
    assert [first._answer(ClusterRequest(it)) for it in ("5f2c", "another")] == ["first", None]


def test_X7_only_the_source_of_a_batch_replies_with_the_committed_offsets(first: RunningQuery) -> None:
    assert first._answer(CommittedRequest({"n": 3}, (P0,))) == CommittedReply({P0: 7})
    assert first._answer(CommittedRequest({"n": 3, "cluster": "second"}, (P0,))) is None


def starting(session: str, membership: str) -> RunningQuery:
    """A query at its start."""
    options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092"}
    query = RunningQuery.__new__(RunningQuery)
    query._options = parse({**options, "membership": membership}, streaming=True)
    query._group_id, query._session, query._process_ids = "board", session, frozenset({1, 2})
    return query


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A session in a directory with a short name, whose requests time out soon."""
    monkeypatch.setattr(rpc, "_RETRY_TIMEOUT_S", 0.3)
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        yield new_session()


@pytest.mark.parametrize("membership", ["exclusive", "shared"])
@pytest.mark.parametrize("failure", ["no reply", "an error of the JVM"])
def test_S14_F5_a_query_does_not_start_without_the_facts_of_a_registered_session(
    session: str, membership: str, failure: str
) -> None:
    """Without them it would have no event time, no states, and no protection of its output."""
    released = threading.Event()

    def answer(_: object) -> None:
        if failure == "no reply":
            released.wait(30)
        raise OSError("Answer from Java side is empty")

    with closing(SessionServer(session, USER, answer)):
        with pytest.raises(
            QueryUnknown, match=r"does not respond|query of group 'board' does not report its facts: .*OSError"
        ) as raised:
            starting(session, membership)._query_facts()
        released.set()
    assert raised.value.retriable
    assert "tart the query again" in raised.value.remedy


def test_an_error_of_the_facts_keeps_its_class(session: str) -> None:
    def reject(_: object) -> None:
        raise InvalidOption("Two watermarks.", remedy="Use one.")

    with closing(SessionServer(session, USER, reject)), pytest.raises(InvalidOption, match="Two watermarks"):
        starting(session, "exclusive")._query_facts()


@pytest.mark.skipif(not FEATURES.passes_start, reason="PySpark before 4.2")
def test_S13_an_exclusive_query_of_a_session_that_is_not_registered_starts(session: str) -> None:
    assert starting(session, "exclusive")._query_facts() is None
    with pytest.raises(QueryUnknown, match=r"Call sg\.register"):
        starting(session, "shared")._query_facts()


@pytest.mark.parametrize("membership", ["exclusive", "shared"])
@pytest.mark.parametrize("failure", ["it has ended", "it does not find the query"])
def test_S14_F5_a_query_of_a_registered_session_does_not_start_without_its_process(
    session: str, membership: str, failure: str
) -> None:
    """Only a query whose session was never registered starts without facts."""
    registered = session_of_process()
    server = SessionServer(registered, USER, lambda _: None)
    if failure == "it has ended":
        server.close()
    with pytest.raises(QueryUnknown, match=rf"of group 'board' does not report its facts: {failure}") as raised:
        starting(registered, membership)._query_facts()
    server.close()
    assert raised.value.retriable
    assert raised.value.remedy == "Start the query again. If that fails too, restart the program."
