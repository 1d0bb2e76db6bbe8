"""Decides where a group continues after a savepoint is restored, and rejects a savepoint that does not fit.

Called by ``streamgroups savepoint restore`` before anything changes. A restore is a reset with states: the new offsets name
the states of the savepoint. Source: SEMANTICS C3, S10, S11, F2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import ToolMark, mark_of
from streamgroups.groups.program import forms_in, other_forms
from streamgroups.groups.reset_plan import Move
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.savepoints.commit_record import CommitRecord, SavedPosition
from streamgroups.savepoints.cut import state_of
from streamgroups.state.origins import Earlier, Named, New, StateOrigin, later


@dataclass(frozen=True, slots=True)
class Operators:
    """Which operators of a savepoint a changed program has.

    Args:
        renamed: the new names of operators, by their old names.
        removed: the operators that the program does not have.

    >>> Operators({"minutes": "five_minutes"}, frozenset(["peaks"])).names(["minutes", "hours", "peaks"])
    {'minutes': 'five_minutes', 'hours': 'hours'}
    """

    renamed: Mapping[str, str]
    removed: frozenset[str]

    @property
    def is_changed(self) -> bool:
        """Whether the program has other operators than that of the savepoint."""
        return bool(self.renamed or self.removed)

    def names(self, saved: Collection[str]) -> dict[str, str]:
        """The new name of each operator that stays.

        Args:
            saved: the operators of the savepoint.

        Raises:
            InvalidOption: if an operator is unknown, or two would have one name.
        """
        unknown = sorted((self.renamed.keys() | self.removed) - set(saved))
        if unknown:
            raise InvalidOption(
                f"The savepoint has no operator {listed(map(repr, unknown))}; nothing was changed.",
                remedy=f"Its operators: {listed(sorted(saved)) or 'none'}.",
            )
        both = sorted(self.renamed.keys() & self.removed)
        if both:
            raise InvalidOption(
                f"Operator {listed(map(repr, both))} is renamed and removed.",
                remedy="Use --rename or --without for it.",
            )
        names = {name: self.renamed.get(name, name) for name in saved if name not in self.removed}
        if len(set(names.values())) < len(names):
            raise InvalidOption(
                "Two operators of the savepoint would have one name; nothing was changed.",
                remedy="Rename each of them to another name.",
            )
        return names


def moves(
    record: CommitRecord, committed: Mapping[TopicPartition, Committed], bounds: Mapping[TopicPartition, Bounds]
) -> list[Move]:
    """The new offset of each partition, in order.

    Args:
        record: the savepoint.
        committed: the committed offsets of the group that continues.
        bounds: the earliest offset and the end of each partition.

    Raises:
        GroupRejected: if records after an offset of the savepoint are deleted, or the partition ends before it.
    """
    before = [tp for tp, it in record.positions.items() if it.next_offset < bounds[tp].beginning_offset]
    if before:
        found = ", ".join(
            f"{tp} (offset {record.positions[tp].next_offset}, earliest offset {bounds[tp].beginning_offset})"
            for tp in sorted(before)
        )
        raise GroupRejected(
            f"The records after the savepoint {record.id} are deleted: {found}; nothing was changed.",
            remedy="Restore a later savepoint. A group without state can be reset with: streamgroups groups reset.",
            group=record.group_id,
        )
    behind = sorted(tp for tp, it in record.positions.items() if it.next_offset > bounds[tp].end_offset)
    if behind:
        raise GroupRejected(
            f"{listed(behind)} ends before the offset of the savepoint {record.id}: its records are lost, or it is another "
            "topic; nothing was changed.",
            remedy="Check --bootstrap-server. A savepoint belongs to the log of its topics.",
            group=record.group_id,
        )
    return [
        Move(tp, committed[tp].next_offset if tp in committed else None, it.next_offset, None, bounds[tp])
        for tp, it in sorted(record.positions.items())
    ]


def is_begun(record: CommitRecord, committed: Mapping[TopicPartition, Committed]) -> bool:
    """Whether a restore into this group was interrupted between two commits, so that the same command finishes it.

    Args:
        record: the savepoint.
        committed: the committed offsets of the group.

    >>> is_begun(CommitRecord("20241123T040000Z-5f2c9a01", "board", 7, "0.1.0", {}, {}, {}), {})
    False
    """

    def is_restored(tp: TopicPartition, it: Committed) -> bool:
        saved, mark = record.positions.get(tp), ToolMark.parse(it.metadata)
        if saved is None or mark is None:
            return False
        return (it.next_offset, mark.state) == (saved.next_offset, state_of(saved.metadata))

    return 0 < len(committed) < len(record.positions) and all(is_restored(tp, it) for tp, it in committed.items())


def repeated(moves: Collection[Move]) -> int:
    """The number of offsets whose output the group writes again.

    >>> p0, p1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
    >>> repeated([Move(p0, 12, 10, None, Bounds(0, 20)), Move(p1, None, 3, None, Bounds(0, 20))])
    2
    """
    return sum(max((it.from_offset or 0) - it.to_offset, 0) for it in moves)


def skipped(moves: Collection[Move]) -> int:
    """The number of offsets that the group does not read, because the savepoint is ahead of it."""
    return sum(max(it.to_offset - it.from_offset, 0) for it in moves if it.from_offset is not None)


def not_saved(record: CommitRecord, committed: Collection[TopicPartition]) -> list[TopicPartition]:
    """The partitions that a group has read, and that a savepoint does not have: they were added since.

    A restore into the same group cannot return them to the time of the savepoint.

    Args:
        record: the savepoint.
        committed: the partitions with a committed offset of the group.
    """
    return sorted(set(committed) - record.positions.keys())


def of_other_topics(record: CommitRecord, identities: Mapping[str, TopicIdentity]) -> dict[TopicPartition, int]:
    """The offsets of a savepoint whose topic has another id now, or is in another cluster.

    Args:
        record: the savepoint.
        identities: the current ids of the topics.
    """
    others = {t for t, it in record.identities.items() if t in identities and it.differs_from(identities[t])}
    return {tp: it.next_offset for tp, it in record.positions.items() if tp.topic in others}


def require_same_log(
    record: CommitRecord, others: Collection[TopicPartition], before_ms: Mapping[TopicPartition, int]
) -> None:
    """Rejects a topic of another cluster, or a recreated one, whose log is not that of the savepoint.

    Args:
        record: the savepoint.
        others: the partitions to compare: :func:`of_other_topics`.
        before_ms: the timestamp of the record before each offset, in milliseconds since the epoch.

    Raises:
        GroupRejected: if a record before an offset has another timestamp, or none can be compared.
    """
    saved = {tp: record.positions[tp] for tp in others}
    different = sorted(
        tp for tp, it in saved.items() if it.next_offset and (it.before_ms is None or before_ms.get(tp) != it.before_ms)
    )
    if different:
        raise GroupRejected(
            f"The savepoint {record.id} belongs to other topics: the log of {listed(different)} is not that of the "
            "savepoint; nothing was changed.",
            remedy="Check --bootstrap-server. A copy by a mirror has other offsets; a clone of the disks has the same ones.",
            group=record.group_id,
        )


def metadata(
    record: CommitRecord, identities: Mapping[str, TopicIdentity], *, keeps_program: bool
) -> dict[TopicPartition, str]:
    """The metadata of each new offset: a mark that names its topic and its state.

    Args:
        record: the savepoint.
        identities: the current ids of the topics.
        keeps_program: whether only the program of the savepoint may continue. Otherwise the first member decides.
    """
    metadata = {tp: it.metadata for tp, it in record.positions.items()}
    forms = forms_in(metadata) if keeps_program else {}
    return {
        tp: ToolMark(NO_RESET, identities[tp.topic], state_of(it), forms.get(tp, ""), is_restored=True).encode()
        for tp, it in metadata.items()
    }


def require_same_program(record: CommitRecord, committed: Mapping[TopicPartition, Committed]) -> None:
    """Rejects a group whose members run another program than that of the savepoint.

    Args:
        record: the savepoint.
        committed: the committed offsets of the group, which has members.

    Raises:
        GroupRejected: with both programs.
    """
    saved = forms_in({tp: it.metadata for tp, it in record.positions.items()})
    current = forms_in({tp: it.metadata for tp, it in committed.items()})
    for tp, form in sorted(current.items()):
        if tp in saved and other_forms(saved[tp], {tp: form}):
            raise GroupRejected(
                f"The members of group '{record.group_id}' run the program '{form}', and the savepoint {record.id} is of "
                f"'{saved[tp]}'; nothing was changed.",
                remedy="Stop the members, restore the savepoint, and start the program of the savepoint.",
                group=record.group_id,
            )


def state_only_metadata(
    record: CommitRecord, committed: Mapping[TopicPartition, Committed], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, str]:
    """The metadata of the committed offsets, with the states of a savepoint. The records in between are read without output.

    Args:
        record: the savepoint.
        committed: the committed offsets of the group.
        bounds: the earliest offset and the end of each partition.

    Raises:
        GroupRejected: if an offset is before that of the savepoint, a partition has no state there, or the records in between
            are deleted.
    """
    saved = {tp: record.positions.get(tp, SavedPosition(0, "")) for tp in committed}
    states = {tp: state_of(it.metadata) for tp, it in saved.items()}
    rejected = {
        "is before the savepoint": [tp for tp, it in saved.items() if committed[tp].next_offset < it.next_offset],
        # Without a state no batch has processed records before the offset of the savepoint.
        "has no state in the savepoint": [
            tp
            for tp, it in states.items()
            if not isinstance(it, Named | Earlier) and committed[tp].next_offset > saved[tp].next_offset
        ],
        "needs records that are deleted": [
            tp
            for tp, it in states.items()
            if isinstance(it, Named | Earlier)
            and it.next_offset < min(bounds[tp].beginning_offset, committed[tp].next_offset)
        ],
    }
    for why, partitions in rejected.items():
        if partitions:
            raise GroupRejected(
                f"The committed offset of {listed(sorted(partitions))} {why}; nothing was changed.",
                remedy="Use a savepoint that was created before these offsets were committed, and after the first batch.",
                group=record.group_id,
            )
    return {
        tp: _with_state(committed[tp], _of_offset(it, saved[tp].next_offset, committed[tp].next_offset)).encode()
        for tp, it in states.items()
    }


def _with_state(committed: Committed, state: StateOrigin) -> ToolMark:
    """The mark of a committed offset whose state is replaced."""
    mark = mark_of(committed.metadata)
    if mark is None:
        return ToolMark(NO_RESET, state=state)
    if not isinstance(mark, ToolMark):
        return ToolMark(NO_RESET, mark.identity, state, kept_reset=mark.reset)
    kept = mark.reset if mark.kept_reset is None else mark.kept_reset
    # The flag belongs to the offset, which stays.
    return ToolMark(NO_RESET, mark.identity, state, kept_reset=kept, is_restored=mark.is_restored)


def _of_offset(state: StateOrigin, saved_offset: int, next_offset: int) -> StateOrigin:
    """The state of a later offset than that of the savepoint."""
    if not isinstance(state, Named | Earlier):
        return New()
    return state if saved_offset == next_offset else later(state)
