"""Computes the rows of a processor from a few records as bounded data, without group, state and output.

Called by ``streamgroups processors run --preview`` for the last records, and by ``streamgroups processors sample`` for the next
records of a group. Source: SEMANTICS P1, W17.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from streamgroups.groups.subscription import partitions_of
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.processors.preview_ranges import check_previewable, last_records, next_records
from streamgroups.processors.processor import DEFAULT_INSTANCE, Processor
from streamgroups.query.offset_lookup import offsets_of
from streamgroups.query.position_options import ENDING, STARTING
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_spark.processors.run_directories import new_checkpoint
from streamgroups_spark.processors.steps import Run, rows_of
from streamgroups_spark.register import register
from streamgroups_spark.session import is_registered
from streamgroups_spark.source.cluster_clients import cluster_of
from streamgroups_spark.source.source_options import SourceOptions, parse


def last_ranges(declared: Processor, records: int, *, instance: str = DEFAULT_INSTANCE) -> list[OffsetRange]:
    """Returns the ranges of the last records of the topics of a processor.

    Args:
        declared: the processor.
        records: about how many records are read, divided among the partitions.
        instance: the instance of the processor.

    Raises:
        InvalidOption: see :func:`check_previewable`.
    """
    _, _, bounds = _read_bounds(declared, instance)
    return last_records(bounds, records)


def next_ranges(declared: Processor, records: int, *, instance: str = DEFAULT_INSTANCE) -> list[OffsetRange]:
    """Returns the ranges of the records after the committed offsets of the group of a processor.

    A partition without a committed offset is read from the starting position of the processor. This changes no group.

    Args:
        declared: the processor.
        records: about how many records are read, divided among the partitions.
        instance: the instance of the processor.

    Raises:
        InvalidOption: see :func:`check_previewable`.
    """
    parsed, cluster, bounds = _read_bounds(declared, instance)
    committed = cluster.committed(declared.group_id(instance), bounds)
    positions = {tp: it.next_offset for tp, it in committed.items()}
    if bounds.keys() - positions.keys():
        starting = offsets_of(cluster, parsed.starting, bounds, on_data_loss=parsed.on_data_loss)
        positions = {**starting, **positions}
    return next_records(bounds, positions, records)


def preview(
    declared: Processor, spark: SparkSession, ranges: Sequence[OffsetRange], *, instance: str = DEFAULT_INSTANCE
) -> DataFrame:
    """Returns the rows that a processor computes from some records, as bounded data.

    It joins no group, reads and stores no state, and writes nothing.

    Args:
        declared: the processor.
        spark: the session.
        ranges: the records.
        instance: the instance of the processor.

    Raises:
        InvalidOption: if a step rejects its argument.
    """
    if not is_registered(spark):
        register(spark)
    without = {*STARTING, *ENDING, "membership"}
    given = {name: it for name, it in declared.source.options.items() if name not in without}
    options = {"connection": declared.source.connection, **given}
    options["startingOffsets"] = _json((it.topic_partition, it.next_offset) for it in ranges)
    options["endingOffsets"] = _json((it.topic_partition, it.end_offset) for it in ranges)
    df = spark.read.format("streamgroups").options(**options).load()
    return rows_of(Run(declared, instance, 0, new_checkpoint(declared.group_id(instance))), df)


def _read_bounds(
    declared: Processor, instance: str
) -> tuple[SourceOptions, KafkaCluster, dict[TopicPartition, Bounds]]:
    check_previewable(declared)
    parsed = parse(declared.source_options(instance), streaming=True)
    cluster = cluster_of(parsed)
    partitions = partitions_of(parsed.subscription, cluster.topics())
    beginnings, ends = cluster.beginning_offsets(partitions), cluster.end_offsets(partitions)
    return parsed, cluster, {it: Bounds(beginnings[it], ends[it]) for it in partitions}


def _json(offsets: Iterable[tuple[TopicPartition, int]]) -> str:
    found: dict[str, dict[str, int]] = {}
    for tp, offset in offsets:
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(found)
