"""The reports of tasks and sinks in the user's process, from where sources, sinks and metrics request them.

Spark merges the accumulator of a task before the task counts as finished, and ignores failed attempts. So after a batch
exactly the reports of its successful tasks are known: observed event times (``source.observed_times``), state files
(``state.stage``), and watermarks of producers that cannot be read (``source.readers``). ``user_process`` has one store of each.
Spark commits the output of a query in a process of its own, which reports dead letters and divided batches by driver RPC. Source:
SEMANTICS S10, W2, W15, P4, X2; Spark's ``AccumulatorParam``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from streamgroups.errors import QueryUnknown, StreamGroupsError
from streamgroups.event_time.observations import TaskObservation, merged, summed
from streamgroups.monitoring.member_reports import UnreadableWatermarks
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.operator_states import StateReport
from streamgroups_spark.bridge.rpc import request_user
from streamgroups_spark.messages.batch import OutputWritten
from streamgroups_spark.messages.query import StateReportsRequest
from streamgroups_spark.messages.time import Observations, ObservationsRequest

ObservedTimes: TypeAlias = list[tuple[str, TaskObservation]]
#: Counts by query id and name.
Counts: TypeAlias = Mapping[str, Mapping[str, int]]
_Kept: TypeAlias = dict[TopicPartition, dict[tuple[int, bool], TaskObservation]]

#: The limit of observations per partition. It is reached only if a source has ended and no longer takes them.
_MAX_SEEN = 10_000
#: The limit of batches whose reports are kept. It is reached only if a source has ended and no longer takes them.
_MAX_BATCHES = 1_000
#: The limit of runs whose last reply is kept.
_MAX_RUNS = 1_000
#: The limit of names with observations. A failed run leaves those of its last batch, and its program restarts with another name.
_MAX_NAMES = 1_000
#: The limit of queries whose output is counted.
_MAX_QUERIES = 1_000
#: The limit of counted partitions of members. Each run of a query is another member.
_MAX_PLACES = 10_000


class ObservationStore:
    """The observations of tasks that no source has taken yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By the name under which tasks report them, in order of the last report.
        self._seen: dict[str, _Kept] = {}
        #: The last batch that each run has requested, and its observations: the reply can be lost.
        self._replied: dict[tuple[str, str], tuple[int, list[TaskObservation]]] = {}

    def keep(self, reported: ObservedTimes) -> None:
        """Stores the observations of a task."""
        with self._lock:
            for reported_as, seen in reported:
                of_name = self._seen[reported_as] = self._seen.pop(reported_as, {})
                kept = of_name.setdefault(seen.topic_partition, {})
                # In order of the last report, so that the earliest is deleted first.
                before = kept.pop(seen.key, None)
                kept[seen.key] = seen if before is None else merged(before, seen)
                if len(kept) > _MAX_SEEN:
                    del kept[next(iter(kept))]
            while len(self._seen) > _MAX_NAMES:
                del self._seen[next(iter(self._seen))]

    def reply_to(self, request: ObservationsRequest) -> list[TaskObservation]:
        """Returns the observations of a batch, summed. A repeated request for the last batch of a run returns them again.

        >>> store, p0 = ObservationStore(), TopicPartition("flights", 0)
        >>> store.keep([("trades", TaskObservation(p0, 5, 1, 700))])
        >>> request = ObservationsRequest("trades", (OffsetRange(p0, 5, 9),), "1f3a", 3)
        >>> len(store.reply_to(request)), len(store.reply_to(request))
        (1, 1)
        """
        of_run = request.reported_as, request.run_id
        with self._lock:
            batch, seen = self._replied.pop(of_run, (-1, []))
            if batch < request.batch:
                # After an outage of this process a request is for many batches, and its reply must be in time.
                batch, seen = request.batch, summed(request.ranges, self._take(request.reported_as, request.ranges))
            self._replied[of_run] = batch, seen
            if len(self._replied) > _MAX_RUNS:
                del self._replied[next(iter(self._replied))]
            # An earlier batch was requested before, and the source has its reply: this request was delayed.
            return list(seen) if batch == request.batch else []

    def take(self, reported_as: str, ranges: tuple[OffsetRange, ...]) -> list[TaskObservation]:
        """Returns and removes the observations of these ranges. No later request includes them.

        >>> store, p0 = ObservationStore(), TopicPartition("flights", 0)
        >>> store.keep([("trades", TaskObservation(p0, 5, 1, 700))])
        >>> len(store.take("trades", (OffsetRange(p0, 5, 9),))), len(store.take("trades", (OffsetRange(p0, 5, 9),)))
        (1, 0)
        """
        with self._lock:
            return self._take(reported_as, ranges)

    def _take(self, reported_as: str, ranges: tuple[OffsetRange, ...]) -> list[TaskObservation]:
        taken = []
        of_name = self._seen.get(reported_as, {})
        for r in ranges:
            kept = of_name.get(r.topic_partition, {})
            own = [(offset, of) for offset, of in kept if r.next_offset <= offset < r.end_offset]
            taken += [kept.pop(key) for key in own]
            if not kept:
                of_name.pop(r.topic_partition, None)
        if not of_name:
            self._seen.pop(reported_as, None)
        return taken

    def discard(self, reported_as: str) -> None:
        """Removes all observations under a name.

        >>> store, p0 = ObservationStore(), TopicPartition("flights", 0)
        >>> store.keep([("trades", TaskObservation(p0, 5, 1, 700))])
        >>> store.discard("trades")
        >>> store.take("trades", (OffsetRange(p0, 5, 9),))
        []
        """
        with self._lock:
            self._seen.pop(reported_as, None)


class StateReports:
    """The reports of tasks that no source has taken yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], list[StateReport]] = {}

    def keep(self, reports: list[StateReport]) -> None:
        """Stores the reports of a task."""
        with self._lock:
            for report in reports:
                self._kept.setdefault((report.file.run_id, report.file.batch), []).append(report)
            while len(self._kept) > _MAX_BATCHES:
                del self._kept[next(iter(self._kept))]

    def take(self, run_id: str, batch: int) -> list[StateReport]:
        """Returns the reports of a batch, and forgets those of all earlier batches of the run.

        The batch itself stays, because a sink and its source both request it.
        """
        with self._lock:
            for known in [it for it in self._kept if it[0] == run_id and it[1] < batch]:
                del self._kept[known]
            return list(self._kept.get((run_id, batch), ()))


def request_reports(session: str, run_id: str, batch: int) -> list[StateReport]:
    """Returns the reports of the tasks of a batch, latest last.

    Args:
        session: the session of the source.
        run_id: the id of the run of the query.
        batch: the number of the batch.

    Raises:
        StreamGroupsError: if the user's process does not respond. Spark finishes tasks whose reports it could not deliver to a process
            that was killed.
    """
    reply = request_user(session, StateReportsRequest(run_id, batch), is_needed=True)
    if reply is None:
        raise StreamGroupsError(
            f"The process that started the query does not run any more. It received the names of the states of batch {batch}.",
            remedy="Start the query again: it reads the batch again.",
        )
    return list(reply.reports)


def request_observations(session: str, request: ObservationsRequest) -> tuple[TaskObservation, ...]:
    """Returns the observations of the tasks of a batch.

    Args:
        session: the session of the source.
        request: the request.

    Raises:
        QueryUnknown: if the user's process does not respond, or has ended. A repeated request has the same reply.
    """
    reply: Observations | None = request_user(session, request, is_needed=True)
    if reply is None:
        raise QueryUnknown(
            f"The process that started the query does not run any more. It received the event times of batch {request.batch}.",
            remedy="Start the query again. New records advance its watermark.",
        )
    return reply.seen


class UnreadableCounts:
    """The number of unreadable watermarks of each partition and member. Thread-safe.

    >>> counts, p0 = UnreadableCounts(), TopicPartition("flights", 0)
    >>> counts.keep([UnreadableWatermarks("board", "carol", p0, 2), UnreadableWatermarks("board", "carol", p0, 1)])
    >>> [it.count for it in counts.all()]
    [3]
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, TopicPartition], int] = {}

    def keep(self, reported: Iterable[UnreadableWatermarks]) -> None:
        """Adds the report of a task."""
        with self._lock:
            for it in reported:
                key = it.group_id, it.member, it.topic_partition
                # In order of the last report, so that the earliest is deleted first.
                self._counts[key] = self._counts.pop(key, 0) + it.count
                if len(self._counts) > _MAX_PLACES:
                    del self._counts[next(iter(self._counts))]

    def all(self) -> list[UnreadableWatermarks]:
        """Returns all counts."""
        with self._lock:
            return [UnreadableWatermarks(*key, count) for key, count in self._counts.items()]


class OutputCounter:
    """The dead letters by step, and the statements of divided batches, of the queries of this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._letters: dict[str, Counter[str]] = {}
        self._statements: dict[str, Counter[str]] = {}

    def add(self, written: OutputWritten) -> None:
        """Adds the counts of a batch."""
        with self._lock:
            for counts, more in ((self._letters, written.letters), (self._statements, written.statements)):
                # In order of the last batch, so that the query that has ended first is deleted first.
                of_query = counts[written.query_id] = counts.pop(written.query_id, Counter())
                of_query.update(more)
                if len(counts) > _MAX_QUERIES:
                    del counts[next(iter(counts))]

    def letters(self) -> Counts:
        """Returns the number of dead letters by query id and step, of all runs since the start of the process."""
        return self._copy(self._letters)

    def statements(self) -> Counts:
        """Returns the number of statements of divided batches by query id and way, likewise."""
        return self._copy(self._statements)

    def _copy(self, counts: Mapping[str, Counter[str]]) -> Counts:
        with self._lock:
            return {query_id: dict(of_query) for query_id, of_query in counts.items()}
