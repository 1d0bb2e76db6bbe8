"""G4, G7, G8, G12: what a cursor commits and where it reads on, against a model of a group."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamgroups.cursors.pending_ranges import (
    Holding,
    PendingRange,
    acknowledge,
    in_flight,
    pending_ranges,
    plan_commit,
    read_from,
)
from streamgroups.partitions import TopicPartition

P0, P1, P2 = TPS = tuple(TopicPartition("flights", p) for p in range(3))
COVERS = st.dictionaries(st.sampled_from(TPS), st.tuples(st.integers(1, 3), st.integers(0, 50)), max_size=3).map(
    lambda found: tuple(PendingRange(tp, *rest) for tp, rest in sorted(found.items()))
)
HOLDINGS = st.dictionaries(
    st.sampled_from(TPS), st.builds(Holding, st.integers(1, 3), st.integers(0, 50), st.booleans())
)
REACHED = st.dictionaries(st.sampled_from(TPS), st.integers(0, 50))


def test_G4_a_request_commits_what_the_one_before_it_returned() -> None:
    plan = plan_commit([PendingRange(P0, 1, 100)], {P0: Holding(1, 0), P1: Holding(2, 7)})
    assert (plan.next_offsets, plan.gone) == ({P0: 100}, ())


def test_G7_what_was_lost_is_not_committed_even_if_it_came_back() -> None:
    pending = [PendingRange(P0, 1, 100), PendingRange(P1, 2, 50)]
    plan = plan_commit(pending, {P0: Holding(3, 0)})
    assert (plan.next_offsets, plan.gone) == ({}, tuple(pending))


def test_G11_a_revoked_partition_is_not_read() -> None:
    assert read_from([], {P0: Holding(1, 5, releasing=True), P1: Holding(2, 7)}) == {P1: 7}


def test_a_revoked_partition_can_still_be_committed() -> None:
    assert plan_commit([PendingRange(P0, 1, 9)], {P0: Holding(1, 5, releasing=True)}).next_offsets == {P0: 9}


def test_G8_a_cursor_from_before_a_move_reads_from_the_new_place() -> None:
    assert read_from([PendingRange(P0, 1, 100)], {P0: Holding(2, 40)}) == {P0: 40}


@given(COVERS, HOLDINGS)
def test_G12_a_commit_never_goes_back(
    pending: tuple[PendingRange, ...], holdings: dict[TopicPartition, Holding]
) -> None:
    plan = plan_commit(pending, holdings)
    assert all(n > holdings[tp].next_offset for tp, n in plan.next_offsets.items())
    assert not plan.next_offsets.keys() & {c.topic_partition for c in plan.gone}


@given(COVERS, HOLDINGS)
def test_G12_never_a_record_before_the_committed_offset(
    pending: tuple[PendingRange, ...], holdings: dict[TopicPartition, Holding]
) -> None:
    positions = read_from(pending, holdings)
    assert set(positions) == {tp for tp, h in holdings.items() if not h.releasing}
    assert all(n >= holdings[tp].next_offset for tp, n in positions.items())


@given(COVERS, HOLDINGS, REACHED)
def test_the_next_cursor_covers_what_is_held_and_not_committed(
    pending: tuple[PendingRange, ...], holdings: dict[TopicPartition, Holding], reached: dict[TopicPartition, int]
) -> None:
    after = pending_ranges(pending, holdings, reached)
    assert all(c.ownership_epoch == holdings[c.topic_partition].ownership_epoch for c in after)
    assert {c.topic_partition: (holdings[c.topic_partition].next_offset, c.next_offset) for c in after} == in_flight(
        after, holdings
    )
    assert {tp for tp, n in reached.items() if tp in holdings and n > holdings[tp].next_offset} <= {
        c.topic_partition for c in after
    }


@given(COVERS, COVERS, st.lists(st.tuples(st.sampled_from(TPS), st.integers(0, 60))))
def test_G12_trimming_never_covers_more_than_was_handled(
    before: tuple[PendingRange, ...], after: tuple[PendingRange, ...], handled: list[tuple[TopicPartition, int]]
) -> None:
    ends = {c.topic_partition: c for c in after}
    had = {(c.topic_partition, c.ownership_epoch): c.next_offset for c in before}
    for pending_range in acknowledge(before, after, handled):
        tp = pending_range.topic_partition
        last = dict(handled).get(tp)
        assert pending_range.ownership_epoch == ends[tp].ownership_epoch
        assert pending_range.next_offset <= ends[tp].next_offset
        assert pending_range.next_offset <= (had[tp, pending_range.ownership_epoch] if last is None else last + 1)


class OneGroup(RuleBasedStateMachine):
    """One partition of a group that two instances share; each follows its own chain of cursors."""

    def __init__(self) -> None:
        super().__init__()
        self.end = 0
        self.committed = 0
        self.ownership_epochs = 0
        self.owner: int | None = None
        self.holding = Holding(0, 0)
        self.pending: dict[int, list[tuple[PendingRange, ...]]] = {1: [()], 2: [()]}
        self.given: set[int] = set()
        self.skipped: set[int] = set()

    @initialize()
    def start(self) -> None:
        self.hand_over(1)

    @rule(count=st.integers(1, 5))
    def produce(self, count: int) -> None:
        self.end += count

    @rule(instance=st.sampled_from([1, 2]))
    def hand_over(self, instance: int) -> None:
        """The group assigns the partition to an instance, perhaps again to the same one."""
        self.ownership_epochs += 1
        self.owner, self.holding = instance, Holding(self.ownership_epochs, self.committed)

    @rule(to=st.integers(0, 30))
    def move(self, to: int) -> None:
        """The group's position is reset; what lies between may be skipped or read again."""
        to = min(to, self.end)
        self.skipped |= set(range(self.committed, to))
        self.committed = to
        self.ownership_epochs += 1
        self.holding = Holding(self.ownership_epochs, to)

    @precondition(lambda self: self.owner is not None)
    @rule(count=st.integers(0, 4), which=st.integers(-3, -1))
    def get(self, count: int, which: int) -> None:
        """A request with the newest cursor, or with an older one: a repeated request."""
        assert self.owner is not None
        chain = self.pending[self.owner]
        pending = chain[max(which, -len(chain))]
        self._commit(pending)
        position = read_from(pending, self._holdings())[P0]
        assert position >= self.committed
        reached = min(position + count, self.end)
        self.given |= set(range(position, reached))
        chain.append(pending_ranges(pending, self._holdings(), {P0: reached}))

    @rule(instance=st.sampled_from([1, 2]), which=st.integers(-3, -1))
    def commit(self, instance: int, which: int) -> None:
        chain = self.pending[instance]
        pending = chain[max(which, -len(chain))]
        holdings = self._holdings() if self.owner == instance else {}
        assert holdings or not plan_commit(pending, holdings).next_offsets
        if self.owner == instance:
            self._commit(pending)

    def _holdings(self) -> dict[TopicPartition, Holding]:
        return {P0: self.holding}

    def _commit(self, pending: tuple[PendingRange, ...]) -> None:
        for tp, n in plan_commit(pending, self._holdings()).next_offsets.items():
            assert tp == P0
            self.committed = n
            self.holding = Holding(self.holding.ownership_epoch, n)

    @invariant()
    def nothing_is_committed_that_was_not_delivered(self) -> None:
        assert set(range(self.committed)) <= self.given | self.skipped


TestOneGroup = OneGroup.TestCase
