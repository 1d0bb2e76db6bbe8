"""The facts about a query that its source needs and Spark does not pass to it.

A source runs in its own Python process. Before its first batch it requests these facts from the user's process by
driver RPC, and ``bridge.active_queries`` answers. When the query stops, the source requests whether the last batch
is finished (``source.last_batch``). A source and a sink request the reports of the tasks of a batch about their state files
(``bridge.task_reports``). Source: SEMANTICS S2, S9, S10, W2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.query.operator_states import StateReport
from streamgroups_spark.messages.time import StreamTime

#: The start of the names of the sinks of ``sinks.exactly_once``, and of those of the Kafka sink with dead letters.
_SINKS, _KAFKA_SINK = "streamgroups-", "streamgroups-kafkasink-"


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """Requests the facts about the query whose source runs in this process. The reply is :class:`QueryFacts`.

    Args:
        process_ids: ids of the process of the source and of its parent. ``PYSPARK_PYTHON`` can be a script that starts
            Python.
        group_id: the group of the source.
    """

    process_ids: frozenset[int]
    group_id: str


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """Requests whether the batch with this end offset is finished. The reply is a boolean.

    A source sends it when it stops, and for a batch that exceeds ``leaseTimeout``.

    Args:
        process_ids: as in the :class:`QueryRequest` of the source.
        end: the offset as Spark has logged it for the source.
    """

    process_ids: frozenset[int]
    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DurationRequest:
    """Requests the duration of the finished batch with this end offset. The reply is the time from its plan to
    its end, in milliseconds.

    A source with ``targetBatchTime`` sends it for each batch: the time between two calls of a source also contains the
    wait for the trigger.

    Args:
        process_ids: as in the :class:`QueryRequest` of the source.
        end: the offset as Spark has logged it for the source.
    """

    process_ids: frozenset[int]
    end: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ParallelismRequest:
    """Requests Spark's default parallelism at this moment. The reply is a number.

    A query or a batch sends it once when it starts, if the user has set no number. Spark counts the cores of the executors
    that have registered.
    """


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """The facts about a query for its source.

    Args:
        checkpoint: the path of the checkpoint, as Spark has resolved it. ``None`` if several queries match the request.
        operators: the stateful operators over the stream.
        time: the event-time settings of the stream. ``None`` if it has none.
        stages: the operators with state in the stage that reads (``bridge.stage_name``), in the order in which they process
            the records of the stream. Each branch of the query has its own.
        is_read_once: whether the stream is known exactly, and the query reads it in one branch.
        trigger: the name of Spark's class of the trigger. ``None`` if queries with several ones match the
            request.
        commits_offsets: whether its sink commits the offsets of the group with the output: the Kafka sink, exactly once.
        output: the topic of the Kafka sink whose transactions contain the positions, as ``kafka:topic``. Empty for any other sink.
            ``None`` if it is unknown.
        sink: the format of its sink if it is in Python, otherwise Spark's class of the sink, such as ``ForeachBatchSink``. ``None`` if it is
            unknown, or queries with several ones match the request.
        query_id: Spark's id of the query, which its checkpoint contains. ``None`` if the query of the process is unknown.
        unknown_operators: the unknown operators of Spark over the stream.
        keeps_progress: whether Spark keeps the progress of the last batch.
    """

    checkpoint: str | None
    operators: frozenset[str]
    time: StreamTime | None = None
    stages: frozenset[tuple[str, ...]] = frozenset()
    is_read_once: bool = False
    trigger: str | None = None
    commits_offsets: bool = False
    output: str | None = None
    sink: str | None = None
    query_id: str | None = None
    unknown_operators: frozenset[str] = frozenset()
    keeps_progress: bool = True

    @property
    def has_ledger_sink(self) -> bool:
        """Whether the name of the sink is that of a sink with a ledger, which ``sinks.exactly_once`` has registered.

        >>> names = "streamgroups-postgressink-1f", "streamgroups-kafkasink-1f", "streamgroups", "ForeachBatchSink"
        >>> [QueryFacts(None, frozenset(), sink=name).has_ledger_sink for name in names]
        [True, False, False, False]
        """
        return self.sink is not None and self.sink.startswith(_SINKS) and not self.sink.startswith(_KAFKA_SINK)


@dataclass(frozen=True, slots=True)
class StateReportsRequest:
    """Requests the reports of a batch, after the batch. The reply is :class:`ReportedStates`.

    Args:
        run_id: the id of the run of the query.
        batch: the number of the batch.
    """

    run_id: str
    batch: int


@dataclass(frozen=True, slots=True)
class ReportedStates:
    """The reports of a batch.

    Args:
        reports: the reports of its tasks, latest last.
    """

    reports: tuple[StateReport, ...]
