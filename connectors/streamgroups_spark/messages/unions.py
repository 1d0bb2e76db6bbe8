"""The requests and replies between the processes of a Spark session.

``bridge.rpc`` decodes nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

from streamgroups.event_time.explanation import StreamExplanation
from streamgroups.monitoring.member_reports import BatchFlight, QueryStates, WaitingPartitions
from streamgroups_spark.messages.batch import (
    BatchFacts,
    BatchRequest,
    BatchWritten,
    CommittedReply,
    CommittedRequest,
    InFlightRequest,
    LedgerReply,
    LedgerRequest,
    OutputWritten,
    StatesRequest,
    WaitingRequest,
)
from streamgroups_spark.messages.query import (
    DurationRequest,
    FinishedRequest,
    QueryFacts,
    QueryRequest,
    ReportedStates,
    StateReportsRequest,
)
from streamgroups_spark.messages.time import (
    ExplanationRequest,
    Observations,
    ObservationsRequest,
    TimeReply,
    TimeRequest,
)

Request: TypeAlias = (
    BatchRequest
    | BatchWritten
    | CommittedRequest
    | DurationRequest
    | ExplanationRequest
    | FinishedRequest
    | InFlightRequest
    | LedgerRequest
    | OutputWritten
    | ObservationsRequest
    | QueryRequest
    | StateReportsRequest
    | StatesRequest
    | TimeRequest
    | WaitingRequest
)
Reply: TypeAlias = (
    BatchFacts
    | BatchFlight
    | CommittedReply
    | LedgerReply
    | Observations
    | QueryFacts
    | QueryStates
    | ReportedStates
    | StreamExplanation
    | TimeReply
    | WaitingPartitions
    | bool
    | int
)
