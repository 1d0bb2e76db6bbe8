"""Decides from which stored state a batch continues, for one partition.

Called by ``streamgroups_operators.store`` in a task, before its first record. A commit of this library names the state of
its offset. An offset that a tool has committed names none: then the state is searched. Source: SEMANTICS S5, S10, S11.

Per partition, for a position ``o``:

=====================================  =================================================================================
the position                           continues with
=====================================  =================================================================================
is a starting position                 an empty state
names a state                          this state. If its file is missing: the policy. If it is damaged: an error
names the state of an earlier offset   this state, and the records from there to ``o``, without output: a savepoint
names the state of a later offset      an error: the state contains records that the batch would read again
names none; a state of ``o`` exists    the newest of them (below)
names none; earlier states exist       the latest of them (below), and the records from there to ``o``, without output. The
                                       start of the first batch counts as a state, which is empty
names none; ``o`` is not after the      an empty state: a new group that starts at ``o`` has the same
offset at which the states began
names none; anything else              the policy: an error, or an empty state
is that of a ledger                    the state of ``o`` with the fingerprint in the ledger. Otherwise the policy
=====================================  =================================================================================

A search uses the states that lead to the newest one (:mod:`streamgroups.state.lineage`), and others only if none of these leads
to the position. So a state of a killed batch, or of a program before the restore of a savepoint, is not used if a later batch
has continued with an earlier state.

``sg.dedup`` with ``on_reset="keep"`` continues after a reset with a state that contains ids of records after the position, so
they are seen. These records must have reached the output, or they would be lost. The offset that a tool has committed does not
name a state any more, so the files must prove that a state was committed: a later batch has continued with it at its
offset, or its batch has read no records. Source: SEMANTICS X5."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from streamgroups.errors import StateMismatch, StateMissing
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.lineage import lineage
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import Earlier, Fingerprinted, Named, New, StateOrigin, fingerprint


class OnMissingState(Enum):
    """What happens if no stored state leads to a position: the option ``onMissingState``."""

    FAIL = "fail"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Position:
    """A position whose state is required.

    Args:
        topic_partition: the partition.
        next_offset: the offset.
        origin: where the position comes from.
        identity: the topic of the partition.
    """

    topic_partition: TopicPartition
    next_offset: int
    origin: StateOrigin
    identity: TopicIdentity = UNKNOWN


@dataclass(frozen=True, slots=True)
class Empty:
    """Continue with an empty state.

    Args:
        read_from: the first offset to read. Records before the position are read without output.
    """

    read_from: int


@dataclass(frozen=True, slots=True)
class Stored:
    """Continue with a stored state.

    Args:
        file: the file.
        state: the state in it.
    """

    file: StateFileName
    state: PartitionState

    @property
    def read_from(self) -> int:
        """The first offset to read. Records before the position are read without output."""
        return self.state.next_offset

    @property
    def origin(self) -> Named:
        """The state, as a commit names it."""
        return Named(self.file, self.state.next_offset, self.state.due_ms, self.state.time)


Choice: TypeAlias = Empty | Stored


def require_not_later(position: Position, operators: Collection[str]) -> None:
    """Rejects a position that names the state of a later offset: records in between would be in the state twice.

    No commit of a query names such a state. ``sg.dedup`` with ``on_reset="keep"`` continues with one that it has searched, and
    commits the state of the position.

    Args:
        position: the position.
        operators: the operators that continue with the state.

    Raises:
        StateMismatch: with the operators, the partition and both offsets.

    >>> name = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> require_not_later(Position(TopicPartition("flights", 0), 700, Named(name, 700)), ["windows"])
    """
    tp, named = position.topic_partition, position.origin
    if not isinstance(named, Named | Earlier) or named.next_offset <= position.next_offset:
        return
    raise StateMismatch(
        f"{tp}: the position {position.next_offset} names the state of the later offset {named.next_offset} of operator "
        f"{', '.join(map(repr, operators))} in file '{named.file}'. Records in between would be in the state twice.",
        remedy="Find out which program has committed the position. Reset the partition to an earlier offset whose state is stored.",
        topic=tp.topic,
        partition=tp.partition,
    )


def choose(position: Position, manifests: Iterable[Manifest], on_missing: OnMissingState) -> Choice:
    """The state from which a batch continues.

    Args:
        position: the start of the range of the batch.
        manifests: for a named position the manifest of the named file, otherwise all manifests of the operator.
        on_missing: the policy.

    Raises:
        StateMissing: if no state leads to the position and the policy is to fail.
        StateMismatch: if the named state belongs to another topic, cluster or offset.

    >>> choose(Position(TopicPartition("flights", 0), 5, New()), [], OnMissingState.FAIL)
    Empty(read_from=5)
    """
    here = position.next_offset
    if isinstance(position.origin, New):
        return Empty(here)
    tp = position.topic_partition
    found = [Stored(m.file, state) for m in manifests if (state := m.state_of(tp)) is not None]
    if isinstance(position.origin, Named | Earlier):
        return _named(position, position.origin, found)
    of_topic = [it for it in found if not it.state.identity.differs_from(position.identity)]
    if isinstance(position.origin, Fingerprinted):
        return _in_ledger(position, position.origin, of_topic, on_missing)
    preferred = lineage({it.file: it.state for it in of_topic})
    for among in ([it for it in of_topic if it.file in preferred], of_topic):
        choice = _latest(here, among)
        if choice is not None:
            return choice
    # No record precedes offset 0, also in a partition without records, which no batch has read.
    is_before_all = here == 0 or (bool(of_topic) and here <= min(it.state.began_offset for it in of_topic))
    if is_before_all or on_missing is OnMissingState.EMPTY:
        return Empty(here)
    raise _missing(position, of_topic)


def _latest(here: int, states: Collection[Stored]) -> Choice | None:
    """The latest state that leads to an offset; ``None`` if none does."""
    before = [it for it in states if it.read_from <= here]
    if before:
        return max(before, key=lambda it: (it.read_from, it.file))
    # The first batch of a state began with an empty one.
    beginnings = [it.state.began_offset for it in states if it.state.is_first and it.state.began_offset <= here]
    return Empty(max(beginnings)) if beginnings else None


def operator_in_use(files: Mapping[str, Collection[StateFileName]], named: Collection[StateFileName]) -> str | None:
    """The operator of a group whose queries are unknown. After a change of its name, a group has files of several.

    Args:
        files: the state files of each operator of the group.
        named: the files that committed offsets name.

    Returns:
        The operator that has most of the named files, and else the newest file. ``None`` if no operator has files.

    >>> old, new = (StateFileName(ms, "1f3a9c2b7d10", 17, 42) for ms in (1732334879123, 1732334879456))
    >>> operator_in_use({"windows": [old], "counts": [new]}, [old]), operator_in_use({"windows": [old], "counts": [new]}, [])
    ('windows', 'counts')
    """
    known = {operator: listed for operator, listed in files.items() if listed}
    required = frozenset(named)
    return max(known, key=lambda operator: (len(required & set(known[operator])), max(known[operator])), default=None)


def _named(position: Position, named: Named | Earlier, found: list[Stored]) -> Stored:
    tp, file = position.topic_partition, named.file
    stored = next((it for it in found if it.file == file), None)
    if stored is None or stored.state.next_offset != named.next_offset:
        actual = "has no state of the partition" if stored is None else f"has its state at {stored.state.next_offset}"
        raise StateMismatch(
            f"{tp}: the position {position.next_offset} names the state of offset {named.next_offset} in file '{file}', "
            f"which {actual}.",
            remedy="Check that all queries of the group have the same 'stateLocation'.",
            topic=tp.topic,
            partition=tp.partition,
        )
    if stored.state.identity.differs_from(position.identity):
        raise StateMismatch(
            f"{tp}: the state file '{file}' is of another topic or cluster (state: {stored.state.identity}; "
            f"topic: {position.identity}).",
            remedy="Check that all queries of the group have the same 'stateLocation'. To start with an empty state, give "
            "the operator a new name and set onMissingState=empty.",
            topic=tp.topic,
            partition=tp.partition,
        )
    return stored


def _in_ledger(position: Position, origin: Fingerprinted, of_topic: list[Stored], on_missing: OnMissingState) -> Choice:
    for it in of_topic:
        if is_exactly(position, it):
            return it
    if on_missing is OnMissingState.EMPTY:
        return Empty(position.next_offset)
    tp = position.topic_partition
    raise StateMissing(
        f"{tp}: the file of the state at offset {position.next_offset}, which the ledger of the sink identifies, does not "
        "exist.",
        remedy="Check that all queries of the group have the same 'stateLocation'. If the file is lost, reset the group "
        "to an earlier offset whose state is stored, or set onMissingState=empty.",
        topic=tp.topic,
        partition=tp.partition,
    )


def is_continued(position: Position, origin: StateOrigin, states: Iterable[PartitionState]) -> bool:
    """Whether one of these states is that of a position, written by a batch that has continued with another state.

    Args:
        position: the end of the batch. Its origin does not count.
        origin: the state before the batch. If it names no state, any batch up to the position counts.
        states: states of the partition.
    """

    def follows(state: PartitionState) -> bool:
        if state.next_offset != position.next_offset or state.identity.differs_from(position.identity):
            return False
        return state.after == origin.file if isinstance(origin, Named | Earlier) else True

    return any(follows(it) for it in states)


def is_exactly(position: Position, stored: Stored) -> bool:
    """Whether a state is the one of a position, so that no other state has to be searched."""
    if stored.state.identity.differs_from(position.identity):
        return False
    if isinstance(position.origin, Fingerprinted):
        return fingerprint(stored.origin) == position.origin.fingerprint
    return stored.read_from == position.next_offset


def _missing(position: Position, of_topic: list[Stored]) -> StateMissing:
    tp = position.topic_partition
    oldest = min((it.state.next_offset for it in of_topic), default=None)
    known = "no state of the partition is stored" if oldest is None else f"the oldest stored state is at {oldest}"
    return StateMissing(
        f"{tp}: no stored state leads to offset {position.next_offset}: {known}.",
        remedy="Reset the group to a later offset, or set onMissingState=empty to start with an empty state. "
        "'stateRetention' determines how far back states are kept.",
        topic=tp.topic,
        partition=tp.partition,
    )


def newest_committed(position: Position, manifests: Iterable[Manifest]) -> Stored | None:
    """Returns the newest state of a partition that was committed; ``None`` if the files prove no commit.

    Args:
        position: the position. Its offset has no effect.
        manifests: the manifests of all files of the operator.

    >>> from streamgroups.partitions import TopicPartition
    >>> from streamgroups.state.origins import UNNAMED
    >>> newest_committed(Position(TopicPartition("flights", 0), 5, UNNAMED), []) is None
    True
    """
    tp = position.topic_partition
    found = [Stored(it.file, state) for it in manifests if (state := it.state_of(tp)) is not None]
    of_topic = [it for it in found if not it.state.identity.differs_from(position.identity)]
    continued = {(it.state.after, it.state.range.next_offset) for it in of_topic}
    committed = [it for it in of_topic if not len(it.state.range) or (it.file, it.state.next_offset) in continued]
    return max(committed, key=lambda it: it.file, default=None)
