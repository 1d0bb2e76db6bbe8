"""The states of positions in a ledger: the position and its state change together.

Called by ``streamgroups.ledgers.batch_commit`` and by ``sg.ledgers.ledger``. A ledger stores integers, so it contains a fingerprint of
the file that contains the state. It is stored as the position of a partition that does not exist in Kafka. An operator
can run without new records, and so change the state and not the position. Then only the fingerprint distinguishes the
batch from its replay. Source: SEMANTICS S10, X2-X4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamgroups.groups.membership import States
from streamgroups.partitions import TopicPartition
from streamgroups.state.origins import Fingerprinted, StateOrigin, fingerprint, later

_TOPIC = "streamgroups.state."


@dataclass(frozen=True, slots=True)
class StateChange:
    """The states of a partition before and after a batch, as fingerprints.

    Args:
        before: the state from which the batch continues; 0 for an empty or unknown one.
        after: the state after the batch; ``None`` if its tasks have not written it yet.
    """

    before: int
    after: int | None = None


def state_partition(topic_partition: TopicPartition) -> TopicPartition:
    """The partition whose position in a ledger is the fingerprint of a state.

    >>> str(state_partition(TopicPartition("flights", 3)))
    'streamgroups.state.flights-3'
    """
    return TopicPartition(f"{_TOPIC}{topic_partition.topic}", topic_partition.partition)


def fingerprints(states: States) -> dict[TopicPartition, int]:
    """The positions that represent states in a ledger."""
    return {state_partition(tp): fingerprint(state) for tp, state in states.items()}


def changes(before: States, after: States | None = None) -> dict[TopicPartition, StateChange]:
    """The state changes of a batch.

    Args:
        before: the states from which it continues.
        after: the states after it; ``None`` if its tasks have not written them yet.
    """
    return {
        tp: StateChange(fingerprint(state), None if after is None else fingerprint(after[tp]))
        for tp, state in before.items()
    }


def stored_state(
    topic_partition: TopicPartition, positions: Mapping[TopicPartition, int], known: StateOrigin, known_offset: int
) -> StateOrigin | None:
    """The state of a position, by a ledger.

    Args:
        topic_partition: the partition.
        positions: the positions of the ledger, with those that represent states.
        known: the state that the group names for its committed offset.
        known_offset: this committed offset.

    Returns:
        ``None`` if the ledger contains no state. ``known`` if it is the same, because a group stores the whole name.
    """
    found = positions.get(state_partition(topic_partition), 0)
    if not found:
        return None
    if fingerprint(known) != found:
        return Fingerprinted(found)
    return known if positions[topic_partition] == known_offset else later(known)
