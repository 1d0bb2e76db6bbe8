"""W2: ``sg.event_time.explain_time`` requests the event time of the groups of a query in their clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

import streamgroups as sg
from streamgroups.errors import InvalidOption
from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import At
from streamgroups_spark.bridge.rpc import SessionServer
from streamgroups_spark.event_time import explain
from streamgroups_spark.messages.time import ExplanationRequest, TimeReply, TimeRequest
from streamgroups_spark.session import new_session


def query_of(*ends: dict[str, Any]) -> Any:
    return SimpleNamespace(lastProgress={"sources": [{"endOffset": json.dumps(end)} for end in ends]})


def end_of(cluster_id: str | None) -> dict[str, Any]:
    end = {"version": 2, "n": 1, "ranges": {}, "resting": {}, "group": "board"}
    return end if cluster_id is None else {**end, "cluster": cluster_id}


@pytest.fixture
def _two_clusters(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two sources of this session read for group 'board', each in another cluster."""
    session = new_session()
    monkeypatch.setattr(explain, "SESSION", session)

    def answer(question: Any, cluster_id: str) -> Any:
        if question.cluster_id not in (None, cluster_id):
            return None
        if isinstance(question, TimeRequest):
            return TimeReply(f"time-{cluster_id}", SourceTime(At(5)), TimeSettings(Generation()), 0)
        assert isinstance(question, ExplanationRequest)
        return StreamExplanation(question.group_id, f"windows-{cluster_id}", ())

    with TemporaryDirectory() as directory, ExitStack() as stack:
        monkeypatch.setattr("tempfile.tempdir", directory)
        for cluster_id in ("first", "second"):
            server = SessionServer(session, cluster_id, lambda it, cluster_id=cluster_id: answer(it, cluster_id))
            stack.callback(server.close)
        yield


@pytest.mark.usefixtures("_two_clusters")
@pytest.mark.parametrize(
    ("clusters", "members"),
    [
        (["first"], {"time-first", "windows-first"}),
        (["second"], {"time-second", "windows-second"}),
        (["first", "second"], {"time-first", "windows-first", "time-second", "windows-second"}),
        # A member without partitions.
        ([None], {"time-first", "windows-first", "time-second", "windows-second"}),
    ],
)
def test_only_queries_of_the_same_cluster_reply(clusters: list[str | None], members: set[str]) -> None:
    explanation = sg.event_time.explain_time(query_of(*map(end_of, clusters)))
    assert {it.member for it in explanation.streams} == members


def test_a_query_whose_progress_spark_does_not_keep_is_rejected() -> None:
    conf = SimpleNamespace(get={"spark.sql.streaming.numRecentProgressUpdates": "1"}.__getitem__)
    jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(conf=lambda: conf))
    query: Any = SimpleNamespace(lastProgress=None, recentProgress=[], isActive=True, _jsq=jsq)
    text = r"numRecentProgressUpdates is below 2, .*, which sg.%s needs. Set it to at least 2"
    with pytest.raises(InvalidOption, match=text % "event_time.explain_time"):
        sg.event_time.explain_time(query)
    with pytest.raises(InvalidOption, match=text % "reports.record_time"):
        sg.reports.record_time(query)


def test_a_query_without_event_time_is_rejected() -> None:
    for query in (query_of({"logOffset": 3}), SimpleNamespace(lastProgress=None)):
        with pytest.raises(InvalidOption, match="has not finished its first batch"):
            sg.event_time.explain_time(query)
