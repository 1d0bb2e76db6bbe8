"""Checks that the positions of cursors belong to the current topic.

``instances`` uses it on the member's thread when partitions are assigned, ``instance_session`` before each commit, and
``group_cursors`` for cursors of one partition. The last two read the ids once per metadata refresh, as the Spark source
does. Group cursors have no option for lost records: their users reset the offsets of the group. Source: SEMANTICS S7,
S11; :mod:`streamgroups.identity`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from streamgroups.cursors.cursor_tokens import PartitionCursor
from streamgroups.errors import DataLoss
from streamgroups.groups.membership import Origin, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Clock, Cluster
from streamgroups.shell_quoting import command, topic_options

#: The refresh interval of topic ids, unless ``metadata.max.age.ms`` is set.
REFRESH_MS = 5_000
_WHY = "The topic was deleted and recreated, or the settings point to another cluster."


class AssignedPositions:
    """The positions of one instance when partitions are assigned. Its methods run on the thread of the member.

    Args:
        cluster: provides the earliest offsets.
        ids: provides topic ids.
        group_id: the group, for the text of an error.
        starting: the starting positions of a new group, with their topic ids. Empty for an existing one.
    """

    def __init__(
        self, cluster: Cluster, ids: TopicIds, group_id: str, starting: Mapping[TopicPartition, Owned]
    ) -> None:
        self._cluster, self._ids, self._group_id, self._starting = cluster, ids, group_id, starting
        #: The topic of each partition that this instance has owned. Kafka deletes the committed offsets of a deleted topic.
        self._known: dict[TopicPartition, TopicIdentity] = {}

    def first(self, missing: Collection[TopicPartition]) -> dict[TopicPartition, Owned]:
        """Returns the positions of partitions without a committed offset. In an existing group, they were added later
        (G2).
        """
        added = self._cluster.beginning_offsets([tp for tp in missing if tp not in self._starting])
        earliest = {tp: Owned(n, Origin.EARLIEST, self._known.get(tp, UNKNOWN)) for tp, n in added.items()}
        return earliest | {tp: self._starting[tp] for tp in missing if tp in self._starting}

    def take_over(self, owned: Mapping[TopicPartition, Owned], _: object = None) -> dict[TopicPartition, Owned]:
        """Returns assigned positions with their topic ids.

        Raises:
            DataLoss: if a position belongs to another topic or cluster, or its committed offset was deleted with the topic.
        """
        positions = checked(self._ids.of({tp.topic for tp in owned}, fresh=True), self._group_id, owned)
        self._known |= {tp: it.identity for tp, it in positions.items()}
        return positions


class TopicIds:
    """The ids of topics, read once per metadata refresh. Safe to call from any thread.

    Args:
        cluster: provides the ids.
        clock: returns milliseconds since the epoch.
        refresh_ms: how long ids are valid, in milliseconds.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, refresh_ms: int = REFRESH_MS) -> None:
        self._cluster, self._clock, self._refresh_ms = cluster, clock, refresh_ms
        # Without a lock, which code that a signal handler interrupts could hold. Entries are only added and replaced.
        self._read: dict[str, tuple[TopicIdentity, int]] = {}

    def of(self, topics: Collection[str], *, fresh: bool = False) -> dict[str, TopicIdentity]:
        """Returns the ids of these topics; UNKNOWN for a topic that does not exist.

        Args:
            topics: the names of the topics.
            fresh: whether to read the ids now.

        Raises:
            StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
        """
        now_ms = self._clock()
        due = {t for t in topics if fresh or t not in self._read or now_ms - self._read[t][1] >= self._refresh_ms}
        if due:
            read = self._cluster.identities(due)
            self._read.update({topic: (read.get(topic, UNKNOWN), now_ms) for topic in due})
        return {topic: self._read[topic][0] for topic in topics}


def current(ids: TopicIds, group_id: str, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
    """Returns the positions of a member with their topic ids, checked once per metadata refresh.

    Args:
        ids: provides topic ids. For a position without ids, and before it reports a loss, this function reads the ids
            at once.
        group_id: the group, for the text of an error.
        owned: the partitions of the member.

    Raises:
        DataLoss, StreamGroupsError: as :func:`checked` does.
    """
    topics = {tp.topic for tp in owned}
    now = ids.of(topics)
    if any(it.identity == UNKNOWN or it.identity.differs_from(now[tp.topic]) for tp, it in owned.items()):
        now = ids.of(topics, fresh=True)
    return checked(now, group_id, owned)


def checked_cursor(ids: TopicIds, cursor: PartitionCursor) -> PartitionCursor:
    """Returns a cursor of one partition with its topic id, checked once per metadata refresh.

    Raises:
        DataLoss: if the cursor belongs to another topic or cluster.
        StreamGroupsError: see :class:`streamgroups.ports.Cluster`.
    """
    now = ids.of([cursor.stream])[cursor.stream]
    if cursor.identity.differs_from(now):
        now = ids.of([cursor.stream], fresh=True)[cursor.stream]
    if cursor.identity.differs_from(now):
        raise DataLoss(
            f"The cursor of {cursor.stream}-{cursor.partition} is at offset {cursor.next_offset} of "
            f"{cursor.identity}; now {now}. {_WHY}",
            remedy="Create a new cursor with create_cursor: TRIM_HORIZON starts at the earliest offset of the "
            "current topic, AT_OFFSET accepts the same offset in it.",
        )
    return replace(cursor, identity=cursor.identity.completed_by(now))


def checked(
    now: Mapping[str, TopicIdentity], group_id: str, owned: Mapping[TopicPartition, Owned]
) -> dict[TopicPartition, Owned]:
    """Returns positions with their topic ids, which later commits contain.

    Args:
        now: the current ids of the topics.
        group_id: the group, for the text of an error.
        owned: the positions.

    Raises:
        DataLoss: if a position belongs to another topic or cluster.

    >>> p0 = TopicPartition("flights", 0)
    >>> checked({"flights": TopicIdentity("c1", "t1")}, "billing", {p0: Owned(5)})[p0].identity.topic_id
    't1'
    """
    lost = [tp for tp in sorted(owned) if owned[tp].identity.differs_from(now.get(tp.topic, UNKNOWN))]
    if lost:
        details = "; ".join(
            f"{tp} (position {owned[tp].next_offset} of {owned[tp].identity}; now {now[tp.topic]})" for tp in lost
        )
        raise DataLoss(
            f"Group '{group_id}' cannot continue at its positions: {details}. {_WHY}",
            remedy=_remedy(group_id, lost, are_committed=not all(owned[tp].is_silent for tp in lost)),
        )
    return {tp: replace(it, identity=it.identity.completed_by(now.get(tp.topic, UNKNOWN))) for tp, it in owned.items()}


def _remedy(group_id: str, lost: Collection[TopicPartition], *, are_committed: bool) -> str:
    """The remedy for positions in another topic.

    Args:
        group_id: the group.
        lost: the partitions.
        are_committed: whether the group has committed offsets there. Otherwise Kafka has deleted them with the topic, and
            update_group rejects a group without offsets.
    """
    if not are_committed:
        return "Create the cursor again: it starts at its type. TRIM_HORIZON reads the new topic from its earliest message."
    topics = topic_options(tp.topic for tp in lost)
    return (
        f"Reset the offsets with update_group, or with {command('groups reset', [group_id], f'{topics} --to-earliest --execute')}; "
        "then create the cursor again."
    )
