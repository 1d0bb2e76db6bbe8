"""``streamgroups groups audit``: states for each offset whether the group has committed it once.

:mod:`streamgroups_admin.groups.auditing` collects the facts. ``streamgroups_cli.groups`` imports this module. Tests replace
:func:`postgres_ledger` and :func:`delta_ledger`, which need a sink. Source: SEMANTICS O2, O6.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from streamgroups.connections.config_file import connection_named
from streamgroups.connections.variants import PostgresConnection
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.extras import explained
from streamgroups.groups.offset_audit import Evidence, GroupAudit, PartitionAudit, Verdict
from streamgroups.monitoring.group_tables import unknown_groups
from streamgroups.partitions import TopicPartition
from streamgroups.positions import parse_time_ms
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_admin.groups.auditing import ReadLedger, Sources, audit_groups
from streamgroups_cli.connection import Connect, read_committed
from streamgroups_cli.exits import ExitCode
from streamgroups_cli.groups.scope import all_groups_of
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message

_CONNECTION_NAME = re.compile(r"[\w.-]+", re.ASCII)
_COUNTS = tuple(verdict.value for verdict in Verdict)
_PARTITIONS = (
    Column("topic"),
    Column("partition", right=True),
    Column("committed_offset", right=True),
    *(Column(f"{name}_offsets", right=True, rank=name not in ("missing", "double")) for name in _COUNTS),
    Column("dead_letters", right=True, rank=1),
    Column("evidence_from", rank=2),
    Column("complete", rank=2),
)
_RANGES = (
    Column("topic"),
    Column("partition", right=True),
    Column("from_offset", right=True),
    Column("to_offset", right=True),
    Column("offsets", right=True),
    Column("verdict", style=lambda text: "red" if text in ("missing", "double") else ""),
    Column("time", rank=1),
    Column("detail", is_prose=True),
)
_SENTENCES: Mapping[Evidence, str] = {
    Evidence.TRANSACTION: "The Kafka sink commits the offsets in the transaction of its output: the verdicts apply to the output too.",
    Evidence.LEDGER: "The positions of the ledger were compared: output exists for each committed offset with the verdict once.",
    Evidence.LEDGER_NOT_COMPARED: "The sink has a ledger, which was not compared. Use --postgres or --delta.",
    Evidence.COMMITS_ONLY: "The output does not change together with the positions (at least once). The verdicts apply to the "
    "commits: a batch that ran again can have written its output several times.",
}


_LEDGER_TABLE = "streamgroups_ledger"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options for the ledger of a sink."""

    postgres: Annotated[
        str | None,
        typer.Option(
            "--postgres",
            metavar="NAME|CONNINFO",
            help="The database of the ledger: a connection, or libpq's connection string.",
            rich_help_panel="Sink",
        ),
    ] = None
    ledger_table: Annotated[
        str | None,
        typer.Option(
            "--ledger-table",
            metavar="TABLE",
            help=f"The ledger in this database. Default: {_LEDGER_TABLE}.",
            rich_help_panel="Sink",
            show_default=False,
        ),
    ] = None
    delta: Annotated[
        str | None,
        typer.Option("--delta", metavar="URI", help="The Delta table of the output.", rich_help_panel="Sink"),
    ] = None
    delta_connection: Annotated[
        str | None,
        typer.Option(
            "--delta-connection", metavar="NAME", help="The connection of the Delta table.", rich_help_panel="Sink"
        ),
    ] = None

    @property
    def read_ledger(self) -> ReadLedger | None:
        """Reads the ledger; ``None`` without one.

        Raises:
            InvalidOption: if the options contradict each other, or are not valid.
        """
        if self.postgres is not None and self.delta is not None:
            raise InvalidOption("--postgres and --delta exclude each other.", remedy="Use that of the query's sink.")
        if self.delta_connection is not None and self.delta is None:
            raise InvalidOption("--delta-connection is given without --delta.", remedy="Add --delta URI.")
        if self.ledger_table is not None and self.postgres is None:
            raise InvalidOption("--ledger-table is given without --postgres.", remedy="Add --postgres NAME|CONNINFO.")
        if self.postgres is not None:
            return postgres_ledger(self.postgres, self.ledger_table or _LEDGER_TABLE)
        return None if self.delta is None else delta_ledger(self.delta, self.delta_connection)


def postgres_ledger(given: str, table: str) -> ReadLedger:
    """Reads a ledger of a real database. Tests replace this function."""
    try:
        from streamgroups_sinks.postgres.connected import conninfo_of
        from streamgroups_sinks.postgres.ledger import PostgresLedger
        from streamgroups_sinks.postgres.table_names import TableName
    except ImportError as e:
        raise explained(e, "--postgres") from e
    # A connection string contains an assignment or is a URL, and the name of a connection never is.
    is_name = _CONNECTION_NAME.fullmatch(given)
    conninfo = conninfo_of(connection_named(given, PostgresConnection), "") if is_name else given
    name = TableName.parse(table, "--ledger-table")

    def read(group_id: str, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        ledger = PostgresLedger(conninfo, name, group_id)
        try:
            return ledger.positions(partitions)
        finally:
            ledger.close()

    return read


def delta_ledger(uri: str, connection: str | None) -> ReadLedger:
    """Reads the ledger of a real Delta table. Tests replace this function."""
    try:
        from streamgroups_sinks.delta.sink import DeltaSink
    except ImportError as e:
        raise explained(e, "--delta") from e
    sink = DeltaSink(connection=connection, uri=uri)
    return lambda group_id, partitions: sink.read_ledger(group_id, partitions)[0]


@with_options
def audit(
    connect: Connect,
    sink: SinkOptions,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)],
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME|DURATION",
            help="Begin of the window: a time, or a duration before now. Default: all commits that are still stored.",
        ),
    ] = None,
    dlq: Annotated[
        list[str] | None,
        typer.Option("--dlq", metavar="TOPIC", help="A topic with dead letters of the group; repeatable."),
    ] = None,
    other_consumers: Annotated[
        bool,
        typer.Option(
            "--other-consumers",
            help="The group has consumers without this library: their commits are unknown, and not missing.",
        ),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """State for each offset whether the group has committed it once: find missing and double ranges.

    The commits in __consumer_offsets are compared with gaps, resets, dead letters, and the ledger of the sink. An unknown
    range is not a correct one.

    Exit code: 0 without a finding, 5 with a missing or double range, 4 if a part of the window is unknown.
    """
    sources = Sources(sink.read_ledger, tuple(dict.fromkeys(dlq or ())), other_consumers)
    # An aborted transaction commits no offsets.
    with read_committed(connect)() as cluster:
        since_ms = 0 if since is None else parse_since_ms(since, cluster.now_ms())
        (found,) = audit_groups(cluster, [group], since_ms, sources)
        if not found.partitions:
            raise unknown_groups([group], all_groups_of(cluster))
    emit(output, document=lambda: _document(found), tables=lambda: _tables(found))
    _print_summary(found)
    if found.has_findings:
        raise typer.Exit(ExitCode.FINDINGS)
    if not found.is_complete:
        raise typer.Exit(ExitCode.PARTLY_DONE)


def parse_since_ms(text: str, now_ms: int) -> int:
    """Parses a time, or a duration before now.

    Raises:
        InvalidOption: if it is neither, or a time after now: the window is empty, and an audit without offsets has no finding.

    >>> parse_since_ms("1h", 7_200_000), parse_since_ms("1970-01-01T00:00:01", 2_000)
    (3600000, 1000)
    """
    try:
        return max(0, now_ms - parse_duration_ms(text, option="--since"))
    except InvalidOption:
        since_ms = parse_time_ms(text, option="--since")
    if since_ms > now_ms:
        raise InvalidOption(f"--since is {utc(since_ms)}, which is after now.", remedy="Use an earlier time.")
    return since_ms


def _row(it: PartitionAudit) -> list[Cell]:
    tp, counts = it.topic_partition, it.counts
    known = [counts[verdict] for verdict in Verdict]
    complete = "yes" if it.is_whole else "no"
    return [tp.topic, tp.partition, it.position, *known, it.letters, utc(it.evidence_from_ms), complete]


def _range_rows(found: GroupAudit) -> list[list[Cell]]:
    return [
        [
            it.offsets.topic_partition.topic,
            it.offsets.topic_partition.partition,
            it.offsets.next_offset,
            it.offsets.end_offset,
            len(it.offsets),
            it.verdict.value,
            utc(it.time_ms),
            it.detail,
        ]
        for partition in found.partitions
        for it in partition.ranges
        if it.verdict is not Verdict.ONCE
    ]


def _tables(found: GroupAudit) -> Sequence[Table]:
    ranges = _range_rows(found)
    tables = [Table(_PARTITIONS, [_row(it) for it in found.partitions])]
    return [*tables, Table(_RANGES, ranges)] if ranges else tables


def _document(found: GroupAudit) -> dict[str, Any]:
    partitions = [dict(zip((c.name for c in _PARTITIONS), _row(it), strict=True)) for it in found.partitions]
    return {
        "group": found.group_id,
        "since": utc(found.since_ms) if found.since_ms else None,
        "output_evidence": found.evidence.value,
        "complete": found.is_complete,
        "findings": found.has_findings,
        "totals": {verdict.value: count for verdict, count in found.counts.items()},
        "partitions": [{**it, "complete": it["complete"] == "yes"} for it in partitions],
        "ranges": [dict(zip((c.name for c in _RANGES), row, strict=True)) for row in _range_rows(found)],
    }


def _print_summary(found: GroupAudit) -> None:
    counts = ", ".join(f"{count} {verdict.value}" for verdict, count in found.counts.items() if count)
    print_message(f"Group '{found.group_id}', offsets: {counts or 'none'}.")
    print_message(_SENTENCES[found.evidence])
    late = [it for it in found.partitions if not it.is_whole]
    if late:
        first = utc(max(it.evidence_from_ms or 0 for it in late))
        print_message(
            f"The commits before {first} are not stored any more for {len(late)} of {len(found.partitions)} partitions: "
            "nothing is known about the offsets before them."
        )
