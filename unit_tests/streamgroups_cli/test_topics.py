"""``streamgroups topics tail``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping

import pytest
import yaml

from streamgroups.message import Message
from streamgroups.partitions import TopicPartition
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def flights(cli: CommandLine) -> CommandLine:
    cli.cluster.create_topic("flights", 2)
    for n in range(30):
        cli.cluster.produce(P0 if n % 3 else P1, key=b"k", value=str(n).encode(), timestamp_ms=n * 1_000)
    cli.cluster.commit("board", {P0: 3})
    return cli


def test_a_topic_that_does_not_exist(flights: CommandLine) -> None:
    result = flights("topics", "tail", "flights", "flihgts")
    assert (result.code, "Topic 'flihgts'" in result.err) == (1, True)
    assert flights("topics", "tail", "flights:9").code == 1
    assert flights("topics", "tail", "flights:x").code == 2


def test_tail_shows_the_last_records_of_each_partition_in_order_of_time(flights: CommandLine) -> None:
    assert flights("topics", "tail", "flights", "-n", "2").out.splitlines() == [
        "1970-01-01T00:00:24.000Z flights-1@8 k 24",
        "1970-01-01T00:00:27.000Z flights-1@9 k 27",
        "1970-01-01T00:00:28.000Z flights-0@18 k 28",
        "1970-01-01T00:00:29.000Z flights-0@19 k 29",
    ]
    assert flights("topics", "tail", "flights:1", "-n", "1").out.count("\n") == 1
    assert flights("topics", "tail", "flights", "-n", "0").out == ""


def test_G13_gaps_at_the_end_do_not_hide_records(flights: CommandLine) -> None:
    flights.cluster.leave_gap(P1, 50)
    assert flights("topics", "tail", "flights:1", "-n", "1").out == "1970-01-01T00:00:27.000Z flights-1@9 k 27\n"


def test_csv_can_be_read_whatever_a_record_contains(flights: CommandLine) -> None:
    flights.cluster.produce(P1, 1, value=b'a\rb\nc,"d')
    out = flights("topics", "tail", "flights:1", "-n", "1", "-o", "csv").out
    assert [row["value"] for row in csv.DictReader(io.StringIO(out, newline=""))] == ['a\rb\nc,"d']


def test_every_format_has_the_same_content(flights: CommandLine) -> None:
    def shown(output: str) -> str:
        return flights("topics", "tail", "flights", "-n", "2", "-o", output).out

    from_json = [json.loads(line) for line in shown("json").splitlines()]
    assert from_json == list(yaml.safe_load_all(shown("yaml")))
    rows = list(csv.DictReader(io.StringIO(shown("csv"))))
    assert [(r["offset"], r["value"]) for r in rows] == [(str(d["offset"]), d["value"]) for d in from_json]
    assert from_json[0] == {
        "time": "1970-01-01T00:00:24.000Z",
        "topic": "flights",
        "partition": 1,
        "offset": 8,
        "key": "k",
        "value": "24",
        "headers": [],
    }


@pytest.mark.parametrize("output", ["table", "json", "yaml", "csv"])
@pytest.mark.parametrize("show", ["auto", "hex"])
def test_nothing_shown_can_move_a_cursor(flights: CommandLine, output: str, show: str) -> None:
    for value in (b"\x1b[2J", b"\xff\x00", "\x9b2J".encode(), b"two\nlines", None):
        flights.cluster.produce(P0, value=value, timestamp_ms=60_000)
    out = flights("topics", "tail", "flights:0", "-n", "5", "--show", show, "-o", output).out
    assert not [c for c in out if not c.isprintable() and c != "\n"]
    assert "1b5b324a" in out


@pytest.mark.parametrize("output", ["table", "json", "yaml", "csv"])
@pytest.mark.parametrize("show", ["auto", "hex", "text"])
def test_a_terminal_gets_no_control_characters_of_records(flights: CommandLine, output: str, show: str) -> None:
    hostile = b"\x1b]0;owned\x07\x1b[2J\rFORGED \x9b2J \xc2\x9b2J\ttab\n\xe2\x80\xaeline"
    flights.cluster.produce(P0, key=hostile, value=hostile, timestamp_ms=60_000)
    flights.cluster.produce(P0, key=b"\rFORGED", value=b"a\rFORGED", timestamp_ms=60_000)
    out = flights.on_terminal("topics", "tail", "flights:0", "-n", "2", "--show", show, "-o", output).out
    assert "464f52474544" in out or "FORGED" in out
    assert not [c for c in out if not c.isprintable() and c != "\n"]


def test_csv_for_a_program_is_unchanged(flights: CommandLine) -> None:
    flights.cluster.produce(P1, value=b"\x1b[2J")
    assert flights("topics", "tail", "flights:1", "-n", "1", "-o", "csv", "--show", "text").out.endswith(",\x1b[2J\n")


def test_long_values_are_cut_in_tables_only(flights: CommandLine) -> None:
    flights.cluster.produce(P1, value=b"x" * 1_000)
    assert "… (1000 characters)" in flights("topics", "tail", "flights:1", "-n", "1").out
    assert "x" * 1_000 in flights("topics", "tail", "flights:1", "-n", "1", "--full").out
    assert "x" * 1_000 in flights("topics", "tail", "flights:1", "-n", "1", "-o", "json").out


def test_following_continues_until_ctrl_c(flights: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    read = flights.admin.read

    def until_ctrl_c(
        starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None
    ) -> Iterator[Message]:
        if ends is None:
            flights.cluster.produce(P0, value=b"new")
            yield from read(starts, None)
            raise KeyboardInterrupt
        yield from read(starts, ends)

    monkeypatch.setattr(flights.admin, "read", until_ctrl_c)
    result = flights("topics", "tail", "flights", "-n", "1", "--follow")
    assert (result.code, result.out.splitlines()[-1].endswith("flights-0@20 null new")) == (0, True)
