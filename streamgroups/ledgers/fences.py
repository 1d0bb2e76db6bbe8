"""The fences of a ledger: the ownership epoch and the last reset of each position.

Called by :mod:`streamgroups.ledgers.batch_commit`, ``streamgroups.query.ledger_positions`` and ``sg.ledgers.ledger``, always in the transaction
that writes. Source: SEMANTICS F1, F2, X3.

The new owner of a partition stores its ownership epoch in the ledger, together with the decision where it continues. From then on
the ledger accepts a change of the position only with exactly this epoch. A frozen process that wakes up has the epoch of an
earlier owner, and changes nothing, even if the position is again the one that it has read (ABA).

The epoch of an owner is the generation of its group, or its member epoch: it grows with each owner of the partition. Three owners
have no greater one than the ledger, and receive the next number, if the broker confirms that they own the partition now:

* the group was deleted, or its offsets have expired, so that its generations begin at 1 again,
* a static member has restarted, and has the generation of its earlier process,
* a query with ``assign`` joins no group, and has no generation. The last one that starts wins.

A ledger stores integers by partition, so each of these numbers is the position of a partition that does not exist in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from streamgroups.errors import FencedMember
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed

_EPOCH = "streamgroups.epoch."
_RESET = "streamgroups.reset."
_RESET_ID = "streamgroups.reset-id."


def epoch_partition(topic_partition: TopicPartition) -> TopicPartition:
    """The partition whose position in a ledger is the ownership epoch of a partition.

    >>> str(epoch_partition(TopicPartition("flights", 3)))
    'streamgroups.epoch.flights-3'
    """
    return TopicPartition(f"{_EPOCH}{topic_partition.topic}", topic_partition.partition)


def fence_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions whose positions in a ledger are the ownership epochs and the last resets of these partitions."""
    return [it for tp in partitions for it in (epoch_partition(tp), *_reset_partitions(tp))]


def stored_resets(
    partitions: Iterable[TopicPartition], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, AppliedReset]:
    """The last reset that each position of a ledger contains.

    Args:
        partitions: the partitions.
        positions: the positions of the ledger, with those of :func:`fence_partitions`.
    """
    return {tp: AppliedReset.from_bits(*(positions.get(it, 0) for it in _reset_partitions(tp))) for tp in partitions}


def fences(owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, int]:
    """The positions that represent the ownership epochs and the last resets of partitions in a ledger.

    >>> found = fences({TopicPartition("flights", 3): Owned(10, epoch=7, reset=AppliedReset(2, "5f"))})
    >>> {str(tp): n for tp, n in found.items()}
    {'streamgroups.epoch.flights-3': 7, 'streamgroups.reset.flights-3': 2, 'streamgroups.reset-id.flights-3': 95}
    """
    found: dict[TopicPartition, int] = {}
    for tp, it in owned.items():
        found[epoch_partition(tp)] = it.epoch
        if it.reset.id:
            number, id_ = _reset_partitions(tp)
            found |= {number: it.reset.number, id_: it.reset.id_bits}
    return found


def is_current(topic_partition: TopicPartition, epoch: int, positions: Mapping[TopicPartition, int]) -> bool:
    """Whether a ledger accepts a change of a position with this ownership epoch.

    Args:
        topic_partition: the partition.
        epoch: the ownership epoch of the writer.
        positions: the positions of the ledger, with that of :func:`epoch_partition`.
    """
    return positions.get(epoch_partition(topic_partition), 0) == epoch


def new_epochs(
    owned: Mapping[TopicPartition, Owned],
    positions: Mapping[TopicPartition, int],
    is_owner: Callable[[Collection[TopicPartition]], bool],
    *,
    group_id: str,
) -> dict[TopicPartition, int]:
    """The ownership epochs with which a new owner takes partitions over.

    Args:
        owned: the assigned partitions, with the generation or the member epoch of their assignment; 0 without a group.
        positions: the positions of the ledger, with those of :func:`epoch_partition`.
        is_owner: returns whether the broker describes this member as the owner of these partitions now. Called only if an epoch is
            not greater than that of the ledger.
        group_id: the group, for the error.

    Raises:
        FencedMember: if a partition has another owner in the meantime.

    >>> p0 = TopicPartition("flights", 0)
    >>> new_epochs({p0: Owned(5, epoch=7)}, {epoch_partition(p0): 6}, lambda _: False, group_id="board")[p0]
    7
    >>> new_epochs({p0: Owned(5, epoch=1)}, {epoch_partition(p0): 6}, lambda _: True, group_id="board")[p0]
    7
    >>> new_epochs({p0: Owned(5, epoch=5)}, {epoch_partition(p0): 6}, lambda _: False, group_id="board")
    Traceback (most recent call last):
    streamgroups.errors.FencedMember: Group 'board' has assigned flights-0 to another member in the meantime. The ledger of \
the sink is unchanged. Restart the query: it joins the group again.
    """
    stored = {tp: positions.get(epoch_partition(tp), 0) for tp in owned}
    not_greater = {tp for tp, it in owned.items() if it.epoch <= stored[tp]}
    if not_greater and not is_owner(sorted(not_greater)):
        raise FencedMember(
            f"Group '{group_id}' has assigned {listed(sorted(not_greater))} to another member in the meantime.",
            remedy="The ledger of the sink is unchanged. Restart the query: it joins the group again.",
        )
    return {tp: max(it.epoch, stored[tp] + 1) if tp in not_greater else it.epoch for tp, it in owned.items()}


def fenced_by_ledger(group_id: str, partitions: Collection[TopicPartition]) -> FencedMember:
    """The error of a member that owns partitions in its group, and has a lower ownership epoch than the ledger.

    >>> print(fenced_by_ledger("board", [TopicPartition("flights", 0)]).what)
    The ledger of group 'board' has another owner of flights-0: it rejects a new position of this member.
    """
    return FencedMember(
        f"The ledger of group '{group_id}' has another owner of {listed(sorted(partitions))}: it rejects a new position "
        "of this member.",
        remedy="Restart the query: it takes the partitions over again. If the error occurs again, another query with 'assign' or "
        "another cluster uses this ledger and group.",
    )


def _reset_partitions(topic_partition: TopicPartition) -> tuple[TopicPartition, TopicPartition]:
    topic, partition = topic_partition.topic, topic_partition.partition
    return TopicPartition(f"{_RESET}{topic}", partition), TopicPartition(f"{_RESET_ID}{topic}", partition)
