"""Restores states with positions: plans and commits for restores of savepoints and ``groups copy --with-state``.

A restore is a reset whose offsets name their states. The files are in place before the first offset is committed, so an
interrupted restore has changed no offset, or the same command finishes it. Source: SEMANTICS C3, O1, S6, S10.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import event_time_group_of, is_metadata_group
from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups.groups.commit_metadata import is_held_exclusively
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.reset_plan import Move, require_bounds
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups.savepoints.output_record import ahead, output_effects, require_output
from streamgroups.savepoints.restoring import (
    Operators,
    is_begun,
    metadata,
    moves,
    not_saved,
    of_other_topics,
    repeated,
    require_same_log,
    require_same_program,
    skipped,
    state_only_metadata,
)
from streamgroups.shell_quoting import command, topic_options
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.applying import apply
from streamgroups_admin.groups.live_reset import cancel_reset_requests, require_movable
from streamgroups_admin.groups.plans import GroupPlan, require_owned
from streamgroups_admin.groups.undo_files import write_undo
from streamgroups_admin.savepoints.checkpoint_parts import place_checkpoint, plan_checkpoint, unmark_checkpoint
from streamgroups_admin.savepoints.store import read_output
from streamgroups_operators.locations import shown
from streamgroups_operators.savepoints.creating import times_before
from streamgroups_operators.savepoints.directory import SavepointDirectory
from streamgroups_operators.savepoints.placing import Target, place

_UNCHANGED = Operators({}, frozenset())


@dataclass(frozen=True, slots=True)
class Restore:
    """What continues, and where.

    Args:
        directory: the savepoint.
        record: its commit record.
        target: the group that continues, and the names and the location of its states.
        operators: the changes of the program.
        is_state_only: whether the committed offsets of the group stay.
        checkpoint: the new checkpoint of the query; ``None`` if the savepoint has none.
        sink: the sink of the group; ``None`` if its ledger is not compared.
    """

    directory: SavepointDirectory
    record: CommitRecord
    target: Target
    operators: Operators = _UNCHANGED
    is_state_only: bool = False
    checkpoint: str | None = None
    sink: Any = None

    @property
    def is_fork(self) -> bool:
        """Whether another group continues at the positions of the savepoint."""
        return self.target.group_id != self.record.group_id and not self.is_state_only

    @property
    def is_in_place(self) -> bool:
        """Whether the group of the savepoint returns to its positions."""
        return not self.is_fork and not self.is_state_only


def target_of(
    record: CommitRecord,
    operators: Operators,
    *,
    group: str | None,
    state_location: str | None,
    checkpoint: str | None,
    is_state_only: bool,
) -> Target:
    """Where the states of a savepoint continue.

    Args:
        record: its commit record.
        operators: the changes of the program.
        group: the group; ``None`` for the group of the savepoint.
        state_location: the option ``stateLocation`` of the queries; ``None`` without states.
        checkpoint: the new checkpoint; ``None`` if none is to be written.
        is_state_only: whether the committed offsets of the group stay.

    Raises:
        InvalidOption: if they contradict each other, or the location is missing.
    """
    group_id = record.group_id if group is None else group
    names = operators.names([it.name for it in record.operators])
    if is_metadata_group(group_id):
        raise InvalidOption(f"'{group_id}' is a metadata group.", remedy="Name the group itself.")
    if is_state_only and not record.operators:
        raise InvalidOption(f"The savepoint {record.id} has no states.", remedy="Omit --state-only.")
    if record.operators and state_location is None:
        raise InvalidOption(
            f"The savepoint {record.id} has states, and their target is not known; nothing was changed.",
            remedy="Use --state-location: the option 'stateLocation' of the queries that continue.",
        )
    is_needed = record.checkpoint is not None and not is_state_only
    if is_needed and checkpoint is None:
        raise InvalidOption(
            f"The savepoint {record.id} has a checkpoint of Spark, and its target is not known; nothing was changed.",
            remedy="Use --checkpoint: a new checkpointLocation of the query that continues.",
        )
    if checkpoint is not None and not is_needed:
        raise InvalidOption(
            f"--checkpoint is not possible: {'the offsets stay' if is_state_only else 'the savepoint has no checkpoint'}.",
            remedy="Omit --checkpoint.",
        )
    return Target(state_location or "", group_id, names)


def plan_restore(cluster: Cluster, restore: Restore) -> GroupPlan:
    """The new offsets of the group that continues.

    Raises:
        GroupRejected: if the savepoint does not fit the group or its topics.
        UnknownTopic: if a partition does not exist.
    """
    group_id, record = restore.target.group_id, restore.record
    committed = cluster.groups.committed_offsets([group_id])[group_id]
    if restore.is_fork and committed and not is_begun(record, committed):
        raise GroupRejected(
            f"Group '{group_id}' has committed offsets for {len(committed)} partitions, and a fork needs a new group; "
            "nothing was changed.",
            remedy="Use another name.",
            group=group_id,
        )
    partitions = {*record.positions, *(committed if restore.is_state_only else ())}
    bounds = require_bounds(cluster.topics.bounds(partitions))
    identities = cluster.topics.identities({tp.topic for tp in record.positions})
    where = moves(record, {} if restore.is_state_only else committed, bounds)
    others = of_other_topics(record, identities)
    require_same_log(record, others, times_before(cluster.topics, others, bounds) if others else {})
    live = require_movable(cluster, [group_id]).get(group_id)
    if live is not None:
        _require_stopped(restore, live, committed)
    if restore.is_in_place and restore.sink is not None:
        current = read_output(restore.sink, group_id, record.next_offsets)
        require_output(record.output, current, record.next_offsets)
    if restore.checkpoint is not None:
        plan_checkpoint(restore.directory, record, restore.checkpoint, group_id)
    if restore.is_state_only:
        return _plan_of_state(restore, committed, bounds)
    keeps_program = restore.is_in_place and not restore.operators.is_changed
    named = metadata(record, identities, keeps_program=keeps_program)
    plan = GroupPlan(
        group_id,
        where,
        metadata=named,
        live=live,
        has_states=bool(record.operators),
        not_saved=not_saved(record, committed),
    )
    require_owned([plan])
    return plan


def _require_stopped(restore: Restore, live: GroupDescription, committed: Mapping[TopicPartition, Committed]) -> None:
    if restore.is_state_only or restore.operators.is_changed or restore.checkpoint is not None:
        changes = "program" if restore.checkpoint is None else "checkpoint"
        raise GroupRejected(
            f"Group '{live.group_id}' has members, and its {changes} changes; nothing was changed.",
            remedy="Stop its queries, restore the savepoint, and start the program that continues.",
            group=live.group_id,
        )
    # Marks of partitions without an owner can be those of an earlier program.
    owners = live.owners
    if is_held_exclusively(it.metadata for tp, it in committed.items() if tp in owners):
        raise GroupRejected(
            f"Group '{live.group_id}' has an exclusive query, whose checkpoint stays at its own positions; nothing was changed.",
            remedy="Stop the query, and restore the savepoint.",
            group=live.group_id,
        )
    require_same_program(restore.record, committed)


def _plan_of_state(
    restore: Restore, committed: Mapping[TopicPartition, Committed], bounds: Mapping[TopicPartition, Bounds]
) -> GroupPlan:
    named = state_only_metadata(restore.record, committed, bounds)
    stay = [Move(tp, it.next_offset, it.next_offset, None, bounds[tp]) for tp, it in sorted(committed.items())]
    return GroupPlan(restore.target.group_id, stay, metadata=named, has_states=True)


def effects(restore: Restore, plan: GroupPlan) -> list[str]:
    """Returns the effects of a restore that the new offsets do not show, as sentences."""
    group_id, found = plan.group_id, list[str]()
    if restore.is_state_only:
        saved = restore.record.next_offsets
        again = sum(it.to_offset - saved.get(it.topic_partition, it.to_offset) for it in plan.moves)
        found.append(
            f"Group '{group_id}' reads {again} offsets again before its positions, without output, to build its states."
        )
    if plan.not_saved:
        found.append(
            f"Group '{group_id}' keeps its offsets and states of {listed(plan.not_saved)}: the savepoint does not have them."
        )
    if restore.is_in_place and repeated(plan.moves):
        found.append(
            f"The output of {repeated(plan.moves)} offsets after the savepoint stays where it is, and group '{group_id}' "
            "writes it again."
        )
    if restore.is_in_place and skipped(plan.moves):
        found.append(f"Group '{group_id}' skips {skipped(plan.moves)} offsets: the savepoint is ahead of it.")
    if restore.is_in_place and restore.record.output is not None:
        found += output_effects(restore.record.output, restore.record.next_offsets)
    if restore.record.checkpoint is not None and restore.checkpoint is not None:
        found.append(
            f"The checkpoint '{shown(restore.checkpoint)}' is created: it continues after batch "
            f"{restore.record.checkpoint.batch_id}. Start the query with it."
        )
    if restore.operators.is_changed:
        found.append(
            f"Operators that continue with a state: {', '.join(sorted(restore.target.names.values())) or 'none'}."
        )
    if restore.is_fork:
        found.append(
            f"Group '{group_id}' is a fork. Its queries must write to another table or topic than those of group "
            f"'{restore.record.group_id}'."
        )
    return found


def _require_accepted(
    restore: Restore, plan: GroupPlan, *, accept_repeated_output: bool, accept_other_partitions: bool
) -> None:
    """Rejects output that would be written again, and partitions that would not return, unless the user accepts it."""
    if plan.not_saved and not accept_other_partitions:
        raise GroupRejected(
            f"Group '{plan.group_id}' has read {listed(plan.not_saved)}, which the savepoint {restore.record.id} does not have. "
            "Their offsets and states would stay; nothing was changed.",
            remedy="If these are wrong, reset them first: "
            f"{command('groups reset', [plan.group_id], f'{_of_topic(plan.not_saved)} --to-earliest')}. Then use --accept-other-partitions.",
            group=plan.group_id,
        )
    again = repeated(plan.moves) if restore.is_in_place else 0
    if restore.is_in_place and restore.record.output is not None:
        again = max(again, sum(ahead(restore.record.output, restore.record.next_offsets).values()))
    if again and not accept_repeated_output:
        raise GroupRejected(
            f"The output of {again} offsets would be written again; nothing was changed.",
            remedy="If the sink is an upsert, or the old output is removed, use --accept-repeated-output.",
            group=plan.group_id,
        )


def _of_topic(partitions: Sequence[TopicPartition]) -> str:
    """The partitions of the first topic, as an option of a command."""
    topic = partitions[0].topic
    return topic_options([f"{topic}:{','.join(str(it.partition) for it in partitions if it.topic == topic)}"])


def carry_out_restore(
    cluster: Cluster,
    restore: Restore,
    plan: GroupPlan,
    *,
    undo_file: Path | None,
    wait_s: float,
    accept_repeated_output: bool = False,
    accept_other_partitions: bool = False,
    is_repeatable: bool = True,
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Checks the consent of the user, copies the files of the states, writes the undo file, and commits the offsets.

    Args:
        cluster: the cluster.
        restore: the restore.
        plan: its plan.
        undo_file: the file for the offsets before; ``None`` for a new file in the state directory.
        wait_s: the timeout for members, in seconds.
        accept_repeated_output: whether the user accepts that output after the savepoint is written again.
        accept_other_partitions: whether the user accepts that partitions that the savepoint does not have keep their offsets.
        is_repeatable: whether the same restore can be repeated. An import of the rest would keep the program of the group.
        advance: receives the number of partitions of each commit.

    Raises:
        GroupRejected: if output would be written again, or partitions keep their offsets, and this is not accepted. No offset
            was changed.
        SavepointDamaged: if a file is missing or was changed. No offset was changed.
        CheckpointRejected: if the new checkpoint contains files of another origin. No offset was changed.
        StateUnreachable: if a storage does not answer, or is full. No offset was changed.
        PartlyDone: if some offsets were committed and some were not.
    """
    _require_accepted(
        restore,
        plan,
        accept_repeated_output=accept_repeated_output,
        accept_other_partitions=accept_other_partitions,
    )
    if restore.record.operators:
        count = place(restore.directory, restore.record, restore.target)
        cluster.notify(f"{count} state file{'' if count == 1 else 's'} in place.")
    if restore.checkpoint is not None:
        _place_checkpoint(cluster, restore, restore.checkpoint)
    changes = {plan.group_id: plan.changes}
    # An undo searches the states before the restore.
    options = f" --state-location {shlex.quote(shown(restore.target.location))}" if restore.record.operators else ""
    undo = write_undo(cluster, changes, undo_file, why=f"before a restore of {restore.record.id}", options=options)

    def prepare() -> None:
        if plan.live is None:
            cancel_reset_requests(cluster, plan.group_id, plan.changes.keys())
        if not restore.is_state_only:
            _write_times(cluster, restore.record, plan.group_id)

    apply(
        cluster,
        changes,
        undo,
        verb="restored",
        live={plan.group_id} if plan.live is not None else set(),
        wait_s=wait_s,
        is_restored=True,
        is_repeatable=is_repeatable,
        prepare=prepare,
        advance=advance,
    )
    if restore.checkpoint is not None:
        unmark_checkpoint(restore.checkpoint)
    if plan.live is None:
        cluster.notify(f"Start its queries. See: {command('groups describe', [plan.group_id])}.")


def _place_checkpoint(cluster: Cluster, restore: Restore, location: str) -> None:
    planned = plan_checkpoint(restore.directory, restore.record, location, restore.target.group_id)
    if planned is not None:
        id_ = place_checkpoint(restore.directory, planned, location, restore.target.group_id)
        cluster.notify(f"The checkpoint '{shown(location)}' of query {id_} is complete.")


def _write_times(cluster: Cluster, record: CommitRecord, group_id: str) -> None:
    """Restores the event time of partitions that no state contains."""
    times = {tp: Committed(it.next_offset, it.metadata) for tp, it in record.times.items()}
    if times:
        AdminMetadataStore(cluster.groups).write(event_time_group_of(group_id), times)
