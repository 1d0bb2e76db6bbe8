"""Prints the rows that a processor computes from a few records. ``processors run --preview`` and ``processors sample`` use it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streamgroups.json_values import write_json
from streamgroups.partitions import OffsetRange
from streamgroups.processors.processor import Processor
from streamgroups.tables import Column, Table
from streamgroups_cli.output import Output, emit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAX_ROWS = 1_000
_MAX_CELL = 80


def print_rows(
    declared: Processor,
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    instance: str,
    output: Output = Output.table,
) -> None:
    """Computes and prints the rows, at most 1,000.

    Args:
        declared: the processor.
        spark: the session.
        ranges: the records.
        instance: the instance of the processor.
        output: the format. JSON, YAML and CSV contain the values as Spark writes them in JSON.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from streamgroups_spark.processors.previewing import preview

    df = preview(declared, spark, ranges, instance=instance)
    if output is Output.table:
        df.show(_MAX_ROWS, truncate=_MAX_CELL)
        return
    texts = df.limit(_MAX_ROWS).select(F.to_json(F.struct("*"))).collect()
    rows = [json.loads(it[0]) for it in texts]
    read = [
        {"topic": it.topic_partition.topic, "partition": it.topic_partition.partition}
        | {"first_offset": it.next_offset, "end_offset": it.end_offset}
        for it in ranges
        if len(it)
    ]
    cells = [[_cell(row.get(name)) for name in df.columns] for row in rows]
    emit(
        output,
        document=lambda: {"processor": declared.name, "read": read, "rows": rows},
        tables=lambda: [Table([Column(it) for it in df.columns], cells)],
    )


def _cell(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else write_json(value)
