"""The event time of a query as a self-contained HTML page, from recorded observations.

``streamgroups_spark.event_time.recorder`` calls this module. The horizontal axis is the clock, the vertical axis is
event time. Each partition has a line. The watermark is a broad line below them, with a diamond for closed windows and a
red bar for late records. The partition that holds back the watermark is the line on which the watermark lies. Source:
SEMANTICS W1-W3; SVG 1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from streamgroups.partitions import TopicPartition
from streamgroups.times import utc
from streamgroups_reports.html_page import html_page

_WIDTH, _LEFT, _RIGHT, _TOP = 1160, 150, 16, 12
_CHART, _BARS, _BETWEEN = 340, 70, 34
_COLOURS = 6
#: The number of dates on the vertical axis.
_LINES = 6
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


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


def time_page(moments: Sequence[Moment], *, title: str) -> str:
    """Returns a whole HTML page.

    Args:
        moments: the observations, in any order.
        title: the page's heading, as plain text.

    >>> p0 = TopicPartition("flights", 0)
    >>> html = time_page([Moment(0, None, {p0: 900}), Moment(1_000, 900, {p0: 2_000}, late=3, closed=1)], title="Flights")
    >>> "flights-0" in html, "3 late records" in html, "1 closed" in html
    (True, True, True)
    >>> "No events were recorded." in time_page([], title="Flights")
    True
    """
    in_order = sorted(moments, key=lambda moment: moment.time_ms)
    late, closed = sum(m.late for m in in_order), sum(m.closed for m in in_order)
    intro = f"{late:,} late records, {closed:,} closed windows, counted for each key."
    return html_page(title, intro, _drawn(in_order) if in_order else "<p>No events were recorded.</p>")


@dataclass(frozen=True, slots=True)
class _Scale:
    begin_ms: int
    end_ms: int
    lowest_ms: int
    highest_ms: int

    def x(self, time_ms: int) -> float:
        share = (time_ms - self.begin_ms) / max(1, self.end_ms - self.begin_ms)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, event_time_ms: int) -> float:
        share = (event_time_ms - self.lowest_ms) / max(1, self.highest_ms - self.lowest_ms)
        return round(_TOP + (1 - share) * _CHART, 1)


def _drawn(moments: Sequence[Moment]) -> str:
    times = [ms for m in moments for ms in (m.watermark_ms, *m.event_times_ms.values()) if ms is not None] or [0]
    scale = _Scale(moments[0].time_ms, moments[-1].time_ms, min(times), max(times))
    partitions = sorted({tp for m in moments for tp in m.event_times_ms})
    bars_top = _TOP + _CHART + _BETWEEN
    bottom = bars_top + _BARS
    drawn = [
        *_grid(scale, bottom),
        *_watermark(scale, moments),
        *(line for i, tp in enumerate(partitions) for line in _partition(scale, moments, tp, i)),
        *_closings(scale, moments),
        *_late(scale, moments, bars_top),
    ]
    newline = "\n"
    return f"""{_legend(partitions)}
<div class="wide"><svg viewBox="0 0 {_WIDTH} {bottom + 34}" role="img" aria-label="Event time of each partition over time">
{newline.join(drawn)}
</svg></div>"""


def _legend(partitions: Sequence[TopicPartition]) -> str:
    def item(sample: str, words: str) -> str:
        return f'<li><svg width="18" height="14">{sample}</svg>{escape(words)}</li>'

    lines = [item(f'<path d="M0 7H18" class="line s{i % _COLOURS}"/>', str(tp)) for i, tp in enumerate(partitions)]
    return "".join(
        [
            '<ul class="legend">',
            *lines,
            item('<path d="M0 7H18" class="line low"/>', "watermark"),
            item('<path d="M9 1l6 6-6 6-6-6z" class="over"/>', "windows closed"),
            item('<rect x="5" width="8" height="14" class="flight"/>', "late records"),
            item('<path d="M0 7H18" class="line mark"/>', "idle: does not hold back the watermark"),
            "</ul>",
        ]
    )


def _grid(scale: _Scale, bottom: int) -> Iterator[str]:
    for i in range(_LINES):
        event_time_ms = scale.lowest_ms + (scale.highest_ms - scale.lowest_ms) * i // (_LINES - 1)
        y = scale.y(event_time_ms)
        yield f'<path d="M{_LEFT} {y}H{_WIDTH - _RIGHT}" class="grid"/>'
        yield f'<text x="{_LEFT - 10}" y="{y + 4}" class="end soft">{(utc(event_time_ms) or "")[:19].replace("T", " ")}</text>'
    span_s = (scale.end_ms - scale.begin_ms) / 1000
    step_s = next((s for s in _STEPS_S if span_s / s <= 14), _STEPS_S[-1])
    for second in range(0, int(span_s) + 1, step_s):
        x = scale.x(scale.begin_ms + second * 1000)
        yield f'<path d="M{x} {_TOP}V{bottom}" class="grid"/><text x="{x}" y="{bottom + 17}" class="mid soft">{second} s</text>'


def _partition(scale: _Scale, moments: Sequence[Moment], tp: TopicPartition, i: int) -> Iterator[str]:
    """Draws the event time of a partition, in steps; dashed while it is idle."""
    known = [(m.time_ms, ms, tp in m.idle) for m in moments if (ms := m.event_times_ms.get(tp)) is not None]
    steps: list[tuple[list[str], bool]] = []
    for (time_ms, event_time_ms, idle), (end_ms, *_) in zip(known, [*known[1:], (scale.end_ms,)], strict=False):
        if not steps or steps[-1][1] != idle:
            steps.append(([f"M{scale.x(time_ms)} {scale.y(event_time_ms)}"], idle))
        steps[-1][0].append(f"V{scale.y(event_time_ms)}H{scale.x(end_ms)}")
    for path, idle in steps:
        style = f"line s{i % _COLOURS}" + (" idle" if idle else "")
        dashes = ' stroke-dasharray="3 4"' if idle else ""
        title = f"{tp}, idle" if idle else str(tp)
        yield f'<path d="{" ".join(path)}" class="{style}"{dashes}><title>{escape(title)}</title></path>'


def _watermark(scale: _Scale, moments: Sequence[Moment]) -> Iterator[str]:
    known = [(m, m.watermark_ms) for m in moments if m.watermark_ms is not None]
    if not known:
        return
    path = [f"M{scale.x(known[0][0].time_ms)} {scale.y(known[0][1])}"]
    path += [f"H{scale.x(m.time_ms)}V{scale.y(ms)}" for m, ms in known[1:]]
    yield f'<path d="{" ".join(path)}H{scale.x(scale.end_ms)}" class="line low"><title>watermark</title></path>'


def _closings(scale: _Scale, moments: Sequence[Moment]) -> Iterator[str]:
    for moment in moments:
        if moment.closed and (ms := moment.watermark_ms) is not None:
            title = f"{moment.closed:,} closed by the watermark of {utc(ms)}"
            diamond = f"M{scale.x(moment.time_ms)} {scale.y(ms) - 6}l6 6-6 6-6-6z"
            yield f'<path d="{diamond}" class="over"><title>{escape(title)}</title></path>'


def _late(scale: _Scale, moments: Sequence[Moment], top: int) -> Iterator[str]:
    most = max((m.late for m in moments), default=0)
    base = top + _BARS
    yield f'<text x="{_LEFT - 10}" y="{top + 10}" class="end soft">{most or "none"} late</text>'
    yield f'<path d="M{_LEFT} {base}H{_WIDTH - _RIGHT}" class="axis"/>'
    for moment in moments:
        if moment.late:
            height = round(moment.late / most * _BARS, 1)
            title = f"{moment.late:,} late records, {(moment.time_ms - scale.begin_ms) / 1000:.1f} s"
            place = f'x="{scale.x(moment.time_ms) - 3:.1f}" y="{base - height:g}" width="6" height="{height:g}"'
            yield f'<rect {place} class="flight"><title>{title}</title></rect>'
