"""The reports of tasks are in the user's process. Without it a batch is not without states: the query starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import QueryUnknown, StateMissing, StreamGroupsError
from streamgroups.event_time.observations import TaskObservation
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.supervision.policy import NEVER_PASS
from streamgroups_spark.bridge.rpc import USER, SessionServer
from streamgroups_spark.bridge.task_reports import (
    ObservationStore,
    OutputCounter,
    request_observations,
    request_reports,
)
from streamgroups_spark.messages.batch import OutputWritten
from streamgroups_spark.messages.query import ReportedStates
from streamgroups_spark.messages.time import Observations, ObservationsRequest
from streamgroups_spark.session import new_session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return new_session()


def test_a_killed_process_is_no_batch_without_states(session: str) -> None:
    with pytest.raises(StreamGroupsError, match=r"does not run any more.* batch 7") as rejected:
        request_reports(session, "run", 7)
    assert type(rejected.value) not in NEVER_PASS
    assert StateMissing in NEVER_PASS


def test_the_reports_are_those_of_the_users_process(session: str) -> None:
    server = SessionServer(session, USER, lambda _: ReportedStates(()))
    try:
        assert request_reports(session, "run", 7) == []
    finally:
        server.close()


P0 = TopicPartition("flights", 0)


def request(batch: int, run_id: str = "1f3a", start: int = 5) -> ObservationsRequest:
    return ObservationsRequest("trades", (OffsetRange(P0, start, start + 4),), run_id, batch)


def test_O3_the_output_of_the_last_queries_is_counted() -> None:
    counter = OutputCounter()
    for n in range(1_001):
        counter.add(OutputWritten("lives", {"parse": 1}, {"divided": 1}))
        counter.add(OutputWritten(f"query-{n}", {"parse": 1}, {"divided": 1}))
    for counts in (counter.letters(), counter.statements()):
        assert len(counts) == 1_000
        assert "query-0" not in counts
        assert sum(counts["lives"].values()) == 1_001


class TestObservedEventTimes:
    def test_W1_a_reply_that_is_lost_is_repeated(self, session: str) -> None:
        """The user's process can take longer than the request waits."""
        store = ObservationStore()
        store.keep([("trades", TaskObservation(P0, 5, 3, 700))])
        server = SessionServer(session, USER, lambda it: Observations(tuple(store.reply_to(it))))
        try:
            for _ in range(2):
                assert request_observations(session, request(3)) == (TaskObservation(P0, 5, 3, 700),)
        finally:
            server.close()

    def test_W2_a_reply_after_an_outage_is_as_short_as_that_for_one_batch(self) -> None:
        """One request is for all batches of the outage. A long reply would not be in time, and so would none after it."""
        store = ObservationStore()
        store.keep([("trades", TaskObservation(P0, offset, 2, offset)) for offset in range(5_000)])
        request = ObservationsRequest("trades", (OffsetRange(P0, 0, 5_000),), "1f3a", 3)
        for _ in range(2):
            assert store.reply_to(request) == [TaskObservation(P0, 0, 10_000, 4_999)]

    def test_W1_a_process_that_has_ended_is_no_batch_without_event_times(self, session: str) -> None:
        with pytest.raises(QueryUnknown, match=r"does not run any more.* batch 3"):
            request_observations(session, request(3))

    def test_W2_a_later_batch_with_the_same_offsets_has_its_own_event_times(self) -> None:
        """The group was reset, and perhaps the topic recreated."""
        store = ObservationStore()
        for batch, time_ms in ((3, 9_000), (4, 700)):
            store.keep([("trades", TaskObservation(P0, 5, 1, time_ms))])
            assert store.reply_to(request(batch)) == [TaskObservation(P0, 5, 1, time_ms)]
        assert store.reply_to(request(4, "another run")) == []

    def test_W1_a_delayed_request_for_an_earlier_batch_takes_nothing(self) -> None:
        store = ObservationStore()
        store.keep([("trades", TaskObservation(P0, 5, 1, 700)), ("trades", TaskObservation(P0, 9, 1, 800))])
        assert len(store.reply_to(request(3))) == 1
        assert len(store.reply_to(request(4, start=9))) == 1
        assert store.reply_to(request(3)) == []
        assert store.reply_to(request(4, start=9)) == [TaskObservation(P0, 9, 1, 800)]
