"""The requests and replies between the processes of a Spark session.

``internals.rpc`` decodes nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

from streamgroups.monitoring.batch_flight import BatchFlight
from streamgroups.monitoring.query_states import QueryStates
from streamgroups.monitoring.query_time import WaitingPartitions
from streamgroups_spark.event_time.messages import (
    Explanation,
    ExplanationRequest,
    Observations,
    ObservationsRequest,
    TimeReply,
    TimeRequest,
)
from streamgroups_spark.source.batch_messages import (
    BatchFacts,
    BatchRequest,
    BatchWritten,
    CommittedReply,
    CommittedRequest,
    InFlightRequest,
    LedgerReply,
    LedgerRequest,
    LettersWritten,
    StatesRequest,
    WaitingRequest,
)
from streamgroups_spark.source.query_facts import DurationRequest, FinishedIn, FinishedRequest, QueryFacts, QueryRequest
from streamgroups_spark.state.reports import ReportedStates, StateReportsRequest

Request: TypeAlias = (
    BatchRequest
    | BatchWritten
    | CommittedRequest
    | DurationRequest
    | ExplanationRequest
    | FinishedRequest
    | InFlightRequest
    | LedgerRequest
    | LettersWritten
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
    | Explanation
    | FinishedIn
    | LedgerReply
    | Observations
    | QueryFacts
    | QueryStates
    | ReportedStates
    | TimeReply
    | WaitingPartitions
    | bool
)
