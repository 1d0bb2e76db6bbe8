"""Shapes, scales and axes of the charts in reports.

:mod:`streamgroups_admin.reports.ownership` and :mod:`streamgroups_admin.reports.event_time` draw with this module. The styles are
the classes of ``templates/style.css``. A chart is a part of an HTML page, or a file of its own for a README. Source: SVG
1.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from markupsafe import Markup

from streamgroups_admin.reports.clocks import Times
from streamgroups_admin.reports.html_page import templates

#: The width of a chart, and the space to the right of its axis.
WIDTH_PX, RIGHT_PX = 1160, 16
#: The number of colours in the style sheet, for members or partitions. More of them share colours.
COLOURS = 6
_MAX_TIMES = 14
#: The estimated width of a character, and the height of a line of the legend.
_CHAR_PX, _LEGEND_LINE_PX = 6.4, 22
_TITLE_PX = 34
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from values to pixels.

    Args:
        first: the lowest value.
        last: the highest value.
        first_px: the coordinate of the lowest value.
        last_px: the coordinate of the highest value.

    >>> x = Scale(0, 60_000, 100, 700)
    >>> x(0), x(30_000), x(60_000)
    (100.0, 400.0, 700.0)
    """

    first: int
    last: int
    first_px: int
    last_px: int

    def __call__(self, value: float) -> float:
        """Returns the coordinate of a value, rounded to a tenth of a pixel."""
        share = (value - self.first) / max(1, self.last - self.first)
        return round(self.first_px + share * (self.last_px - self.first_px), 1)


def time_step_ms(span_ms: int, max_times: int) -> int:
    """Returns the distance of points in time on an axis: a round number of seconds, minutes, hours or days.

    Args:
        span_ms: the length of the axis.
        max_times: the maximum of steps in it.

    >>> [time_step_ms(span_s * 1_000, 14) // 1_000 for span_s in (0, 30, 3_600, 86_400, 31_536_000)]
    [1, 5, 300, 7200, 2764800]
    """
    step_s = next((s for s in _STEPS_S if span_ms <= s * 1_000 * max_times), _STEPS_S[-1])
    while span_ms > step_s * 1_000 * max_times:
        step_s *= 2
    return step_s * 1_000


def time_axis(x: Scale, top: float, bottom: float, times: Times) -> Iterator[Element]:
    """Draws vertical lines at round times, and below each its label.

    >>> from streamgroups_admin.reports.clocks import Clock
    >>> axis = time_axis(Scale(0, 1_200_000, 0, 100), 0, 50, Times(Clock.ELAPSED, 0, 1_200_000))
    >>> [shape.text for shape in axis if shape.text][:3]
    ['0 min', '2 min', '4 min']
    """
    for time_ms, label, below in times.labels(time_step_ms(x.last - x.first, _MAX_TIMES)):
        at = x(time_ms)
        yield path(f"M{at:g} {top:g}V{bottom:g}", "grid")
        yield text(at, bottom + 17, label, "mid soft")
        if below:
            yield text(at, bottom + 31, below, "mid soft")


def path(d: str, style: str, title: str = "") -> Element:
    """Returns a path with a tooltip."""
    return _titled(Element("path", {"d": d, "class": style}), title)


def rect(x: float, y: float, width: float, height: float, style: str, title: str = "", radius: int = 3) -> Element:
    """Returns a rectangle with a tooltip. It is at least half a pixel wide."""
    values = {"x": x, "y": y, "width": max(0.5, width), "height": height, "rx": radius}
    return _titled(
        Element("rect", {name: f"{round(value, 1):g}" for name, value in values.items()} | {"class": style}), title
    )


def diamond(x: float, y: float, title: str = "") -> Element:
    """Returns a diamond around a point, with a tooltip."""
    return path(f"M{x:g} {y - 6:g}l6 6-6 6-6-6z", "over", title)


def text(x: float, y: float, words: str, style: str) -> Element:
    """Returns a line of text."""
    element = Element("text", {"x": f"{x:g}", "y": f"{y:g}", "class": style})
    element.text = words
    return element


def _titled(element: Element, title: str) -> Element:
    if title:
        SubElement(element, "title").text = title
    return element


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its legend.

    Args:
        label: the description of the drawing for screen readers.
        shapes: its content; later ones cover earlier ones.
        height_px: its height.
        legend: samples in a frame of 18 by 14 pixels, and their meaning.
    """

    label: str
    shapes: Sequence[Element]
    height_px: float
    legend: Sequence[tuple[Sequence[Element], str]]

    def html(self) -> Markup:
        """Returns the legend and the drawing, for a template that extends ``page.html``.

        >>> "flights &lt;0&gt;</li>" in Chart("An example", [], 100, [([rect(2, 0, 14, 14, "m0")], "flights <0>")]).html()
        True
        """
        return Markup(
            templates()
            .get_template("chart.html")
            .render(
                label=self.label,
                shapes=map(_markup, self.shapes),
                width=WIDTH_PX,
                height=f"{self.height_px:g}",
                legend=[(Markup().join(map(_markup, samples)), words) for samples, words in self.legend],
            )
        )

    def image(self, title: str) -> str:
        """Returns a whole SVG file: the title, the legend and the drawing. It loads no other files.

        Args:
            title: the heading, as plain text.

        >>> "<b>" in Chart("An example", [], 100, [([rect(2, 0, 14, 14, "m0")], "flights <b>")]).image("A <b>")
        False
        """
        places, legend_px = _legend_places([words for _, words in self.legend])
        top = _TITLE_PX + legend_px
        return (
            templates()
            .get_template("image.svg")
            .render(
                title=title,
                label=self.label,
                shapes=map(_markup, self.shapes),
                width=WIDTH_PX,
                height=round(top + self.height_px),
                top=f"{top:g}",
                legend=[
                    (f"{x:g}", f"{_TITLE_PX + y:g}", Markup().join(map(_markup, samples)), words)
                    for (x, y), (samples, words) in zip(places, self.legend, strict=True)
                ],
            )
        )


def _legend_places(entries: Sequence[str]) -> tuple[list[tuple[float, float]], float]:
    """Returns the place of each entry of a legend, in lines as wide as the chart, and the height of all lines."""
    x = y = 0.0
    places = []
    for words in entries:
        width = 25 + _CHAR_PX * len(words) + 20
        if x and x + width > WIDTH_PX:
            x, y = 0.0, y + _LEGEND_LINE_PX
        places.append((x, y))
        x += width
    return places, y + _LEGEND_LINE_PX + 10


def _markup(element: Element) -> Markup:
    return Markup(tostring(element, encoding="unicode"))


#: The chart of an empty recording.
NO_EVENTS = Chart("An empty chart", [text(0, 24, "No events were recorded.", "soft")], 40, [])
