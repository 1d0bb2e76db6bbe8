"""The event time of a query as a self-contained HTML page or SVG file, from recorded observations.

``streamgroups_spark.event_time.recorder`` calls this module. The horizontal axis is the clock, the vertical axis is
event time. Each partition has a line. The watermark is a broad line below them, with a diamond for closed windows and a
red bar for late records. The partition that holds back the watermark is the line on which the watermark lies. Source:
SEMANTICS W1-W3; SVG 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element

from streamgroups.partitions import TopicPartition
from streamgroups_admin.reports import svg
from streamgroups_admin.reports.clocks import Clock, Times
from streamgroups_admin.reports.html_page import templates

_LEFT, _TOP = 150, 12
_CHART, _BARS, _BETWEEN = 340, 70, 34
#: The maximum of steps on the vertical axis.
_MAX_EVENT_TIMES = 8
_SAMPLES = (
    ([svg.path("M0 7H18", "line low")], "watermark"),
    ([svg.diamond(9, 7)], "windows closed"),
    ([svg.rect(5, 0, 8, 14, "flight", radius=0)], "late records"),
    ([svg.path("M0 7H18", "line mark")], "idle: does not hold back the watermark"),
)


@dataclass(frozen=True, slots=True)
class Moment:
    """The observation of one moment.

    Args:
        time_ms: the time of the clock, in milliseconds since the epoch.
        watermark_ms: the watermark of the query; ``None`` before the first.
        event_times_ms: the latest event time of each partition; ``None`` before its first record.
        idle: the idle partitions, which do not hold back the watermark.
        late: the number of late records that a batch that ended then has dropped.
        closed: the number of windows, for each key, that it has closed: the rows that left the state.
    """

    time_ms: int
    watermark_ms: int | None = None
    event_times_ms: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    idle: frozenset[TopicPartition] = frozenset()
    late: int = 0
    closed: int = 0


def time_page(moments: Sequence[Moment], *, title: str, clock: Clock = Clock.UTC) -> str:
    """Returns a whole HTML page.

    Args:
        moments: the observations, in any order.
        title: the page's heading, as plain text.
        clock: how the page shows times. Event time is in UTC, or in the local time zone with ``Clock.LOCAL``.

    >>> p0 = TopicPartition("flights", 0)
    >>> html = time_page([Moment(0, None, {p0: 900}), Moment(1_000, 900, {p0: 2_000}, late=3, closed=1)], title="Flights")
    >>> "flights-0" in html, "3 late records" in html, "1 closed" in html
    (True, True, True)
    >>> "No events were recorded." in time_page([], title="Flights")
    True
    """
    late, closed = sum(m.late for m in moments), sum(m.closed for m in moments)
    intro = f"{late:,} late records, {closed:,} closed windows, counted for each key."
    chart = time_chart(moments, clock).html()
    return templates().get_template("page.html").render(title=title, intro=intro, chart=chart)


def time_chart(moments: Sequence[Moment], clock: Clock = Clock.UTC) -> svg.Chart:
    """Returns only the chart, for an SVG file. Its arguments are those of :func:`time_page`."""
    return _chart(sorted(moments, key=lambda moment: moment.time_ms), clock) if moments else svg.NO_EVENTS


@dataclass(frozen=True, slots=True)
class _Scales:
    """The scales of the clock and of event time, and the format of times."""

    x: svg.Scale
    y: svg.Scale
    times: Times


def _chart(moments: Sequence[Moment], clock: Clock) -> svg.Chart:
    times = [ms for m in moments for ms in (m.watermark_ms, *m.event_times_ms.values()) if ms is not None] or [0]
    clocked = Times(clock, moments[0].time_ms, moments[-1].time_ms)
    at = _Scales(
        svg.Scale(moments[0].time_ms, moments[-1].time_ms, _LEFT, svg.WIDTH_PX - svg.RIGHT_PX),
        svg.Scale(min(times), max(times), _TOP + _CHART, _TOP),
        clocked,
    )
    colours = {
        tp: f"s{i % svg.COLOURS}" for i, tp in enumerate(sorted({tp for m in moments for tp in m.event_times_ms}))
    }
    bars_top = _TOP + _CHART + _BETWEEN
    bottom = bars_top + _BARS
    shapes = [
        *_event_time_axis(at),
        *svg.time_axis(at.x, _TOP, bottom, at.times),
        *_watermark(at, moments),
        *(line for tp, colour in colours.items() for line in _partition(at, moments, tp, colour)),
        *_closings(at, moments),
        *_late(at, moments, bars_top),
    ]
    partitions = [([svg.path("M0 7H18", f"line {colour}")], str(tp)) for tp, colour in colours.items()]
    return svg.Chart("Event time of each partition over time", shapes, bottom + 34, [*partitions, *_SAMPLES])


def _event_time_axis(at: _Scales) -> Iterator[Element]:
    y = at.y
    step_ms = svg.time_step_ms(y.last - y.first, _MAX_EVENT_TIMES)
    round_times_ms = range(-(-y.first // step_ms) * step_ms, y.last + 1, step_ms)
    for event_time_ms in round_times_ms or [y.first]:
        yield svg.path(f"M{_LEFT} {y(event_time_ms):g}H{svg.WIDTH_PX - svg.RIGHT_PX}", "grid")
        yield svg.text(_LEFT - 10, y(event_time_ms) + 4, at.times.date_and_time(event_time_ms), "end soft")


def _partition(at: _Scales, moments: Sequence[Moment], tp: TopicPartition, colour: str) -> Iterator[Element]:
    """Draws the event time of a partition, in steps; dashed while it is idle."""
    known = [(m.time_ms, ms, tp in m.idle) for m in moments if (ms := m.event_times_ms.get(tp)) is not None]
    steps: list[tuple[list[str], bool]] = []
    for (time_ms, event_time_ms, idle), (end_ms, *_) in zip(known, [*known[1:], (at.x.last,)], strict=False):
        if not steps or steps[-1][1] != idle:
            steps.append(([f"M{at.x(time_ms):g} {at.y(event_time_ms):g}"], idle))
        steps[-1][0].append(f"V{at.y(event_time_ms):g}H{at.x(end_ms):g}")
    for d, idle in steps:
        yield svg.path("".join(d), f"line {colour}" + " idle" * idle, f"{tp}, idle" if idle else str(tp))


def _watermark(at: _Scales, moments: Sequence[Moment]) -> Iterator[Element]:
    known = [(at.x(m.time_ms), at.y(m.watermark_ms)) for m in moments if m.watermark_ms is not None]
    if known:
        first_x, first_y = known[0]
        steps = "".join(f"H{x:g}V{y:g}" for x, y in known[1:])
        yield svg.path(f"M{first_x:g} {first_y:g}{steps}H{at.x.last_px}", "line low", "watermark")


def _closings(at: _Scales, moments: Sequence[Moment]) -> Iterator[Element]:
    for moment in moments:
        if moment.closed and (ms := moment.watermark_ms) is not None:
            yield svg.diamond(
                at.x(moment.time_ms),
                at.y(ms),
                f"{moment.closed:,} closed by the watermark of {at.times.date_and_time(ms)}",
            )


def _late(at: _Scales, moments: Sequence[Moment], top: int) -> Iterator[Element]:
    most = max((m.late for m in moments), default=0)
    base = top + _BARS
    yield svg.text(_LEFT - 10, top + 10, f"{most or 'none'} late", "end soft")
    yield svg.path(f"M{_LEFT} {base}H{svg.WIDTH_PX - svg.RIGHT_PX}", "axis")
    for moment in moments:
        if moment.late:
            height = round(moment.late / most * _BARS, 1)
            title = f"{moment.late:,} late records, {at.times.text(moment.time_ms)}"
            yield svg.rect(at.x(moment.time_ms) - 3, base - height, 6, height, "flight", title, radius=0)
