"""The demo's check finds each thing that can be wrong, and nothing in a run that went well; its report shows what it found."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate

import pytest
from rich.console import Console

from demo import report
from demo.check import CheckResult, check
from demo.flights import CLOSING, AirportHour, Delays, all_flights, delays_by_pandas
from demo.output import Output, collect
from demo.query import ALLOWED_LATENESS, WATERMARK_DELAY
from demo.scenario import DemoRun
from streamgroups.durations import parse_duration_ms
from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.figures import StateSize
from streamgroups_admin.reports.ownership import Mark, MarkKind

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
#: The last record of each partition is not a flight.
ENDS = {P0: 20, P1: 10}
BOS, SFO = ("BOS", "2013-01-01T10:00:00Z"), ("SFO", "2013-07-07T14:00:00Z")
DELAYS: dict[AirportHour, Delays] = {BOS: Delays(19, 18, 3.5, 40.0), SFO: Delays(9, 9, -0.5, 676.0)}
OUTPUT = Output(3, 0, {"alice": 2, "bob": 1}, DELAYS)


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
    *, events: list[Event] | None = None, committed: int = 20, output: Output = OUTPUT, flights: int = 19
) -> list[CheckResult]:
    """The findings of a run without errors, except for the given ones."""
    expected = {**DELAYS, BOS: replace(DELAYS[BOS], flights=flights)}
    history = EVENTS if events is None else events
    return check(output, history, ENDS, {P0: committed, P1: 10}, killed="bob", expected=expected)


def output(**changes: Delays) -> Output:
    """The output with other delays of some airports."""
    return replace(OUTPUT, delays={at: changes.get(at[0], delays) for at, delays in DELAYS.items()})


def bad(results: list[CheckResult]) -> list[str]:
    return [result.text for result in results if not result.good]


def test_a_run_that_goes_well() -> None:
    results = run()
    assert bad(results) == []
    assert {
        "28 of 28 flights are in a window",
        "7 flights were read again, all of them in flight at bob when it was killed",
        "3 rows of windows; updates for flights that landed late: 1; rows that are there twice: 0",
        "2 windows (airport, hour) equal pandas",
    } <= {result.text for result in results}


#: Alice reads [0, 5) of flights-0 again, which bob has committed.
REREAD = [*EVENTS, planned(12, "carol", 0, 5)]


@pytest.mark.parametrize(
    ("results", "text"),
    [
        (lambda: run(events=REREAD), "12 flights were read again, flights-0[0,5) was not in flight at bob"),
        (
            lambda: run(events=[*EVENTS, planned(12, "carol", 6, 8)]),
            "7 flights were read again, some of them more than once",
        ),
        (
            lambda: run(output=replace(OUTPUT, repeated=1)),
            "3 rows of windows; updates for flights that landed late: 0; rows that are there twice: 1",
        ),
        (
            lambda: run(output=output(SFO=Delays(9, 9, -0.25, 676.0))),
            "1 windows (airport, hour) differ from pandas. The first one is SFO 2013-07-07T14:00:00Z: Delays(flights=9, "
            "arrived=9, mean_min=-0.25, worst_min=676.0), and by pandas Delays(flights=9, arrived=9, mean_min=-0.5, "
            "worst_min=676.0)",
        ),
        (lambda: run(committed=19), "not everything is committed: flights-0"),
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


def test_flights_and_windows_that_are_missing_are_counted() -> None:
    results = run(output=replace(OUTPUT, delays={BOS: DELAYS[BOS]}))
    assert [text[:80] for text in bad(results)] == [
        "19 of 28 flights are in a window",
        "1 windows (airport, hour) differ from pandas. The first one is SFO 2013-07-07T14",
    ]
    assert bad(run(flights=20))[0] == "the topic contains 28 flights, the data set 29"


def test_the_row_with_the_highest_revision_counts_in_any_order() -> None:
    def row(member: str, revision: int, flights: int, mean_min: float | None) -> str:
        delays = {"flights": flights, "arrived": 1, "revision": revision, "member": member, "worst_min": 9.0}
        known = {} if mean_min is None else {"mean_min": mean_min}
        return json.dumps({"airport": "BOS", "hour": "2013-01-01T10:00:00Z", **delays, **known})

    rows = [row("bob", 0, 1, None), row("alice", 2, 3, 4.5), row("carol", 1, 2, 7.0)]
    collected = collect(rows)
    assert collected == Output(3, 0, {"alice": 1, "bob": 1, "carol": 1}, {BOS: Delays(3, 1, 4.5, 9.0)})
    assert collected == collect(reversed(rows))
    assert collected.updates == 2
    again = collect([*rows, rows[2]])
    assert (again.repeated, again.updates) == (1, 2)


def test_W9_the_lateness_covers_the_flights_that_land_last() -> None:
    """The windows of the query contain every flight, and the last record closes them all."""
    hours = [datetime.fromisoformat(json.loads(flight.json)["time_hour"][:-1]) for flight in all_flights()]
    # A partition has some of the records of the topic, so its disorder is not larger.
    disorder = max(newest - hour for newest, hour in zip(accumulate(hours, max), hours, strict=True))
    delay, lateness = (
        timedelta(milliseconds=parse_duration_ms(text, option="")) for text in (WATERMARK_DELAY, ALLOWED_LATENESS)
    )
    assert disorder == timedelta(hours=31)
    assert disorder < timedelta(hours=1) + delay + lateness
    assert disorder > timedelta(hours=1) + delay, "some flights land late"
    closing = datetime.fromisoformat(json.loads(CLOSING)["time_hour"][:-1])
    assert closing - delay >= max(hours) + timedelta(hours=1)


def test_pandas_counts_flights_without_an_arrival_but_not_their_delay() -> None:
    flights = [json.loads(flight.json) for flight in all_flights(500)]
    delays = delays_by_pandas(500)
    assert sum(it.flights for it in delays.values()) == len(flights)
    assert (
        sum(it.arrived for it in delays.values()) == sum(it["arr_delay"] is not None for it in flights) < len(flights)
    )
    assert {it.mean_min is None for it in delays.values() if not it.arrived} == {True}


def test_the_report_shows_what_was_found_in_the_terminal_and_on_the_page() -> None:
    names = {"BOS": "Boston <Logan>", "SFO": "San Francisco Intl"}
    results = [CheckResult(True, "all is well"), CheckResult(False, "p0 < p1 [sic]")]
    marks = [Mark(4, MarkKind.KILL, "kill -9 bob", "bob")]
    found = replace(OUTPUT, by_member={"alice": 25, "<bob>": 12})
    outcome = DemoRun(EVENTS, marks, ENDS, ENDS, "bob", {(P0, 5): StateSize(3, 1_234, 1)}, found)
    console = Console(file=io.StringIO(), width=120)
    report.show(console, outcome, results, names)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "✓ all is well" in text
    assert "✗ p0 < p1 [sic]" in text
    assert "<bob> 12" in text
    assert text.index("Boston <Logan>") < text.index("San Francisco Intl"), "the largest mean first"
    page = report.html(outcome, results, names)
    for part in (
        '<li class="good">all is well</li>',
        '<li class="bad">p0 &lt; p1 [sic]</li>',
        "&lt;bob&gt; 12",
        "kill -9 bob",
        "1.2 kB",
    ):
        assert part in page
    assert "<Logan>" not in page
