"""Resets groups that have members: validates that their members support it, and waits until they have applied it.

``reset`` and ``import`` use it. The reset requests are metadata entries of the group
(``streamgroups.coordination.reset_requests``). Spark queries and group cursors of this library apply them; other
clients do not. Source: SEMANTICS G8, S6, O1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from streamgroups.coordination.reset_protocol import members_group_of
from streamgroups.coordination.tool_commits import with_tool_marks
from streamgroups.errors import GroupRejected, NotAuthorized, PartlyDone, StreamGroupsError
from streamgroups.groups.applied_reset import new_reset_id
from streamgroups.groups.description import TYPES_WITH_OFFSETS, GroupDescription, is_active, require_inactive
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.retry import comes_true
from streamgroups.savepoints.cut import state_of
from streamgroups.shell_quoting import command
from streamgroups_admin.cluster import Cluster

if TYPE_CHECKING:
    from streamgroups.coordination.reset_requests import ResetRequests

_POLL_S = 0.1
#: How long members with new partitions can take to write their metadata entries.
_INTRODUCTION_S = 3.0


def require_movable(cluster: Cluster, ids: Sequence[str]) -> dict[str, GroupDescription]:
    """Rejects groups with members that do not support reset requests.

    Returns:
        The groups with members. All of them support reset requests.

    Raises:
        GroupRejected: with each group and its members. Nothing was changed.
    """
    described: dict[str, GroupDescription] = {}
    rejected: list[GroupDescription] = []

    def decided() -> bool:
        nonlocal described, rejected
        described = cluster.groups.describe_groups(ids)
        readiness = {g: _readiness(cluster, described[g]) for g in ids}
        rejected = [described[g] for g in ids if readiness[g] is not _ResetReadiness.MOVABLE]
        return _ResetReadiness.WAIT not in readiness.values()

    comes_true(decided, _INTRODUCTION_S, every_s=_POLL_S)
    require_inactive(rejected, doing="reset")
    new = [g for g in ids if described[g].state == "Dead"]
    if new:
        cluster.notify(f"These groups will be created by the commit: {', '.join(new)}.")
    live = {g: described[g] for g in ids if is_active(described[g])}
    for group in live.values():
        count = len(group.members)
        cluster.notify(
            f"Group '{group.group_id}' has {count} member{'' if count == 1 else 's'}, and all will apply the reset."
        )
    return live


class _ResetReadiness(Enum):
    MOVABLE = "movable"
    #: It is rebalancing, or members have possibly not written their metadata entries yet.
    WAIT = "wait"
    REJECTED = "refused"


def _readiness(cluster: Cluster, group: GroupDescription) -> _ResetReadiness:
    if group.type not in TYPES_WITH_OFFSETS:
        return _ResetReadiness.REJECTED
    if not is_active(group):
        return _ResetReadiness.MOVABLE
    reset_requests = _reset_requests(cluster)
    if group.state == "Stable" and not reset_requests.incompatible_members(group.group_id, group.members):
        return _ResetReadiness.MOVABLE
    # A group without any metadata entry has no member of this library to wait for.
    entries = cluster.groups.committed_offsets([members_group_of(group.group_id)])[members_group_of(group.group_id)]
    return _ResetReadiness.WAIT if entries else _ResetReadiness.REJECTED


def move_live(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, Committed],
    *,
    within_s: float,
    is_restored: bool = False,
) -> dict[TopicPartition, StreamGroupsError]:
    """Writes a reset request to a group's members, and waits until they have applied it.

    Args:
        cluster: the cluster.
        group_id: the group.
        offsets: the new offset of each partition.
        within_s: the timeout, in seconds.
        is_restored: whether the members continue with the states that the metadata of the offsets names. Otherwise they search
            them.

    Returns:
        The partitions that were not reset in time, or before an error ended the wait, although the request remains
        (``PartlyDone``). If the members left meanwhile and the group was reset by a commit: the partitions whose commit failed.
        If a member joins before this commit, it applies the request.

    Raises:
        GroupRejected: if the request cannot be written.
    """
    reset_requests = _reset_requests(cluster)
    states = {tp: state_of(c.metadata) for tp, c in offsets.items()} if is_restored else {}
    group = cluster.groups.describe_groups([group_id])[group_id]
    if notice := reset_requests.cancel_unowned(group, {tp.topic for tp in offsets}):
        cluster.notify(notice)
    request_id = reset_requests.write(group_id, {tp: c.next_offset for tp, c in offsets.items()}, states)
    left: Collection[TopicPartition] = offsets.keys()
    active = True

    def over() -> bool:
        nonlocal left, active
        applied = reset_requests.applied(group_id, offsets.keys())
        left = [tp for tp in offsets if applied.get(tp) != request_id]
        active = is_active(cluster.groups.describe_groups([group_id])[group_id])
        return not left or not active

    failures: dict[TopicPartition, StreamGroupsError] = {}

    def commit() -> None:
        nonlocal failures
        marked = marked_offsets(cluster, group_id, {tp: offsets[tp] for tp in left}, is_restored=is_restored)
        found = cluster.groups.alter_offsets(group_id, marked)
        for error in found.values():
            if isinstance(error, GroupRejected):
                raise error
        failures = found

    def over_or_committed() -> bool:
        # The last member has left before it has applied the request.
        return over() and (not left or reset_requests.replace(group_id, offsets.keys(), commit))

    try:
        is_over = comes_true(over_or_committed, within_s, every_s=_POLL_S)
    except StreamGroupsError as e:
        remains = f"The reset request of group '{group_id}' is written, and its members apply it. {e.what}"
        return dict.fromkeys(offsets, PartlyDone(remains, remedy=e.remedy, group=group_id))
    if is_over:
        return failures
    if left:
        members = cluster.groups.describe_groups([group_id])[group_id].owners
        who = ", ".join(sorted({str(members[tp]) for tp in left if tp in members})) or "a rebalance"
        still = PartlyDone(
            f"Group '{group_id}' has not applied the reset after {within_s:g} s: its members finish their batches first. "
            f"Waiting for {who}. The reset request remains valid.",
            remedy=f"See: {command('groups describe', [group_id])}.",
            group=group_id,
        )
        return dict.fromkeys(left, still)
    return {}


def cancel_reset_requests(cluster: Cluster, group_id: str, partitions: Collection[TopicPartition]) -> None:
    """Cancels requests that former members did not apply, which are obsolete after a reset by a commit.

    A user without permission to read the metadata group cannot have written any.
    """
    try:
        _reset_requests(cluster).cancel(group_id, partitions)
    except NotAuthorized:
        return


def has_waiting_requests(cluster: Cluster, group_id: str, partitions: Collection[TopicPartition]) -> bool:
    """Returns whether a reset request for one of these partitions is not applied yet.

    A user without permission to read the metadata group cannot have written any.
    """
    try:
        return bool(_reset_requests(cluster).waiting(group_id, partitions))
    except NotAuthorized:
        return False


def _reset_requests(cluster: Cluster) -> ResetRequests:
    from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
    from streamgroups.coordination.reset_requests import ResetRequests

    def counts(topics: Collection[str]) -> dict[str, int]:
        # A description by name fails for a topic that this user may not describe, and for an invalid name.
        described = cluster.topics.describe_topics()
        return {name: len(described[name].partitions) for name in topics if name in described}

    return ResetRequests(AdminMetadataStore(cluster.groups), cluster.now_ms, counts)


def marked_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, Committed], *, is_restored: bool = False
) -> dict[TopicPartition, Committed]:
    """All offsets of a change of a group without members, with the marks of a tool. Reads the offsets that they replace.

    Args:
        cluster: the cluster.
        group_id: the group.
        offsets: the offsets. Their metadata names their topic and their state.
        is_restored: whether their metadata also names the program of the group. Otherwise it stays the same one.
    """
    before = cluster.groups.committed_offsets([group_id])[group_id]
    return with_tool_marks(offsets, before, new_reset_id(), cluster.now_ms(), keeps_program=not is_restored)
