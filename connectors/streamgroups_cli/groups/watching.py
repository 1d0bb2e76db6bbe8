"""``streamgroups groups watch``: shows groups as they change: tables that are redrawn on a terminal, and lines elsewhere.

If the cluster does not respond for a while, the view shows the error, connects again and continues.
``streamgroups_cli.groups`` imports it; :mod:`streamgroups.monitoring.monitor` polls. Source: SEMANTICS O3; ``rich.live``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import StreamGroupsError
from streamgroups.monitoring.monitor import Monitor
from streamgroups.printable import printable
from streamgroups.tables import plain_lines
from streamgroups.times import utc
from streamgroups_cli.connection import Connect, interval_s
from streamgroups_cli.count_limit import POLL_MIB, CountLimitOption, count_bytes
from streamgroups_cli.groups.scope import GroupsOrAllArgument, named_groups
from streamgroups_cli.groups.watch_views import Poll, csv_rows, document, plain_table, screen
from streamgroups_cli.lasting_connection import LastingConnection, LastingMonitor
from streamgroups_cli.options import with_options
from streamgroups_cli.output import (
    SCHEMA_VERSION,
    Output,
    OutputOption,
    json_text,
    print_csv,
    print_message,
    terminal_texts,
)

#: The lines of a screen for its head, and for the headings and the frames of two tables.
_LINES_WITHOUT_ROWS = 12


@with_options
def watch(
    connect: Connect,
    groups: GroupsOrAllArgument = None,
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Interval between polls.")] = "2s",
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Time window of the lag states; the first one needs half of it.")
    ] = "3m",
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Exit after N polls.", show_default=False)
    ] = None,
    count_limit: CountLimitOption = POLL_MIB,
    output: OutputOption = Output.table,
) -> None:
    """Watch groups, members, ownership, lag and event time. Without a name all groups are watched."""
    pause_s = interval_s(interval)
    window_ms = parse_duration_ms(window, option="--window")
    chosen = named_groups(groups)
    with LastingConnection(connect) as connection:
        monitor = LastingMonitor(
            connection,
            lambda cluster: Monitor(
                cluster.groups,
                cluster.topics,
                cluster.now_ms,
                window_ms=window_ms,
                count_bytes=count_bytes(count_limit),
                event_times=True,
            ),
        )
        # An error of the first poll can be permanent: a wrong address is reported at once.
        first = _poll(connection, monitor, chosen)
        polls = _polls(connection, monitor, chosen, first)
        show = _show_screen if sys.stdout.isatty() and output is Output.table else _print_lines
        with suppress(KeyboardInterrupt):
            show(polls, pause_s, count, output)


def _poll(connection: LastingConnection, monitor: LastingMonitor, chosen: list[str] | None) -> Poll:
    time_ms, where = connection.use(lambda cluster: (cluster.now_ms(), str(cluster.config.get("bootstrap.servers"))))
    return Poll(time_ms, monitor.poll(chosen), where)


def _polls(
    connection: LastingConnection, monitor: LastingMonitor, chosen: list[str] | None, first: Poll
) -> Iterator[Poll]:
    """Polls repeatedly. While the cluster does not respond, it repeats the last poll with the reason."""
    last = first
    while True:
        yield last
        try:
            last = _poll(connection, monitor, chosen)
        except StreamGroupsError as e:
            last = Poll(last.time_ms, last.groups, last.where, error=str(e))


def _show_screen(polls: Iterator[Poll], pause_s: float, count: int | None, _: Output) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        for number, poll in enumerate(polls, 1):
            error = [Text(printable(poll.error), "bold red")] if poll.error else []
            tables = screen(poll, console.height - _LINES_WITHOUT_ROWS - len(error))
            head = Text.assemble(("streamgroups ", "bold"), f"{poll.where}  {utc(poll.time_ms)}")
            lines = list(terminal_texts(tables, console.width))
            for line in lines:
                # A name that is wider than the screen is cut. The terminal would move all lines below it.
                line.no_wrap, line.overflow = True, "ellipsis"
            live.update(Group(head, *error, *lines), refresh=True)
            if number == count:
                return
            time.sleep(pause_s)


def _print_lines(polls: Iterator[Poll], pause_s: float, count: int | None, output: Output) -> None:
    for number, poll in enumerate(polls, 1):
        _print_one(poll, output, headed=number > 1)
        # The reader of a pipe must receive each poll at once.
        sys.stdout.flush()
        if number == count:
            return
        time.sleep(pause_s)


def _print_one(poll: Poll, output: Output, *, headed: bool) -> None:
    if poll.error:
        print_message(f"Warning: {poll.error}")
    elif output is Output.json:
        print(json_text({"schema_version": SCHEMA_VERSION, **document(poll)}))
    elif output is Output.yaml:
        import yaml

        print("---")
        yaml.safe_dump({"schema_version": SCHEMA_VERSION, **document(poll)}, sys.stdout, sort_keys=False)
    elif output is Output.csv:
        print_csv(csv_rows(poll), headed=headed)
    else:
        lines = list(plain_lines(plain_table(poll)))
        print("\n".join(lines[1:] if headed else lines))
