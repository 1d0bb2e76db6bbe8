"""The requests and replies between the processes of a Spark session.

``bridge.rpc`` decodes nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

from streamgroups.event_time.explanation import StreamExplanation
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
    OutputWritten,
)
from streamgroups_spark.messages.query import (
    DurationRequest,
    FinishedRequest,
    ParallelismRequest,
    QueryFacts,
    QueryRequest,
    ReportedStates,
    StateReportsRequest,
)
from streamgroups_spark.messages.time import (
    ClusterRequest,
    ExplanationRequest,
    Observations,
    ObservationsRequest,
    TimeReply,
    TimeRequest,
)

Request: TypeAlias = (
    BatchRequest
    | BatchWritten
    | ClusterRequest
    | CommittedRequest
    | DurationRequest
    | ExplanationRequest
    | FiguresRequest
    | FinishedRequest
    | LedgerRequest
    | OutputWritten
    | ObservationsRequest
    | ParallelismRequest
    | QueryRequest
    | StateReportsRequest
    | TimeRequest
)
Reply: TypeAlias = (
    BatchFacts
    | CommittedReply
    | Figures
    | LedgerReply
    | Observations
    | QueryFacts
    | ReportedStates
    | StreamExplanation
    | TimeReply
    | bool
    | int
    | str
)
