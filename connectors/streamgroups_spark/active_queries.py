"""The streaming queries of this Spark application, for their own sources: which query a source belongs to.

Answers in the user's own process, from ``sg.register`` on, what sources request (``query_facts``). Spark keeps the running queries of all its sessions,
each query keeps its sources, and each Python source the process that it runs in: the one that requests. Much of that is private to Spark, so it is
read by reflection. Source: Spark's ``SharedState.activeStreamingQueries``, ``MicroBatchExecution`` and ``PythonStreamingSourceRunner`` (4.2).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from streamgroups_spark.plans import ReadStream, read_streams
from streamgroups_spark.query_facts import FinishedRequest, QueryFacts, QueryRequest

logger = logging.getLogger(__name__)

_SCAN = "StreamingDataSourceV2ScanRelation"


class ActiveQueries:
    """The running queries of a Spark application.

    Args:
        spark: any of its sessions.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        # Each name on the way to a class is a round trip to the JVM, which no query is to wait for.
        jvm: Any = spark._jvm
        self._fields: Any = jvm.org.apache.commons.lang3.reflect.FieldUtils
        #: Queries and sources by what their processes are called in requests: Spark forgets a query before its sources have ended.
        self._answered: dict[frozenset[int], tuple[Any, Any]] = {}

    def answer(self, request: Any) -> QueryFacts | bool | None:
        """What a source requests; ``None`` if no query here can be meant."""
        if isinstance(request, QueryRequest):
            return self._facts(request)
        if isinstance(request, FinishedRequest):
            return self._has_finished(request)
        return None

    def _has_finished(self, request: FinishedRequest) -> bool | None:
        query, source = self._answered.get(request.process_ids, (None, None))
        if query is None:
            return None
        committed = query.committedOffsets().get(source)
        return bool(committed.isDefined() and json.loads(committed.get().json()) == request.end)

    def _facts(self, request: QueryRequest) -> QueryFacts | None:
        """The facts about a source's query.

        Where the process of a source cannot be found, every query that reads for its group may be meant, and state of any of them counts: better to
        reject one query too many than one too few.
        """
        queries = list(self._active())
        self._answered = {ids: known for ids, known in self._answered.items() if known[0].isActive()}
        for query in queries:
            for source in _elements(query.sources()):
                if request.process_ids & set(self._process_ids(source)):
                    self._answered[request.process_ids] = query, source
                    return _facts([query], [s for s in self._streams(query) if s.leaf.stream().equals(source)])
        reading = {query: list(_of_group(self._streams(query), request.group_id)) for query in queries}
        meant = [query for query, streams in reading.items() if streams]
        logger.debug("%d queries read for group '%s'", len(meant), request.group_id)
        return _facts(meant, [stream for query in meant for stream in reading[query]]) if meant else None

    def _active(self) -> Iterator[Any]:
        queries = self._spark._jsparkSession.sharedState().activeStreamingQueries().elements()
        while queries.hasMoreElements():
            yield queries.nextElement()

    def _streams(self, query: Any) -> list[ReadStream]:
        # Its method would wait for the query's thread, which may be waiting for this answer.
        plan = self._field(query, "logicalPlan")
        return [] if plan is None else [s for s in read_streams(plan) if s.leaf.nodeName() == _SCAN]

    def _process_ids(self, source: Any) -> Iterator[int]:
        """The processes of a Python source; none for any other, or where this version of Spark keeps them elsewhere."""
        try:
            factory = self._field(self._field(source, "runner"), "pythonWorkerFactory")
            for process in _iterated(self._field(factory.get(), "simpleWorkers").values().iterator()):
                yield int(process.pid())
        except Py4JError as e:
            logger.debug("The process of a source is not to be found: %s", e)

    def _field(self, of: Any, name: str) -> Any:
        return self._fields.readField(of, name, True)


def _facts(queries: Iterable[Any], streams: Iterable[ReadStream]) -> QueryFacts:
    checkpoints = {str(query.resolvedCheckpointRoot()) for query in queries}
    operators = frozenset[str]().union(*(stream.operators for stream in streams))
    return QueryFacts(checkpoints.pop() if len(checkpoints) == 1 else None, operators)


def _of_group(streams: Iterable[ReadStream], group_id: str) -> Iterator[ReadStream]:
    for stream in streams:
        options = stream.leaf.relation().options()
        if group_id in (options.get("group.id"), options.get("kafka.group.id")):
            yield stream


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))


def _iterated(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
