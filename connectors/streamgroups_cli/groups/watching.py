"""``streamgroups groups watch``: shows groups as they change, in full screen on a terminal and line by line elsewhere.

``q`` or Ctrl-C exits. If the cluster does not respond for a while, the view shows the error and continues.
``streamgroups_cli.groups`` imports it; :mod:`streamgroups.monitoring.monitor` polls. Source: SEMANTICS O3.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import StreamGroupsError
from streamgroups.monitoring.monitor import Monitor
from streamgroups_cli.connection import Cluster, Connect, with_cluster
from streamgroups_cli.groups.scope import GroupsArgument
from streamgroups_cli.groups.watch_views import Poll, csv_rows, document, plain_table, screen
from streamgroups_cli.lag_counting import POLL_MIB, CountLimitOption, count_bytes
from streamgroups_cli.output import SCHEMA_VERSION, Output, OutputOption, json_text, plain_lines, print_csv, say


@with_cluster
def watch(
    connect: Connect,
    groups: GroupsArgument = None,
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
    interval_s = parse_duration_ms(interval, option="--interval") / 1000
    window_ms = parse_duration_ms(window, option="--window")
    chosen = list(dict.fromkeys(groups)) if groups else None
    with connect() as cluster:
        monitor = Monitor(
            cluster.groups,
            cluster.topics,
            cluster.now_ms,
            window_ms=window_ms,
            count_bytes=count_bytes(count_limit),
            event_times=True,
        )
        # An error of the first poll can be permanent: a wrong address is reported at once.
        first = _poll(cluster, monitor, chosen)
        polls = _polls(cluster, monitor, chosen, first)
        full_screen = output is Output.table and sys.stdout.isatty()
        with suppress(KeyboardInterrupt), _pauses(interval_s) as pause:
            (_show_screen if full_screen else _print_lines)(polls, pause, count, output)


def _poll(cluster: Cluster, monitor: Monitor, chosen: list[str] | None) -> Poll:
    return Poll(cluster.now_ms(), monitor.poll(chosen), str(cluster.config.get("bootstrap.servers")))


def _polls(cluster: Cluster, monitor: Monitor, chosen: list[str] | None, first: Poll) -> Iterator[Poll]:
    """Polls repeatedly. While the cluster does not respond, it repeats the last poll with the reason."""
    last = first
    while True:
        yield last
        try:
            last = _poll(cluster, monitor, chosen)
        except StreamGroupsError as e:
            last = Poll(last.time_ms, last.groups, last.where, trouble=str(e))


def _show_screen(polls: Iterator[Poll], pause: Callable[[], bool], count: int | None, _: Output) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for number, poll in enumerate(polls, 1):
            live.update(screen(poll, console.size.width, console.size.height), refresh=True)
            if number == count or not pause():
                return


def _print_lines(polls: Iterator[Poll], pause: Callable[[], bool], count: int | None, output: Output) -> None:
    for number, poll in enumerate(polls, 1):
        _print_one(poll, output, headed=number > 1)
        # The reader of a pipe must receive each poll at once.
        sys.stdout.flush()
        if number == count or not pause():
            return


def _print_one(poll: Poll, output: Output, *, headed: bool) -> None:
    if poll.trouble:
        say(f"Warning: {poll.trouble}")
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


@contextmanager
def _pauses(interval_s: float) -> Iterator[Callable[[], bool]]:
    """Returns a function that waits for the next poll. It returns whether to continue: not after ``q`` was pressed."""
    import os
    import select
    import time

    if not sys.stdin.isatty():

        def sleep() -> bool:
            time.sleep(interval_s)
            return True

        yield sleep
        return
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)

    def wait_for_a_key() -> bool:
        deadline_s = time.monotonic() + interval_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            if select.select([keys], [], [], left_s)[0] and os.read(keys, 1) in (b"q", b"Q", b""):
                return False
        return True

    tty.setcbreak(keys)
    try:
        yield wait_for_a_key
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)
