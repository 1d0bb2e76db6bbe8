"""The results of the demo: in the terminal, and below the timeline of the HTML report.

Called by ``demo.__main__``. :mod:`streamgroups_admin.reports.ownership` draws the timeline, and ``templates/report.html`` adds
the rest of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import markup
from rich.console import Console
from rich.table import Table

from demo.check import CheckResult
from demo.flights import AirportHour, Delays
from demo.scenario import GROUP, DemoRun
from streamgroups_admin.reports.clocks import Clock
from streamgroups_admin.reports.html_page import templates
from streamgroups_admin.reports.ownership import timeline
from streamgroups_admin.reports.svg import Chart

_REPORT_TITLE = f"Group “{GROUP}”: three Spark queries, one killed"
_HEADERS = ("airport", "hour (UTC)", "flights", "arrived", "mean", "worst")
#: The table contains this number of hours, and no hour with fewer arrivals.
_ROWS, _MIN_ARRIVED = 12, 5
_TITLE = f"Delays of flights from New York City: the worst hours with {_MIN_ARRIVED} arrivals or more"


def rows(delays: Mapping[AirportHour, Delays], names: Mapping[str, str]) -> list[tuple[str, ...]]:
    """One row of text for each airport and hour, the largest mean first.

    >>> rows({("SFO", "2013-07-07T14:00:00Z"): Delays(7, 6, 295.8, 676.0)}, {"SFO": "San Francisco Intl"})
    [('SFO San Francisco Intl', '2013-07-07 14:00', '7', '6', '+296 min', '+676 min')]
    """
    many = [(it.mean_min, it.worst_min, at, it) for at, it in delays.items() if it.arrived >= _MIN_ARRIVED]
    return [
        (
            f"{airport} {names.get(airport, '')}".rstrip(),
            f"{hour[:10]} {hour[11:16]}",
            f"{found.flights}",
            f"{found.arrived}",
            f"{found.mean_min:+.0f} min",
            f"{found.worst_min:+.0f} min",
        )
        for *_, (airport, hour), found in sorted(many, key=lambda it: it[:3], reverse=True)[:_ROWS]
    ]


def show(console: Console, outcome: DemoRun, results: Sequence[CheckResult], names: Mapping[str, str]) -> None:
    """Prints the worst hours and the check results."""
    table = Table(*_HEADERS, title=_TITLE, title_justify="left", box=None, pad_edge=False)
    for column in table.columns:
        column.justify, column.no_wrap = "right", True
    table.columns[0].justify, table.columns[0].max_width = "left", 22
    for row in rows(outcome.output.delays, names):
        table.add_row(*row)
    for line in ("", table, "", _by_member(outcome), ""):
        console.print(line, markup=False, highlight=False, soft_wrap=isinstance(line, str))
    for result in results:
        sign = "[green]✓[/green]" if result.good else "[bold red]✗[/bold red]"
        console.print(f"{sign} {markup.escape(result.text)}", highlight=False, soft_wrap=True)


def html(outcome: DemoRun, results: Sequence[CheckResult], names: Mapping[str, str]) -> str:
    """The whole page."""
    return (
        templates("demo")
        .get_template("report.html")
        .render(
            title=_REPORT_TITLE,
            intro="The owners of each partition of the topic over time, from the histories of the members. "
            "Hover over an element for details.",
            chart=_chart(outcome).html(),
            results=results,
            by_member=_by_member(outcome),
            heading=_TITLE,
            headers=_HEADERS,
            rows=rows(outcome.output.delays, names),
        )
    )


def image(outcome: DemoRun) -> str:
    """The timeline as an SVG file."""
    return _chart(outcome).image(_REPORT_TITLE)


def _chart(outcome: DemoRun) -> Chart:
    return timeline(outcome.events, outcome.marks, outcome.states, Clock.ELAPSED)


def _by_member(outcome: DemoRun) -> str:
    counts = ", ".join(f"{name} {count:,}" for name, count in outcome.output.by_member.items())
    return f"Rows of windows by member: {counts}."
