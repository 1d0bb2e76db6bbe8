"""The ownership timeline of a group as a self-contained HTML page or SVG file, from recorded events.

The demo's report and :mod:`streamgroups_admin.reports.ownership_timeline` call it. The chart has a row per partition, a colour
per member, ticks for commits, diamonds with the sizes of states for handovers, and lines for :class:`Mark`. Source:
SEMANTICS G11, G12.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias
from xml.etree.ElementTree import Element

from streamgroups.groups.history import Event
from streamgroups.partitions import TopicPartition
from streamgroups.state.figures import StateSize
from streamgroups_admin.reports import svg
from streamgroups_admin.reports.clocks import Clock, Times
from streamgroups_admin.reports.html_page import templates
from streamgroups_admin.reports.ownership_picture import Mark, MarkKind, Picture, Stay, picture

__all__ = ["Mark", "MarkKind", "page", "timeline"]

#: The sizes of states, by partition and offset.
StateSizes: TypeAlias = Mapping[tuple[TopicPartition, int], StateSize]
NO_STATES: StateSizes = MappingProxyType({})
_LEFT = 108
_ROW, _BAR, _LIFE, _LABEL, _CHART = 30, 20, 20, 19, 84
#: Commits closer together than this are one tick, so that a long history remains a small page.
_TICK_PX = 2.5
#: The size of a state is in the bar of its next owner if the bar is as long as this.
_SIZE_PX = 60
#: A handover that takes longer than this is drawn as a time without an owner.
_GAP_MS = 400
_SAMPLES = (
    ([svg.rect(2, 0, 14, 14, "m0"), svg.path("M9 0V14", "tick")], "commit"),
    ([svg.diamond(9, 7)], "handover"),
    ([svg.rect(2, 2, 14, 10, "gap")], "no owner"),
    ([svg.rect(2, 0, 14, 14, "flight")], "in flight, read again by the next owner"),
)
_STATE_SAMPLE = ([svg.text(-4, 12, "kB", "soft")], "size of the state that follows the partition")


def page(
    events: Iterable[Event],
    *,
    title: str,
    intro: str = "",
    marks: Iterable[Mark] = (),
    states: StateSizes = NO_STATES,
    clock: Clock = Clock.UTC,
) -> str:
    """Returns a whole HTML page.

    Args:
        events: the recorded events of the members, in any order.
        title: the page's heading, as plain text.
        intro: a sentence or two below it, as plain text.
        marks: actions on the members.
        states: the sizes of states, by partition and offset (``streamgroups_operators.inspection``). A handover shows the
            size of the state that follows its partition.
        clock: how the page shows times.

    >>> html = page([], title="Nobody <yet>")
    >>> "Nobody &lt;yet&gt;" in html, "No events were recorded." in html
    (True, True)
    """
    chart = timeline(events, marks, states, clock).html()
    return templates().get_template("page.html").render(title=title, intro=intro, chart=chart)


def timeline(
    events: Iterable[Event], marks: Iterable[Mark] = (), states: StateSizes = NO_STATES, clock: Clock = Clock.UTC
) -> svg.Chart:
    """Returns only the chart, for a template that extends ``page.html`` or for an SVG file.

    Args:
        events: the recorded events of the members, in any order.
        marks: actions on the members.
        states: see :func:`page`.
        clock: how the chart shows times.
    """
    recorded = sorted(events, key=lambda e: e.time_ms)
    if not recorded:
        return svg.NO_EVENTS
    content = picture(recorded, sorted(marks, key=lambda m: m.time_ms))
    colours = {member: f"m{i % svg.COLOURS}" for i, member in enumerate(content.lives)}
    x = svg.Scale(content.begin_ms, content.end_ms, _LEFT, svg.WIDTH_PX - svg.RIGHT_PX)
    drawing = _Drawing(content, x, Times(clock, content.begin_ms, content.end_ms), colours, states)
    members = [([svg.rect(2, 0, 14, 14, colour)], member) for member, colour in colours.items()]
    shapes, height = drawing.shapes()
    samples = [*_SAMPLES, _STATE_SAMPLE] if states else _SAMPLES
    return svg.Chart("Owners of each partition over time", shapes, height, [*members, *samples])


@dataclass(frozen=True, slots=True)
class _Drawing:
    picture: Picture
    x: svg.Scale
    times: Times
    colours: dict[str, str]
    states: StateSizes

    def shapes(self) -> tuple[list[Element], int]:
        """Returns the content of the drawing, and its height."""
        labels, lanes = self._mark_labels()
        lives_top = 6 + lanes * _LABEL
        rows_top = lives_top + len(self.picture.lives) * _LIFE + 10
        rows_end = rows_top + len(self.picture.stays) * _ROW
        axis = rows_end + 28 + _CHART
        drawn = [
            *svg.time_axis(self.x, lives_top, axis, self.times),
            *(it for i, member in enumerate(self.picture.lives) for it in self._life(member, lives_top + i * _LIFE)),
            *(it for i, tp in enumerate(self.picture.stays) for it in self._row(tp, rows_top + i * _ROW)),
            *self._rates(rows_end + 28),
            *self._mark_lines(lives_top, axis),
            *labels,
        ]
        return drawn, axis + 34

    def _life(self, member: str, y: int) -> Iterator[Element]:
        yield svg.text(_LEFT - 12, y + 13, member, "end")
        clock, colour = self.times.text, self.colours[member]
        for life in self.picture.lives[member]:
            begin, joined = self.x(life.started_ms), self.x(life.joined_ms)
            if joined > begin:
                title = f"{member}: starting, from {clock(life.started_ms)} to {clock(life.joined_ms)}"
                yield svg.rect(begin, y + 8, joined - begin, 3, f"{colour} faint", title, radius=0)
            title = f"{member}: joined at {clock(life.joined_ms)}, ended at {clock(life.end_ms)}"
            yield svg.rect(joined, y + 6, self.x(life.end_ms) - joined, 7, colour, title)

    def _row(self, tp: TopicPartition, y: int) -> Iterator[Element]:
        stays, top = self.picture.stays[tp], y + (_ROW - _BAR) // 2
        yield svg.text(_LEFT - 12, y + 19, str(tp), "end")
        for stay in stays:
            yield from self._bar(stay, top)
        for before, after in pairwise(stays):
            yield from self._handover(before, after, top)

    def _bar(self, stay: Stay, top: int) -> Iterator[Element]:
        epoch, clock, begin = stay.ownership_epoch, self.times.text, self.x(stay.ownership_epoch.begin_ms)
        reached = max([stay.first_offset, *(offset for _, offset in stay.commits)])
        title = (
            f"{epoch.member} owned {epoch.topic_partition} from {clock(epoch.begin_ms)} to {clock(stay.end_ms)}, committed "
            f"offsets {stay.first_offset:,} to {reached:,} in {len(stay.commits):,} commit{'s' * (len(stay.commits) != 1)}, "
            f"{stay.ended}"
        )
        yield svg.rect(begin, top, self.x(stay.end_ms) - begin, _BAR, self.colours[epoch.member], title)
        last = begin - _TICK_PX
        for time_ms, offset in stay.commits:
            if (x := self.x(time_ms)) - last >= _TICK_PX:
                title = f"{epoch.member} committed {offset:,} at {clock(time_ms)}"
                yield svg.path(f"M{x:g} {top + 1}v{_BAR - 2}", "tick", title)
                last = x
        if stay.abandoned is not None:
            x = self.x(stay.abandoned_since_ms)
            title = f"{stay.abandoned} was in flight in {epoch.member}; the next owner reads it again"
            yield svg.rect(x, top, max(5.0, self.x(stay.end_ms) - x), _BAR, "flight", title)

    def _handover(self, before: Stay, after: Stay, top: int) -> Iterator[Element]:
        epoch = after.ownership_epoch
        x, wait_ms = self.x(epoch.begin_ms), epoch.begin_ms - before.end_ms
        if wait_ms > _GAP_MS:
            left = self.x(before.end_ms)
            title = f"{epoch.topic_partition}: no owner for {wait_ms / 1000:.1f} s"
            yield svg.rect(left, top + 4, x - left, _BAR - 8, "gap", title)
        members = f"{before.ownership_epoch.member} → {epoch.member}"
        clock = self.times.text(epoch.begin_ms)
        title = f"{epoch.topic_partition}: {members} at offset {after.first_offset:,}, {clock}"
        state = self.states.get((epoch.topic_partition, after.first_offset))
        if state is not None:
            if self.x(after.end_ms) - x >= _SIZE_PX:
                size = f"{state.row_bytes / 1000:.1f} kB"
                yield svg.text(x + 9, top + 14, size, f"size s{self.colours[epoch.member][1:]}")
            title += f"; its state followed: {state.rows:,} rows, {state.row_bytes:,} bytes"
        yield svg.diamond(x, top + _BAR / 2, title)

    def _rates(self, top: int) -> Iterator[Element]:
        """Draws the offsets committed per second, stacked by member."""
        begin_ms, step_ms = self.x.first, max(1_000, -(-(self.x.last - self.x.first) // 120_000) * 1_000)
        found: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for stay in (s for stays in self.picture.stays.values() for s in stays):
            offset = stay.first_offset
            for time_ms, next_offset in stay.commits:
                found[(time_ms - begin_ms) // step_ms][stay.ownership_epoch.member] += next_offset - offset
                offset = next_offset
        highest = max((sum(by.values()) for by in found.values()), default=0) or 1
        base = top + _CHART
        yield svg.text(_LEFT - 12, top + 10, f"{highest * 1000 // step_ms:,}", "end soft")
        yield svg.text(_LEFT - 12, top + 25, "committed/s", "end soft")
        yield svg.text(_LEFT - 12, base, "0", "end soft")
        yield svg.path(f"M{_LEFT} {base}H{svg.WIDTH_PX - svg.RIGHT_PX}", "axis")
        for step, by_member in sorted(found.items()):
            from_ms, y = begin_ms + step * step_ms, float(base)
            x, right = self.x(from_ms), min(self.x(from_ms + step_ms), self.x.last_px)
            for member, colour in self.colours.items():
                if (count := by_member.get(member, 0)) > 0:
                    height = round(count / highest * _CHART, 1)
                    y -= height
                    title = f"{member} committed {count * 1000 // step_ms:,} offsets/s at {self.times.text(from_ms)}"
                    yield svg.rect(x + 0.5, y, right - x - 1, height, colour, title, radius=0)

    def _mark_labels(self) -> tuple[list[Element], int]:
        """Returns the texts of the marks, in the minimum number of lanes without overlap, and the number of lanes."""
        lane_ends: list[float] = []
        drawn = []
        for mark in self.picture.marks:
            x, width = self.x(mark.time_ms), 6.6 * len(mark.text) + 12
            left = x if x + width < svg.WIDTH_PX else x - width
            lane = next((i for i, end in enumerate(lane_ends) if end <= left), len(lane_ends))
            lane_ends[lane : lane + 1] = [left + width]
            anchor, at = ("", x + 5) if left == x else (" end", x - 5)
            y = 14 + lane * _LABEL
            drawn.append(svg.path(f"M{x:g} {y - 10}V{y + 4}", f"mark {mark.kind.value}"))
            drawn.append(svg.text(at, y, mark.text, f"word {mark.kind.value}{anchor}"))
        return drawn, len(lane_ends)

    def _mark_lines(self, top: int, bottom: int) -> Iterator[Element]:
        for mark in self.picture.marks:
            title = f"{mark.text}, {self.times.text(mark.time_ms)}"
            yield svg.path(f"M{self.x(mark.time_ms):g} {top}V{bottom}", f"mark {mark.kind.value}", title)
