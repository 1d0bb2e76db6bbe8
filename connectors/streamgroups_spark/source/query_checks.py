"""Checks the options of a source with the plan of its query, and describes the query by its plan.

Called by ``windows.windows``, ``state.operator_plan``, ``event_time.with_event_time`` and ``sinks.exactly_once`` when a query is
built, and by ``source.running_query`` before the first batch of any query.

* ``maxDrift`` is rejected where no watermark over all partitions exists on the driver.
* ``targetBatchTime`` is rejected where Spark does not keep the duration of the last batch.
* Stateful and unknown operators over a shared stream are rejected: state does not move to the next owner of a partition. Two
  queries of a group would each store a part of each result, and a rebalance would split that part again.
* A query is rejected without the ledger of its sink: its positions would be those of the group only.

Source: SEMANTICS S9, S10, S14, W16, X3; ``streamgroups.groups.program``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark import __version__
from pyspark.sql import DataFrame

from streamgroups.durations import exact
from streamgroups.errors import InvalidOption, QueryUnknown
from streamgroups.groups.program import form_of
from streamgroups.ledgers.staging import StagingSink
from streamgroups_spark.bridge.stage_name import DirectColumns, StageName
from streamgroups_spark.internals.kept_progress import no_progress
from streamgroups_spark.messages.query import QueryFacts
from streamgroups_spark.source.read_options import has_event_time, read_options
from streamgroups_spark.source.source_options import SourceOptions

_REMEDY = "Use sg.with_event_time, or sg.windows with time='group'; or leave 'maxDrift' out."


def check_drift(source: SourceOptions, facts: QueryFacts | None) -> None:
    """Checks that the driver has the event times that ``maxDrift`` needs.

    Args:
        source: the options of the stream.
        facts: the facts about the query; ``None`` if they are unknown.

    Raises:
        InvalidOption: if it does not have them.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092", "maxDrift": "1h"}
    >>> check_drift(parse(options, streaming=True), QueryFacts(None, frozenset(), stages=frozenset({("windows:group",)})))
    >>> check_drift(parse(options, streaming=True), QueryFacts(None, frozenset()))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'maxDrift' is 1h, but the query of group 'board' has no watermark over all \
partitions. Use sg.with_event_time, or sg.windows with time='group'; or leave 'maxDrift' out.
    """
    drift_ms = source.limits.max_drift_ms
    if drift_ms is None:
        return
    if facts is None:
        raise InvalidOption(
            f"Option 'maxDrift' is {exact(drift_ms)}, but the process that started the query of group "
            f"'{source.group_id}' does not report its event time.",
            remedy="Call sg.register(spark) in that process, and start the query again; or leave 'maxDrift' out.",
        )
    if facts.time is None and not any(StageName.parse(it).has_group_time for branch in facts.stages for it in branch):
        raise InvalidOption(
            f"Option 'maxDrift' is {exact(drift_ms)}, but the query of group '{source.group_id}' has no watermark over "
            "all partitions.",
            remedy=_REMEDY,
        )


def check_batch_time(source: SourceOptions, facts: QueryFacts | None) -> None:
    """Checks that Spark keeps the durations of batches if ``targetBatchTime`` needs them.

    The time between two plans contains the wait for the trigger too. With it the limit of a batch would only grow and shrink.

    Args:
        source: the options of the stream.
        facts: the facts about the query; ``None`` if they are unknown.

    Raises:
        InvalidOption: if it does not keep them.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092"}
    >>> given = parse(options | {"targetBatchTime": "10s"}, streaming=True)
    >>> check_batch_time(given, QueryFacts(None, frozenset()))
    >>> check_batch_time(given, QueryFacts(None, frozenset(), keeps_progress=False))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: spark.sql.streaming.numRecentProgressUpdates is below 2, so Spark keeps no progress of \
finished batches, which option 'targetBatchTime' of group 'board' needs. Set it to at least 2. Its default value is 100.
    """
    if source.limits.target_batch_ms is not None and facts is not None and not facts.keeps_progress:
        raise no_progress(f"option 'targetBatchTime' of group '{source.group_id}'")


def reject_drift(sources: Collection[SourceOptions], called: str) -> None:
    """Rejects ``maxDrift`` for an operator whose partitions have no common watermark.

    Args:
        sources: the options of the streams that it reads.
        called: the function of the API, for errors.

    Raises:
        InvalidOption: if one of them has the option.
    """
    for source in sources:
        drift_ms = source.limits.max_drift_ms
        if drift_ms is not None:
            raise InvalidOption(
                f"Option 'maxDrift' of the source is {exact(drift_ms)}, but the partitions have no common watermark in "
                f"this call of {called}.",
                remedy=_REMEDY,
            )


def check_drift_of_query(df: DataFrame) -> None:
    """Checks that windows with the watermark of Spark have one over all partitions, if the source has ``maxDrift``.

    Raises:
        InvalidOption: if the DataFrame has not passed through ``sg.with_event_time``.
    """
    if df.isStreaming and not has_event_time(df):
        reject_drift(read_options(df), "sg.windows")


def check_state(source: SourceOptions, operators: Collection[str], unknown: Collection[str] = ()) -> None:
    """Rejects stateful and unknown operators over a shared stream.

    Args:
        source: the options of the stream.
        operators: the stateful operators over the stream.
        unknown: the unknown operators of Spark over it (``internals.logical_operators``).

    Raises:
        InvalidOption: if it has such operators. The error names the group, the operators and the remedy.

    >>> from streamgroups_spark.source.source_options import parse
    >>> options = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092"}
    >>> check_state(parse(options | {"membership": "exclusive"}, streaming=True), {"Aggregate"})
    >>> check_state(parse(options, streaming=True), {"Aggregate"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: The query is stateful (Aggregate), but shares its stream with the other members of group 'board'. \
State does not move to the next owner of a partition, so each member would have a part of each result. Set membership=exclusive on its source. \
Or use sg.windows or sg.stateful, whose state follows its partition; sg.repartition partitions a topic by their keys.
    """
    if operators and source.is_shared:
        raise InvalidOption(
            f"The query is stateful ({', '.join(sorted(operators))}), but shares its stream with the other "
            f"members of group '{source.group_id}'. State does not move to the next owner of a partition, "
            "so each member would have a part of each result.",
            remedy="Set membership=exclusive on its source. Or use sg.windows or sg.stateful, whose state follows its "
            "partition; sg.repartition partitions a topic by their keys.",
        )
    if unknown and source.is_shared:
        raise InvalidOption(
            f"The query has an operator of PySpark {__version__} that is unknown to this version of streamgroups "
            f"({', '.join(sorted(unknown))}), and shares its stream with the other members of group '{source.group_id}'. "
            "The operator can have state, which does not move to the next owner of a partition.",
            remedy="Set membership=exclusive on its source, or write the query without this operator.",
        )


def check_ledger(facts: QueryFacts | None, sink: object | None, group_id: str) -> None:
    """Checks that a query whose sink stores a ledger has received it.

    Without it the query would not take its partitions over in the ledger, and would commit positions of another program.

    Args:
        facts: the facts about the query; ``None`` if they are unknown.
        sink: the sink that the user's process has returned; ``None`` without one.
        group_id: the group of the source.

    Raises:
        QueryUnknown: if its sink stores a ledger, and the user's process has returned none.

    >>> check_ledger(QueryFacts("/data/board", frozenset(), sink="ForeachBatchSink"), None, "board")
    >>> check_ledger(QueryFacts("/data/board", frozenset(), sink="streamgroups-deltasink-1f"), None, "board")
    Traceback (most recent call last):
    streamgroups.errors.QueryUnknown: The process that started the query of group 'board' does not return the ledger of its \
sink 'streamgroups-deltasink-1f'. Start the query again with sg.exactly_once, and keep that process running.
    """
    if sink is None and facts is not None and facts.has_ledger_sink:
        raise QueryUnknown(
            f"The process that started the query of group '{group_id}' does not return the ledger of its sink '{facts.sink}'.",
            remedy="Start the query again with sg.exactly_once, and keep that process running.",
            group=group_id,
        )


def is_shared(df: DataFrame) -> bool:
    """Whether a DataFrame reads a stream that queries share."""
    return df.isStreaming and any(options.is_shared for options in read_options(df))


def form_of_query(facts: QueryFacts | None, sink: StagingSink[Any, Any, Any, Any] | None) -> str:
    """Returns the form of a program. Empty if the query, or its sink, is unknown.

    Args:
        facts: the facts about the query. ``None`` if they are unavailable.
        sink: the sink that stores the ledger of the query. ``None`` without a ledger.

    >>> facts = QueryFacts("/data/board", frozenset(), stages=frozenset({("minutes:flushes+kind=windows",)}), output="kafka:clicks")
    >>> form_of_query(facts, None)
    'windows:minutes -> kafka:clicks'
    """
    if facts is None or facts.checkpoint is None:
        return ""
    output = facts.output if sink is None else sink.output
    if output is None:
        return ""
    branches = [[StageName.parse(it).in_form for it in branch] for branch in facts.stages]
    return form_of(branches, facts.operators, output)


def direct_columns(facts: QueryFacts | None) -> DirectColumns | None:
    """Returns the columns that readers pass on. ``None``: Spark passes the records to their operator.

    Args:
        facts: the facts about the query; ``None`` if they are unknown.

    >>> direct_columns(QueryFacts(None, frozenset(), stages=frozenset({("windows:direct=key/",)}), is_read_once=True))
    DirectColumns(to_operator=frozenset({'key'}), to_spark=frozenset())
    """
    # Another branch of the query would need the records that Spark does not have.
    if facts is None or not facts.is_read_once or not facts.stages:
        return None
    [stages] = facts.stages
    return StageName.parse(stages[0]).direct_columns
