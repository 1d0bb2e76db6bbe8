"""The results of the demo: in the terminal, and below the timeline of the HTML report.

Called by ``demo.__main__``. :mod:`streamgroups_reports.ownership` draws the timeline, and ``templates/report.html`` adds
the rest of the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich import markup
from rich.console import Console
from rich.table import Table

from demo.check import Arrived, CheckResult
from demo.flights import Delays
from demo.scenario import GROUP, Outcome
from streamgroups_reports.html_page import templates
from streamgroups_reports.ownership import timeline

_HEADERS = ("carrier", "flights", "cancelled", "departure", "arrival", "> 15 min late")
_NO_NEWS = re.compile(r"\s+(Inc\.|Co\.|Corporation)$")


def rows(delays: Mapping[str, Delays], names: Mapping[str, str]) -> list[tuple[str, ...]]:
    """One row of text per carrier, the largest delay first.

    >>> rows({"HA": Delays(3, 1, 10, 2, -5, 1)}, {"HA": "Hawaiian Airlines Inc."})
    [('HA Hawaiian Airlines', '3', '1', '+5.0 min', '-2.5 min', '50.0 %')]
    """
    by_delay = sorted(delays.items(), key=lambda item: -item[1].arrival_min / max(1, item[1].arrived))
    return [
        (
            f"{carrier} {_NO_NEWS.sub('', names.get(carrier, ''))}".rstrip(),
            f"{d.flights:,}",
            f"{d.cancelled:,}",
            f"{d.departure_min / max(1, d.flights - d.cancelled):+.1f} min",
            f"{d.arrival_min / max(1, d.arrived):+.1f} min",
            f"{d.late / max(1, d.arrived):.1%}".replace("%", " %"),
        )
        for carrier, d in by_delay
    ]


def show(console: Console, results: Sequence[CheckResult], arrived: Arrived, names: Mapping[str, str]) -> None:
    """Prints the delays and the check results."""
    table = Table(
        *_HEADERS,
        title="Mean delays of departures from New York City, 2013",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for row in rows(arrived.delays, names):
        table.add_row(*row)
    console.print("", table, "")
    for result in results:
        sign = "[green]✓[/green]" if result.good else "[bold red]✗[/bold red]"
        console.print(f"{sign} {markup.escape(result.text)}", highlight=False, soft_wrap=True)


def html(outcome: Outcome, results: Sequence[CheckResult], arrived: Arrived, names: Mapping[str, str]) -> str:
    """The whole page."""
    by_member = ", ".join(f"{name} {count:,}" for name, count in arrived.by_member.items())
    return (
        templates("demo")
        .get_template("report.html")
        .render(
            title=f"Group “{GROUP}”: three Spark queries, one killed",
            intro="The owners of each partition of the topic over time, from the histories of the members. "
            "Hover over an element for details.",
            chart=timeline(outcome.events, outcome.marks),
            results=results,
            by_member=by_member,
            headers=_HEADERS,
            rows=rows(arrived.delays, names),
        )
    )
