"""Whether the committed offsets of a cursor's group are of the topic that is there.

Used by ``instances`` when partitions come in, on the member's thread. Group cursors have no option for lost records: whoever uses
them moves the group. Source: SEMANTICS S7, S11; :mod:`streamgroups.identity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamgroups.errors import DataLoss
from streamgroups.groups.membership import Owned
from streamgroups.identity import UNKNOWN
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Log


def checked(log: Log, group_id: str, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
    """The positions that came in, with the ids of their topic. Later commits carry them.

    Args:
        log: where the topic is asked for.
        group_id: the group, for the text of an error.
        owned: what came in.

    Raises:
        DataLoss: if a position is of another topic or cluster.
        StreamGroupsError: see :class:`streamgroups.ports.Log`.

    >>> from streamgroups.fakes import FakeCluster
    >>> cluster, p0 = FakeCluster(lambda: 0), TopicPartition("flights", 0)
    >>> cluster.create_topic("flights")
    >>> checked(cluster, "billing", {p0: Owned(5)})[p0].identity.topic_id
    'id-of-flights'
    """
    identities = log.identities({tp.topic for tp in owned})
    now = {tp: identities.get(tp.topic, UNKNOWN) for tp in owned}
    lost = [tp for tp in sorted(owned) if owned[tp].identity.differs_from(now[tp])]
    if lost:
        told = "; ".join(
            f"{tp} (position {owned[tp].next_offset} of {owned[tp].identity}; now {now[tp]})" for tp in lost
        )
        topics = " ".join(f"--topic {topic}" for topic in dict.fromkeys(tp.topic for tp in lost))
        raise DataLoss(
            f"Group '{group_id}' cannot continue at its positions: {told}. The topic was deleted and recreated, or another cluster answers.",
            remedy="Move the group with update_group, or with "
            f"streamgroups groups reset {group_id} {topics} --to-earliest --execute; then create the cursor again.",
        )
    return {tp: replace(it, identity=it.identity.completed_by(now[tp])) for tp, it in owned.items()}
