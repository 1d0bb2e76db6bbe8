"""Rejects stateful and unknown operators over a shared stream: state does not move to the next owner of a partition.

Called by ``event_time.with_event_time`` and ``sinks.exactly_once`` when a query is built.
``source.running_query`` calls it before the first batch of any query. Two queries of a group would each store a part of
each result, and a rebalance would split that part again. Source: SEMANTICS S9.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark import __version__
from pyspark.sql import DataFrame

from streamgroups.errors import InvalidOption
from streamgroups_spark.source.read_options import read_options
from streamgroups_spark.source.source_options import SourceOptions


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


def is_shared(df: DataFrame) -> bool:
    """Whether a DataFrame reads a stream that queries share."""
    return df.isStreaming and any(options.is_shared for options in read_options(df))
