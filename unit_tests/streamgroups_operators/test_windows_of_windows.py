"""W13, S10: windows over the results of windows have the same results, however batches cut the records."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from streamgroups.event_time.windows import Hopping, Session, Shape
from unit_tests.examples import sequences
from unit_tests.streamgroups_operators.chain_model import Chain, Reference, Result, chained, windows
from unit_tests.streamgroups_operators.window_model import Record, Row

DELAY_MS = 4
SHAPES = [Hopping(10, 10), Hopping(10, 5), Hopping(7, 7), Hopping(12, 4), Session(3), Session(9)]
RECORDS = st.lists(
    st.builds(Record, st.integers(-6, 12), st.sampled_from(["a", "b", None]), st.integers(0, 9)),
    min_size=20,
    max_size=80,
)  # fmt: skip
#: Offsets at which batches end, and what happens there.
STEPS = st.lists(
    st.tuples(st.integers(0, 80), st.sampled_from(["", "", "killed", "between", "reset"]), st.integers(1, 7))
)


def in_time(records: Sequence[Record]) -> list[Record]:
    """Records out of order around a time that advances."""
    return [Record(100 + i + (it.time or 0), it.key, it.value) for i, it in enumerate(records)]


def results(rows: Sequence[Row]) -> set[Result]:
    assert {row["pane"] for row in rows} <= {"on time"}
    assert {row["revision"] for row in rows} <= {0}
    return {(row["k0"], row["start"], row["end"], row["r0"], row["r1"]) for row in rows}


@pytest.mark.parametrize("first", SHAPES, ids=str)
@pytest.mark.parametrize("time", ["start", "end"])
@given(RECORDS, STEPS)
@settings(max_examples=sequences(30))
def test_W13_windows_of_windows_do_not_depend_on_batches(
    first: Shape, time: str, given_records: list[Record], steps: list[tuple[int, str, int]]
) -> None:
    records, second = in_time(given_records), Hopping(20, 10)
    chain = Chain(windows("minutes", first, DELAY_MS, is_chained=True), windows("peaks", second, None, "minutes"), time)
    reference = Reference(first, DELAY_MS)
    for record in records:
        reference.add(record)
    own: set[Result] = set()
    other: set[Result] = set()
    for offset, what, chunk in [*steps, (len(records), "", 5)]:
        offset = min(offset, len(records))
        if what == "reset":
            chain.reset(min(offset, chain.next_offset))
            continue
        end = max(offset, chain.next_offset)
        rows, found = chain.run(records, end, chunk=chunk, is_killed=what == "killed", dies_between=what == "between")
        own |= results([it for it in rows if it["pane"] != "dead letter"])
        other |= results(found)
    assert own == set(reference.results)
    of = (lambda it: it[1]) if time == "start" else (lambda it: it[2] - 1)
    assert other == chained(reference, second, of)


def test_W13_hopping_windows_release_the_start_of_the_earliest_open_one() -> None:
    chain = Chain(
        windows("hopping", Hopping(10, 5), 0, is_chained=True), windows("tens", Hopping(10, 10), None, "hopping")
    )
    records = [Record(1), Record(12), Record(14), Record(15)]
    # The window 5-15 is open, so 0-10 of the second operator can have another result.
    rows, found = chain.run(records, 3)
    assert [(it["start"], it["end"]) for it in rows] == [(-5, 5), (0, 10)]
    assert [(it["start"], it["end"], it["r0"]) for it in found] == [(-10, 0, 1)]
    rows, found = chain.run(records, 4)
    assert [(it["start"], it["end"]) for it in rows] == [(5, 15)]
    assert [(it["start"], it["end"], it["r0"]) for it in found] == [(0, 10, 2)]


def test_W5_W13_idle_timeouts_close_windows_of_both_operators_in_order() -> None:
    chain = Chain(
        windows("minutes", Hopping(10, 10), 0, idle_timeout_ms=5, is_chained=True),
        windows("peaks", Hopping(30, 30), None, "minutes", idle_timeout_ms=5),
        "end",
    )
    records = [Record(30, value=2), Record(45), Record(47)]
    rows, found = chain.run(records, 3, now_ms=48)
    assert [(it["start"], it["pane"]) for it in rows] == [(30, "on time")]
    assert found == []
    # The results of the first operator come before its watermark closes the window of the second one.
    rows, found = chain.run(records, 3, now_ms=66, idle_until_ms=65)
    assert [(it["start"], it["pane"]) for it in rows] == [(40, "idle")]
    assert [(it["start"], it["r0"], it["r1"], it["pane"]) for it in found] == [(30, 2, 3, "on time")]


@pytest.mark.parametrize("first", [Hopping(10, 10), Hopping(10, 5), Session(3)])
def test_W13_no_result_is_late_after_the_idle_timeout_of_both_operators(first: Shape) -> None:
    chain = Chain(
        windows("first", first, 0, idle_timeout_ms=5, is_chained=True),
        windows("second", Hopping(30, 30), None, "first", idle_timeout_ms=5),
        "end",
    )
    records = [Record(30), Record(38), Record(57), Record(75), Record(99)]
    chain.run(records, 2, now_ms=39)
    rows, found = chain.run(records, 2, now_ms=56, idle_until_ms=56)
    assert (bool(rows), found) == (True, []), "the window 30-60 of the second operator is open"
    _, found = chain.run(records, 2, now_ms=66, idle_until_ms=66)
    assert [it["start"] for it in found] == [30]
    # The second operator has closed the window of this record, so the first one does not count it.
    chain.run(records, 3, now_ms=67)
    rows, found = chain.run(records, 5, now_ms=100)
    assert all(it["end"] > 60 for it in rows if it["pane"] != "dead letter")
    assert "dead letter" not in [it["pane"] for it in found]


def test_W5_W13_without_a_second_idle_timeout_the_first_operator_closes_only_windows_with_records() -> None:
    chain = Chain(
        windows("first", Hopping(10, 10), 0, idle_timeout_ms=5, is_chained=True),
        windows("second", Hopping(30, 30), None, "first"),
        "end",
    )
    records = [Record(30), Record(38), Record(47), Record(58), Record(99)]
    chain.run(records, 2, now_ms=39)
    rows, found = chain.run(records, 2, now_ms=70, idle_until_ms=70)
    assert [(it["start"], it["pane"]) for it in rows] == [(30, "idle")]
    assert found == []
    rows, found = chain.run(records, 5, now_ms=100)
    assert [(it["start"], it["pane"]) for it in rows] == [(40, "on time"), (50, "on time")]
    assert [(it["start"], it["r0"], it["pane"]) for it in found] == [(30, 3, "on time")]
