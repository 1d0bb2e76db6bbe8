"""Plans the reset of each group from the options and the state of the cluster.

``reset`` and ``import`` use it. It detects all errors before anything changes: groups in use, missing partitions, files
without an offset for a group. Source: SEMANTICS O1, O2; the scenarios of ``kafka-consumer-groups.sh --reset-offsets``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from streamgroups.errors import InvalidOption
from streamgroups.groups.added_partitions import added
from streamgroups.groups.commit_metadata import CommitMark, mark_of
from streamgroups.groups.lag import PartitionError
from streamgroups.groups.offset_files import FiledOffset, FiledOffsets
from streamgroups.groups.reset_plan import Facts, Move, Scenario, ToListed, plan, require_bounds
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.positions import AtTime
from streamgroups.printable import listed
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.live_reset import has_waiting_requests, require_movable
from streamgroups_admin.groups.plans import GroupPlan, require_owned
from streamgroups_cli.groups.scope import partitions_of
from streamgroups_cli.output import print_message

#: The maximum number of topics in an error.
_MAX_SHOWN = 5


def plan_from_file(
    cluster: Cluster, filed: FiledOffsets, ids: Sequence[str], *, source: str, allow_other_ids: bool
) -> list[GroupPlan]:
    """Returns the plans for an offsets file.

    Raises:
        InvalidOption: if it has no offset for a group; or offsets of another topic or cluster, unless
            ``allow_other_ids``.
    """
    missing = [g for g in ids if g not in filed]
    if missing:
        names = ", ".join(f"'{g}'" for g in missing)
        raise InvalidOption(f"{source} contains no offsets of {names}.", remedy="Name groups that it contains.")
    others = _of_others(cluster, [filed[g] for g in ids])
    if others and not allow_other_ids:
        raise _other_ids(others, source)
    live = require_movable(cluster, ids)
    committed = cluster.groups.committed_offsets(ids)
    required = {tp for g in ids for tp, offset in filed[g].items() if offset.next_offset is not None}
    bounds = require_bounds(cluster.topics.bounds(required), has_scope=True)
    plans = []
    for g in ids:
        offsets = {tp: o.next_offset for tp, o in filed[g].items() if o.next_offset is not None}
        facts = {tp: Facts(_offset(committed[g].get(tp)), bounds[tp]) for tp in offsets}
        moves = plan(ToListed(offsets), facts, group_id=g)
        forgotten = [tp for tp, o in filed[g].items() if o.next_offset is None and tp in committed[g]]
        metadata = {tp: _without_ids(o.metadata) if tp.topic in others else o.metadata for tp, o in filed[g].items()}
        forgets = {tp: committed[g][tp].next_offset for tp in forgotten}
        in_effect = _is_in_effect(moves, committed[g], metadata, is_live=g in live)
        if g in live and in_effect:
            # Members apply a request that waits, and leave these offsets.
            in_effect = not has_waiting_requests(cluster, g, offsets)
        plans.append(GroupPlan(g, moves, forgets, metadata, live=live.get(g), is_in_effect=in_effect))
    require_owned(plans)
    return plans


def _of_others(
    cluster: Cluster, filed: Sequence[Mapping[TopicPartition, FiledOffset]]
) -> dict[str, tuple[TopicIdentity, TopicIdentity]]:
    """Returns the topics whose offsets in a file belong to another topic or cluster, with the old and new ids."""
    known = {tp.topic: o.identity for of_group in filed for tp, o in of_group.items() if o.identity != UNKNOWN}
    now = cluster.topics.identities(known)
    return {t: (it, now[t]) for t, it in known.items() if t in now and it.differs_from(now[t])}


def _other_ids(others: Mapping[str, tuple[TopicIdentity, TopicIdentity]], source: str) -> InvalidOption:
    shown = "; ".join(f"'{topic}' ({filed}; now {now})" for topic, (filed, now) in sorted(others.items())[:_MAX_SHOWN])
    more = f"; and {len(others) - _MAX_SHOWN} more" if len(others) > _MAX_SHOWN else ""
    return InvalidOption(
        f"{source} lists offsets of another topic or cluster: {shown}{more}. Nothing was changed.",
        remedy="If the offsets are right for the topic that is there, accept them with --allow-other-ids.",
    )


def _without_ids(metadata: str) -> str:
    """Returns metadata for another topic without the topic's ids, because members would reject them."""
    mark = mark_of(metadata)
    return metadata if mark is None else replace(mark, identity=UNKNOWN).encode()


def plan_scenario(
    cluster: Cluster,
    ids: Sequence[str],
    scope: dict[str, frozenset[int] | None] | None,
    scenario: Scenario,
) -> list[GroupPlan]:
    live = require_movable(cluster, ids)
    committed = cluster.groups.committed_offsets(ids)
    named = [] if scope is None else partitions_of(cluster, scope)
    partitions = {g: sorted(committed[g]) if scope is None else named for g in ids}
    found = cluster.topics.bounds({tp for of_group in partitions.values() for tp in of_group})
    if scope is None:
        gone = {tp for tp, b in found.items() if b is PartitionError.NO_PARTITION}
        if gone:
            print_message(f"Skipped, because they no longer exist: {listed(sorted(gone))}.")
        found = {tp: b for tp, b in found.items() if tp not in gone}
        partitions = {g: [tp for tp in of_group if tp not in gone] for g, of_group in partitions.items()}
    bounds = require_bounds(found, has_scope=True)
    times = (
        cluster.topics.at_times(dict.fromkeys(bounds, scenario.timestamp_ms)) if isinstance(scenario, AtTime) else {}
    )

    def facts(group_id: str, tp: TopicPartition) -> Facts:
        at_time = times.get(tp)
        return Facts(_offset(committed[group_id].get(tp)), bounds[tp], None if at_time is None else at_time.offset)

    plans = []
    for g in ids:
        moves = plan(scenario, {tp: facts(g, tp) for tp in partitions[g]}, group_id=g)
        in_effect = _is_in_effect(moves, committed[g], is_live=g in live)
        new = _added(moves, committed[g], scope or {})
        plans.append(GroupPlan(g, moves, live=live.get(g), is_in_effect=in_effect, added=new))
    require_owned(plans)
    return plans


def _added(
    moves: Iterable[Move], committed: Collection[TopicPartition], scope: Mapping[str, frozenset[int] | None]
) -> list[TopicPartition]:
    """Returns the partitions that were added to a topic of the scope, without those that the scope names."""
    missing = [m.topic_partition for m in moves if m.from_offset is None and scope.get(m.topic_partition.topic) is None]
    return added(missing, committed)


def _is_in_effect(
    moves: Iterable[Move],
    committed: Mapping[TopicPartition, Committed],
    metadata: Mapping[TopicPartition, str] = MappingProxyType({}),
    *,
    is_live: bool,
) -> bool:
    """Returns whether all partitions are at their new offsets.

    Members apply offsets only. Without members, a commit of a member still needs the mark of a tool: a ledger can be
    ahead of it, and follows only a tool.
    """

    def is_same(now: Committed | None, move: Move) -> bool:
        if now is None or now.next_offset != move.to_offset:
            return False
        is_of_a_member = isinstance(mark_of(now.metadata), CommitMark)
        return is_live or (not is_of_a_member and metadata.get(move.topic_partition, "") in ("", now.metadata))

    return all(is_same(committed.get(move.topic_partition), move) for move in moves)


def _offset(committed: Committed | None) -> int | None:
    return None if committed is None else committed.next_offset
