"""``sg.reports.ownership_timeline``: the ownership timeline of a group, from the files of the option ``historyDir``.

Called by users in notebooks, and by ``streamgroups groups timeline``. :mod:`streamgroups_admin.reports.ownership` draws it.
Source: SEMANTICS G11, G12; IPython's rich display (``_repr_html_``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamgroups.errors import InvalidOption, UnknownGroup
from streamgroups.groups.history import Event
from streamgroups_admin.reports.clocks import Clock, parse_clock
from streamgroups_admin.reports.html_page import in_frame
from streamgroups_admin.reports.ownership import page, timeline
from streamgroups_kafka.membership.history_file import read_history


@dataclass(frozen=True, slots=True)
class OwnershipTimeline:
    """The owners of each partition of a group over time. Created by :func:`ownership_timeline`.

    A notebook displays it as a chart.

    Args:
        group_id: the group.
        events: the recorded events of its members, in order of time.
        clock: how the chart shows times.
    """

    group_id: str
    events: Sequence[Event]
    clock: Clock = Clock.UTC

    def __str__(self) -> str:
        members = sorted({event.member for event in self.events})
        return f"Group {self.group_id}: {len(self.events):,} events of {', '.join(members)}"

    def _repr_html_(self) -> str:
        return in_frame(self._page(), height_px=timeline(self.events, clock=self.clock).height_px)

    def write_html(self, path: str | Path) -> None:
        """Writes an HTML page. It loads no other files, so it can be sent to other people.

        Args:
            path: the file, which is replaced.

        Raises:
            OSError: if it cannot be written.
        """
        Path(path).write_text(self._page(), encoding="utf-8")

    def write_svg(self, path: str | Path) -> None:
        """Writes the chart as an image, for a README or a ticket.

        Args:
            path: the file, which is replaced.

        Raises:
            OSError: if it cannot be written.
        """
        Path(path).write_text(timeline(self.events, clock=self.clock).image(self._title), encoding="utf-8")

    @property
    def _title(self) -> str:
        return f"Owners of the partitions of group “{self.group_id}”"

    def _page(self) -> str:
        return page(self.events, title=self._title, intro="Hover over an element for details.", clock=self.clock)


def ownership_timeline(
    history_dir: str | Path, *, group_id: str | None = None, clock: str = "utc"
) -> OwnershipTimeline:
    """Reads the histories of the members of a group, and returns its ownership timeline.

    Args:
        history_dir: a directory with the files of all members: the option ``historyDir`` of each query. Copy the files of
            queries on other machines into one directory first.
        group_id: the group. Not required if the directory contains the history of one group.
        clock: how the chart shows times: ``utc``, ``local`` for the time zone of this machine, or ``elapsed`` for the
            seconds since the first event.

    Returns:
        The timeline, which a notebook displays as a chart.

    Raises:
        InvalidOption: if the directory contains no history, or that of several groups and ``group_id`` is not given.
        UnknownGroup: if it contains no history of ``group_id``.

    Example::

        timeline = sg.reports.ownership_timeline("/var/lib/flight-board/history")
        timeline.write_html("owners.html")
    """
    shown = parse_clock(clock)
    try:
        events = read_history(history_dir)
    except (OSError, ValueError) as e:
        raise InvalidOption(
            f"The history in {history_dir} cannot be read: {e}.", remedy="Pass the directory of the option historyDir."
        ) from e
    groups = sorted({event.group_id for event in events})
    if not groups:
        raise InvalidOption(
            f"{history_dir} contains no history of a member (*.jsonl).",
            remedy="Pass the directory that the queries have as option historyDir.",
        )
    if group_id is None and len(groups) > 1:
        raise InvalidOption(
            f"{history_dir} contains the history of {len(groups)} groups: {', '.join(groups)}.",
            remedy="Choose one of them (group_id, or --group).",
        )
    chosen = groups[0] if group_id is None else group_id
    if chosen not in groups:
        raise UnknownGroup(
            f"{history_dir} contains no history of group '{chosen}'.",
            remedy=f"It contains: {', '.join(groups)}.",
            group=chosen,
        )
    return OwnershipTimeline(chosen, [event for event in events if event.group_id == chosen], shown)
