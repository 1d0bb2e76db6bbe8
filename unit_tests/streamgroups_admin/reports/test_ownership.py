"""The ownership timeline: its content for a history, and that the page is complete, safe and self-contained."""

from __future__ import annotations

import re
import time
from xml.etree import ElementTree

import pytest

from streamgroups.groups.history import Event, Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.figures import StateSize
from streamgroups_admin.reports import ownership
from streamgroups_admin.reports.clocks import Clock
from streamgroups_admin.reports.ownership import Mark, MarkKind, StateSizes, page

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


def event(
    time_ms: int,
    member: str,
    kind: Kind,
    offsets: dict[TopicPartition, int] | None = None,
    *,
    ranges: tuple[OffsetRange, ...] = (),
    run: str = "r1",
) -> Event:
    return Event(time_ms, "g", member, run, kind, offsets or {}, ranges)


#: Alice reads both partitions and hands P1 over to bob, who is killed with [30, 50) in flight. Alice takes it over
#: later.
HISTORY = [
    event(1_000, "alice", Kind.JOINING),
    event(1_100, "alice", Kind.ASSIGNED, {P0: 0, P1: 0}),
    event(2_000, "alice", Kind.COMMITTED, {P0: 10, P1: 20}),
    event(2_100, "alice", Kind.REVOKING, {P1: 20}),
    event(2_100, "alice", Kind.RELEASED, {P1: 20}),
    event(2_200, "bob", Kind.ASSIGNED, {P1: 20}),
    event(3_000, "bob", Kind.COMMITTED, {P1: 30}),
    event(3_100, "bob", Kind.PLANNED, ranges=(OffsetRange(P1, 30, 50),)),
    event(9_000, "alice", Kind.ASSIGNED, {P1: 30}),
    event(10_000, "alice", Kind.COMMITTED, {P0: 40, P1: 60}),
    event(10_500, "alice", Kind.CLOSED),
]
KILL = Mark(3_500, MarkKind.KILL, "kill -9 bob", "bob")


def timeline(events: list[Event], marks: list[Mark] | None = None, states: StateSizes = ownership.NO_STATES) -> str:
    """The chart with the seconds since its first event."""
    return str(ownership.timeline(events, marks or [], states, Clock.ELAPSED).html())


def titles(html: str, *, of_class: str = "") -> list[str]:
    """The tooltips of shapes, optionally of one class only."""
    found = re.findall(r'class="([^"]*)"[^>]*><title>([^<]*)</title>', html)
    return [title for style, title in found if of_class in style]


def svg(html: str) -> ElementTree.Element:
    """The drawing, parsed as XML."""
    return ElementTree.fromstring(html[html.index("<svg viewBox") : html.rindex("</svg>") + len("</svg>")])


def test_every_ownership_epoch_is_a_bar_with_its_offsets_and_commits() -> None:
    bars = [t for t in titles(timeline(HISTORY, [KILL])) if " owned " in t]
    assert bars == [
        "alice owned flights-0 from 0.1 s to 9.5 s, committed offsets 0 to 40 in 2 commits, then left the group",
        "alice owned flights-1 from 0.1 s to 1.1 s, committed offsets 0 to 20 in 1 commit, then released it",
        "bob owned flights-1 from 1.2 s to 2.5 s, committed offsets 20 to 30 in 1 commit, then was killed",
        "alice owned flights-1 from 8.0 s to 9.5 s, committed offsets 30 to 60 in 1 commit, then left the group",
    ]


def test_commits_are_ticks_and_hand_overs_diamonds() -> None:
    html = timeline(HISTORY, [KILL])
    assert "alice committed 10 at 1.0 s" in titles(html, of_class="tick")
    assert titles(html, of_class="over") == [
        "flights-1: alice → bob at offset 20, 1.2 s",
        "flights-1: bob → alice at offset 30, 8.0 s",
    ]


def test_a_handover_shows_the_size_of_the_state_that_follows_the_partition() -> None:
    html = timeline(HISTORY, [KILL], {(P1, 30): StateSize(144, 8_058, 2), (P1, 31): StateSize(1, 1, 1)})
    assert titles(html, of_class="over") == [
        "flights-1: alice → bob at offset 20, 1.2 s",
        "flights-1: bob → alice at offset 30, 8.0 s; its state followed: 144 rows, 8,058 bytes",
    ]
    assert re.findall(r'class="size [^"]*">([^<]*)<', html) == ["8.1 kB"]
    ended = [*HISTORY, event(10_600, "carol", Kind.ASSIGNED, {P1: 60}), event(10_700, "carol", Kind.CLOSED)]
    short = timeline(ended, [KILL], {(P1, 60): StateSize(1, 56, 1)})
    assert "its state followed: 1 rows" in short
    assert 'class="size' not in short, "its bar is too short"
    assert "size of the state" in html
    assert "size of the state" not in timeline(HISTORY, [KILL])


def test_a_kill_shows_the_batch_in_flight_and_how_long_the_partition_had_no_owner() -> None:
    html = timeline(HISTORY, [KILL])
    assert titles(html, of_class="flight") == ["flights-1[30,50) was in flight in bob; the next owner reads it again"]
    assert titles(html, of_class="gap") == ["flights-1: no owner for 5.5 s"]
    assert "kill -9 bob, 2.5 s" in titles(html, of_class="mark kill")


def test_a_member_that_still_reads_abandons_nothing() -> None:
    html = timeline([e for e in HISTORY if e.time_ms <= 3_100])
    assert not titles(html, of_class="flight")
    assert any("its history ends here" in t for t in titles(html))


def test_a_kill_belongs_to_the_run_it_hit() -> None:
    again = [
        event(20_000, "bob", Kind.ASSIGNED, {P1: 60}, run="r2"),
        event(21_000, "bob", Kind.COMMITTED, {P1: 70}, run="r2"),
    ]
    later = Mark(22_000, MarkKind.KILL, "kill -9 bob again", "bob")
    bars = [t for t in titles(timeline([*HISTORY, *again], [KILL, later])) if t.startswith("bob owned")]
    assert [re.findall(r"to (\S+ s),", bar) for bar in bars] == [["2.5 s"], ["21.0 s"]]


def test_a_start_is_drawn_until_the_member_joins() -> None:
    start = Mark(200, MarkKind.START, "start alice", "alice")
    assert "alice: starting, from 0.0 s to 0.8 s" in titles(timeline(HISTORY, [start]))


def test_the_rate_counts_what_was_committed() -> None:
    rates = [t for t in titles(timeline(HISTORY)) if "offsets/s" in t]
    assert rates == [
        "alice committed 30 offsets/s at 1.0 s",
        "bob committed 10 offsets/s at 2.0 s",
        "alice committed 60 offsets/s at 9.0 s",
    ]


def test_many_commits_stay_a_small_page() -> None:
    commits = [event(1_200 + i, "alice", Kind.COMMITTED, {P0: i}) for i in range(20_000)]
    html = timeline([HISTORY[1], *commits])
    assert len(titles(html, of_class="tick")) < 500
    assert "in 20,000 commits" in html


@pytest.mark.parametrize("seconds", [0, 1, 90, 4_000, 700_000, 400_000_000])
def test_the_axis_has_a_handful_of_labels_whatever_the_length(seconds: int) -> None:
    html = timeline([HISTORY[1], event(1_100 + seconds * 1000, "alice", Kind.COMMITTED, {P0: 1})])
    labels = re.findall(r'class="mid soft">(\d+) (?:s|min|h|d)<', html)
    assert 1 <= len(labels) <= 15


def test_marks_at_one_moment_do_not_hide_each_other() -> None:
    marks = [Mark(5_000, MarkKind.ANNOTATION, f"a rather long remark {i}") for i in range(3)]
    words = re.findall(r'y="(\d+)" class="word', timeline(HISTORY, marks))
    assert len(set(words)) == 3


def test_it_is_well_formed_and_inside_its_frame() -> None:
    root = svg(page(HISTORY, title="t", marks=[KILL]))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter("rect"):
        x, y, w, h = (float(rect.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height


def test_names_are_escaped_and_nothing_is_loaded() -> None:
    hostile = [event(1_000, "<script>alert(1)</script>", Kind.ASSIGNED, {P0: 0})]
    html = page(hostile, title="<b>", intro="<i>", marks=[Mark(1_500, MarkKind.ANNOTATION, "<u>")])
    assert not re.search(r"<(script|b|i|u)>", html)
    assert not re.search(r"https?://|@import|\burl\((?!#)|\bsrc=|<link", html)


def test_the_same_history_makes_the_same_page_whatever_its_order() -> None:
    assert page(reversed(HISTORY), title="t", marks=[KILL]) == page(HISTORY, title="t", marks=[KILL])


def test_times_by_the_clock_have_their_date_and_zone_once() -> None:
    html = str(ownership.timeline(HISTORY, [KILL]).html())
    assert "alice committed 10 at 00:00:02.000" in titles(html, of_class="tick")
    assert re.findall(r'class="mid soft">([^<]*)<', html)[:3] == ["00:00:01", "1970-01-01 UTC", "00:00:02"]


def test_the_local_clock_is_that_of_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XST-05:30")
    time.tzset()
    try:
        html = str(ownership.timeline(HISTORY, [KILL], clock=Clock.LOCAL).html())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "alice committed 10 at 05:30:02.000" in titles(html, of_class="tick")
    assert "1970-01-01 XST" in html


def test_the_image_is_one_well_formed_file_with_legend_and_title() -> None:
    image = ownership.timeline(HISTORY, [KILL]).image("<Flights>")
    root = ElementTree.fromstring(image)
    words = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "<Flights>"
    assert {"alice", "bob", "commit"} <= set(words)
    assert not re.search(r"@import|\burl\((?!#)|\b(src|href)=", image)
    ElementTree.fromstring(ownership.timeline([]).image("Nothing"))
