"""Adds an operator with state to a stream or to bounded data, in the stage that reads, and checks what it reads.

Called by ``state.stateful``, ``windows.by_offset`` and ``joins.join`` on the driver. Each partition has a state of its
own. So a task must receive the records of its partitions in their order, and all records of a key must be in one
partition. Source: SEMANTICS S9, S10, W17.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence

from pyspark import __version__
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from streamgroups.errors import InvalidOption
from streamgroups.groups.subscription import Partitions, Subscription, Topics
from streamgroups_operators.joins.join_definition import JoinOperator
from streamgroups_operators.operator import StatefulOperator
from streamgroups_spark.bridge.direct import direct_records
from streamgroups_spark.bridge.plan import (
    FORMAT,
    analyzed,
    leaves,
    moves_of_bounded,
    read_streams,
    source_name,
)
from streamgroups_spark.bridge.user_process import STATES, channel_of
from streamgroups_spark.frames.key_columns import is_partitioned_by
from streamgroups_spark.session import SESSION, require_registered
from streamgroups_spark.source.query_checks import reject_drift
from streamgroups_spark.source.read_options import read_options
from streamgroups_spark.source.source_options import SourceOptions
from streamgroups_spark.state.chains import reject_behind
from streamgroups_spark.state.stage import BoundedStage, StateStage, stage_name

#: The columns of the source by which an operator finds its state, besides ``topic``.
PLACE = ("partition", "offset")
#: The name is a directory.
_ENCRYPTION = "spark.io.encryption.enabled"
_NAME = re.compile(r"\w[\w.-]*")


def check_is_stream(df: DataFrame) -> None:
    """Checks that a DataFrame is a stream.

    Raises:
        InvalidOption: if it is bounded data.
    """
    if not df.isStreaming:
        raise InvalidOption(
            "The DataFrame is not a streaming DataFrame.",
            remedy='Read it with spark.readStream.format("streamgroups").',
        )


def check_place(df: DataFrame, name: str, called: str, *, otherwise: str = "") -> None:
    """Checks that an operator finds the state of each record.

    Args:
        df: the records.
        name: the name of the operator.
        called: the function of the API, for errors.
        otherwise: another remedy, a sentence.

    Raises:
        InvalidOption: if the name is not suitable, a column is missing, or another source is read too.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"Option 'name' of {called} is '{name}'.", remedy="Use letters, digits, '_', '-' and '.', such as 'counts'."
        )
    for column in PLACE:
        if column not in df.columns:
            raise InvalidOption(
                f"The DataFrame has no column '{column}', by which {called} finds the state of a record.",
                remedy="Keep the columns 'topic', 'partition' and 'offset' of the source: use withColumn, or add them "
                "to select.",
            )
    foreign = {source_name(stream.leaf) for stream in read_streams(analyzed(df))} - {FORMAT}
    if foreign:
        raise InvalidOption(
            f"The DataFrame also reads the source '{min(foreign)}', whose records have no state in {called}.",
            remedy=f"Read one stream of 'streamgroups', without sg.with_event_time and union. {otherwise}".strip(),
        )


def check_bounded(df: DataFrame, called: str) -> None:
    """Checks that each task over bounded data has whole partitions, in the order of their offsets.

    Args:
        df: the DataFrame. A stream is not checked.
        called: the function of the API, for errors.

    Raises:
        InvalidOption: if it is not one read of ``streamgroups``, or records move between tasks, or an option splits
            partitions.
    """
    if df.isStreaming:
        return
    plan = analyzed(df)
    names = [source_name(leaf) for leaf in leaves(plan)]
    if names != [FORMAT]:
        raise InvalidOption(
            f"The DataFrame reads {', '.join(sorted(names))}. On bounded data, {called} needs one read of 'streamgroups'.",
            remedy=f'Call {called} directly on spark.read.format("streamgroups"), before a join or union.',
        )
    moves = moves_of_bounded(plan)
    if moves:
        raise _moved(moves, called)
    [options] = read_options(df)
    if options.splitting is not None:
        raise InvalidOption(
            f"Option '{options.splitting}' splits partitions, but {called} needs each partition in one task.",
            remedy=f"Leave '{options.splitting}' out.",
        )


def _moved(moves: Collection[str], called: str, otherwise: str = "") -> InvalidOption:
    return InvalidOption(
        f"Before {called}, the query moves records between tasks ({', '.join(sorted(moves))}). The operator must "
        "be in the stage that reads.",
        remedy=f"Call {called} first. Or write the records to a topic, partitioned by the keys of {called}: "
        f"sg.repartition(df, by=[...], topic=...). {otherwise}".strip(),
    )


def _unknown(operators: Collection[str], called: str) -> InvalidOption:
    return InvalidOption(
        f"Before {called}, the query has an operator of PySpark {__version__} that is unknown to this version of "
        f"streamgroups ({', '.join(sorted(operators))}). The operator can move records between tasks, or change their order.",
        remedy=f"Call {called} first.",
    )


def check_keys(df: DataFrame, by: Sequence[str], called: str, *, prepartitioned: bool, otherwise: str = "") -> None:
    """Checks that all records of a key are in one partition.

    Args:
        df: the records.
        by: the key columns.
        called: the function of the API, for errors.
        prepartitioned: whether the user guarantees it.
        otherwise: another remedy, a sentence.

    Raises:
        InvalidOption: if ``by`` contains neither the key of the record nor the columns of ``sg.repartition``, and the
            user does not guarantee it.
    """
    if "key" in by or prepartitioned:
        return
    # A union has the metadata of its first stream. Bounded data are one read.
    if is_partitioned_by(df.schema, by) and (not df.isStreaming or len(read_streams(analyzed(df))) == 1):
        return
    columns = ", ".join(by) or "no column"
    raise InvalidOption(
        f"The state of {called} belongs to a partition, and its keys are the values of {columns}. All records of a key "
        "must be in one partition.",
        remedy="Add the column 'key' to 'by'. If the record key determines the columns of 'by', set "
        f"prepartitioned=True. Otherwise write the records to a topic that is partitioned by them: "
        f"sg.repartition(df, by=[...], topic=...). {otherwise}".strip(),
    )


def in_reading_stage(
    records: DataFrame,
    operator: StatefulOperator | JoinOperator,
    rows: StructType,
    called: str,
    *,
    otherwise: str = "",
    flushes: bool = False,
    imports: bool = False,
    upstream: str | None = None,
) -> DataFrame:
    """Returns the output of an operator over a stream.

    Args:
        records: the records, with ``partition`` and ``offset``.
        operator: the operator.
        rows: the columns of its output.
        called: the function of the API, for errors.
        otherwise: another remedy, a sentence.
        flushes: whether the operator emits what is still open at the end of a bounded run.
        imports: whether the operator can use an imported watermark.
        upstream: the operator whose results are the records; ``None`` for records of the source.

    Raises:
        InvalidOption: if the query moves records between tasks before the operator, or has an unknown operator of Spark
            there; if the stream imports a watermark that the operator cannot use; or if the source has ``maxDrift`` and the
            operator does not use the watermark of the group.
    """
    require_registered(called, records)
    if upstream is None:
        reject_behind(records, called)
    sources = read_options(records)
    if not imports and upstream is None:
        _check_import(sources, called)
    spark = records.sparkSession
    application = spark.sparkContext.applicationId
    channel = channel_of(spark, STATES)
    # The operator of a join has the records of two topics, with their columns as structs.
    # Spark encrypts what it writes to local disks. Direct records and copies of states are not encrypted.
    is_encrypted = str(spark.conf.get(_ENCRYPTION, "false")).lower() == "true"
    can_be_direct = not isinstance(operator, JoinOperator) and all(it.direct_records for it in sources)
    direct = direct_records(records) if can_be_direct and not is_encrypted else None
    stage = StateStage(
        operator,
        SESSION,
        application,
        channel,
        flushes=flushes,
        upstream=upstream or "",
        direct=direct,
        copies=not is_encrypted and all(it.state_copies for it in sources),
    )
    if direct is not None:
        # Spark only counts most of the rows, which have nulls instead of their records.
        records = records.where(F.col(direct.partition).isNotNull())
    output = records.mapInArrow(stage, rows)
    streams = read_streams(analyzed(output))
    if not stage_name(operator).has_group_time and upstream is None:
        reject_drift(sources, called)
    unknown = {name for stream in streams for name in stream.unknown_before}
    if unknown:
        raise _unknown(unknown, called)
    moved_by = {name for stream in streams for name in stream.moved_by}
    if moved_by:
        raise _moved(moved_by, called, otherwise)
    return output


def over_bounded_data(records: DataFrame, operator: StatefulOperator, rows: StructType) -> DataFrame:
    """Returns the output of an operator over bounded data, which :func:`check_bounded` has checked.

    Args:
        records: the records, with ``partition`` and ``offset``, and ``topic`` if several topics are read.
        operator: the operator.
        rows: the columns of its output.
    """
    [options] = read_options(records)
    stage = BoundedStage(operator, _only_topic(options.subscription), time.time_ns() // 1_000_000)
    return records.mapInArrow(stage, rows)


def _only_topic(subscription: Subscription) -> str | None:
    """The topic of all records; ``None`` if several topics can be read."""
    names = set(subscription.names) if isinstance(subscription, Topics) else set()
    if isinstance(subscription, Partitions):
        names = {tp.topic for tp in subscription.topic_partitions}
    return names.pop() if len(names) == 1 else None


def _check_import(sources: Collection[SourceOptions], called: str) -> None:
    for options in sources:
        if options.import_from is not None:
            raise InvalidOption(
                f"Option 'importFrom' of group '{options.group_id}' is '{options.import_from}', but here each partition "
                f"of {called} has a watermark of its own.",
                remedy="Use sg.windows with time='group', or leave 'importFrom' out.",
            )
