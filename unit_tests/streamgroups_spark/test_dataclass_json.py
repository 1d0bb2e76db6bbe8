"""Every message of a Spark session passes through JSON unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamgroups.event_time.explanation import PartitionExplanation, StreamExplanation
from streamgroups.event_time.observations import TaskObservation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, SourceTime
from streamgroups.event_time.strategy import Generation, Period, Progress, Records
from streamgroups.event_time.violations import OnViolation
from streamgroups.event_time.watermark import NOT_YET, At
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.monitoring.member_reports import BatchFlight, QueryStates, WaitingPartitions
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.operator_states import StateReport
from streamgroups.state.figures import BatchFigures, StateSize, TaskFigures
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_time import GroupWindows, StateTime
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_spark.bridge.dataclass_json import from_json, to_json
from streamgroups_spark.messages.batch import (
    BatchFacts,
    BatchRequest,
    BatchWritten,
    CommittedReply,
    CommittedRequest,
    Figures,
    FiguresRequest,
    LedgerReply,
    LedgerRequest,
)
from streamgroups_spark.messages.query import (
    DurationRequest,
    FinishedRequest,
    QueryFacts,
    QueryRequest,
    ReportedStates,
)
from streamgroups_spark.messages.time import (
    ClusterRequest,
    ExplanationRequest,
    Observations,
    ObservationsRequest,
    StreamTime,
    TimeReply,
    TimeRequest,
)
from streamgroups_spark.messages.unions import Reply, Request

P0 = TopicPartition("flights", 0)
FILE = StateFileName(1732334879123, "1f3a9c2b7d10", 7, 1)
RANGE = OffsetRange(P0, 10, 20)
END = {"version": 1, "ranges": {"flights": {"0": [10, 20]}}, "class": "of the user", "n": [None, 1.5, True]}
SETTINGS = TimeSettings(Generation(Period(5_000), -3), "trades", OnViolation.DROP, 30_000, "w")
STATE = SourceTime(
    At(7),
    {
        P0: PartitionTime(5, At(8), Progress(3, 4), 9, 1, 2),
        TopicPartition("flights", 1): PartitionTime(),
    },
)


@pytest.mark.parametrize(
    "message",
    [
        BatchRequest(END, to_commit=True),
        ClusterRequest("5f2c"),
        CommittedRequest(END, (TopicPartition("flights", 0), TopicPartition("flights", 1))),
        BatchWritten({}),
        DurationRequest(frozenset({1, 2}), END),
        ExplanationRequest("board"),
        ExplanationRequest("board", "MkU3OEVBNTc"),
        FinishedRequest(frozenset({1, 2}), END),
        FiguresRequest(),
        LedgerRequest("board", None),
        LedgerRequest("board", "file:/tmp/é"),
        ObservationsRequest("board", (RANGE, RANGE), "1f3a9c2b7d10", 3),
        QueryRequest(frozenset(), "board"),
        TimeRequest("board", NOT_YET),
        TimeRequest("board", At(-5), TimeSettings(Generation(Records(10)))),
        TimeRequest("board", At(8), SETTINGS, "MkU3OEVBNTc"),
    ],
)
def test_requests(message: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(message))), Request) == message


@pytest.mark.parametrize(
    "message",
    [
        BatchFacts(
            END, "g", "m", (RANGE,), (), (RANGE,), ConsumerGroupMetadata("g", 3, "m-1"), MembershipMode.SHARED, True
        ),
        BatchFacts({}, "g", "m", (), (), (), None, MembershipMode.EXCLUSIVE, False),
        1_500,
        Figures(),
        Figures(
            BatchFlight("g", "m", None, 1, 2),
            QueryStates("g", "m", BatchFigures({P0: StateSize(3, 120, 2)}, TaskFigures(1, 900, 0.25, 2, 400, 0.5, 30))),
            WaitingPartitions("g", "m", {P0: 5, TopicPartition("flights", 1): None}),
        ),
        CommittedReply({TopicPartition("flights", 0): 7}),
        LedgerReply(b"\x80\xff"),
        Observations((TaskObservation(P0, 5, 3, -700), TaskObservation(P0, 5, 0, None, 7))),
        Observations(()),
        QueryFacts("file:/tmp/x", frozenset({"aggregation"}), StreamTime("g", SETTINGS, "name", None)),
        QueryFacts(None, frozenset(), unknown_operators=frozenset({"MergeStreams"})),
        ReportedStates(
            (
                StateReport(RANGE, FILE, 7, time=StateTime(5, -3, True, GroupWindows(2, None))),
                StateReport(RANGE, FILE, time=StateTime(None, None)),
                StateReport(RANGE, FILE),
            )
        ),
        TimeReply("m", STATE, SETTINGS, 5),
        TimeReply("m", SourceTime(), SETTINGS, 5),
        StreamExplanation("board", "alice", (PartitionExplanation(P0, 5, None, "ahead"),), 3, imported="It is."),
        True,
        False,
        "MkU3OEVBNTc",
        "",
        None,
    ],
)
def test_replies(message: Any) -> None:
    read = from_json(json.loads(json.dumps(to_json(message))), Reply)
    assert read == message
    assert type(read) is type(message)


def test_only_expected_classes_are_created() -> None:
    with pytest.raises(ValueError, match="'LedgerReply' is not an expected message"):
        from_json(to_json(LedgerReply(b"")), Request)
    with pytest.raises(ValueError, match="'At' is not an expected message"):
        from_json({"class": "ObservationsRequest", "reported_as": "g", "ranges": [to_json(At(5))]}, Request)
