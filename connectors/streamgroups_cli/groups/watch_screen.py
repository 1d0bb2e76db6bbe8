"""The screen of ``groups watch``: a table of groups, and one of their partitions, to sort, filter and pause.

:mod:`streamgroups_cli.groups.watching` runs it on a terminal; :mod:`streamgroups_cli.groups.watch_views` contains the
rows. Source: SEMANTICS O3; textual's guides to widgets and workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Label

from streamgroups.printable import printable
from streamgroups.tables import Column
from streamgroups.times import utc
from streamgroups_cli.groups.watch_views import (
    Poll,
    Row,
    group_columns,
    group_of,
    group_rows,
    partition_columns,
    partition_rows,
)
from streamgroups_cli.output import styled

#: A table with more rows takes seconds to draw. A filter, or one group, shows others.
_MAX_ROWS = 300
#: The minimum between two polls: the screen must also handle keys.
_MIN_INTERVAL_S = 0.1


class _Pane(DataTable[Text]):
    """A table that keeps its order, its cursor and its place when its rows are replaced."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "One group"),
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
        Binding("tab", "app.focus_next", "Other table"),
    ]

    def __init__(self, name: str) -> None:
        super().__init__(id=name, cursor_type="row")
        self._heads: Sequence[Column] = ()
        self._content: Sequence[Row] = ()
        self._sorted_by: str | None = None
        self._is_descending = False

    def show(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        """Replaces the rows. They are in order of urgency, unless the user sorts them."""
        self._heads, self._content = columns, rows
        cursor, place = self._key_at_cursor(), self.scroll_offset
        in_order = self._in_order()
        shown = {
            row.key: [styled(*it) for it in zip(columns, row.cells(), strict=False)] for row in in_order[:_MAX_ROWS]
        }
        self.clear(columns=True)
        for i, column in enumerate(columns):
            arrow = "" if column.name != self._sorted_by else " ▼" if self._is_descending else " ▲"
            label = Text(column.title + arrow, justify="right" if column.right else "left")
            # With its own widths the table would be drawn twice, first with those of the labels.
            width = max(label.cell_len, *(cells[i].cell_len for cells in shown.values()), 0)
            self.add_column(label, width=width, key=column.name)
        for key, cells in shown.items():
            self.add_row(*cells, key=key)
        if (left_out := len(in_order) - len(shown)) > 0:
            self.add_row(Text(f"and {left_out:,} more", "bright_black"))
        if cursor in self.rows:
            self.move_cursor(row=self.get_row_index(cursor), scroll=False)
        # Textual computes the size of new rows later, and would draw the top of the table until then.
        widths = sum(column.get_render_width(self) for column in self.columns.values())
        self.virtual_size = Size(widths, self.header_height + self.row_count)
        self.scroll_to(place.x, place.y, animate=False, immediate=True)

    def sort_by(self, name: str | None) -> None:
        """Sorts by a column: numbers descending, texts ascending. By the same one again: the other way."""
        is_same = name == self._sorted_by
        self._is_descending = (
            not self._is_descending if is_same else any(c.right for c in self._heads if c.name == name)
        )
        self._sorted_by = name
        self.show(self._heads, self._content)

    def action_sort(self) -> None:
        """Sorts by the next column, and after the last one in order of urgency."""
        names = [None, *(column.name for column in self._heads)]
        self.sort_by(names[(names.index(self._sorted_by) + 1) % len(names)])

    def action_reverse(self) -> None:
        """Sorts by the same column the other way."""
        self.sort_by(self._sorted_by)

    def _in_order(self) -> list[Row]:
        """Unknown values are last in both directions."""
        column = self._sorted_by
        if column is None or column not in [head.name for head in self._heads]:
            return list(reversed(self._content) if self._is_descending else self._content)
        values = [(row.order(column), row) for row in self._content]
        known = [it for it in values if it[0] is not None]
        known.sort(key=lambda it: it[0], reverse=self._is_descending)
        return [row for _, row in known] + [row for value, row in values if value is None]

    def _key_at_cursor(self) -> str:
        if not self.row_count:
            return ""
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value or ""


class WatchScreen(App[Exception]):
    """Shows polls until the user quits.

    Args:
        polls: the polls. A thread takes each one, because it can wait for the cluster.
        interval_s: the seconds between two polls.
        count: the number of polls after which it ends; ``None`` for no limit.

    Returns:
        With ``run``, the error of a poll, or ``None``.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #groups { height: auto; max-height: 50%; }
    #partitions { height: 1fr; margin-top: 1; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("space", "pause", "Pause"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "show_all", "All groups"),
    ]

    class Polled(Message):
        """A thread has a new poll, or its error."""

        def __init__(self, result: Poll | Exception) -> None:
            super().__init__()
            self.result = result

    def __init__(self, polls: Iterator[Poll], interval_s: float, count: int | None = None) -> None:
        super().__init__()
        self._polls, self._interval_s, self._count = polls, interval_s, count
        self._latest: Poll | None = None
        self._poll: Poll | None = None
        self._received = 0
        self._is_polling = self._is_paused = False
        self._group = ""

    def compose(self) -> ComposeResult:
        """Creates the widgets. Textual calls it."""
        yield Label(id="head")
        yield _Pane("groups")
        yield _Pane("partitions")
        yield Input(id="filter", placeholder="part of a group or topic")
        yield Footer()

    def on_mount(self) -> None:
        """Starts to poll. Textual calls it."""
        self.theme = "ansi-dark"
        self.query_one("#groups").focus()
        self._start_poll()
        self.set_interval(max(self._interval_s, _MIN_INTERVAL_S), self._start_poll)

    def _start_poll(self) -> None:
        if not self._is_polling:
            self._is_polling = True
            self.run_worker(self._take_poll, thread=True)

    def _take_poll(self) -> None:
        try:
            result: Poll | Exception = next(self._polls)
        except Exception as e:
            result = e
        self.post_message(self.Polled(result))

    @on(Polled)
    def _receive(self, event: Polled) -> None:
        self._is_polling = False
        if isinstance(event.result, Exception):
            self.exit(event.result)
            return
        self._latest = event.result
        self._received += 1
        if not self._is_paused:
            self._show_latest()
        if self._received == self._count:
            self.exit()

    def _show_latest(self) -> None:
        self._poll = self._latest
        self._show()

    def _show(self) -> None:
        if (poll := self._poll) is None:
            return
        self.query_one("#head", Label).update(self._head(poll))
        text = self.query_one("#filter", Input).value.lower()
        groups = [row for row in group_rows(poll) if text in row.group.lower()]
        partitions = [
            row
            for row in partition_rows(poll)
            if (row.group == self._group if self._group else text in row.group.lower() or text in row.topic.lower())
        ]
        self.query_one("#groups", _Pane).show(group_columns(poll), groups)
        self.query_one("#partitions", _Pane).show(partition_columns(poll), partitions)

    def _head(self, poll: Poll) -> Text:
        return Text.assemble(
            ("streamgroups ", "bold"),
            f"{poll.where}  {utc(poll.time_ms)}",
            f"  partitions of {printable(self._group)}" if self._group else "",
            ("  paused" if self._is_paused else "", "bold yellow"),
            (f"\n{printable(poll.error)}" if poll.error else "", "bold red"),
        )

    @on(DataTable.RowSelected)
    def _select_group(self, event: DataTable.RowSelected) -> None:
        self._group = group_of(event.row_key.value or "")
        self._show()

    @on(DataTable.HeaderSelected)
    def _sort_by_header(self, event: DataTable.HeaderSelected) -> None:
        if isinstance(event.data_table, _Pane):
            event.data_table.sort_by(event.column_key.value)

    @on(Input.Changed)
    def _filter(self) -> None:
        self._show()

    @on(Input.Submitted)
    def _leave_filter(self) -> None:
        self.query_one("#groups").focus()

    def action_pause(self) -> None:
        """Keeps the shown poll, or shows the latest one again. Polls continue, because lag states need them."""
        self._is_paused = not self._is_paused
        if self._is_paused:
            self._show()
        else:
            self._show_latest()

    def action_filter(self) -> None:
        """Opens the field for a filter."""
        self.query_one("#filter").display = True
        self.query_one("#filter").focus()

    def action_show_all(self) -> None:
        """Shows all groups and partitions again."""
        self._group = ""
        self.query_one("#filter", Input).value = ""
        self.query_one("#filter").display = False
        self.query_one("#groups").focus()
        self._show()
