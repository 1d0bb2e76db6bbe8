"""Collects the facts of an audit from a cluster and from sinks, and audits the partitions of a group.

Called by ``streamgroups groups audit``, and by ``streamgroups metrics`` for its metrics. :mod:`streamgroups.groups.offset_audit`
decides. The cluster must be connected with ``isolation.level=read_committed``: an aborted transaction commits no offsets. Source:
SEMANTICS O6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.dlq.stored_letters import StoredLetter, stored
from streamgroups.errors import StreamGroupsError, UnknownTopic
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.gaps import Gaps
from streamgroups.groups.offset_audit import Facts, GroupAudit, LedgerFact, Letter, audit
from streamgroups.groups.offset_records import OffsetRecord, UnknownRecord, key_prefix, parse_offset_record
from streamgroups.groups.reset_plan import require_bounds
from streamgroups.groups.unused_groups import OFFSETS_TOPIC, partition_of_group
from streamgroups.ledgers.fences import fence_partitions, stored_resets
from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from streamgroups_admin.cluster import Cluster

#: Returns the positions of a group in the ledger of a sink.
ReadLedger: TypeAlias = Callable[[str, Collection[TopicPartition]], Mapping[TopicPartition, int]]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the audit of a group reads, beside the commits and gaps of the group.

    Args:
        read_ledger: reads the ledger of the sink; ``None`` without one.
        dlqs: the topics of its dead letters.
        has_other_consumers: see :class:`~streamgroups.groups.offset_audit.Facts`.
    """

    read_ledger: ReadLedger | None = None
    dlqs: Sequence[str] = ()
    has_other_consumers: bool = False


def audit_groups(
    cluster: Cluster, group_ids: Collection[str], since_ms: int = 0, sources: Sources = Sources()
) -> list[GroupAudit]:
    """Audits groups. A group without stored commits has no partitions.

    Args:
        cluster: the cluster.
        group_ids: the groups.
        since_ms: the beginning of the window, in milliseconds since the epoch; 0 for all stored commits.
        sources: the other sources.

    Raises:
        NotAuthorized: if this user may not read ``__consumer_offsets``.
        UnknownTopic: if a topic of dead letters does not exist.
        StreamGroupsError: if the cluster or a sink does not answer, or a record of a commit is unknown.
    """
    commits = _commits(cluster, group_ids)
    letters = _letters(cluster, sources.dlqs)
    gaps = cluster.groups.committed_offsets([gaps_group_of(it) for it in group_ids])
    found = []
    for group_id in group_ids:
        of_group, entries = commits[group_id], gaps[gaps_group_of(group_id)]
        # Without a member of this library, all commits are of other consumers.
        has_other_consumers = sources.has_other_consumers or not any(
            CommitMark.parse(it.metadata) for of_partition in of_group.values() for it in of_partition
        )
        ledger = _ledger(group_id, of_group.keys(), sources.read_ledger)
        audits = []
        for tp in sorted(of_group):
            parsed = Gaps.parse(entries[tp].metadata) if tp in entries else Gaps()
            recorded = parsed or Gaps()
            facts = Facts(
                tp,
                of_group[tp],
                recorded.newest,
                recorded.not_kept,
                letters[group_id, tp],
                ledger.get(tp),
                has_other_consumers,
                parsed is None or bool(recorded.unknown),
            )
            audits.append(audit(facts, since_ms))
        found.append(GroupAudit(group_id, since_ms, tuple(audits), sources.read_ledger is not None))
    return found


def _commits(cluster: Cluster, group_ids: Collection[str]) -> dict[str, dict[TopicPartition, list[OffsetRecord]]]:
    """The stored commits of groups, by partition, in the order of the log."""
    found: dict[str, dict[TopicPartition, list[OffsetRecord]]] = {group_id: {} for group_id in group_ids}
    topic = cluster.topics.describe_topics([OFFSETS_TOPIC], operation="Read").get(OFFSETS_TOPIC)
    if topic is None:
        return found
    count = len(topic.partitions)
    places = {TopicPartition(OFFSETS_TOPIC, partition_of_group(group_id, count)) for group_id in group_ids}
    group_of = {prefix: group_id for group_id in group_ids for prefix in key_prefix(group_id)}
    lengths = sorted({len(prefix) for prefix in group_of})
    for record in _all_records(cluster, places):
        key = record.key or b""
        group_id = next((group_of[key[:n]] for n in lengths if key[:n] in group_of), None)
        if group_id is None:
            continue
        try:
            commit = parse_offset_record(key, record.value, record.timestamp_ms)
        except UnknownRecord as e:
            raise StreamGroupsError(
                f"The commits of group '{group_id}' cannot be read: {e} ({record.topic_partition}, offset {record.offset}).",
                remedy="Use a version of streamgroups for the version of the brokers.",
            ) from e
        found[group_id].setdefault(commit.topic_partition, []).append(commit)
    return found


def _letters(cluster: Cluster, dlqs: Sequence[str]) -> Mapping[tuple[str, TopicPartition], list[Letter]]:
    """The dead letters with an origin, by group and partition of the source record."""
    found: defaultdict[tuple[str, TopicPartition], list[Letter]] = defaultdict(list)
    for dlq in dlqs:
        described = cluster.topics.describe_topics([dlq], operation="Read").get(dlq)
        if described is None:
            raise UnknownTopic(f"Topic '{dlq}' does not exist.", remedy="Correct the option '--dlq'.", topic=dlq)
        for record in _all_records(cluster, [TopicPartition(dlq, it.partition) for it in described.partitions]):
            it = stored(record)
            if isinstance(it, StoredLetter) and it.letter.origin is not None:
                origin = it.letter.origin
                found[it.letter.group_id, origin.topic_partition].append(Letter(origin.offset, it.letter.id))
    return found


def _all_records(cluster: Cluster, partitions: Collection[TopicPartition]) -> Iterable[Message]:
    bounds = require_bounds(cluster.topics.bounds(partitions))
    starts = {tp: it.beginning_offset for tp, it in bounds.items()}
    return cluster.topics.read(starts, {tp: it.end_offset for tp, it in bounds.items()})


def _ledger(
    group_id: str, partitions: Collection[TopicPartition], read_ledger: ReadLedger | None
) -> dict[TopicPartition, LedgerFact]:
    """The positions of a ledger. It is read after the commits, so it is never behind them in a correct group."""
    if read_ledger is None or not partitions:
        return {}
    positions = read_ledger(group_id, [*partitions, *fence_partitions(partitions)])
    resets = stored_resets(partitions, positions)
    return {tp: LedgerFact(positions.get(tp), resets[tp]) for tp in partitions}
