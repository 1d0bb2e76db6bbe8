"""Creates, lists, verifies and deletes savepoints: what the commands and ``sg.savepoints`` share.

A savepoint records the positions of the ledger of a sink, and the version of its table. Any sink with a ledger has positions:
:class:`streamgroups.ledgers.staging.StagingSink`, or the table of positions of ``sg.ledgers.ledger``. Nothing is written.
Source: SEMANTICS C1, C3, X2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.errors import InvalidOption, SavepointDamaged, UnknownSavepoint
from streamgroups.groups.description import is_active, require_inactive
from streamgroups.ledgers.staging import VersionedSink
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.savepoints.output_record import OutputRecord, ahead, behind, require_own_output
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.savepoints.checkpoint_parts import copy_checkpoint
from streamgroups_operators.savepoints.creating import Parts, SavepointCreator
from streamgroups_operators.savepoints.directory import SavepointDirectory, problems, savepoints_at

#: A query commits the ledger before the group, so the version of the committed offsets is one of the last ones.
_MAX_VERSIONS = 10


@dataclass(frozen=True, slots=True)
class ListedSavepoint:
    """A savepoint at a location.

    Args:
        id: its id.
        status: ``complete``; ``incomplete``: it has no commit record; ``damaged``: its commit record was changed.
        record: its commit record, if it is complete.
    """

    id: str
    status: Literal["complete", "incomplete", "damaged"]
    record: CommitRecord | None


@dataclass(frozen=True, slots=True)
class SavepointProblem:
    """A file of a savepoint that is not as recorded.

    Args:
        operator: its operator; ``None`` for a file of a checkpoint.
        file: its name, or its path in the savepoint.
        problem: the difference.
    """

    operator: str | None
    file: str
    problem: str


def create_savepoint(
    cluster: Cluster,
    group_id: str,
    to: str,
    state_location: str | None,
    *,
    require_stopped: bool = False,
    sink: Any = None,
    checkpoint: str | None = None,
) -> CommitRecord:
    """Creates a savepoint of a group. Its queries can run meanwhile.

    Args:
        cluster: the cluster.
        group_id: the group.
        to: the location of savepoints.
        state_location: the option ``stateLocation`` of its queries; ``None`` for queries without state of this library.
        require_stopped: whether a group with members is rejected.
        sink: the sink of its queries; ``None`` to record no output.
        checkpoint: the checkpoint of its exclusive query, if Spark keeps state in it.

    Returns:
        The commit record.

    Raises:
        InvalidOption: if the group is a metadata group, or the sink has no position of the group.
        GroupRejected: if it has members, or the location of its states is missing.
        CheckpointRejected: if no committed batch of the checkpoint ends at the committed offsets.
        StreamGroupsError: see :class:`streamgroups_operators.savepoints.creating.SavepointCreator`.
    """
    if is_metadata_group(group_id):
        raise InvalidOption(
            f"'{group_id}' is a metadata group, which describes the members of its group.",
            remedy="Name the group itself.",
        )
    if require_stopped:
        described = cluster.groups.describe_groups([group_id])[group_id]
        require_inactive([described] if is_active(described) else [], doing="saved")

    def add_parts(directory: SavepointDirectory, committed: Mapping[TopicPartition, Committed]) -> Parts:
        next_offsets = {tp: it.next_offset for tp, it in committed.items()}
        output = None if sink is None else read_output(sink, group_id, next_offsets)
        if output is not None:
            require_own_output(output, group_id, next_offsets)
        copied = None if checkpoint is None else copy_checkpoint(checkpoint, directory, group_id, next_offsets)
        return Parts(output, copied)

    creator = SavepointCreator(cluster.groups, cluster.topics)
    return creator.create(group_id, state_location, to, cluster.now_ms(), add_parts)


def listed_savepoints(location: str) -> list[ListedSavepoint]:
    """Lists the savepoints at a location, oldest first.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    return [_listed(SavepointDirectory(location, it)) for it in savepoints_at(location)]


def _listed(directory: SavepointDirectory) -> ListedSavepoint:
    try:
        return ListedSavepoint(directory.id, "complete", directory.read())
    except UnknownSavepoint:
        return ListedSavepoint(directory.id, "incomplete", None)
    except SavepointDamaged:
        return ListedSavepoint(directory.id, "damaged", None)


def verify_savepoint(directory: SavepointDirectory) -> tuple[int, list[SavepointProblem]]:
    """Reads all files of a savepoint. Returns their number, and those that are not as recorded.

    Raises:
        UnknownSavepoint: if it does not exist, or is not complete.
        SavepointDamaged: if its commit record was changed.
        StateUnreachable: if the storage does not answer.
    """
    record = directory.read()
    count = sum(len(it.files) for it in record.operators)
    count += 0 if record.checkpoint is None else len(record.checkpoint.files)
    return count, [SavepointProblem(*it) for it in problems(directory, record)]


def require_exists(directory: SavepointDirectory) -> None:
    """Checks that a savepoint exists, complete or not.

    Raises:
        UnknownSavepoint: if it does not.
    """
    if directory.id not in savepoints_at(directory.location):
        raise UnknownSavepoint(
            f"The savepoint '{directory}' does not exist.",
            remedy="List the savepoints with: streamgroups savepoint list LOCATION.",
        )


def read_output(sink: Any, group_id: str, next_offsets: Mapping[TopicPartition, int]) -> OutputRecord:
    """Returns the current output of a group. Of a Delta table, the version whose positions are the committed offsets, if it exists.

    Args:
        sink: the sink of the queries.
        group_id: the group.
        next_offsets: its committed offsets.

    Raises:
        InvalidOption: if the sink has no ledger.
        SinkRejected: if the table does not exist.
        SinkUnreachable: if the sink does not answer.
    """
    partitions = sorted(next_offsets)
    if isinstance(sink, VersionedSink):
        return _versioned(sink, group_id, next_offsets)
    if hasattr(sink, "open"):
        with sink.open(group_id) as ledger:
            return OutputRecord(sink.output, ledger.positions(partitions))
    if hasattr(sink, "read"):
        rows = sink.read()
        found = {tp: row.next_offset for tp in partitions if (row := rows.get((tp.topic, tp.partition))) is not None}
        return OutputRecord(f"ledger:{type(sink).__name__}", found)
    raise InvalidOption(
        f"{type(sink).__name__} has no ledger.",
        remedy="Pass a PostgresSink, a DeltaSink, or the table of sg.ledgers.ledger. The Kafka sink commits the offsets itself.",
    )


def _versioned(sink: VersionedSink, group_id: str, next_offsets: Mapping[TopicPartition, int]) -> OutputRecord:
    newest = OutputRecord(sink.output, *sink.read_ledger(group_id, sorted(next_offsets)))
    output = newest
    for _ in range(_MAX_VERSIONS):
        if not ahead(output, next_offsets):
            # A version that lacks output of another partition would lose it.
            return newest if behind(output, next_offsets) else output
        if not output.table_version:
            break
        found = sink.read_ledger(group_id, sorted(next_offsets), output.table_version - 1)
        output = OutputRecord(sink.output, *found)
    return newest
