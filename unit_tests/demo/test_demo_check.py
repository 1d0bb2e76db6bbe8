"""The demo's check finds each thing that can be wrong, and nothing in a run that went well; its report shows what it found."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from demo import report
from demo.check import Arrived, CheckResult, check, read_output
from demo.flights import Delays
from demo.scenario import Outcome
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_reports.ownership import Mark, MarkKind

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
ENDS = {P0: 20, P1: 10}
DELAYS = {"UA": Delays(20, 1, 40, 19, 57, 3), "HA": Delays(10, 0, -5, 10, -20, 0)}


def did(time_ms: int, member: str, kind: Kind, **offsets: int) -> Event:
    return Event(
        time_ms,
        "flight-board",
        member,
        "r",
        kind,
        {TopicPartition("flights", int(p[1])): n for p, n in offsets.items()},
    )


def planned(time_ms: int, member: str, first: int, end: int, tp: TopicPartition = P0) -> Event:
    return Event(time_ms, "flight-board", member, "r", Kind.PLANNED, ranges=(OffsetRange(tp, first, end),))


#: Bob has written 5 to 12, and is killed before he can commit that; alice reads it again.
EVENTS = [
    did(1, "bob", Kind.ASSIGNED, p0=0),
    planned(2, "bob", 0, 5),
    did(3, "bob", Kind.FINISHED, p0=5),
    did(3, "bob", Kind.COMMITTED, p0=5),
    planned(4, "bob", 5, 12),
    did(9, "alice", Kind.ASSIGNED, p0=5, p1=0),
    planned(10, "alice", 5, 20),
    planned(10, "alice", 0, 10, P1),
    did(11, "alice", Kind.COMMITTED, p0=20, p1=10),
    did(12, "alice", Kind.RELEASED, p0=20, p1=10),
    did(12, "alice", Kind.CLOSED),
]


def run(
    *,
    times: Counter[tuple[int, int]] | None = None,
    events: list[Event] | None = None,
    committed: int = 20,
    wrong: int = 0,
) -> list[CheckResult]:
    """The findings of a run without errors, except for the given ones."""
    once = Counter({(tp.partition, offset): 1 for tp, end in ENDS.items() for offset in range(end)})
    twice = Counter({(0, offset): 1 for offset in range(5, 12)})
    delays = {**DELAYS, "UA": replace(DELAYS["UA"], late=3 + wrong)}
    arrived = Arrived(once + twice if times is None else once + times, {"alice": 25, "bob": 12}, delays)
    history = EVENTS if events is None else events
    return check(arrived, history, ENDS, {P0: committed, P1: 10}, killed="bob", expected=DELAYS)


def bad(results: list[CheckResult]) -> list[str]:
    return [result.text for result in results if not result.good]


def test_a_run_that_goes_well() -> None:
    results = run()
    assert bad(results) == []
    assert "7 flights arrived twice, all of them in flight at bob when it was killed" in [f.text for f in results]


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (lambda: run(times=Counter({(0, 12): 1})), "1 flights arrived twice, 1 of them were not in flight at bob"),
        (lambda: run(times=Counter({(0, 4): 1})), "1 flights arrived twice, 1 of them were not in flight at bob"),
        (lambda: run(times=Counter({(0, 6): 2})), "1 flights arrived twice, some of them more often"),
        (lambda: run(committed=19), "not everything is committed: flights-0"),
        (lambda: run(wrong=1), "the delays differ from what pandas computes from the data set: UA"),
        (
            lambda: run(events=[*EVENTS, did(5, "carol", Kind.ASSIGNED, p0=5), did(11, "carol", Kind.COMMITTED, p0=5)]),
            "two members owned flights-0 at the same time (1 cases)",
        ),
        (
            lambda: run(events=[*EVENTS[:5], did(5, "bob", Kind.RELEASED, p0=5), did(6, "bob", Kind.FINISHED)]),
            "bob handed flights-0[5,12) over without a commit (1 cases)",
        ),
    ],
)
def test_each_thing_that_can_be_wrong_is_found(results: Callable[[], list[CheckResult]], text: str) -> None:
    assert bad(results()) == [text]


def test_flights_that_are_missing_or_unknown_are_counted() -> None:
    there = Counter({(tp.partition, offset): 1 for tp, end in ENDS.items() for offset in range(1, end)} | {(0, 99): 1})
    results = check(Arrived(there, {}, DELAYS), [], ENDS, ENDS, killed="bob", expected=DELAYS)
    assert bad(results) == ["28 of 30 flights arrived, 2 are missing; 1 are not in the topic"]
    more = {**DELAYS, "AA": Delays(2)}
    results = check(Arrived(there, {}, more), [], ENDS, ENDS, killed="bob", expected=more)
    assert bad(results)[0] == "the topic contains 30 flights, the data set 32"


def test_output_is_read_by_member_and_each_flight_counts_once(tmp_path: Path) -> None:
    def write(name: str, *flights: tuple[int, int, str, float | None, float | None]) -> None:
        names = ("partition", "offset", "carrier", "dep_delay", "arr_delay")
        (tmp_path / name).write_text(json.dumps(dict(zip(names, map(list, zip(*flights, strict=True)), strict=True))))

    write("bob-0.json", (0, 0, "UA", 2.0, 20.0), (0, 1, "UA", None, None))
    write("alice-3.json", (0, 1, "UA", None, None), (1, 0, "HA", -3.0, -5.0))
    (tmp_path / "bob-1.part").write_text("not written yet")
    arrived = read_output(tmp_path)
    assert arrived.twice == {(0, 1)}
    assert arrived.by_member == {"alice": 2, "bob": 2}
    assert arrived.delays == {"HA": Delays(1, 0, -3, 1, -5, 0), "UA": Delays(2, 1, 2, 1, 20, 1)}


def test_the_report_shows_what_was_found_in_the_terminal_and_on_the_page() -> None:
    arrived = Arrived(Counter(), {"alice": 25, "<bob>": 12}, DELAYS)
    names = {"UA": "United <Air> Lines Inc.", "HA": "Hawaiian Airlines Inc."}
    results = [CheckResult(True, "all is well"), CheckResult(False, "p0 < p1 [sic]")]
    marks = [Mark(4, MarkKind.KILL, "kill -9 bob", "bob")]
    result = Console(file=io.StringIO(), width=120)
    report.show(result, results, arrived, names)
    assert isinstance(result.file, io.StringIO)
    text = result.file.getvalue()
    assert "✓ all is well" in text
    assert "✗ p0 < p1 [sic]" in text
    assert text.index("United <Air> Lines") < text.index("Hawaiian Airlines"), "the latest first"
    page = report.html(Outcome(EVENTS, marks, ENDS, ENDS, "bob"), results, arrived, names)
    for part in (
        '<li class="good">all is well</li>',
        '<li class="bad">p0 &lt; p1 [sic]</li>',
        "&lt;bob&gt; 12",
        "kill -9 bob",
    ):
        assert part in page
    assert "<Air>" not in page
