"""The checker of histories: it accepts correct ones, and names each anomaly that a test plants."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_tests.history import anomalies, checker, members, outputs
from integration_tests.history.anomalies import INVARIANTS, Name
from integration_tests.history.checker import check
from integration_tests.history.events import (
    Acknowledged,
    Assigned,
    Commit,
    Event,
    HighWater,
    LogsSearched,
    Position,
    Read,
    StateError,
    StateLoaded,
    StateWritten,
    UnknownWritten,
    Workload,
    Written,
    WrittenRow,
)
from streamgroups.partitions import OffsetRange, TopicPartition
from unit_tests.campaign.history_model import GROUP, MAX_LAG_MS, histories

P0 = TopicPartition("t", 0)
Plant = Callable[[Sequence[Event]], list[Event]]


def _last_ms(events: Sequence[Event]) -> int:
    return events[-1].time_ms + 1


def _changed_output(change: Callable[[list[int]], list[int]], sink: str = "output") -> Plant:
    """Changes what the reader has found of the first partition, which has no reset."""

    def plant(events: Sequence[Event]) -> list[Event]:
        return [
            replace(it, offsets=tuple(change(list(it.offsets))))
            if isinstance(it, Written) and (it.sink, it.topic_partition) == (sink, P0)
            else it
            for it in events
        ]

    return plant


def _without_row(events: Sequence[Event]) -> list[Event]:
    row = next(it.row for it in events if isinstance(it, WrittenRow))
    return [it for it in events if not (isinstance(it, WrittenRow) and it.row == row)]


def _row_twice(events: Sequence[Event]) -> list[Event]:
    row = next(it for it in events if isinstance(it, WrittenRow) and it.row.startswith("t-0"))
    return [*events, replace(row, time_ms=_last_ms(events))]


def _other_result(events: Sequence[Event]) -> list[Event]:
    row = next(it for it in events if isinstance(it, WrittenRow))
    return [replace(it, result="n 7") if it is row else it for it in events]


def _end(events: Sequence[Event]) -> dict[TopicPartition, int]:
    return dict([it for it in events if isinstance(it, Position)][-1].offsets)


def _added(*make: Callable[[int, Sequence[Event]], Event]) -> Plant:
    """Adds events at the end."""

    def plant(events: Sequence[Event]) -> list[Event]:
        now_ms = _last_ms(events)
        return [*events, *(it(now_ms + i, events) for i, it in enumerate(make))]

    return plant


def _position(distance: int) -> Callable[[int, Sequence[Event]], Event]:
    def make(now_ms: int, events: Sequence[Event]) -> Event:
        return Position(now_ms, "observer", GROUP, {tp: max(0, n + distance) for tp, n in _end(events).items()})

    return make


def _behind(events: Sequence[Event]) -> list[Event]:
    """The output has no record at the last observation."""
    last = max(i for i, it in enumerate(events) if isinstance(it, HighWater))
    return [replace(it, offsets={}) if i == last else it for i, it in enumerate(events)]  # type: ignore[call-arg]


def _foreign_commit(events: Sequence[Event]) -> list[Event]:
    """A zombie commits after the next assignment."""
    now_ms, end = _last_ms(events), {P0: _end(events)[P0]}
    zombie = [Assigned(now_ms, "ann", GROUP, end), Assigned(now_ms + 1, "bob", GROUP, end)]
    commit = Commit(now_ms + 2, "ann", GROUP, 3, end, "begun")
    return [*events, *zombie, commit, replace(commit, time_ms=now_ms + 3, phase="accepted")]


def _without_reads(events: Sequence[Event]) -> list[Event]:
    return [it for it in events if not (isinstance(it, Read) and it.ranges[0].topic_partition == P0)]


def _not_read(now_ms: int, events: Sequence[Event]) -> Event:
    return Acknowledged(now_ms, "producer", P0, (_end(events)[P0],), (100,))


def _much_later(now_ms: int, events: Sequence[Event]) -> Event:
    """An observer reads the positions after the time limit."""
    return Position(now_ms + MAX_LAG_MS + 1, "observer", GROUP, _end(events))


def _aborted(events: Sequence[Event]) -> list[Event]:
    """A batch is read again after an attempt without a commit, whose output is visible."""
    first = next(it for it in events if isinstance(it, Written) and it.sink == "output" and it.topic_partition == P0)
    n = first.offsets[0]
    read = Read(0, "ann", GROUP, 9, (OffsetRange(P0, n, n + 1),))
    again = [replace(it, offsets=(n, *it.offsets)) if it is first else it for it in events]
    return [again[0], *[read] * 20, *again[1:]]  # type: ignore[list-item]


def _watermark(now_ms: int, events: Sequence[Event]) -> Event:
    latest_ms = max(t for it in events if isinstance(it, Acknowledged) for t in it.times_ms)
    return StateWritten(now_ms, "ann", P0, 5, latest_ms)


PLANTS: list[tuple[str, str, Name, Plant]] = [
    ("a record is not in the output", "I1", Name.LOST_WRITE, _changed_output(lambda it: it[1:])),
    ("a dead letter is not there", "I1", Name.LOST_WRITE, _changed_output(lambda it: it[1:], "letters")),
    ("a row is not in the output", "I1", Name.LOST_WRITE, _without_row),
    ("a record is twice", "I2", Name.DUPLICATE, _changed_output(lambda it: [*it, it[0]])),
    ("a record is a letter too", "I2", Name.DUPLICATE, _changed_output(lambda it: [*it, 0], "letters")),
    ("a letter is twice", "I2", Name.DUPLICATE, _changed_output(lambda it: [*it, *it], "letters")),
    ("a row is twice", "I2", Name.DUPLICATE, _row_twice),
    ("a retried task has written twice", "I2", Name.ABORTED_READ, _changed_output(lambda it: [*it, *it * 20])),
    ("an aborted attempt is visible", "I2", Name.ABORTED_READ, _aborted),
    ("output without an input", "I2", Name.ABORTED_READ, _changed_output(lambda it: [*it, 100_000])),
    (
        "output of an unknown value",
        "I2",
        Name.ABORTED_READ,
        _added(lambda t, _: UnknownWritten(t, "reader", "output", "x")),
    ),
    ("a position before its output", "I3", Name.AHEAD_OF_OUTPUT, _behind),
    ("a position goes back", "I4", Name.NON_MONOTONIC_POSITION, _added(_position(-1), _position(0))),
    ("two records are swapped", "I5", Name.NON_MONOTONIC_WRITE, _changed_output(lambda it: [it[1], it[0], *it[2:]])),
    ("a zombie commits", "I6", Name.SPLIT_OWNERSHIP, _foreign_commit),
    ("no batch has read the records", "I7", Name.SKIPPED_READ, _without_reads),
    ("a record is not read", "I8", Name.UNSEEN, _added(_not_read, _much_later)),
    ("a watermark has passed the records", "I9", Name.WATERMARK_AHEAD, _added(_watermark)),
    (
        "the state of another offset",
        "S10",
        Name.STALE_STATE,
        _added(lambda t, _: StateLoaded(t, "ann", P0, 5, 5, 4)),
    ),
    (
        "a log shows a secret",
        "I10",
        Name.SHOWN_SECRET,
        _added(lambda t, _: LogsSearched(t, "injector", 2, 9, ("ann.log: the password of the client, plain",))),
    ),
    ("a row with another result", "S10", Name.STALE_STATE, _other_result),
    ("a state is damaged", "S10", Name.STALE_STATE, _added(lambda t, _: StateError(t, "ann", "StateDamaged: t-0"))),
]


@given(histories())
def test_a_correct_history_has_no_anomaly(events: list[Event]) -> None:
    report = check(events)
    assert report.holds, str(report)
    assert not report.undecided


@pytest.mark.parametrize(("invariant", "name", "plant"), [it[1:] for it in PLANTS], ids=[it[0] for it in PLANTS])
@given(data=st.data())
def test_a_planted_anomaly_is_found_with_its_name(
    data: st.DataObject, invariant: str, name: Name, plant: Plant
) -> None:
    report = check(plant(data.draw(histories())))
    assert (invariant, name) in {(it.invariant, it.name) for it in report.anomalies}, str(report)
    assert report.verdict(invariant) == "violated"
    assert f"{invariant} {name.value}: " in str(report)


def test_each_invariant_that_histories_decide_has_a_planted_anomaly() -> None:
    assert {it[1] for it in PLANTS} == INVARIANTS.keys()
    assert {it[2] for it in PLANTS} == set(Name)


@given(histories())
def test_an_invariant_without_its_events_is_not_decided(events: list[Event]) -> None:
    workload = replace(events[0], recorded=("acknowledged", "position"), is_ordered=False)  # type: ignore[call-arg]
    report = check([workload, *events[1:]])
    assert {it for it in INVARIANTS if report.verdict(it) == "holds"} == {"I4", "I8"}
    assert report.undecided["I6"] == "not recorded: assigned, commit"
    assert "I5   undecided" in str(report)


@given(histories())
def test_a_history_that_ends_before_the_time_limit_does_not_decide_I8(events: list[Event]) -> None:
    report = check(_added(_not_read)(events))
    assert report.verdict("I8") == "undecided"
    assert report.decisions["I8"].to_text() == "undecided: the history ends before the time limit"
    assert not any(it.invariant == "I8" for it in report.anomalies)


def test_a_history_has_one_workload() -> None:
    workload = Workload(0, "injector", GROUP, "t", True, True, None, 1, ("state_written",))
    with pytest.raises(ValueError, match="has one workload, and this one has 0"):
        check([])
    with pytest.raises(ValueError, match="has the delay of the watermark"):
        check([workload])


def test_a_reset_explains_the_copies_of_its_run_only() -> None:
    assert outputs.walk([0, 1, 2, 3, 1, 2, 3], range(4), [1]) == outputs.Walk()
    assert outputs.walk([0, 1, 2, 3, 1, 3], range(4), [1]).lost == [2]
    assert outputs.walk([0, 1, 2, 3, 2, 3], range(4), [1]).repeated == [2, 3]
    assert outputs.walk([0, 1, 2, 1, 2, 1, 2], range(3), [1]).repeated == [1, 2]
    # A record that the run before the reset has left out is read again.
    assert outputs.walk([0, 2, 3, 1, 2, 3], range(4), [1]) == outputs.Walk()


@pytest.mark.parametrize("module", [anomalies, checker, members, outputs])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)
