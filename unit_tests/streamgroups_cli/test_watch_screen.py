"""The screen of ``streamgroups groups watch``, with the keys of a user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeAlias

import pytest
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Label
from textual.worker import WorkerCancelled

from streamgroups.errors import StreamGroupsError
from streamgroups.monitoring.monitor import Monitor
from streamgroups.partitions import TopicPartition
from streamgroups_cli.groups.watch_screen import WatchScreen
from streamgroups_cli.groups.watch_views import Poll
from unit_tests.cli_runner import CommandLine

Keys: TypeAlias = Callable[["User"], Awaitable[None]]


class User:
    """Presses keys and reads the screen."""

    def __init__(self, screen: WatchScreen, pilot: Pilot[Exception]) -> None:
        self._screen, self._pilot = screen, pilot

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)
        await self.poll_is_shown()

    async def click_head(self, table: str, x: int) -> None:
        await self._pilot.click(f"#{table}", offset=(x, 0))
        await self.poll_is_shown()

    async def next_poll(self) -> None:
        self._screen._start_poll()
        await self.poll_is_shown()

    async def poll_is_shown(self) -> None:
        with suppress(WorkerCancelled):  # the screen has ended
            await self._screen.workers.wait_for_complete()
        await self._pilot.pause()

    def rows(self, table: str) -> list[list[str]]:
        shown: DataTable[Text] = self._screen.query_one(f"#{table}", DataTable)
        return [[str(cell) for cell in shown.get_row_at(i)] for i in range(shown.row_count)]

    def column(self, table: str, name: str) -> list[str]:
        shown: DataTable[Text] = self._screen.query_one(f"#{table}", DataTable)
        return [str(cell) for cell in shown.get_column(name)]

    def place(self, table: str) -> tuple[int, int]:
        """The first visible row, and the row of the cursor."""
        shown = self._screen.query_one(f"#{table}", DataTable)
        return shown.scroll_offset.y, shown.cursor_row

    @property
    def picture(self) -> str:
        """The screen as SVG, with the visible parts of cells."""
        return self._screen.export_screenshot()

    @property
    def is_running(self) -> bool:
        return self._screen.is_running

    @property
    def head(self) -> str:
        return str(self._screen.query_one("#head", Label).render())

    @property
    def group_at_cursor(self) -> str:
        return self.rows("groups")[self._screen.query_one("#groups", DataTable).cursor_row][0]


def polls(cli: CommandLine, error: str = "") -> Iterator[Poll]:
    monitor = Monitor(cli.admin, cli.admin, cli.clock, window_ms=60_000)
    while True:
        yield Poll(cli.clock(), monitor.poll(), "broker:9092", error)
        cli.clock.advance(20_000)


def use(source: Iterator[Poll], keys: Keys, count: int | None = None) -> Exception | None:
    """Runs the screen until the keys are pressed. The clock causes no poll after the first one."""

    async def run() -> Exception | None:
        screen = WatchScreen(source, interval_s=3_600, count=count)
        async with screen.run_test(size=(200, 40)) as pilot:
            user = User(screen, pilot)
            await user.poll_is_shown()
            await keys(user)
        return screen.return_value

    return asyncio.run(run())


@pytest.fixture
def board(cli: CommandLine) -> CommandLine:
    """Three groups: ``board`` has a lag of 6, ``done`` of 0, and ``far`` of 20 and no members."""
    cli.cluster.create_topic("flights", 2)
    cli.cluster.create_topic("trains", 1)
    p0, p1, t0 = TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("trains", 0)
    for tp in (p0, p1):
        cli.cluster.produce(tp, 10, timestamp_ms=940_000)
    cli.cluster.produce(t0, 20, timestamp_ms=940_000)
    cli.cluster.commit("board", {p0: 4, p1: 10})
    cli.cluster.commit("done", {p1: 10})
    cli.cluster.commit("far", {t0: 0})
    cli.join("board", "flights")
    return cli


def test_groups_and_partitions_with_the_worst_first(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        for _ in range(2):
            await user.next_poll()
        assert user.head == "streamgroups broker:9092  1970-01-01T00:17:20.000Z"
        assert user.rows("groups") == [
            ["far", "Empty", "0", "20", "███", "1m 40s", "0", "stopped"],
            ["board", "Stable", "1", "6", "███", "1m 40s", "0", "stalled"],
            ["done", "Empty", "0", "0", "▁▁▁", "0s", "0", "ok"],
        ]
        assert [(p[0], p[1], p[2], p[3], p[-1]) for p in user.rows("partitions")] == [
            ("far", "trains", "0", "-", "stopped"),
            ("board", "flights", "0", "alice (/127.0.0.1)", "stalled"),
            ("board", "flights", "1", "alice (/127.0.0.1)", "ok"),
            ("done", "flights", "1", "-", "ok"),
        ]
        assert "(/127.0.0.1)" in user.picture

    assert use(polls(board), keys) is None


def test_enter_shows_the_partitions_of_one_group_and_escape_those_of_all(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        await user.press("down", "enter")
        assert user.column("partitions", "group") == ["board", "board"]
        assert user.head.endswith("partitions of board")
        await user.next_poll()
        assert (user.column("partitions", "group"), user.group_at_cursor) == (["board", "board"], "board")
        await user.press("escape")
        assert set(user.column("partitions", "group")) == {"board", "done", "far"}
        await user.press("tab", "up", "enter")
        assert set(user.column("partitions", "group")) == {"far"}, "the group of the partition above"

    use(polls(board), keys)


def test_a_filter_is_a_part_of_a_group_or_topic(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        await user.press("slash", *"BOA")
        assert (user.column("groups", "group"), set(user.column("partitions", "group"))) == (["board"], {"board"})
        await user.press("escape", "slash", *"trains", "enter")
        assert (user.rows("groups"), user.column("partitions", "group")) == ([], ["far"])
        await user.press("escape")
        assert len(user.rows("groups")) == 3

    use(polls(board), keys)


def test_s_sorts_by_the_next_column_and_r_reverses(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        await user.press("s")
        assert user.column("groups", "group") == ["board", "done", "far"]
        await user.press("r")
        assert user.column("groups", "group") == ["far", "done", "board"]
        await user.next_poll()
        assert user.column("groups", "group") == ["far", "done", "board"], "the next poll has the same order"
        await user.press("s", "s", "s")
        assert user.column("groups", "lag") == ["20", "6", "0"], "numbers are compared as numbers"
        await user.press("r")
        assert user.column("groups", "lag") == ["0", "6", "20"]
        await user.press(*"sssss")
        assert user.column("groups", "group") == ["far", "board", "done"], "after the last column: the worst first"

    use(polls(board), keys)


def test_a_click_on_a_head_sorts_and_unknown_values_are_last(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        await user.click_head("partitions", x=2)
        assert user.column("partitions", "group") == ["board", "board", "done", "far"]
        await user.click_head("partitions", x=2)
        assert user.column("partitions", "group") == ["far", "done", "board", "board"]
        await user.press("s", "s", "s")
        assert user.column("partitions", "owner") == ["alice (/127.0.0.1)"] * 2 + ["-"] * 2
        await user.press("r")
        assert user.column("partitions", "owner") == ["alice (/127.0.0.1)"] * 2 + ["-"] * 2

    use(polls(board), keys)


def test_a_pause_keeps_the_poll_and_its_end_shows_the_latest(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        await user.press("space")
        await user.next_poll()
        await user.next_poll()
        assert user.head == "streamgroups broker:9092  1970-01-01T00:16:40.000Z  paused"
        await user.press("s")
        assert user.column("groups", "group") == ["board", "done", "far"]
        await user.press("space")
        assert user.head == "streamgroups broker:9092  1970-01-01T00:17:20.000Z"

    use(polls(board), keys)


def test_rows_beyond_the_limit_are_counted(board: CommandLine) -> None:
    board.cluster.create_topic("wide", 310)
    board.cluster.commit("wide", {TopicPartition("wide", p): 0 for p in range(310)})

    async def keys(user: User) -> None:
        shown = user.rows("partitions")
        assert (len(shown), shown[-1][0]) == (301, "and 14 more")
        await user.press("tab", *["down"] * 60)
        place, row = user.place("partitions")
        assert place > 0
        assert row == 60
        await user.next_poll()
        assert user.place("partitions") == (place, row)
        await user.press("slash", *"far")
        assert len(user.rows("partitions")) == 1

    use(polls(board), keys)


def test_hostile_names_are_text(board: CommandLine) -> None:
    board.cluster.commit("[bold]x\x1b[2J", {TopicPartition("flights", 0): 10})

    async def keys(user: User) -> None:
        names = [name for name in user.column("groups", "group") if "bold" in name]
        assert len(names) == 1
        assert names[0].startswith("[bold]x")
        assert "\x1b" not in names[0]

    use(polls(board), keys)


def test_an_error_of_the_cluster_is_shown(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        assert user.head.splitlines()[1] == "No broker responds."

    assert use(polls(board, "No broker responds."), keys) is None


def test_an_unexpected_error_ends_the_screen(board: CommandLine) -> None:
    def broken() -> Iterator[Poll]:
        yield next(polls(board))
        raise StreamGroupsError("broken")

    error = use(broken(), lambda user: user.next_poll())
    assert str(error) == "broken"


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_ends(board: CommandLine, key: str) -> None:
    async def keys(user: User) -> None:
        assert user.is_running
        await user.press(key)
        assert not user.is_running

    use(polls(board), keys)


def test_it_ends_after_some_polls(board: CommandLine) -> None:
    async def keys(user: User) -> None:
        assert user.is_running
        await user.next_poll()
        assert not user.is_running

    use(polls(board), keys, count=2)
