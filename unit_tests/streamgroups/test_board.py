"""G8, G9: the notes that members leave for each other."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.groups.board import Note, Order, pending
from streamgroups.partitions import TopicPartition

P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))
TIMES = st.integers(0, 2**42)
#: What a broker allows beside an offset by default (offset.metadata.max.bytes).
MOST_BYTES = 4096


@given(st.text(max_size=249), TIMES, TIMES, st.text("0123456789abcdef", max_size=32))
def test_G9_a_note_is_read_back_and_fits_beside_an_offset(name: str, used: int, until: int, obeyed: str) -> None:
    note = Note(name, used, until, obeyed)
    assert Note.parse(note.encode()) == Note.parse(note.encode() + "\0") == note
    assert len(note.encode().encode()) <= MOST_BYTES


@given(st.text("0123456789abcdef", max_size=32), st.integers(0, 2**62), st.booleans())
def test_G8_an_order_is_read_back(order_id: str, next_offset: int, void: bool) -> None:
    order = Order(order_id, next_offset, void)
    assert Order.parse(next_offset, order.encode()) == order


@pytest.mark.parametrize(
    "metadata", ["", "streamgroups:shared", "[]", "{}", '{"v":2,"order":"a","void":false}', '{"v":1}']
)
def test_what_somebody_else_wrote_is_passed_over(metadata: str) -> None:
    assert Note.parse(metadata) is None
    assert Order.parse(0, metadata) is None


def test_G8_an_order_is_obeyed_once() -> None:
    orders = {P0: Order("a", 10), P1: Order("b", 20), P2: Order("c", 30, void=True)}
    assert pending(orders, {}) == {P0: Order("a", 10), P1: Order("b", 20)}
    assert pending(orders, {P0: "a", P1: "a"}) == {P1: Order("b", 20)}
