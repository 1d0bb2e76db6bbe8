"""Finds the query of a source among the active streaming queries of this Spark application.

After ``sg.register`` it answers the requests of sources in the user's process (``messages.query``). Spark stores
the active queries of all its sessions. Each query refers to its sources, and each Python source to its process, which
identifies the requester. Most of these fields are private to Spark, so they are read by reflection. Source: Spark's
``SharedState.activeStreamingQueries``, ``MicroBatchExecution`` and ``PythonStreamingSourceRunner`` (4.2).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamgroups_spark.bridge.plan import FORMAT, ReadStream, is_data_source, read_streams
from streamgroups_spark.bridge.punctuation_options import stream_time
from streamgroups_spark.internals.kept_progress import MIN_RETENTION, RETENTION
from streamgroups_spark.internals.private_spark import (
    PYTHON_SINK,
    PrivateFields,
    active_queries,
    has_stopped,
    qualified_path,
)
from streamgroups_spark.messages.query import DurationRequest, FinishedRequest, QueryFacts, QueryRequest
from streamgroups_spark.messages.time import StreamTime

logger = logging.getLogger(__name__)

_SCAN = "StreamingDataSourceV2ScanRelation"
#: The formats of the Kafka sink. With dead letters, ``sinks.exactly_once`` adds a suffix.
_KAFKA_SINK, _KAFKA_SINK_WITH_LETTERS = FORMAT, f"{FORMAT}-kafkasink-"


class ActiveQueries:
    """The active queries of a Spark application.

    Args:
        spark: any of its sessions.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._fields = PrivateFields(spark)
        #: Queries and sources by the process ids of requests. Spark removes a query before its sources have ended.
        self._answered: dict[frozenset[int], tuple[Any, Any]] = {}

    def answer(self, request: Any) -> QueryFacts | int | None:
        """Returns the reply to a source. ``None`` if no query of this application matches the request."""
        if isinstance(request, QueryRequest):
            return self._facts(request)
        if isinstance(request, FinishedRequest):
            return self._has_finished(request)
        if isinstance(request, DurationRequest):
            return self._finished_in(request)
        return None

    def _has_finished(self, request: FinishedRequest) -> bool | None:
        query, source = self._answered.get(request.process_ids, (None, None))
        if query is None:
            return None
        committed = query.committedOffsets().get(source)
        return bool(committed.isDefined() and json.loads(committed.get().json()) == request.end)

    def _finished_in(self, request: DurationRequest) -> int | None:
        """Returns the duration of the last batch; ``None`` if Spark has not reported this batch."""
        query, _ = self._answered.get(request.process_ids, (None, None))
        progress = None if query is None else query.lastProgress()
        return None if progress is None else finished_in(progress.json(), request.end)

    def _facts(self, request: QueryRequest) -> QueryFacts | None:
        """Returns the facts about the query of a source.

        If the process of a source cannot be found, every query that reads for its group matches. State in any of them
        counts, because an unnecessary rejection is better than a missing one.
        """
        queries = list(active_queries(self._spark))
        self._answered = {ids: known for ids, known in self._answered.items() if known[0].isActive()}
        for query in queries:
            for source in _elements(query.sources()):
                if request.process_ids & set(self._process_ids(source)):
                    self._answered[request.process_ids] = query, source
                    streams = self._streams(query)
                    own = [s for s in streams if s.leaf.stream().equals(source)]
                    is_read_once = len(own) == 1
                    if not streams:
                        # Spark still plans the query and waits for this source: ``availableNow`` before Spark 4.2.
                        streams = [s for s in read_streams(query.analyzedPlan()) if is_data_source(s.leaf)]
                        own = list(_of_group(streams, request.group_id))
                    facts = _facts([query], own, streams, request.group_id)
                    sink = self._sink(query)
                    output = self._output(query, sink)
                    return replace(
                        facts,
                        is_read_once=is_read_once,
                        commits_offsets=output != "",
                        output=output,
                        sink=sink,
                        query_id=str(query.id().toString()),
                    )
        reading = {query: self._streams(query) for query in queries}
        meant = [query for query, streams in reading.items() if any(_of_group(streams, request.group_id))]
        logger.debug("%d queries read for group '%s'", len(meant), request.group_id)
        if not meant:
            return None
        all_streams = [stream for query in meant for stream in reading[query]]
        facts = _facts(meant, _of_group(all_streams, request.group_id), all_streams, request.group_id)
        sinks = [self._sink(query) for query in meant]
        outputs = [self._output(query, sink) for query, sink in zip(meant, sinks, strict=True)]
        output, sink = (outputs[0], sinks[0]) if len(meant) == 1 else (None, None)
        return replace(facts, commits_offsets=any(it != "" for it in outputs), output=output, sink=sink)

    @property
    def has_ended(self) -> bool:
        """Whether the application has ended."""
        return has_stopped(self._spark)

    def checkpoints(self) -> frozenset[str]:
        """The checkpoints of the active queries, as Spark has resolved them."""
        return frozenset(str(query.resolvedCheckpointRoot()) for query in active_queries(self._spark))

    def is_running(self, query_id: str) -> bool:
        """Whether a query runs. Spark marks a query as ended before it interrupts its batch."""
        return any(str(query.id().toString()) == query_id and query.isActive() for query in active_queries(self._spark))

    def resolved(self, checkpoint: str) -> str:
        """Resolves a checkpoint as Spark does: to an absolute path on the default file system of the application."""
        return qualified_path(self._spark, checkpoint)

    def _streams(self, query: Any) -> list[ReadStream]:
        plan = self._fields.logical_plan(query)
        return [] if plan is None else [s for s in read_streams(plan) if s.leaf.nodeName() == _SCAN]

    def _output(self, query: Any, sink: str | None) -> str | None:
        """The topic of the Kafka sink of a query. See :class:`QueryFacts`.

        If it is unknown, the sink counts as one that commits offsets: an unnecessary rejection is better than a missing one.
        """
        if sink is not None and sink != _KAFKA_SINK and not sink.startswith(_KAFKA_SINK_WITH_LETTERS):
            return ""
        try:
            return None if sink is None else kafka_output(self._fields.sink_options(query))
        except (Py4JError, PySparkException) as e:
            logger.debug("The output of a query cannot be determined: %s", e)
            return None

    def _sink(self, query: Any) -> str | None:
        """The sink of a query. See :class:`QueryFacts`."""
        try:
            sink = query.sink()
            name = str(sink.getClass().getSimpleName())
            # Spark's own sinks have no name.
            return str(sink.name()) if name == PYTHON_SINK else name
        except (Py4JError, PySparkException) as e:
            logger.debug("The sink of a query cannot be determined: %s", e)
            return None

    def _process_ids(self, source: Any) -> Iterator[int]:
        """The processes of a Python source.

        Empty for other sources, and if this version of Spark stores them elsewhere.
        """
        try:
            yield from self._fields.process_ids(source)
        except (Py4JError, PySparkException) as e:
            # PySpark converts some Java exceptions, such as that of a missing field, to its own.
            logger.debug("The process of a source cannot be determined: %s", e)


def _facts(
    queries: Collection[Any], own: Iterable[ReadStream], all_streams: Iterable[ReadStream], group_id: str
) -> QueryFacts:
    checkpoints = {str(query.resolvedCheckpointRoot()) for query in queries}
    own = list(own)
    operators = frozenset[str]().union(*(stream.operators for stream in own))
    unknown = frozenset[str]().union(*(stream.unknown for stream in own))
    # The punctuations of a stream follow its records in the plan. The query can read a group of the same name in another
    # cluster, with other settings.
    streams = list(all_streams)
    first = next((i for i, stream in enumerate(streams) if any(stream is it for it in own)), 0)
    times = (_time_of(stream) for stream in streams[first:])
    time = next((time for time in times if time is not None and time.group_id == group_id), None)
    stages = frozenset(stream.stages for stream in own if stream.stages)
    triggers = {str(query.trigger().getClass().getSimpleName()).rstrip("$") for query in queries}
    return QueryFacts(
        checkpoints.pop() if len(checkpoints) == 1 else None,
        operators,
        time,
        stages,
        trigger=triggers.pop() if len(triggers) == 1 else None,
        unknown_operators=unknown,
        keeps_progress=all(int(it.sparkSession().conf().get(RETENTION)) >= MIN_RETENTION for it in queries),
    )


def kafka_output(options: Mapping[str, str]) -> str:
    """The topic of the Kafka sink whose transactions contain the positions, as ``kafka:topic``. Empty if it has no transactions.

    Args:
        options: the options of the sink.

    >>> kafka_output({"Topic": "delays"}), kafka_output({}), kafka_output({"delivery": "at-least-once"})
    ('kafka:delays', 'kafka:the column topic', '')
    """
    given = {name.lower(): value for name, value in options.items()}
    if given.get("delivery", "exactly-once").strip().lower() != "exactly-once":
        return ""
    return f"kafka:{given.get('topic') or 'the column topic'}"


def finished_in(progress: str, end: Mapping[str, Any]) -> int | None:
    """Returns the milliseconds of a batch from the plan to the end; ``None`` if the progress is that of another batch.

    Args:
        progress: the JSON of the progress.
        end: the end offset of a source in the batch.

    >>> finished_in('{"sources": [{"endOffset": {"n": 7}}], "durationMs": {"triggerExecution": 900, "latestOffset": 100}}', {"n": 7})
    800
    """
    found = json.loads(progress)
    ends = [it.get("endOffset") for it in found.get("sources") or ()]
    phases_ms = found.get("durationMs") or {}
    # Spark writes an offset as JSON, or as a text that contains JSON.
    if "triggerExecution" not in phases_ms or end not in [json.loads(it) if isinstance(it, str) else it for it in ends]:
        return None
    return int(phases_ms["triggerExecution"] - phases_ms.get("latestOffset", 0))


def _time_of(stream: ReadStream) -> StreamTime | None:
    """The event time of a stream of punctuations. ``None`` for any other stream."""
    options = _options(stream.leaf)
    if options.get("reported_as") is None:
        return None
    names = ("group", "time", "reported_as", "read_column")
    return stream_time({name: str(options.get(name)) for name in names if options.get(name) is not None})


def _of_group(streams: Iterable[ReadStream], group_id: str) -> Iterator[ReadStream]:
    for stream in streams:
        options = _options(stream.leaf)
        if group_id in (options.get("group.id"), options.get("kafka.group.id")):
            yield stream


def _options(leaf: Any) -> Any:
    return leaf.extraOptions() if is_data_source(leaf) else leaf.relation().options()


def _elements(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))
