"""The ownership timeline of a group as a self-contained HTML page, from recorded events.

The demo's report calls it, and users with a recorded history (:mod:`streamgroups.groups.history`) can call it to see
the readers of each partition over time. The page contains one inline SVG: a row per partition, a colour per member,
ticks for commits, diamonds for handovers, lines for :class:`Mark`. It loads no other files and follows the reader's
light or dark colours. Source: SEMANTICS G11, G12; SVG 1.1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from itertools import pairwise

from streamgroups.groups.history import Event
from streamgroups.partitions import TopicPartition
from streamgroups_reports.html_page import html_page
from streamgroups_reports.ownership_picture import Mark, MarkKind, Picture, Stay, picture

__all__ = ["Mark", "MarkKind", "page", "timeline"]

_WIDTH, _LEFT, _RIGHT = 1160, 108, 16
_ROW, _BAR, _LIFE, _LABEL, _CHART = 30, 20, 20, 19, 84
#: Commits closer together than this are one tick, so that a long history remains a small page.
_TICK_PX = 2.5
#: A handover that takes longer than this is drawn as a time without an owner.
_GAP_MS = 400
_COLOURS = 6
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


def page(events: Iterable[Event], *, title: str, intro: str = "", marks: Iterable[Mark] = (), body: str = "") -> str:
    """Returns a whole HTML page.

    Args:
        events: the recorded events of the members, in any order.
        title: the page's heading, as plain text.
        intro: a sentence or two below it, as plain text.
        marks: actions on the members.
        body: HTML to add below the timeline, which the caller has escaped.

    >>> html = page([], title="Nobody <yet>")
    >>> "Nobody &lt;yet&gt;" in html, "No events were recorded." in html
    (True, True)
    """
    return html_page(title, intro, f"{timeline(events, marks)}\n{body}")


def timeline(events: Iterable[Event], marks: Iterable[Mark] = ()) -> str:
    """Returns only the legend and the drawing, for another page with the style of :func:`page`."""
    recorded = sorted(events, key=lambda e: e.time_ms)
    if not recorded:
        return "<p>No events were recorded.</p>"
    return _draw(picture(recorded, sorted(marks, key=lambda m: m.time_ms)))


def _draw(picture: Picture) -> str:
    labels, lanes = _mark_labels(picture)
    lives_top = 6 + lanes * _LABEL
    rows_top = lives_top + len(picture.lives) * _LIFE + 10
    rows_end = rows_top + len(picture.stays) * _ROW
    axis = rows_end + 28 + _CHART
    drawn = [
        *_grid(picture, lives_top, axis),
        *(line for i, member in enumerate(picture.lives) for line in _life(picture, member, lives_top + i * _LIFE)),
        *(line for i, tp in enumerate(picture.stays) for line in _row(picture, tp, rows_top + i * _ROW)),
        *_rates(picture, rows_end + 28),
        *_mark_lines(picture, lives_top, axis),
        *labels,
    ]
    newline = "\n"
    return f"""{_legend(picture)}
<div class="wide"><svg viewBox="0 0 {_WIDTH} {axis + 34}" role="img" aria-label="Owners of each partition over time">
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<path d="M0 0V6" class="hatch"/></pattern></defs>
{newline.join(drawn)}
</svg></div>"""


def _legend(picture: Picture) -> str:
    members = "".join(
        f'<li><svg width="14" height="14"><rect width="14" height="14" rx="3" class="{_colour(picture, m)}"/></svg>{escape(m)}</li>'
        for m in picture.lives
    )
    return f"""<ul class="legend">{members}
<li><svg width="14" height="14"><rect width="14" height="14" rx="3" class="m0"/><path d="M7 0V14" class="tick"/></svg>commit</li>
<li><svg width="14" height="14"><path d="M7 1l6 6-6 6-6-6z" class="over"/></svg>handover</li>
<li><svg width="14" height="14"><rect y="2" width="14" height="10" class="gap"/></svg>no owner</li>
<li><svg width="14" height="14"><rect width="14" height="14" rx="3" class="flight"/></svg>in flight, read again by the next owner</li>
</ul>"""


def _grid(picture: Picture, top: int, axis: int) -> Iterator[str]:
    span_s = (picture.end_ms - picture.begin_ms) / 1000
    step_s = next((s for s in _STEPS_S if span_s / s <= 14), _STEPS_S[-1])
    for second in range(0, int(span_s) + 1, step_s):
        x = _x(picture, picture.begin_ms + second * 1000)
        yield f'<path d="M{x} {top}V{axis}" class="grid"/><text x="{x}" y="{axis + 17}" class="mid soft">{second} s</text>'


def _life(picture: Picture, member: str, y: int) -> Iterator[str]:
    yield f'<text x="{_LEFT - 12}" y="{y + 13}" class="end">{escape(member)}</text>'
    colour = _colour(picture, member)
    for life in picture.lives[member]:
        begin, joined = _x(picture, life.started_ms), _x(picture, life.joined_ms)
        if joined > begin:
            title = f"{member}: starting, from {picture.clock(life.started_ms)} to {picture.clock(life.joined_ms)}"
            yield _rect(begin, y + 8, joined - begin, 3, f"{colour} faint", title, radius=0)
        title = f"{member}: joined at {picture.clock(life.joined_ms)}, ended at {picture.clock(life.end_ms)}"
        yield _rect(joined, y + 6, _x(picture, life.end_ms) - joined, 7, colour, title)


def _row(picture: Picture, tp: TopicPartition, y: int) -> Iterator[str]:
    stays, top = picture.stays[tp], y + (_ROW - _BAR) // 2
    yield f'<text x="{_LEFT - 12}" y="{y + 19}" class="end">{escape(str(tp))}</text>'
    for stay in stays:
        yield from _bar(picture, stay, top)
    for before, after in pairwise(stays):
        yield from _hand_over(picture, before, after, top)


def _bar(picture: Picture, stay: Stay, top: int) -> Iterator[str]:
    ownership_epoch, begin = stay.ownership_epoch, _x(picture, stay.ownership_epoch.begin_ms)
    reached = max([stay.first_offset, *(offset for _, offset in stay.commits)])
    title = (
        f"{ownership_epoch.member} owned {ownership_epoch.topic_partition} from {picture.clock(ownership_epoch.begin_ms)} to "
        f"{picture.clock(stay.end_ms)}, committed offsets {stay.first_offset:,} to {reached:,} in "
        f"{len(stay.commits):,} commit{'s' * (len(stay.commits) != 1)}, {stay.ended}"
    )
    yield _rect(begin, top, _x(picture, stay.end_ms) - begin, _BAR, _colour(picture, ownership_epoch.member), title)
    last = begin - _TICK_PX
    for time_ms, offset in stay.commits:
        if (x := _x(picture, time_ms)) - last >= _TICK_PX:
            title = escape(f"{ownership_epoch.member} committed {offset:,} at {picture.clock(time_ms)}")
            yield f'<path d="M{x} {top + 1}v{_BAR - 2}" class="tick"><title>{title}</title></path>'
            last = x
    if stay.abandoned is not None:
        x = _x(picture, stay.abandoned_since_ms)
        title = f"{stay.abandoned} was in flight in {ownership_epoch.member}; the next owner reads it again"
        yield _rect(x, top, max(5.0, _x(picture, stay.end_ms) - x), _BAR, "flight", title)


def _hand_over(picture: Picture, before: Stay, after: Stay, top: int) -> Iterator[str]:
    x, wait_ms = _x(picture, after.ownership_epoch.begin_ms), after.ownership_epoch.begin_ms - before.end_ms
    if wait_ms > _GAP_MS:
        left = _x(picture, before.end_ms)
        title = f"{after.ownership_epoch.topic_partition}: no owner for {wait_ms / 1000:.1f} s"
        yield _rect(left, top + 4, x - left, _BAR - 8, "gap", title)
    title = escape(
        f"{after.ownership_epoch.topic_partition}: {before.ownership_epoch.member} → {after.ownership_epoch.member} at offset "
        f"{after.first_offset:,}, {picture.clock(after.ownership_epoch.begin_ms)}"
    )
    yield f'<path d="M{x} {top + 3}l7 7-7 7-7-7z" class="over"><title>{title}</title></path>'


def _rates(picture: Picture, top: int) -> Iterator[str]:
    """Draws the offsets committed per second, stacked by member."""
    step_ms = max(1_000, -(-(picture.end_ms - picture.begin_ms) // 120_000) * 1_000)
    found: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for stay in (s for stays in picture.stays.values() for s in stays):
        offset = stay.first_offset
        for time_ms, next_offset in stay.commits:
            found[(time_ms - picture.begin_ms) // step_ms][stay.ownership_epoch.member] += next_offset - offset
            offset = next_offset
    highest = max((sum(by.values()) for by in found.values()), default=0) or 1
    base = top + _CHART
    yield f'<text x="{_LEFT - 12}" y="{top + 10}" class="end soft">{highest * 1000 // step_ms:,}</text>'
    yield f'<text x="{_LEFT - 12}" y="{top + 25}" class="end soft">committed/s</text>'
    yield f'<text x="{_LEFT - 12}" y="{base}" class="end soft">0</text>'
    yield f'<path d="M{_LEFT} {base}H{_WIDTH - _RIGHT}" class="axis"/>'
    for step, by_member in sorted(found.items()):
        begin_ms, y = picture.begin_ms + step * step_ms, float(base)
        x, right = _x(picture, begin_ms), min(_x(picture, begin_ms + step_ms), float(_WIDTH - _RIGHT))
        for member in picture.lives:
            if (count := by_member.get(member, 0)) > 0:
                height = round(count / highest * _CHART, 1)
                y = round(y - height, 1)
                title = f"{member} committed {count * 1000 // step_ms:,} offsets/s at {picture.clock(begin_ms)}"
                yield _rect(x + 0.5, y, right - x - 1, height, _colour(picture, member), title, radius=0)


def _mark_labels(picture: Picture) -> tuple[list[str], int]:
    """Returns the texts of the marks, in the minimum number of lanes without overlap, and the number of lanes."""
    lane_ends: list[float] = []
    drawn = []
    for mark in picture.marks:
        x, width = _x(picture, mark.time_ms), 6.6 * len(mark.text) + 12
        left = x if x + width < _WIDTH else x - width
        lane = next((i for i, end in enumerate(lane_ends) if end <= left), len(lane_ends))
        lane_ends[lane : lane + 1] = [left + width]
        anchor, at = ("", x + 5) if left == x else (" end", x - 5)
        y = 14 + lane * _LABEL
        drawn.append(f'<path d="M{x} {y - 10}V{y + 4}" class="mark {mark.kind.value}"/>')
        drawn.append(f'<text x="{at:.1f}" y="{y}" class="word {mark.kind.value}{anchor}">{escape(mark.text)}</text>')
    return drawn, len(lane_ends)


def _mark_lines(picture: Picture, top: int, bottom: int) -> Iterator[str]:
    for mark in picture.marks:
        title = escape(f"{mark.text}, {picture.clock(mark.time_ms)}")
        line = f'd="M{_x(picture, mark.time_ms)} {top}V{bottom}"'
        yield f'<path {line} class="mark {mark.kind.value}"><title>{title}</title></path>'


def _x(picture: Picture, time_ms: float) -> float:
    return round(_LEFT + picture.share(time_ms) * (_WIDTH - _LEFT - _RIGHT), 1)


def _colour(picture: Picture, member: str) -> str:
    return f"m{list(picture.lives).index(member) % _COLOURS}"


def _rect(x: float, y: float, width: float, height: float, style: str, title: str, radius: int = 3) -> str:
    size = f'x="{x:.1f}" y="{y:g}" width="{max(0.5, width):.1f}" height="{height:g}" rx="{radius}"'
    return f'<rect {size} class="{style}"><title>{escape(title)}</title></rect>'
