"""Decides from which stored states a join continues, for two partitions together.

Used by ``streamgroups_operators.store`` for the driver. A join drops a left record when no later right record can match it.
So the state of a left partition is complete only together with a right position that is not before the one of its
batch. Therefore both states come from the same file, which one batch has written. A recreated topic has no state: its records
are all later ones, so the state of the other topic is complete. Source: SEMANTICS S5, S7, S10, W18; :mod:`streamgroups.state.state_lookup` for one partition.

For the positions of both partitions:

=====================================  =================================================================================
the positions                          continue with
=====================================  =================================================================================
are starting positions                 empty states
name the states of one file            these states
of one topic is new, and that of the   an empty state, and the named one: the topic was recreated, and ``onDataLoss`` continues
other one names a state; no file has
states of both
anything else; files exist whose       the latest of them that leads to the newest one, or else the latest of all; and the
states are both not after them         records from there to the positions, without output
none; the first batch is known         empty states at its start, or at the positions that are before it
anything else                          the policy: an error, or empty states
=====================================  =================================================================================

Any of these states leads to the same output: it is a function of the records before its two offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from streamgroups.errors import StateMissing
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_topics import PARTNER
from streamgroups.state.lineage import lineage
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Earlier, Named, New
from streamgroups.state.state_lookup import Choice, Empty, OnMissingState, Position, Stored

#: The choices for the left and the right partition.
Choices: TypeAlias = tuple[Choice, Choice]


def partner_of(state: PartitionState) -> TopicPartition | None:
    """The partition with which the operator of a state joins its partition; ``None`` if it is no join."""
    topic = state.values.get(PARTNER)
    return TopicPartition(topic, state.topic_partition.partition) if isinstance(topic, str) else None


def is_together(left: Position, right: Position) -> bool:
    """Whether two positions continue without a search: both are new, or both name the same file."""
    match left.origin, right.origin:
        case New(), New():
            return True
        case Named(file=one), Named(file=other):
            return one == other
    return False


def choose_together(
    left: Position, right: Position, manifests: Iterable[Manifest], on_missing: OnMissingState
) -> Choices:
    """The states from which both partitions of a join continue, if the positions do not name them together.

    Args:
        left: the position of the left partition.
        right: the position of the right partition.
        manifests: all manifests of the operator.
        on_missing: the policy.

    Raises:
        StateMissing: if no states lead to both positions and the policy is to fail.

    >>> o, p = (TopicPartition(topic, 0) for topic in ("orders", "payments"))
    >>> choose_together(Position(o, 5, New()), Position(p, 7, New()), [], OnMissingState.EMPTY)
    (Empty(read_from=5), Empty(read_from=7))
    """
    manifests = list(manifests)
    named = {it.origin.file for it in (left, right) if isinstance(it.origin, Named | Earlier)}
    if len(named) == 1 and (isinstance(left.origin, Earlier) or isinstance(right.origin, Earlier)):
        # A savepoint names the states, also if later ones lead to the positions.
        manifests = [manifest for manifest in manifests if manifest.file in named]
    found = [
        (manifest.file, one, other)
        for manifest in manifests
        if (one := _state_of(manifest, left)) is not None and (other := _state_of(manifest, right)) is not None
    ]
    if not found and (recreated := _beside_a_new_topic(left, right, manifests)) is not None:
        return recreated
    here, there = left.next_offset, right.next_offset
    preferred = lineage({file: one for file, one, _ in found})
    # A first batch after the positions does not lead to them. Older states can.
    began = {file for file, one, other in found if one.began_offset <= here and other.began_offset <= there}
    for among in ([it for it in found if it[0] in preferred & began], found):
        choices = _latest(here, there, among)
        if choices is not None:
            return choices
    is_before_all = bool(found) and all(
        here <= one.began_offset and there <= other.began_offset for _, one, other in found
    )
    if is_before_all or on_missing is OnMissingState.EMPTY:
        return Empty(here), Empty(there)
    raise _missing(left, right, found)


_Found: TypeAlias = tuple[StateFileName, PartitionState, PartitionState]


def _latest(here: int, there: int, found: Sequence[_Found]) -> Choices | None:
    """The latest states that lead to both offsets; ``None`` if none do."""
    before = [it for it in found if it[1].next_offset <= here and it[2].next_offset <= there]
    if before:
        file, one, other = max(before, key=_progress)
        return Stored(file, one), Stored(file, other)
    # The first batch of the states began with empty ones.
    firsts = [(one, other) for _, one, other in found if one.is_first and other.is_first]
    if not firsts:
        return None
    began = max((min(here, one.began_offset), min(there, other.began_offset)) for one, other in firsts)
    return Empty(began[0]), Empty(began[1])


def _beside_a_new_topic(left: Position, right: Position, manifests: Iterable[Manifest]) -> Choices | None:
    """An empty state for a new position, and the state that the other one names; ``None`` for other positions."""
    for manifest in manifests:
        match left.origin, right.origin:
            case New(), Named(file=manifest.file) if (state := _state_of(manifest, right)) is not None:
                return Empty(left.next_offset), Stored(manifest.file, state)
            case Named(file=manifest.file), New() if (state := _state_of(manifest, left)) is not None:
                return Stored(manifest.file, state), Empty(right.next_offset)
    return None


def _state_of(manifest: Manifest, position: Position) -> PartitionState | None:
    state = manifest.state_of(position.topic_partition)
    return None if state is None or state.identity.differs_from(position.identity) else state


def _progress(found: _Found) -> tuple[int, StateFileName]:
    file, one, other = found
    return one.next_offset + other.next_offset, file


def _missing(left: Position, right: Position, found: list[_Found]) -> StateMissing:
    tp, partner = left.topic_partition, right.topic_partition
    oldest = min(found, key=_progress, default=None)
    known = (
        "no states of these partitions are stored"
        if oldest is None
        else f"the oldest stored states are at {oldest[1].next_offset} and {oldest[2].next_offset}"
    )
    later = "" if oldest is None else "Reset the group to later offsets of both topics, or set "
    return StateMissing(
        f"{tp} and {partner}: no stored states lead to the offsets {left.next_offset} and {right.next_offset}: {known}.",
        remedy=f"{later or 'Set '}onMissingState=empty to start with empty states. 'stateRetention' determines how far back states "
        "are kept.",
        topic=tp.topic,
        partition=tp.partition,
    )
