"""Plans and writes a copy of a checkpoint: its files, in order, and those whose content changes.

``streamgroups checkpoint copy`` uses it. Source: SEMANTICS C5.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from streamgroups.checkpoints.spark_batches import SourceBatch, SourceKind
from streamgroups.checkpoints.spark_copy import (
    files_of_state,
    in_order,
    replaced_files,
    spark_location,
    with_group,
    with_schemas_at,
)
from streamgroups.checkpoints.spark_kafka import punctuation_group
from streamgroups.checkpoints.spark_logs import Operator
from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.errors import CheckpointRejected, InvalidOption, PartlyDone
from streamgroups.groups.reset_plan import Move
from streamgroups.printable import listed
from streamgroups.threads import in_threads
from streamgroups_admin.checkpoints.batches import Batch, last_batches, query_id, read_batch, read_operators
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles, is_file, translated
from streamgroups_admin.checkpoints.state_contents import StateContentsOf


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The files of a copy.

    Args:
        batch: its batch.
        last: the last committed batch of the old checkpoint.
        paths: the files in the order in which they are written.
        sizes: their sizes in bytes, if they are known.
        changed: the content of files that are not copied as they are.
        operators: the operators with state.
        moves: the new position of each partition; empty if the positions stay.
    """

    batch: Batch
    last: int
    paths: Sequence[str]
    sizes: Mapping[str, int]
    changed: Mapping[str, bytes]
    operators: Mapping[int, Operator | None]
    moves: Sequence[Move] = ()


def chosen_batch(files: CheckpointFiles, batch_id: int | None) -> tuple[int, int, Batch | None]:
    """Returns the batch to copy, the last committed batch, and the planned batch after it.

    Args:
        files: the checkpoint.
        batch_id: the batch; ``None`` for the last committed one.

    Raises:
        CheckpointRejected: if it is not committed, or the checkpoint is incomplete.
        OSError: if the checkpoint cannot be read.
        ValueError: if a file of it has another format.
    """
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
            f"Batch {newest} is planned and not committed: {records_of(planned.sources)}. It will run again.",
            remedy=f"Use --batch {committed}, the last committed one. Or start the old query once with the trigger "
            "availableNow, which finishes the batch.",
        )
    return committed if batch_id is None else batch_id, committed, planned


def reject_repeated_output(files: CheckpointFiles, plan: CopyPlan, planned: Batch | None) -> None:
    """Checks that no later batch of the old checkpoint is a no-data batch of a query of this library.

    Its output can be written, and the positions of the group do not show it. The copy has another query id, so the sink of the
    copy does not recognize it, and the next batch with records repeats it.

    Args:
        files: the old checkpoint.
        plan: the copy, whose sources keep their group.
        planned: the planned batch; ``None`` if all are committed.

    Raises:
        CheckpointRejected: if it is one.
        OSError: if the checkpoint cannot be read.
        ValueError: if a file of it has another format.
    """
    if not plan.operators or all(it.kind is not SourceKind.STREAMGROUPS for it in plan.batch.sources):
        return
    # The last one is named: the batches before it are left out with it.
    later = (read_batch(files, it) for it in range(plan.last, plan.batch.batch_id, -1))
    found = next(filter(_is_no_data, chain([] if planned is None else [planned], later)), None)
    if found is None:
        return
    state = "planned" if found.commit is None else "committed"
    raise CheckpointRejected(
        f"The copy leaves out no-data batch {found.batch_id}, which is {state}: the query would write its windows, and its other "
        "output without new records, twice.",
        remedy=(
            "Start the old query once with the trigger availableNow, which finishes the batch, and copy again."
            if found.commit is None
            else f"Use --batch {found.batch_id}, or a later one."
        )
        + " Or use --group for a query with an output of its own. If the output may be written twice, for example to an upsert, "
        "use --accept-repeated-output.",
    )


def _is_no_data(batch: Batch) -> bool:
    """Whether no source has new records. Punctuations are no records."""
    return all(it.start == it.end or punctuation_group(it.end) is not None for it in batch.sources)


def records_of(sources: Sequence[SourceBatch]) -> str:
    """The records of a batch, for messages."""
    ranges = [f"{tp}{it}" for source in sources for tp, it in sorted(source.ranges.items()) if it.count != 0]
    others = [
        f"source {it.name} from {json.dumps(it.start)[:100]} to {json.dumps(it.end)[:100]}"
        for it in sources
        if it.kind is SourceKind.OTHER and it.start != it.end
    ]
    return listed([*ranges, *others]) or "without records"


def require_empty(target: CheckpointFiles, source: CheckpointFiles) -> None:
    """Checks that a copy has a directory of its own.

    Raises:
        CheckpointRejected: if it contains files, or is in the old checkpoint.
        InvalidOption: if it cannot be read.
    """
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


def plan_copy(files: CheckpointFiles, target: CheckpointFiles, batch: Batch, last: int, group: str | None) -> CopyPlan:
    """Plans the copy of a batch.

    Args:
        files: the old checkpoint.
        target: the new one.
        batch: the batch.
        last: the last committed batch of the old checkpoint.
        group: another group for the sources of this library; ``None`` if they keep theirs.

    Raises:
        CheckpointRejected: if the batch is not committed, if some of its files no longer exist, or if another group is given
            for a query with several groups.
        InvalidOption: if no source can have this group.
        StateDamaged: if a state file cannot be parsed.
        OSError: if the old checkpoint cannot be read.
        ValueError: if a file of it has another format.
    """
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
    sizes = {path: int(it.size) for path, it in {**sources, **state}.items()}
    return CopyPlan(batch, last, kept, sizes, changed, operators)


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
    if len(old) > 1:
        raise CheckpointRejected(
            f"The query reads with {len(old)} groups ({listed(old)}), and --group names one: its sources cannot share it.",
            remedy="Omit --group: the copy keeps the groups, and continues instead of the old query. A query beside the old one "
            "needs a new checkpoint, and other groups in its options.",
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


def write_copy(plan: CopyPlan, files: CheckpointFiles, target: CheckpointFiles) -> str:
    """Writes all files, and 'metadata' last. Returns the new query id.

    Raises:
        PartlyDone: if a file cannot be read or written. The copy is incomplete.
    """
    id_ = str(uuid.uuid4())
    written: list[str] = []

    def write(path: str) -> None:
        if path in plan.changed:
            target.write(path, plan.changed[path])
        else:
            target.copy(path, files)
        written.append(path)

    def attempt(path: str) -> OSError | None:
        try:
            write(path)
        except OSError as e:
            # After an error of one file no other is being written: the user deletes the copy.
            return e
        return None

    *most, last = plan.paths
    try:
        for path, text in replaced_files(plan.batch.batch_id).items():
            target.write(path, text.encode())
        write(most[0])
        # An object store takes its time for each file.
        failed = [e for e in in_threads(attempt, most[1:]) if e is not None]
        if failed:
            raise failed[0]
        write(last)
        target.write("metadata", json.dumps({"id": id_}, separators=(",", ":")).encode())
    except OSError as e:
        reason = os.strerror(e.errno) if e.errno else type(e).__name__
        if isinstance(e, FileNotFoundError):
            reason = "a file of the old checkpoint was deleted meanwhile"
        raise PartlyDone(
            f"The copy '{target.location}' is incomplete: {len(written)} of {len(plan.paths) + 1} files were written ({reason}). "
            "It has no file 'metadata'.",
            remedy="Delete it, and copy again. The old checkpoint is unchanged.",
        ) from e
    return id_
