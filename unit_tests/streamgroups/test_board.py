"""G8, G9: the notes that members leave for each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.coordination.reset_protocol import MemberEntry, ResetRequest, Step, next_step, pending
from streamgroups.partitions import TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
TIMES = st.integers(0, 2**42)
IDS = st.text("0123456789abcdef", max_size=32)
FLIGHTS = {"flights": 3}
NOTHING = Step({}, frozenset(), {}, {}, {})
#: What a broker allows beside an offset by default (offset.metadata.max.bytes).
MAX_BYTES = 4096


@given(st.text(max_size=249), TIMES, st.none() | TIMES, IDS, IDS)
def test_G9_a_note_is_read_back_and_fits_beside_an_offset(
    name: str, used: int, until: int | None, applied: str, stopped: str
) -> None:
    note = MemberEntry(name, used, until, applied, stopped)
    for behind in ("", "\0", "\0}", "{", "\x7f"):
        assert MemberEntry.parse(note.encode() + behind) == note
    assert len(note.encode().encode()) <= MAX_BYTES


@given(IDS, st.integers(0, 2**62), st.dictionaries(st.text(max_size=249), st.integers(0, 10_000)), st.booleans())
def test_G8_an_order_is_read_back(request_id: str, next_offset: int, topics: dict[str, int], void: bool) -> None:
    order = ResetRequest(request_id, next_offset, topics, void)
    assert ResetRequest.parse(next_offset, order.encode()) == order


@pytest.mark.parametrize(
    "metadata", ["", "streamgroups:shared", "[]", "{}", '{"v":2,"order":"a","void":false}', '{"v":1}']
)
def test_what_somebody_else_wrote_is_passed_over(metadata: str) -> None:
    assert MemberEntry.parse(metadata) is None
    assert ResetRequest.parse(0, metadata) is None


def order(request_id: str, next_offset: int = 0, *, moves: int = 3, void: bool = False) -> ResetRequest:
    return ResetRequest(request_id, next_offset, {"flights": moves}, void)


def note(*, applied: str = "", stopped: str = "") -> MemberEntry:
    return MemberEntry("alice", 0, None, applied, stopped)


def test_G8_an_order_is_obeyed_once() -> None:
    resets = {P0: order("a", 10), P1: order("b", 20), P2: order("c", 30, void=True)}
    assert pending(resets, {}) == {P0: order("a", 10), P1: order("b", 20)}
    assert pending(resets, {P0: "a", P1: "a"}) == {P1: order("b", 20)}


def test_S6_an_order_is_about_partitions_that_there_are() -> None:
    """What an entry says of a topic is no size of anything."""
    forged = ResetRequest("a", 0, {"flights": 2**31 - 1, "gone": 2**31 - 1})
    assert forged.candidates({"flights": 2, "orders": 1}) == [P0, P1]


class TestNextStep:
    ORDERS: ClassVar = {P0: order("a", 10), P1: order("a", 20), P2: order("a", 30)}
    OWNERS: ClassVar = dict.fromkeys(ORDERS, "alice")

    def step(
        self,
        resets: Mapping[TopicPartition, ResetRequest],
        notes: Mapping[TopicPartition, MemberEntry],
        owned: Collection[TopicPartition],
        owners: Mapping[TopicPartition, str] | None = OWNERS,
        *,
        counts: Mapping[str, int] = FLIGHTS,
        me: str = "alice",
    ) -> Step:
        return next_step(resets, notes, owned, owners, counts, me=me)

    def test_S6_nobody_goes_on_before_all_have_stopped(self) -> None:
        notes = {P0: note(stopped="a"), P1: note(stopped="a"), P2: note(stopped="older")}
        waits = self.step(self.ORDERS, notes, [P0, P1])
        assert waits == Step({}, frozenset(), {}, {}, {"a": "flights-2 has not paused"})
        assert self.step(self.ORDERS, notes, [P2]).stop == {P2: "a"}
        stopped = {**notes, P2: note(stopped="a")}
        assert self.step(self.ORDERS, stopped, [P0, P1]) == Step(
            {}, frozenset(), {P0: order("a", 10), P1: order("a", 20)}, {}, {}
        )

    def test_S6_whoever_has_gone_on_had_stopped(self) -> None:
        notes = {P0: note(applied="a"), P1: note(applied="a", stopped="a"), P2: note(stopped="a")}
        assert self.step(self.ORDERS, notes, [P2]).move == {P2: order("a", 30)}
        assert self.step(self.ORDERS, notes, [P0, P1]) == NOTHING

    def test_S6_an_order_of_which_a_part_is_missing_stops_nobody(self) -> None:
        resets = {P0: order("a", 10), P1: order("a", 20)}
        missing = {"a": "only 2 of 3 entries for flights exist"}
        assert self.step(resets, {}, [P0, P1]) == Step({}, frozenset(), {}, missing, {})
        # One who has stopped for it reads on, and notes so: the part may come later.
        stopped = {P0: note(stopped="a"), P1: MemberEntry("bob", 0, None, stopped="a")}
        assert self.step(resets, stopped, [P0, P1]) == Step({}, frozenset([P0]), {}, missing, {})

    def test_S6_an_order_with_a_topic_that_is_gone_is_complete_without_it(self) -> None:
        """Its entries are deleted with it."""
        resets = {P0: ResetRequest("a", 10, {"flights": 1, "gone": 4})}
        assert self.step(resets, {P0: note(stopped="a")}, [P0]).move == resets
        assert self.step(resets, {}, [P0], counts={**FLIGHTS, "gone": 4}).incomplete == {
            "a": "only 0 of 4 entries for gone exist"
        }

    def test_S6_an_order_that_is_written_in_several_commits_holds_with_the_last(self) -> None:
        for n in range(1, 4):
            resets = dict(list(self.ORDERS.items())[:n])
            assert bool(self.step(resets, {}, [P0]).stop) == (n == 3)

    def test_S6_the_last_order_counts(self) -> None:
        again = {tp: order("b", n) for n, tp in enumerate(self.ORDERS)}
        stopped_for_the_first = dict.fromkeys(again, note(stopped="a"))
        assert self.step(again, stopped_for_the_first, [P0]).stop == {P0: "b"}
        void = {tp: order("c", void=True) for tp in self.ORDERS}
        assert self.step(void, stopped_for_the_first, [P0]) == NOTHING

    def test_S6_what_a_former_owner_noted_is_not_what_the_present_one_does(self) -> None:
        stopped = dict.fromkeys(self.ORDERS, note(stopped="a"))
        bobs = {**self.OWNERS, P2: "bob"}
        assert not self.step(self.ORDERS, stopped, [P0], bobs).move
        by_bob = {**stopped, P2: MemberEntry("bob", 0, None, stopped="a")}
        assert self.step(self.ORDERS, stopped, [P2], bobs, me="bob").stop == {P2: "a"}
        assert self.step(self.ORDERS, by_bob, [P0], bobs).move.keys() == {P0}

    def test_S6_while_a_group_rebalances_nobody_goes_on_and_what_nobody_has_nobody_reads(self) -> None:
        stopped = {P0: note(stopped="a"), P1: note(stopped="a")}
        assert not self.step(self.ORDERS, stopped, [P0], None).move
        assert self.step(self.ORDERS, stopped, [P0], {P0: "alice", P1: "alice"}).move.keys() == {P0}

    @given(st.lists(st.sampled_from(["", "a", "b"]), min_size=6, max_size=6), st.sets(st.sampled_from([P0, P1, P2])))
    def test_S6_a_step_moves_all_of_an_order_or_none(self, ids: list[str], owned: set[TopicPartition]) -> None:
        notes = {tp: note(applied=ids[i], stopped=ids[i + 3]) for i, tp in enumerate(self.ORDERS)}
        step = self.step(self.ORDERS, notes, owned)
        due = {tp for tp in owned if notes[tp].applied != "a"}
        assert step.stop.keys() == {tp for tp in due if notes[tp].stopped != "a"}
        everybody = all("a" in (n.stopped, n.applied) for n in notes.values())
        assert step.move.keys() == (due if everybody else set())
