"""``streamgroups checkpoint copy``: copies a checkpoint at one committed batch to a new directory.

The new checkpoint has a new query id. The old one is only read. Source: SEMANTICS C5.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from streamgroups.checkpoints.spark_batches import SourceBatch, SourceKind
from streamgroups.checkpoints.spark_copy import (
    files_of_state,
    in_order,
    spark_location,
    with_group,
    with_schemas_at,
)
from streamgroups.checkpoints.spark_logs import Operator
from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.durations import duration
from streamgroups.errors import CheckpointRejected, InvalidOption, PartlyDone
from streamgroups.printable import listed
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.checkpoint.reading import Batch, BatchOption, Location, query_id, read_batch, read_operators
from streamgroups_cli.output import Output, OutputOption, emit, say
from streamgroups_kafka.client.clock import now_ms
from streamgroups_spark.bridge.checkpoint_files import CheckpointFiles, is_file, require_checkpoint, translated
from streamgroups_spark.bridge.foreign_checkpoint import last_batches
from streamgroups_spark.bridge.state_contents import StateContentsOf

#: The query may still run if its checkpoint was written within this time.
_RECENT_MS = 60_000
_PLAN = (
    Column("batch", right=True),
    Column("watermark"),
    Column("part"),
    Column("files", right=True),
    Column("bytes", right=True),
)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The files of a copy.

    Args:
        batch: its batch.
        last: the last committed batch of the old checkpoint.
        paths: the files in the order in which they are written.
        sizes: their sizes in bytes, if they are known.
        changed: the content of files that are not copied as they are.
    """

    batch: Batch
    last: int
    paths: Sequence[str]
    sizes: Mapping[str, int]
    changed: Mapping[str, bytes]


def copy(
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
    allow_running: Annotated[
        bool, typer.Option("--allow-running", help="Copy although the query has written within the last minute.")
    ] = False,
    execute: Annotated[
        bool,
        typer.Option(
            "--execute/--dry-run", help="Write the copy; otherwise only print its plan.", show_default="dry-run"
        ),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Copy a checkpoint at one committed batch: positions, watermark and state. The copy has a new query id.

    A query that starts with the copy continues after this batch. The checkpoint DIR is only read.
    """
    with translated(location):
        files = CheckpointFiles(location)
        require_checkpoint(files)
        target = CheckpointFiles(new)
        chosen, last, planned = _chosen(files, batch)
        _require_stopped(files, allow_running=allow_running)
        plan = _plan(files, target, read_batch(files, chosen), last, group)
    _require_empty(target, files)
    emit(output, document=lambda: _document(plan, files, target), tables=lambda: [_table(plan, files, target)])
    _explain(plan, planned, group)
    if not execute:
        say("Nothing was written: this is the plan. --execute writes the copy.")
        return
    id_ = _write(plan, files, target)
    say(
        f"The copy is complete: query {id_} continues after batch {chosen}. Start it with the option "
        f"checkpointLocation={new if new.startswith('/') else target.location}."
    )


def _chosen(files: CheckpointFiles, batch_id: int | None) -> tuple[int, int, Batch | None]:
    """The batch to copy, the last committed batch, and the planned batch after it."""
    newest, committed = last_batches(files)
    if query_id(files) is None:
        raise CheckpointRejected(
            f"The checkpoint '{files.location}' has no file 'metadata': it is an incomplete copy, or its query has not started.",
            remedy="Delete it, and copy the old checkpoint again.",
        )
    if newest is None or committed is None:
        raise CheckpointRejected(
            f"The checkpoint '{files.location}' has no committed batch.",
            remedy="A query that has committed nothing needs no copy: start it with a new checkpointLocation.",
        )
    planned = None if newest == committed else read_batch(files, newest)
    if planned is not None and batch_id == newest:
        raise CheckpointRejected(
            f"Batch {newest} is planned and not committed: {_read(planned.sources)}. It will run again.",
            remedy=f"Use --batch {committed}, the last committed one. Or start the old query once with the trigger "
            "availableNow, which finishes the batch.",
        )
    return committed if batch_id is None else batch_id, committed, planned


def _read(sources: Sequence[SourceBatch]) -> str:
    """The records of a batch, for messages."""
    ranges = [
        f"{tp}[{'?' if it.next_offset is None else it.next_offset},{it.end_offset})"
        for source in sources
        for tp, it in sorted(source.ranges.items())
        if it.count != 0
    ]
    others = [
        f"source {it.name} from {json.dumps(it.start)[:100]} to {json.dumps(it.end)[:100]}"
        for it in sources
        if it.kind is SourceKind.OTHER and it.start != it.end
    ]
    return listed([*ranges, *others]) or "without records"


def _require_stopped(files: CheckpointFiles, *, allow_running: bool) -> None:
    written_ms = files.written_at_ms()
    age_ms = None if written_ms is None else max(0, now_ms() - written_ms)
    if age_ms is not None and age_ms < _RECENT_MS and not allow_running:
        raise CheckpointRejected(
            f"The checkpoint '{files.location}' was written {duration(age_ms)} ago, so its query may still run.",
            remedy=f"Stop the query, and wait until the last write is {duration(_RECENT_MS)} ago. Or add --allow-running: both "
            "queries then write output.",
        )


def _require_empty(target: CheckpointFiles, source: CheckpointFiles) -> None:
    if type(target.files) is type(source.files) and f"{target.path}/".startswith(f"{source.path}/"):
        raise CheckpointRejected(
            f"The new checkpoint '{target.location}' is in the old one, which is never written.",
            remedy="Use another directory.",
        )
    with translated(target.location):
        found = sorted(target.listed())
    if found:
        raise CheckpointRejected(
            f"The new checkpoint '{target.location}' is not empty: it contains {listed(found)}.",
            remedy="Use a new directory."
            + (
                ""
                if "metadata" in found
                else " This one has no file 'metadata', so it can be an incomplete copy to delete."
            ),
        )


def _plan(files: CheckpointFiles, target: CheckpointFiles, batch: Batch, last: int, group: str | None) -> _Plan:
    id_ = batch.batch_id
    if batch.commit is None:
        raise CheckpointRejected(
            f"Batch {id_} of '{files.location}' is not committed.",
            remedy=f"Use a batch up to {last}, the last committed one.",
        )
    if id_ and not is_file(files.files.get_file_info(f"{files.path}/offsets/{id_ - 1}")):
        raise CheckpointRejected(
            f"Batch {id_} cannot be copied: Spark also needs the offsets of batch {id_ - 1}, which no longer exist.",
            remedy=f"Use --batch {id_ + 1} or a later one.",
        )
    sources, state = files.below("sources"), files.below("state")
    operators = read_operators(files, id_)
    paths = in_order(
        id_,
        list(sources),
        files_of_state(state, operators, batch.offsets, batch.commit, id_, StateContentsOf(files)),
    )
    changed = {
        **_logs_of_group(files, batch, group),
        **_moved_schemas(files, target, operators, [it for it in paths if "/_metadata/" in it]),
    }
    kept = [it for it in paths if it.removesuffix(".crc") not in changed or it in changed]
    return _Plan(batch, last, kept, {path: int(it.size) for path, it in {**sources, **state}.items()}, changed)


def _logs_of_group(files: CheckpointFiles, batch: Batch, group: str | None) -> dict[str, bytes]:
    """The offset logs of a copy for another group."""
    if group is None:
        return {}
    old = sorted(
        {it.group_id for it in batch.sources if it.kind is SourceKind.STREAMGROUPS and it.group_id is not None}
    )
    if not old:
        raise InvalidOption(
            "--group needs a source of format('streamgroups'), and the query has none.",
            remedy="Omit --group: other sources have no group in their checkpoint.",
        )
    if not group or is_metadata_group(group) or group in old:
        raise InvalidOption(
            f"--group is '{group}'" + (", the group of the query." if group in old else ", which no query can use."),
            remedy="Use another name.",
        )
    ids = [it for it in (batch.batch_id - 1, batch.batch_id) if it >= 0]
    return {f"offsets/{it}": with_group(files.text(f"offsets/{it}"), group).encode() for it in ids}


def _moved_schemas(
    files: CheckpointFiles, target: CheckpointFiles, operators: Mapping[int, Operator | None], paths: Sequence[str]
) -> dict[str, bytes]:
    """The metadata of operators whose files of schemas are in the copy."""
    moved = {}
    for number, operator in operators.items():
        if operator is None or not operator.schema_files:
            continue
        is_same_system = type(files.files) is type(target.files)
        root = spark_location(
            operator.schema_files[0], files.path, target.path, target.location, is_same_system=is_same_system
        )
        for path in (it for it in paths if it.startswith(f"state/{number}/_metadata/") and not it.endswith(".crc")):
            text = files.text(path)
            found = with_schemas_at(text, number, root)
            if found != text:
                moved[path] = found.encode()
    return moved


def _write(plan: _Plan, files: CheckpointFiles, target: CheckpointFiles) -> str:
    """Writes all files, and 'metadata' last. Returns the new query id."""
    id_ = str(uuid.uuid4())
    written = 0
    try:
        for path in plan.paths:
            if path in plan.changed:
                target.write(path, plan.changed[path])
            else:
                target.copy(path, files)
            written += 1
        target.write("metadata", json.dumps({"id": id_}, separators=(",", ":")).encode())
    except OSError as e:
        reason = (
            "a file of the old checkpoint was deleted meanwhile"
            if isinstance(e, FileNotFoundError)
            else type(e).__name__
        )
        raise PartlyDone(
            f"The copy '{target.location}' is incomplete: {written} of {len(plan.paths) + 1} files were written ({reason}). It "
            "has no file 'metadata'.",
            remedy="Delete it, and copy again. The old checkpoint is unchanged.",
        ) from e
    return id_


def _parts(plan: _Plan) -> dict[str, list[str]]:
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for path in plan.paths:
        folder, _, rest = path.partition("/")
        parts["logs" if folder in ("offsets", "commits") else f"{folder}/{rest.partition('/')[0]}"].append(path)
    return dict(parts)


def _rows(plan: _Plan) -> list[list[Cell]]:
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


def _table(plan: _Plan, files: CheckpointFiles, target: CheckpointFiles) -> Table:
    return Table(_PLAN, _rows(plan), f"Copy of {files.location} after batch {plan.batch.batch_id} to {target.location}")


def _document(plan: _Plan, files: CheckpointFiles, target: CheckpointFiles) -> dict[str, object]:
    names = [it.name for it in _PLAN]
    return {
        "checkpoint": files.location,
        "new_checkpoint": target.location,
        "batch": plan.batch.batch_id,
        "last_committed_batch": plan.last,
        "parts": [dict(zip(names, row, strict=True)) for row in _rows(plan)],
    }


def _explain(plan: _Plan, planned: Batch | None, group: str | None) -> None:
    id_ = plan.batch.batch_id
    if plan.last > id_:
        say(
            f"The copy reads the records of batches {id_ + 1} to {plan.last} again, possibly in other batches. Their output exists, "
            "and is written again."
        )
    if planned is not None:
        say(
            f"Warning: batch {planned.batch_id} is planned and not committed. Its output may exist, completely or in part. The "
            f"copy reads its records again: {_read(planned.sources)}."
        )
    say(
        f"Warning: the copy continues with batch {id_ + 1}. Sinks that compare batch numbers skip each batch that they have "
        "written, without an error: files (directory '_spark_metadata'), Delta Lake in foreachBatch with txnAppId, and your own "
        "table of batch ids. Write to a new directory, use a new txnAppId, or begin a new table."
    )
    say(
        "Warning: format('delta') recognizes a query by its id. The copy has a new id, so the table gets this output again."
    )
    groups = sorted({it.group_id for it in plan.batch.sources if it.group_id is not None})
    if groups and group is None:
        say(
            f"Warning: the copy belongs to group {listed(groups)}, as the old query does. Its option onRestart decides between "
            "these positions and the committed offsets. --group copies for another group."
        )
