"""Decides how a restarted query continues, from its checkpoint and the committed offsets of its group.

Called by ``streamgroups.query.micro_batches`` once after a restart, when the first partitions are assigned. Between the
two runs, other members may have read further, or a tool may have reset the group. Source: SEMANTICS S5. Spark replays a
batch that is in its offset log but not in its commit log before it requests new offsets.

Per partition, with the last batch of the checkpoint ``[from, to)`` and the committed offset ``c`` of the group:

====================  =======================================  ==============================================
the batch was         ``c`` is                                 then
====================  =======================================  ==============================================
finished              ``to`` or missing                        no difference
finished              ``from``, with the reset of the          no difference: only the last commit is missing
                      checkpoint, by a member or a tool
finished              anything else                            difference: the policy decides
not finished          ``from`` or missing                      no difference: read ``[from, to)`` again
not finished          ``to``, by the sink, with the output     no difference: nothing is read again. Under
                                                               ``checkpoint`` the state needs ``[from, to)``:
                                                               it is read again, and the sink drops it
not finished          anything else                            difference: the policy decides
either                elsewhere, by the sink, with the output  difference: ``group`` continues there, the other
                                                               policies reject it
either                elsewhere, by a restore of a savepoint   difference: ``group`` continues there, the other
                      that the checkpoint does not contain     policies reject it: Spark's state may be of
                                                               another position
====================  =======================================  ==============================================

A position contains the last reset that has set it (:mod:`streamgroups.groups.applied_reset`). A live reset to ``from`` is the commit
of a member too, but contains another reset than the checkpoint: then the policy decides.

A committed offset of another topic or cluster than that of the checkpoint (:mod:`streamgroups.identity`) counts as
"anything else", whatever its number. Whether the chosen position belongs to the current topic is decided afterwards
(:mod:`streamgroups.query.data_loss`).

A finished batch may not have read a partition (:mod:`streamgroups.query.skipped_range_store`): an earlier run had to replay
the batch, and another member owned the partition then; or the function of ``foreachBatch`` has not read all rows of a query
with state (:func:`left_ranges`). For such a partition the checkpoint has no position. The position of the group applies under
every policy, which is ``from`` unless another member has read further.

A partition that another member owns now stays with that member under
every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.errors import PositionsDiffer
from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.membership import NewPosition, Origin, Owned
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.printable import listed
from streamgroups.state.origins import UNNAMED, New, StateOrigin


class OnRestart(Enum):
    """Which positions apply if checkpoint and group differ: the option ``onRestart``."""

    CHECKPOINT = "checkpoint"
    GROUP = "group"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Difference:
    """A partition with different positions in checkpoint and group."""

    topic_partition: TopicPartition
    checkpoint_next_offset: int
    committed_next_offset: int
    #: The ids of both, if they differ.
    identities: tuple[TopicIdentity, TopicIdentity] | None = None

    def __str__(self) -> str:
        line = f"{self.topic_partition}: checkpoint {self.checkpoint_next_offset}, group {self.committed_next_offset}"
        if self.identities is not None:
            return f"{line} (checkpoint: {self.identities[0]}; group: {self.identities[1]})"
        return f"{line} ({self.committed_next_offset - self.checkpoint_next_offset:+d})"


@dataclass(frozen=True, slots=True)
class Resumption:
    """The decision about the partitions owned after a restart.

    Args:
        next_offsets: the position of each owned partition in the checkpoint (before the replay, if any).
        replay: the ranges of the unfinished batch that this member reads again.
        left: its ranges that this member skips: other members own them, or the group has passed them.
        differences: the differences between checkpoint and group, whatever was decided.
        written: its ranges whose output the sink has already committed. If they are read again, the position of the
            group does not change.
        identities: the topic of each position in ``next_offsets``.
    """

    next_offsets: Mapping[TopicPartition, int]
    replay: tuple[OffsetRange, ...]
    left: tuple[OffsetRange, ...]
    differences: tuple[Difference, ...]
    written: tuple[OffsetRange, ...] = ()
    identities: Mapping[TopicPartition, TopicIdentity] = field(default_factory=dict)

    def to_commit(self, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, NewPosition]:
        """The positions to commit for the group.

        Args:
            owned: the partitions on which the decision is based.
        """
        again = {r.topic_partition for r in self.written}
        moved = {tp: n for tp, n in self.next_offsets.items() if tp not in again and owned[tp].next_offset != n}
        return self._decided(moved, owned)

    def to_read_again(self, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, NewPosition]:
        """The positions of records that are read again without a commit, because their output is written.

        Args:
            owned: the partitions on which the decision is based.
        """
        again = {r.topic_partition for r in self.written}
        return self._decided({tp: n for tp, n in self.next_offsets.items() if tp in again}, owned)

    def identified(self, owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Owned]:
        """The partitions with the topics of their positions, and with the states that follow from the checkpoint.

        A partition that has lost its committed offset has no empty state (SEMANTICS F5), unless it is at offset 0: no record is
        before it.

        Args:
            owned: the partitions on which the decision is based.
        """

        def state(tp: TopicPartition) -> StateOrigin:
            is_lost = owned[tp].is_silent and self.next_offsets.get(tp, 0) != 0
            return UNNAMED if is_lost and owned[tp].state == New() else owned[tp].state

        return {
            tp: replace(owned[tp], identity=it, state=state(tp)) for tp, it in self.identities.items() if tp in owned
        }

    def _decided(
        self, next_offsets: Mapping[TopicPartition, int], owned: Mapping[TopicPartition, Owned]
    ) -> dict[TopicPartition, NewPosition]:
        def is_late(tp: TopicPartition, n: int) -> bool:
            """Whether an earlier run has read up to there, and its commit is missing."""
            return owned[tp].next_offset < n and owned[tp].origin is not Origin.FOREIGN

        return {
            tp: NewPosition(n, owned[tp].epoch, self.identities.get(tp, UNKNOWN), is_read=is_late(tp, n))
            for tp, n in next_offsets.items()
        }


def unconfirmed(last: BatchOffset, owned: Mapping[TopicPartition, Owned]) -> frozenset[TopicPartition]:
    """The owned partitions that a finished batch has read, and whose committed offset is not its end.

    >>> p0 = TopicPartition("t", 0)
    >>> unconfirmed(BatchOffset(3, (OffsetRange(p0, 10, 20),)), {p0: Owned(20)})
    frozenset()
    """
    ends = {r.topic_partition: r.end_offset for r in last.ranges}
    return frozenset(tp for tp in ends.keys() & owned.keys() if owned[tp].next_offset != ends[tp])


def left_ranges(
    last: BatchOffset,
    owned: Mapping[TopicPartition, Owned],
    stored: Collection[TopicPartition],
    is_written: Callable[[OffsetRange, Owned], bool],
) -> frozenset[TopicPartition]:
    """The owned partitions that a finished batch has not read.

    Spark counts a batch as finished when its sink returns, also if the sink has read only some of the rows, or none. The
    source detects this at the next trigger, and stores it. A killed query stores nothing: then a task has not written the
    state of a range. The rows of the other ranges may be lost too, so all ranges without a commit are read again.

    Args:
        last: the offset of the batch in the checkpoint.
        owned: the partitions of the first assignment.
        stored: those that an earlier run has stored as not read.
        is_written: whether a task has written the state of the end of a range, after the state of a position.

    >>> p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> last = BatchOffset(3, (OffsetRange(p0, 10, 20), OffsetRange(p1, 5, 6)))
    >>> found = left_ranges(last, {p0: Owned(10), p1: Owned(5)}, (), lambda r, _: r.topic_partition == p0)
    >>> sorted(map(str, found))
    ['t-0', 't-1']
    """
    at_start = [
        r
        for r in last.ranges
        if r.topic_partition in owned and r.topic_partition not in stored
        if _is_commit_missing(last, r.topic_partition, owned[r.topic_partition], r.next_offset)
    ]
    if all(is_written(r, owned[r.topic_partition]) for r in at_start):
        return frozenset(stored)
    return frozenset(stored).union(r.topic_partition for r in at_start)


def resume_finished(
    last: BatchOffset,
    owned: Mapping[TopicPartition, Owned],
    policy: OnRestart,
    left: Collection[TopicPartition] = (),
) -> Resumption:
    """Resumes after a batch that Spark has finished. Its ranges are done, but perhaps not committed yet.

    Args:
        last: the offset of the batch in the checkpoint.
        owned: the partitions of the first assignment.
        policy: which positions apply if both differ.
        left: the partitions that the batch has not read.

    Raises:
        PositionsDiffer: under :attr:`OnRestart.FAIL`, with every difference.

    >>> p0 = TopicPartition("t", 0)
    >>> last = BatchOffset(3, (OffsetRange(p0, 10, 20),))
    >>> dict(resume_finished(last, {p0: Owned(10)}, OnRestart.GROUP).next_offsets)
    {TopicPartition(topic='t', partition=0): 20}
    """
    started_at = {r.topic_partition: r.next_offset for r in last.ranges}
    claimed = {tp: n for tp, n in last.next_offsets.items() if tp not in left}
    # Without a committed offset no member has read past the start of the batch.
    claimed |= {tp: started_at[tp] for tp in left if tp in owned and owned[tp].is_silent}
    next_offsets, identities, differences = _settle(last, claimed, owned, policy, or_at=started_at)
    return Resumption(next_offsets, (), (), differences, identities=identities)


def resume_unfinished(batch: BatchOffset, owned: Mapping[TopicPartition, Owned], policy: OnRestart) -> Resumption:
    """Resumes with a batch that Spark has logged and not finished: reads the ranges of owned partitions again.

    Args:
        batch: the offset of the batch in the checkpoint.
        owned: the partitions of the first assignment.
        policy: which positions apply if checkpoint and group differ.

    Raises:
        PositionsDiffer: under :attr:`OnRestart.FAIL`, with every difference.

    >>> p0, p1 = TopicPartition("t", 0), TopicPartition("t", 1)
    >>> batch = BatchOffset(3, (OffsetRange(p0, 10, 20), OffsetRange(p1, 5, 6)))
    >>> [str(r) for r in resume_unfinished(batch, {p0: Owned(10)}, OnRestart.GROUP).replay]
    ['t-0[10,20)']
    """
    written = tuple(r for r in batch.ranges if _is_written(batch, r, owned.get(r.topic_partition)))
    done = frozenset(written)
    others = [r for r in batch.ranges if r not in done]
    started_at = {r.topic_partition: r.next_offset for r in others}
    next_offsets, identities, differences = _settle(batch, {**batch.resting, **started_at}, owned, policy)
    again = policy is OnRestart.CHECKPOINT
    next_offsets |= {r.topic_partition: r.next_offset if again else r.end_offset for r in written}
    identities |= {r.topic_partition: batch.identity(r.topic_partition.topic) for r in written}
    passed = {d.topic_partition for d in differences if d.identities is not None and policy is not OnRestart.CHECKPOINT}
    rests = [
        (r, None if r.topic_partition in passed else _rest_of(r, next_offsets.get(r.topic_partition))) for r in others
    ]
    return Resumption(
        next_offsets,
        tuple(sorted([rest for _, rest in rests if rest is not None] + (list(written) if again else []))),
        tuple(r for r, rest in rests if rest is None),
        differences,
        written,
        identities,
    )


def _is_written(batch: BatchOffset, r: OffsetRange, owned: Owned | None) -> bool:
    if owned is None or owned.origin is not Origin.WRITTEN or owned.next_offset != r.end_offset or not len(r):
        return False
    return not owned.identity.differs_from(batch.identity(r.topic_partition.topic))


def _settle(
    batch: BatchOffset,
    checkpoint: Mapping[TopicPartition, int],
    owned: Mapping[TopicPartition, Owned],
    policy: OnRestart,
    or_at: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, TopicIdentity], tuple[Difference, ...]]:
    """The position of every owned partition in the checkpoint. A member's commit at ``or_at`` is not a difference."""
    next_offsets: dict[TopicPartition, int] = {}
    identities: dict[TopicPartition, TopicIdentity] = {}
    differences: list[Difference] = []
    for tp in sorted(checkpoint.keys() & owned.keys()):
        next_offsets[tp] = checkpoint[tp]
        mine, groups = batch.identity(tp.topic), owned[tp].identity
        committed = checkpoint[tp] if owned[tp].is_silent else owned[tp].next_offset
        differ = mine.differs_from(groups) and not owned[tp].is_silent
        identities[tp] = mine if differ or owned[tp].is_silent else mine.completed_by(groups)
        if differ or (committed != checkpoint[tp] and not _is_commit_missing(batch, tp, owned[tp], or_at.get(tp))):
            differences.append(Difference(tp, checkpoint[tp], committed, (mine, groups) if differ else None))
            if policy is not OnRestart.CHECKPOINT:
                next_offsets[tp], identities[tp] = committed, groups
    if policy is not OnRestart.GROUP:
        _reject_restored([d for d in differences if _is_restored(batch, d, owned[d.topic_partition])])
    _reject_if(policy, differences)
    if policy is OnRestart.CHECKPOINT:
        _reject_to_write_again([d for d in differences if owned[d.topic_partition].origin is Origin.WRITTEN])
    return next_offsets, identities, tuple(differences)


def _is_commit_missing(batch: BatchOffset, tp: TopicPartition, owned: Owned, started_at: int | None) -> bool:
    """Whether the group is at the start of the batch, with the reset of the checkpoint."""
    # The reset of a tool has an id. If the checkpoint contains it, the batch has read from there after the reset.
    is_known = owned.origin in (Origin.COMMITTED, Origin.WRITTEN) or owned.reset != NO_RESET
    return is_known and owned.next_offset == started_at and owned.reset == batch.reset_of(tp)


def _is_restored(batch: BatchOffset, difference: Difference, owned: Owned) -> bool:
    return owned.is_restored and not batch.reset_of(difference.topic_partition).contains(owned.reset)


def _reject_restored(differences: Sequence[Difference]) -> None:
    if differences:
        raise PositionsDiffer(
            "The group was restored to a savepoint, and the checkpoint has other positions: "
            f"{listed(differences, separator='; ')}.",
            remedy="Start the query with the checkpoint that the restore has created, or with a new checkpointLocation. "
            "If Spark keeps no state in the old one, restart once with it and onRestart=group.",
        )


def _reject_to_write_again(differences: Sequence[Difference]) -> None:
    if differences:
        raise PositionsDiffer(
            "The sink has committed other positions with its output than the checkpoint contains: "
            f"{listed(differences, separator='; ')}. A restart from the checkpoint would duplicate or lose output.",
            remedy="Use the checkpoint that belongs to the output. Or restart once with onRestart=group to continue after the output; "
            "the state then lacks the records after the checkpoint.",
        )


def _rest_of(r: OffsetRange, next_offset: int | None) -> OffsetRange | None:
    """The part of a range from ``next_offset`` on; ``None`` if that offset is elsewhere or not known."""
    if next_offset is not None and r.next_offset <= next_offset < r.end_offset:
        return OffsetRange(r.topic_partition, next_offset, r.end_offset)
    return None


def _reject_if(policy: OnRestart, differences: Sequence[Difference]) -> None:
    if policy is OnRestart.FAIL and differences:
        raise PositionsDiffer(
            f"Checkpoint and group differ: {listed(differences, separator='; ')}.",
            remedy="Restart once with onRestart=group to use the group's positions, or with onRestart=checkpoint to use the checkpoint's.",
        )
