"""``streamgroups checkpoint copy``: copies a checkpoint at one committed batch to a new directory.

The new checkpoint has a new query id. The old one is only read. Source: SEMANTICS C5.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import typer

from streamgroups.durations import duration
from streamgroups.errors import CheckpointRejected, InvalidOption
from streamgroups.groups.reset_plan import out_of_range, parse_scope
from streamgroups.printable import listed
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_admin.checkpoints.batches import Batch, read_batch
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, require_checkpoint, translated
from streamgroups_admin.checkpoints.copying import (
    CopyPlan,
    chosen_batch,
    plan_copy,
    records_of,
    reject_repeated_output,
    require_empty,
    write_copy,
)
from streamgroups_cli.checkpoint.arguments import BatchOption, Location
from streamgroups_cli.checkpoint.moving import at_positions, explain_state, plan_moves, require_keep_state
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.scope import TopicsOption
from streamgroups_cli.groups.targets import OPTIONS, TargetOptions, only
from streamgroups_cli.options import ExecuteOption, with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message
from streamgroups_kafka.client.clock import now_ms

#: The query may still run if its checkpoint was written within this time.
_RECENT_MS = 60_000
_PLAN = (
    Column("batch", right=True),
    Column("watermark"),
    Column("part"),
    Column("files", right=True),
    Column("bytes", right=True),
)

_MOVES = (
    Column("topic"),
    Column("partition", right=True),
    Column("from_offset", right=True),
    Column("to_offset", right=True),
    Column("change", right=True),
)


@with_options
def copy(
    connect: Connect,
    targets: TargetOptions,
    location: Location,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The new checkpoint: an empty or new directory.")],
    batch: BatchOption = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Another group for the sources of format('streamgroups') in the copy.",
        ),
    ] = None,
    topic: TopicsOption = None,
    keep_state: Annotated[
        bool,
        typer.Option("--keep-state", help="With a target: accept that the state does not move with the positions."),
    ] = False,
    allow_running: Annotated[
        bool, typer.Option("--allow-running", help="Copy although the query has written within the last minute.")
    ] = False,
    accept_repeated_output: Annotated[
        bool,
        typer.Option(
            "--accept-repeated-output",
            help="Accept that the output of a no-data batch after the copied one is written again.",
        ),
    ] = False,
    execute: ExecuteOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Copy a checkpoint at one committed batch: positions, watermark and state. The copy has a new query id.

    A query that starts with the copy continues after this batch. The checkpoint DIR is only read. With a target, the positions of
    its sources of format('kafka') move, which needs a cluster.
    """
    given = targets.given()
    target = only(given, OPTIONS) if given else None
    if target is None and (topic or keep_state):
        raise InvalidOption("--topic and --keep-state need a target.", remedy=f"Add one of {', '.join(OPTIONS)}.")
    with translated(location):
        files = CheckpointFiles(location)
        require_checkpoint(files)
        copied = CheckpointFiles(new)
        chosen, last, planned = chosen_batch(files, batch)
        _require_stopped(files, allow_running=allow_running)
        plan = plan_copy(files, copied, read_batch(files, chosen), last, group)
        if group is None and not accept_repeated_output:
            reject_repeated_output(files, plan, planned)
    require_empty(copied, files)
    if target is not None:
        require_keep_state(plan.operators, keep_state=keep_state)
        with connect() as cluster:
            plan = at_positions(plan, files, plan_moves(cluster, plan.batch, target, parse_scope(topic or [])))
    emit(
        output,
        document=lambda: _document(plan, files, copied),
        tables=lambda: _tables(plan, files, copied)[: 2 if plan.moves else 1],
    )
    _explain(plan, planned, group)
    if not execute:
        print_message("Nothing was written: this is the plan. --execute writes the copy.")
        return
    id_ = write_copy(plan, files, copied)
    print_message(
        f"The copy is complete: query {id_} continues after batch {chosen}. Start it with the option "
        f"checkpointLocation={copied.location}."
    )


def _require_stopped(files: CheckpointFiles, *, allow_running: bool) -> None:
    written_ms = files.written_at_ms()
    age_ms = None if written_ms is None else max(0, now_ms() - written_ms)
    if age_ms is not None and age_ms < _RECENT_MS and not allow_running:
        raise CheckpointRejected(
            f"The checkpoint '{files.location}' was written {duration(age_ms)} ago, so its query may still run.",
            remedy=f"Stop the query, and wait until the last write is {duration(_RECENT_MS)} ago. Or add --allow-running: both "
            "queries then write output.",
        )


def _parts(plan: CopyPlan) -> dict[str, list[str]]:
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for path in plan.paths:
        folder, _, rest = path.partition("/")
        parts["logs" if folder in ("offsets", "commits") else f"{folder}/{rest.partition('/')[0]}"].append(path)
    return dict(parts)


def _rows(plan: CopyPlan) -> list[list[Cell]]:
    commit = plan.batch.commit
    watermark = utc(commit.next_watermark_ms) if commit is not None and commit.next_watermark_ms else None
    return [
        [
            plan.batch.batch_id,
            watermark,
            part,
            len(paths),
            sum(plan.sizes[it] for it in paths) if all(it in plan.sizes for it in paths) else None,
        ]
        for part, paths in _parts(plan).items()
    ]


def _tables(plan: CopyPlan, files: CheckpointFiles, target: CheckpointFiles) -> tuple[Table, Table]:
    parts = Table(
        _PLAN, _rows(plan), f"Copy of {files.location} after batch {plan.batch.batch_id} to {target.location}"
    )
    moves: list[list[Cell]] = [
        [it.topic_partition.topic, it.topic_partition.partition, it.from_offset, it.to_offset, it.change]
        for it in plan.moves
    ]
    return parts, Table(_MOVES, moves, "New positions")


def _document(plan: CopyPlan, files: CheckpointFiles, target: CheckpointFiles) -> dict[str, object]:
    parts, moves = _tables(plan, files, target)
    return {
        "checkpoint": files.location,
        "new_checkpoint": target.location,
        "batch": plan.batch.batch_id,
        "last_committed_batch": plan.last,
        "parts": parts.documents,
        "moves": moves.documents,
    }


def _explain(plan: CopyPlan, planned: Batch | None, group: str | None) -> None:
    id_ = plan.batch.batch_id
    if plan.last > id_ and not plan.moves:
        print_message(
            f"The copy reads the records of batches {id_ + 1} to {plan.last} again, possibly in other batches. Their output exists, "
            "and is written again."
        )
    for move in out_of_range(plan.moves):
        print_message(
            f"Warning: offset {move.requested_offset} is outside {move.topic_partition} [{move.bounds.beginning_offset}, "
            f"{move.bounds.end_offset}]: offset {move.to_offset} is used."
        )
    if plan.moves:
        explain_state(plan.batch, plan.operators)
    if planned is not None:
        print_message(
            f"Warning: batch {planned.batch_id} is planned and not committed. Its output may exist, completely or in part. The "
            f"copy reads its records again: {records_of(planned.sources)}."
        )
    print_message(
        f"Warning: the copy continues with batch {id_ + 1}. Sinks that compare batch numbers skip each batch that they have "
        "written, without an error: files (directory '_spark_metadata'), Delta Lake in foreachBatch with txnAppId, and your own "
        "table of batch ids. Write to a new directory, use a new txnAppId, or begin a new table."
    )
    print_message(
        "Warning: format('delta') recognizes a query by its id. The copy has a new id, so the table gets this output again."
    )
    groups = sorted({it.group_id for it in plan.batch.sources if it.group_id is not None})
    if groups and group is None:
        print_message(
            f"Warning: the copy belongs to group {listed(groups)}, as the old query does. Its option onRestart decides between "
            "these positions and the committed offsets. --group copies for another group."
        )
