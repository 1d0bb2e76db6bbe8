"""G8, G9: the notes that members leave for each other."""

from __future__ import annotations

from typing import ClassVar

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.groups.board import Note, Order, Step, next_step, pending
from streamgroups.partitions import TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
TIMES = st.integers(0, 2**42)
IDS = st.text("0123456789abcdef", max_size=32)
FLIGHTS = {"flights": 3}
#: What a broker allows beside an offset by default (offset.metadata.max.bytes).
MOST_BYTES = 4096


@given(st.text(max_size=249), TIMES, st.none() | TIMES, IDS, IDS)
def test_G9_a_note_is_read_back_and_fits_beside_an_offset(
    name: str, used: int, until: int | None, obeyed: str, stopped: str
) -> None:
    note = Note(name, used, until, obeyed, stopped)
    for behind in ("", "\0", "\0}", "{", "\x7f"):
        assert Note.parse(note.encode() + behind) == note
    assert len(note.encode().encode()) <= MOST_BYTES


@given(IDS, st.integers(0, 2**62), st.dictionaries(st.text(max_size=249), st.integers(0, 10_000)), st.booleans())
def test_G8_an_order_is_read_back(order_id: str, next_offset: int, topics: dict[str, int], void: bool) -> None:
    order = Order(order_id, next_offset, topics, count=7, void=void)
    assert Order.parse(next_offset, order.encode()) == order


@pytest.mark.parametrize(
    "metadata", ["", "streamgroups:shared", "[]", "{}", '{"v":2,"order":"a","void":false}', '{"v":1}']
)
def test_what_somebody_else_wrote_is_passed_over(metadata: str) -> None:
    assert Note.parse(metadata) is None
    assert Order.parse(0, metadata) is None


def order(order_id: str, next_offset: int = 0, *, count: int = 3, void: bool = False) -> Order:
    return Order(order_id, next_offset, FLIGHTS, count, void)


def note(*, obeyed: str = "", stopped: str = "") -> Note:
    return Note("alice", 0, None, obeyed, stopped)


def test_G8_an_order_is_obeyed_once() -> None:
    orders = {P0: order("a", 10), P1: order("b", 20), P2: order("c", 30, void=True)}
    assert pending(orders, {}) == {P0: order("a", 10), P1: order("b", 20)}
    assert pending(orders, {P0: "a", P1: "a"}) == {P1: order("b", 20)}


class TestNextStep:
    ORDERS: ClassVar = {P0: order("a", 10), P1: order("a", 20), P2: order("a", 30)}
    OWNERS: ClassVar = dict.fromkeys(ORDERS, "alice")

    def test_S6_nobody_goes_on_before_all_have_stopped(self) -> None:
        notes = {P0: note(stopped="a"), P1: note(stopped="a"), P2: note(stopped="older")}
        assert next_step(self.ORDERS, notes, [P0, P1], self.OWNERS, me="alice") == Step({}, {})
        assert next_step(self.ORDERS, notes, [P2], self.OWNERS, me="alice") == Step({P2: "a"}, {})
        stopped = {**notes, P2: note(stopped="a")}
        assert next_step(self.ORDERS, stopped, [P0, P1], self.OWNERS, me="alice").move == {
            P0: order("a", 10),
            P1: order("a", 20),
        }

    def test_S6_whoever_has_gone_on_had_stopped(self) -> None:
        notes = {P0: note(obeyed="a"), P1: note(obeyed="a", stopped="a"), P2: note(stopped="a")}
        assert next_step(self.ORDERS, notes, [P2], self.OWNERS, me="alice").move == {P2: order("a", 30)}
        assert next_step(self.ORDERS, notes, [P0, P1], self.OWNERS, me="alice") == Step({}, {})

    def test_S6_an_order_of_which_a_part_is_not_written_yet_holds_nobody_to_it(self) -> None:
        orders = {P0: order("a", 10), P1: order("a", 20)}
        assert next_step(orders, dict.fromkeys(orders, note(stopped="a")), [P0, P1], self.OWNERS, me="alice") == Step(
            {}, {}
        )

    def test_S6_the_last_order_counts(self) -> None:
        again = {tp: order("b", n) for n, tp in enumerate(self.ORDERS)}
        stopped_for_the_first = dict.fromkeys(again, note(stopped="a"))
        assert next_step(again, stopped_for_the_first, [P0], self.OWNERS, me="alice") == Step({P0: "b"}, {})
        void = {tp: order("c", void=True) for tp in self.ORDERS}
        assert next_step(void, stopped_for_the_first, [P0], self.OWNERS, me="alice") == Step({}, {})

    def test_S6_what_a_former_owner_noted_is_not_what_the_present_one_does(self) -> None:
        stopped = dict.fromkeys(self.ORDERS, note(stopped="a"))
        assert next_step(self.ORDERS, stopped, [P0], {**self.OWNERS, P2: "bob"}, me="alice") == Step({}, {})
        by_bob = {**stopped, P2: Note("bob", 0, None, stopped="a")}
        assert next_step(self.ORDERS, stopped, [P2], {**self.OWNERS, P2: "bob"}, me="bob") == Step({P2: "a"}, {})
        assert next_step(self.ORDERS, by_bob, [P0], {**self.OWNERS, P2: "bob"}, me="alice").move.keys() == {P0}

    def test_S6_while_a_group_rebalances_nobody_goes_on_and_what_nobody_has_nobody_reads(self) -> None:
        stopped = {P0: note(stopped="a"), P1: note(stopped="a")}
        assert next_step(self.ORDERS, stopped, [P0], None, me="alice") == Step({}, {})
        assert next_step(self.ORDERS, stopped, [P0], {P0: "alice", P1: "alice"}, me="alice").move.keys() == {P0}

    @given(st.lists(st.sampled_from(["", "a", "b"]), min_size=6, max_size=6), st.sets(st.sampled_from([P0, P1, P2])))
    def test_S6_a_step_moves_all_of_an_order_or_none(self, ids: list[str], owned: set[TopicPartition]) -> None:
        notes = {tp: note(obeyed=ids[i], stopped=ids[i + 3]) for i, tp in enumerate(self.ORDERS)}
        step = next_step(self.ORDERS, notes, owned, self.OWNERS, me="alice")
        due = {tp for tp in owned if notes[tp].obeyed != "a"}
        assert step.stop.keys() == {tp for tp in due if notes[tp].stopped != "a"}
        everybody = all("a" in (n.stopped, n.obeyed) for n in notes.values())
        assert step.move.keys() == (due if everybody else set())
