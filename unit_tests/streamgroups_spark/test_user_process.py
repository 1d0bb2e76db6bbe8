"""W2, S13: what the user's process stores between the runs of a query, and replies after the end of its session."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_spark.bridge import user_process
from streamgroups_spark.bridge.active_queries import ActiveQueries
from streamgroups_spark.bridge.task_reports import ObservationStore
from streamgroups_spark.messages.query import QueryFacts, QueryRequest
from streamgroups_spark.messages.time import Observations, ObservationsRequest, StreamTime

P0 = TopicPartition("flights", 0)
REQUEST = QueryRequest(frozenset({11}), "board")


def facts(reported_as: str | None) -> QueryFacts:
    time = None if reported_as is None else StreamTime("board", TimeSettings(Generation()), reported_as, None)
    return QueryFacts("file:/checkpoints/board", frozenset(), time)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ObservationStore:
    found = ObservationStore()
    monkeypatch.setattr(user_process, "SEEN", found)
    return found


@pytest.mark.parametrize(("started", "has_earlier"), [("5f2c", False), ("another", True), (None, True)])
def test_W2_a_run_does_not_use_the_event_times_of_a_batch_that_an_earlier_run_has_not_finished(
    store: ObservationStore, monkeypatch: pytest.MonkeyPatch, started: str | None, has_earlier: bool
) -> None:
    """Its batch has read up to a later record than the next one, or the topic was recreated meanwhile."""
    monkeypatch.setattr(user_process, "_queries", SimpleNamespace(answer=lambda _: facts(started), has_ended=False))
    earlier, now = TaskObservation(P0, 5, 900, 9_000_000), TaskObservation(P0, 5, 1, 700)
    store.keep([("5f2c", earlier)])
    user_process._answer(REQUEST)
    store.keep([("5f2c", now)])
    reply = user_process._answer(ObservationsRequest("5f2c", (OffsetRange(P0, 5, 9),), "1f3a", 3))
    assert isinstance(reply, Observations)
    assert (max(it.event_time_ms or 0 for it in reply.seen) == 9_000_000) == has_earlier


@pytest.mark.parametrize("stopped", ["in Python", "in the JVM", "not"])
def test_S13_an_ended_application_replies_to_no_request(monkeypatch: pytest.MonkeyPatch, stopped: str) -> None:
    """Queries of the next application of the process are not those of a registered session."""
    spark = MagicMock()
    spark.sparkContext._jsc.sc().isStopped.return_value = stopped == "in the JVM"
    if stopped == "in Python":
        spark.sparkContext._jsc = None
    queries = ActiveQueries(spark)
    monkeypatch.setattr(user_process, "_queries", queries)
    monkeypatch.setattr(queries, "answer", lambda _: facts(None))
    monkeypatch.setattr(queries, "checkpoints", lambda: frozenset({"file:/checkpoints/board"}))
    monkeypatch.setattr(queries, "is_running", lambda _: False)
    monkeypatch.setattr(queries, "resolved", lambda it: f"file:{it}")
    found = (
        user_process._answer(REQUEST),
        user_process.active_checkpoints(),
        user_process.is_running("5f2c"),
        user_process.resolved_checkpoint("/checkpoints/board"),
    )
    if stopped == "not":
        assert found == (facts(None), {"file:/checkpoints/board"}, False, "file:/checkpoints/board")
    else:
        assert found == (None, frozenset(), True, "/checkpoints/board")
