"""``streamgroups checkpoint show``: shows the batches, positions, watermarks and operators of a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from streamgroups.checkpoints.spark_batches import SourceBatch, SourceKind, read_options, selected_source
from streamgroups.checkpoints.spark_logs import Operator
from streamgroups.errors import InvalidOption
from streamgroups.groups.lag import PartitionError
from streamgroups.json_values import write_json
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.printable import printable
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_admin.checkpoints.batches import Batch, last_batches, query_id, read_batch, read_operators
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, require_checkpoint, translated
from streamgroups_cli.checkpoint.arguments import BatchOption, Location
from streamgroups_cli.connection import Connect
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message

_BATCHES = (
    Column("batch", right=True),
    Column("status"),
    Column("planned_at"),
    Column("watermark"),
    Column("next_watermark"),
)
_SOURCES = (Column("source"), Column("format"), Column("group"), Column("start"), Column("end"))
_PARTITIONS = (
    Column("source"),
    Column("topic"),
    Column("partition", right=True),
    Column("start_offset", right=True),
    Column("end_offset", right=True),
    Column("offsets", right=True),
)
_OF_CLUSTER = (
    Column("committed_offset", right=True),
    Column("difference", right=True),
    Column("earliest_offset", right=True),
    Column("latest_offset", right=True),
    Column("remaining", right=True),
)
_OPERATORS = (
    Column("operator", right=True),
    Column("name"),
    Column("store"),
    Column("partitions", right=True),
    Column("provider"),
    Column("formats"),
)


@dataclass(frozen=True, slots=True)
class _Content:
    """The printed content.

    Args:
        location: the checkpoint.
        query_id: the id of its query.
        batches: the batches, the one whose sources are shown first.
        operators: the metadata of the operators.
        of_cluster: the cells of each partition from the cluster; ``None`` without a connection.
    """

    location: str
    query_id: str | None
    batches: Sequence[Batch]
    operators: Mapping[int, Operator | None]
    of_cluster: Mapping[tuple[str, TopicPartition], Sequence[Cell]] | None


@with_options
def show(
    connect: Connect,
    location: Location,
    batch: BatchOption = None,
    as_options: Annotated[
        bool,
        typer.Option(
            "--as-options",
            help="Print the options with which spark.read reads exactly the records of the batch, as JSON.",
        ),
    ] = False,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="N", help="For --as-options: the number or name of a source of the query."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="With -b: compare positions with this group."),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the batches, positions, watermarks and operators of a checkpoint, without Spark.

    With -b or --context: also the committed offsets of the group, and the bounds of the topics.
    """
    is_connected = (connect.bootstrap_server, connect.context, connect.command_config) != (None, None, None)
    if source is not None and not as_options:
        raise InvalidOption("--source needs --as-options.", remedy="Omit it: all sources are shown.")
    if group is not None and not is_connected:
        raise InvalidOption("--group needs a cluster.", remedy="Add --bootstrap-server or --context.")
    with translated(location):
        files = CheckpointFiles(location)
        require_checkpoint(files)
        batches = _batches(files, batch)
        if as_options:
            _print_options(selected_source(batches[0].sources, source), batches[0].batch_id)
            return
        operators = read_operators(files, batches[0].batch_id)
        id_ = query_id(files)
    of_cluster = _from_cluster(connect, batches[0].sources, group) if is_connected else None
    content = _Content(files.location, id_, batches, operators, of_cluster)
    emit(
        output,
        document=lambda: _document(content),
        tables=lambda: _tables(content),
        flat=lambda: _partitions(content),
    )


def _batches(files: CheckpointFiles, batch_id: int | None) -> list[Batch]:
    if batch_id is not None:
        return [read_batch(files, batch_id)]
    newest, committed = last_batches(files)
    if newest is None:
        raise InvalidOption(
            f"The checkpoint '{files.location}' contains no batch.", remedy="Its query has not planned a batch yet."
        )
    ids = [committed] if committed is not None else []
    return [read_batch(files, it) for it in ([*ids, newest] if newest != committed else ids)]


def _print_options(source: SourceBatch, batch_id: int) -> None:
    text = write_json(read_options(source, batch_id), indent=1)
    print(printable(text, keep="\n") if sys.stdout.isatty() else text)
    print_message(
        f"Use them with spark.read.format('{source.kind.value}'), and add 'kafka.bootstrap.servers' and other settings of the "
        "query."
    )


def _from_cluster(
    connect: Connect, sources: Sequence[SourceBatch], group: str | None
) -> dict[tuple[str, TopicPartition], Sequence[Cell]]:
    partitions = {tp for it in sources for tp in it.ranges}
    groups = {it.name: group or it.group_id for it in sources}
    group_ids = sorted({it for it in groups.values() if it is not None})
    with connect() as cluster:
        bounds = cluster.topics.bounds(partitions)
        committed = cluster.groups.committed_offsets(group_ids) if group_ids else {}
    found: dict[tuple[str, TopicPartition], Sequence[Cell]] = {}
    for it in sources:
        of_group = committed.get(groups[it.name] or "", {})
        for tp, read in it.ranges.items():
            known = bounds[tp]
            offset = of_group[tp].next_offset if tp in of_group else None
            difference = None if offset is None else offset - read.end_offset
            found[it.name, tp] = (offset, difference, *_bounds(known, read.end_offset))
    return found


def _bounds(bounds: Bounds | PartitionError, end_offset: int) -> tuple[Cell, ...]:
    if isinstance(bounds, Bounds):
        return bounds.beginning_offset, bounds.end_offset, bounds.end_offset - end_offset
    return None, None, None


def _document(content: _Content) -> dict[str, Any]:
    shown = content.batches[0]
    return {
        "checkpoint": content.location,
        "query_id": content.query_id,
        "batches": Table(_BATCHES, [_batch_row(it) for it in content.batches]).documents,
        "sources": [
            {"source": it.name, "format": it.kind.value, "group": it.group_id, "start": it.start, "end": it.end}
            for it in shown.sources
        ],
        "partitions": _partitions(content).documents,
        "operators": [
            {
                "operator": number,
                "name": None if it is None else it.name,
                "stores": []
                if it is None
                else [{"store": s.name, "partitions": shown.offsets.partitions_of(s)} for s in it.stores],
                "provider": shown.offsets.provider,
                "formats": shown.offsets.formats,
            }
            for number, it in content.operators.items()
        ],
    }


def _tables(content: _Content) -> list[Table]:
    shown = content.batches[0]
    id_ = "without an id: the copy is incomplete" if content.query_id is None else content.query_id
    heading = f"Checkpoint {content.location}, query {id_}"
    of = f"batch {shown.batch_id}"
    tables = [Table(_BATCHES, [_batch_row(it) for it in content.batches], heading)]
    others = [it for it in shown.sources if it.kind is SourceKind.OTHER or not it.ranges]
    if others:
        rows = [[it.name, it.kind.value, it.group_id, _text(it.start), _text(it.end)] for it in others]
        tables.append(Table(_SOURCES, rows, f"Sources, {of}"))
    if len(others) < len(shown.sources):
        tables.append(_partitions(content, f"Partitions, {of}"))
    if content.operators:
        tables.append(Table(_OPERATORS, _operator_rows(content), "Operators"))
    return tables


def _batch_row(batch: Batch) -> list[Cell]:
    commit = batch.commit
    return [
        batch.batch_id,
        "planned" if commit is None else "committed",
        utc(batch.offsets.time_ms),
        _watermark(batch.offsets.watermark_ms),
        None if commit is None else _watermark(commit.next_watermark_ms),
    ]


def _watermark(watermark_ms: int) -> str | None:
    return utc(watermark_ms) if watermark_ms else None


def _partitions(content: _Content, heading: str = "") -> Table:
    rows: list[list[Cell]] = [
        [
            source.name,
            tp.topic,
            tp.partition,
            read.next_offset,
            read.end_offset,
            read.count,
            *(() if content.of_cluster is None else content.of_cluster[source.name, tp]),
        ]
        for source in content.batches[0].sources
        for tp, read in sorted(source.ranges.items())
    ]
    return Table(_PARTITIONS if content.of_cluster is None else (*_PARTITIONS, *_OF_CLUSTER), rows, heading)


def _operator_rows(content: _Content) -> list[list[Cell]]:
    offsets = content.batches[0].offsets
    formats = ", ".join(f"{name}={value}" for name, value in offsets.formats.items())
    rows: list[list[Cell]] = []
    for number, it in content.operators.items():
        if it is None:
            rows.append([number, None, None, offsets.shuffle_partitions, offsets.provider, formats])
        else:
            rows += [[number, it.name, s.name, offsets.partitions_of(s), offsets.provider, formats] for s in it.stores]
    return rows


def _text(offset: Any) -> str | None:
    text = None if offset is None else write_json(offset)
    return text if text is None or len(text) <= 200 else text[:200] + "…"
