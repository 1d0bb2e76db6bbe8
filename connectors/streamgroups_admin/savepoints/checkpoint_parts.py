"""The copy of a Spark checkpoint in a savepoint: it is created with the savepoint, and restored with it.

An exclusive query with Spark's own state has this state in its checkpoint. The copy has the batch whose end the group has
committed. A restore writes a hidden file into the new checkpoint first, and deletes it after the commit of the offsets. So the
same command recognizes the copy of a restore that was killed before its commit, and finishes it. Source: SEMANTICS C3, C5;
``MicroBatchExecution``, which informs the source after it has logged the commit of a batch, so the batch of a committed offset
is in the commit log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from streamgroups.checkpoints.spark_batches import SourceBatch, SourceKind
from streamgroups.errors import CheckpointRejected, PartlyDone, SavepointDamaged
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.savepoints.checkpoint_record import CheckpointRecord, CopiedFile, Fit, fit
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups_admin.checkpoints.batches import Batch, query_id, read_batch
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, require_checkpoint, translated
from streamgroups_admin.checkpoints.copying import CopyPlan, chosen_batch, plan_copy, require_empty, write_copy
from streamgroups_operators.locations import translated as writing
from streamgroups_operators.savepoints.copying import FileGone
from streamgroups_operators.savepoints.directory import CHECKPOINT, SavepointDirectory, problems_of_checkpoint, sum_of

METADATA = "metadata"
#: The hidden file of a restore that has not committed its offsets.
_MARK = ".streamgroups-restore"


def copy_checkpoint(
    location: str, directory: SavepointDirectory, group_id: str, next_offsets: Mapping[TopicPartition, int]
) -> CheckpointRecord:
    """Copies a checkpoint into a savepoint. The checkpoint is only read.

    Args:
        location: the option ``checkpointLocation`` of the query, which can run.
        directory: the savepoint.
        group_id: the group.
        next_offsets: its committed offsets.

    Returns:
        The batch and the files of the copy.

    Raises:
        CheckpointRejected: if no committed batch ends at these offsets, or the query also reads with other groups.
        FileGone: if Spark has deleted a file meanwhile.
        InvalidOption: if it is not a checkpoint, or cannot be read.
        PartlyDone: if the copy cannot be written.
    """
    source, target = CheckpointFiles(location), CheckpointFiles(directory.location, directory.id, CHECKPOINT)
    with translated(location):
        require_checkpoint(source)
        last = chosen_batch(source, None)[1]
        batch = _batch_at(source, group_id, next_offsets)
        plan = plan_copy(source, target, batch, last, None)
    directory.create()
    # Files of an earlier cut.
    target.clear()
    try:
        write_copy(plan, source, target)
    except PartlyDone as e:
        if isinstance(e.__cause__, FileNotFoundError):
            raise FileGone(source.location) from e
        raise
    files = (CopiedFile(path, *sum_of(directory.checkpoint_parts(path))) for path in (*plan.paths, METADATA))
    return CheckpointRecord(batch.batch_id, tuple(files))


def _batch_at(files: CheckpointFiles, group_id: str, next_offsets: Mapping[TopicPartition, int]) -> Batch:
    """The newest committed batch that ends at the committed offsets of the group."""
    for batch_id in reversed(files.batch_ids("commits")):
        batch = read_batch(files, batch_id)
        own = [it for it in batch.sources if it.kind is SourceKind.STREAMGROUPS]
        ends = {tp: read.end_offset for it in own if it.group_id == group_id for tp, read in it.ranges.items()}
        found = fit(ends, next_offsets)
        if found is Fit.HERE:
            _require_one_group(files, own, group_id)
            return batch
        if found is Fit.OTHER:
            missing = sorted(next_offsets.keys() - ends.keys())
            groups = listed(sorted({str(it.group_id) for it in own})) or "none"
            raise CheckpointRejected(
                f"The checkpoint '{files.location}' does not have {listed(missing)} of group '{group_id}'; its groups: "
                f"{groups}. No savepoint was created.",
                remedy="Use the checkpoint of the only query of the group. Shared queries have no state in their checkpoints.",
            )
        if found is Fit.EARLIER:
            break
    raise CheckpointRejected(
        f"No committed batch of '{files.location}' ends at the committed offsets of group '{group_id}'; no savepoint was created.",
        remedy="If a tool has reset the group, create the savepoint after its query has committed a batch.",
    )


def _require_one_group(files: CheckpointFiles, own: Sequence[SourceBatch], group_id: str) -> None:
    """A savepoint has the positions of one group. The checkpoint would continue at other positions of the others."""
    others = sorted({str(it.group_id) for it in own} - {group_id})
    if others:
        raise CheckpointRejected(
            f"The query of '{files.location}' also reads with the group {listed(others)}, and a savepoint has the positions of "
            f"group '{group_id}' only. No savepoint was created.",
            remedy="Copy the checkpoint, which has the positions of all groups: streamgroups checkpoint copy.",
        )


def plan_checkpoint(
    directory: SavepointDirectory, record: CommitRecord, location: str, group_id: str
) -> CopyPlan | None:
    """Plans the new checkpoint of a query that continues. ``None`` if the savepoint has none.

    Args:
        directory: the savepoint.
        record: its commit record.
        location: the new checkpoint.
        group_id: the group that continues.

    Raises:
        CheckpointRejected: if the new checkpoint contains files that are not of a killed restore of this savepoint.
        SavepointDamaged: if a file of the savepoint is missing or was changed.
    """
    if record.checkpoint is None:
        return None
    for path, problem in problems_of_checkpoint(directory, record.checkpoint):
        raise SavepointDamaged(
            f"The file '{path}' of the savepoint '{directory}' {problem}; no offset was changed.",
            remedy="Restore the directory from a backup, or use another savepoint.",
        )
    source, target = _source_and_target(directory, location)
    with translated(location):
        is_own = _mark_in(target) == _mark(directory, group_id)
        if not is_own:
            require_empty(target, source)
        batch = read_batch(source, record.checkpoint.batch_id)
        plan = plan_copy(source, target, batch, batch.batch_id, None if group_id == record.group_id else group_id)
        # A query that has started with the copy has added files.
        if is_own and not target.below().keys() <= {*plan.paths, METADATA}:
            require_empty(target, source)
    return plan


def place_checkpoint(directory: SavepointDirectory, plan: CopyPlan, location: str, group_id: str) -> str:
    """Writes the new checkpoint, or finishes that of a killed restore. Returns its query id.

    Args:
        directory: the savepoint.
        plan: the plan of the copy.
        location: the new checkpoint.
        group_id: the group that continues.

    Raises:
        PartlyDone: if a file cannot be written. No offset was changed.
        StateUnreachable: if the first file cannot be written. No offset was changed.
    """
    source, target = _source_and_target(directory, location)
    with translated(location):
        id_ = _id_of_complete(target, plan)
    if id_ is not None:
        return id_
    with writing(location):
        target.write(_MARK, _mark(directory, group_id).encode())
    try:
        return write_copy(plan, source, target)
    except PartlyDone as e:
        raise e.with_text(
            f"{e.what} No offset was changed.", "Run the same command again: it finishes the copy."
        ) from e


def _id_of_complete(target: CheckpointFiles, plan: CopyPlan) -> str | None:
    """The query id of a complete copy; ``None`` if files are missing, or 'metadata', the last one, is truncated."""
    if not target.below().keys() >= {*plan.paths, METADATA}:
        return None
    try:
        return query_id(target)
    except ValueError:
        return None


def unmark_checkpoint(location: str) -> None:
    """Marks a new checkpoint as one whose offsets are committed. A restore then rejects it as any other one.

    Args:
        location: the new checkpoint.
    """
    # The restore is complete. A mark that stays has no effect as soon as a query has started with the checkpoint.
    with suppress(OSError):
        CheckpointFiles(location).delete(_MARK)


def _mark(directory: SavepointDirectory, group_id: str) -> str:
    return json.dumps({"savepoint": directory.id, "group": group_id})


def _mark_in(target: CheckpointFiles) -> str | None:
    try:
        return target.text(_MARK)
    except FileNotFoundError:
        return None


def _source_and_target(directory: SavepointDirectory, location: str) -> tuple[CheckpointFiles, CheckpointFiles]:
    return CheckpointFiles(directory.location, directory.id, CHECKPOINT), CheckpointFiles(location)
