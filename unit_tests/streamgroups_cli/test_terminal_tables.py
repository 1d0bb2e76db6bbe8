"""Tables on terminals of any width: numbers and names are whole, and the columns fit if the names permit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from streamgroups.groups.description import GroupDescription, GroupMember
from streamgroups.groups.lag import PartitionLag
from streamgroups.monitoring.group_tables import partition_table
from streamgroups.monitoring.monitor import Monitor
from streamgroups.monitoring.snapshots import GroupSnapshot
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.tables import Column, Table, cell_text
from streamgroups_cli.groups import describing, describing_states, listing, plan_tables, watch_views
from streamgroups_cli.terminal_tables import terminal_lines
from unit_tests.cli_runner import CommandLine

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
NUMBERS = st.integers(0, 2**63 - 1)
HOST = "streamgroups-host-29086-dddb"


def shown(table: Table, width: int) -> list[str]:
    return [line.plain for line in terminal_lines(table, width)]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = [
        Column(f"some_name_{i}", draw(st.booleans()), rank=draw(st.integers(0, 3)))
        for i in range(draw(st.integers(1, 8)))
    ]
    cells = st.none() | NAMES | NUMBERS
    return Table(columns, draw(st.lists(st.tuples(*[cells] * len(columns)), max_size=5)))


@given(tables(), st.sampled_from([20, 80, 100, 120]))
def test_no_cell_is_broken_and_a_line_is_too_wide_only_for_its_names(table: Table, width: int) -> None:
    lines = shown(table, width)
    always = [i for i, it in enumerate(table.columns) if it.rank == 0]
    for row in table.rows:
        assert any(all(row[i] in (None, "") or cell_text(row[i]).rstrip() in line for i in always) for line in lines)
    widths = [max([len("SOME"), *(cell_len(cell_text(row[i])) for row in table.rows)]) for i in always]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        assert all(cell_len(line) <= width for line in lines if not line.startswith("Too narrow"))
    for column in table.columns:
        has_value = not table.rows or any(row[table.columns.index(column)] not in (None, "") for row in table.rows)
        whole = column.title in lines[0] or column.title in lines[-1] or "SOME" in lines[0]
        assert whole or not has_value, "a column with values is shown or named"


@given(st.lists(NAMES, min_size=1, max_size=5), st.integers(40, 120))
def test_prose_is_written_on_several_lines_and_no_word_is_broken(texts: Sequence[str], width: int) -> None:
    texts = [" ".join(text.split()) for text in texts]
    table = Table([Column("about"), Column("what", is_prose=True)], [["java", text] for text in texts])
    lines = shown(table, width)
    words = [word for text in texts for word in cell_text(text).split()]
    assert [word for line in lines[2:] for word in line.split() if word != "java"] == [w for w in words if w != "java"]


@given(
    topic=st.text("abcdefghij.-", min_size=1, max_size=45),
    owner=st.text("abcdefghij-", min_size=1, max_size=45),
    offset=st.integers(0, 10**12),
    width=st.sampled_from([80, 100, 120]),
)
def test_O1_describe_fits(topic: str, owner: str, offset: int, width: int) -> None:
    tp = TopicPartition(topic, 0)
    member = GroupMember(owner, "/10.0.0.7", frozenset({tp}))
    group = GroupDescription("board", "Stable", "classic", "consumer", "range", 1, (member,))
    lag = PartitionLag(tp, offset, Bounds(0, offset + 7), reading_until=offset)
    lines = shown(partition_table(GroupSnapshot(group, (lag,)), 1_000, ""), width)
    assert all(len(line) <= width for line in lines)
    assert any(topic in line and line.split()[1] == "0" for line in lines)
    assert "DETAIL" not in "".join(lines), "no partition has a defect"
    if width == 120 and len(topic) + len(owner) + len(str(offset)) < 70:
        assert any(owner in line and str(offset) in line for line in lines)


def test_O1_describe_of_an_instance_in_80_columns() -> None:
    tp = TopicPartition("clicks", 0)
    member = GroupMember(HOST, "/10.0.0.7", frozenset({tp}))
    group = GroupDescription("click-minutes", "Stable", "classic", "consumer", "range", 1, (member,))
    lines = shown(partition_table(GroupSnapshot(group, (PartitionLag(tp, 4_000, Bounds(0, 4_010)),)), 1_000, ""), 80)
    assert [line.split() for line in lines] == [
        ["COMMITTED", "END", "IN"],
        ["TOPIC", "PARTITION", "OFFSET", "OFFSET", "LAG", "FLIGHT", "OWNER"],
        ["─" * len(lines[2])],
        ["clicks", "0", "4000", "4010", "<=10", "0", HOST],
        ["Too", "narrow", "for:", "HOST."],
    ]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_O3_watch_fits_and_shows_the_state_of_the_lag(cli: CommandLine, width: int) -> None:
    cli.cluster.create_topic("clicks-of-the-web-shop", 1)
    tp = TopicPartition("clicks-of-the-web-shop", 0)
    cli.cluster.produce(tp, 10)
    cli.cluster.commit("click-minutes-2", {tp: 4})
    cli.join("click-minutes-2", tp.topic, HOST)
    poll = watch_views.Poll(1_000_000, Monitor(cli.admin, cli.admin, cli.clock).poll(), "broker:9092")
    for table in watch_views.screen(poll, 20):
        lines = shown(table, width)
        assert all(len(line) <= width for line in lines)
        assert all(name in "".join(lines[:2]) for name in ("GROUP", "LAG", "STATE"))
        assert any(line.endswith("unknown") for line in lines)


@pytest.mark.parametrize(
    "columns",
    [
        listing._COLUMNS,
        describing._MEMBERS,
        describing_states.COLUMNS,
        plan_tables._COLUMNS,
        (*watch_views._GROUPS, *watch_views._WATERMARK),
        (*watch_views._PARTITIONS, *watch_views._EVENT_TIME),
    ],
)
def test_the_headings_of_important_columns_fit_80_columns(columns: Sequence[Column]) -> None:
    table = Table([replace(it, style=None) for it in columns], [[1] * len(columns)])
    assert all(len(line) <= 80 for line in shown(table, 80) if not line.startswith("Too narrow"))


def test_a_terminal_gets_no_empty_line_for_an_unknown_group(cli: CommandLine) -> None:
    for result in (cli("groups", "describe", "unknown"), cli.on_terminal("groups", "describe", "unknown")):
        assert (result.code, result.out) == (1, "")
