"""``streamgroups groups list`` and ``describe``: every format to the letter, exit codes, and errors."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from streamgroups.coordination.reset_protocol import MemberEntry, members_group_of, resets_group_of
from streamgroups.errors import InvalidOption, NotAuthorized
from streamgroups.fakes import FakeCluster
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.lag import PartitionError
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_cli.groups import describing
from streamgroups_kafka.client.properties_file import command_config
from unit_tests.cli_runner import CommandLine

GOLDEN = Path(__file__).parent.parent / "golden" / "cli"
P0, P1, P2 = (TopicPartition("flights", p) for p in range(3))


@pytest.fixture
def board(cli: CommandLine) -> CommandLine:
    """Two groups: one that alice is in, and one that stopped and lost records."""
    cli.cluster.create_topic("flights", 3)
    for tp in (P0, P1, P2):
        cli.cluster.produce(tp, 10, timestamp_ms=400_000)
    cli.cluster.leave_gap(P0)
    cli.cluster.commit("board", {P0: 10, P1: 10})
    cli.join("board", "flights")
    # Alice is reading 6 of the 10; bob, who had P0 before, was not done with what she has read since.
    for tp, name, until in ((P2, "alice", 6), (P0, "bob", 11)):
        entry = MemberEntry(name, name, 0, None, reading_until=until)
        cli.cluster.commit(members_group_of("board"), {tp: 0}, entry.encode())
    cli.cluster.commit("stopped", {P0: 4, P1: 1, TopicPartition("gone", 0): 7})
    cli.cluster.delete_records(P1, 3)
    return cli


def check(name: str, text: str) -> None:
    """Compares with what is written down; ``UPDATE_GOLDEN=1`` writes it down."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("output", ["table", "json", "yaml", "csv"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", ["groups", "list"]),
        ("describe", ["groups", "describe", "board", "stopped"]),
        ("describe-members", ["groups", "describe", "--all-groups", "--members"]),
    ],
)
def test_every_format_to_the_letter(board: CommandLine, name: str, arguments: list[str], output: str) -> None:
    result = board(*arguments, "-o", output)
    assert (result.code, result.err) == (0, "")
    check(f"{name}.{output}", result.out)


def test_G17_partitions_of_a_denied_topic_are_not_deleted(board: CommandLine) -> None:
    board.cluster.rejections["flights"] = NotAuthorized("It is denied.", remedy="Grant Describe.")
    (group,) = json.loads(board("groups", "describe", "board", "-o", "json").out)["groups"]
    assert [(p["lag"], p["error"]) for p in group["partitions"]] == [(None, "not_authorized")] * 3
    assert "not authorized" in board("groups", "describe", "board").out
    result = board("groups", "reset", "stopped", "--topic", "flights:0", "--to-earliest", "--execute")
    assert (result.code, "not authorized to describe 'flights'" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("error", "detail"), [(PartitionError.NO_LEADER, "no leader"), (PartitionError.NOT_AUTHORIZED, "not authorized")]
)
def test_O3_the_lag_of_a_group_with_an_unknown_partition_is_not_exact(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch, error: PartitionError, detail: str
) -> None:
    bounds = board.admin.bounds
    monkeypatch.setattr(board.admin, "bounds", lambda tps: {**bounds(tps), **({P1: error} if P1 in tps else {})})
    board.cluster.commit("billing", {P0: 10, P1: 6})
    for command in (("groups", "describe", "billing"), ("groups", "watch", "billing", "--count", "1")):
        (group,) = json.loads(board(*command, "-o", "json").out)["groups"]
        found = [group[name] for name in ("lag", "lag_exact", "open", "time_lag_ms")]
        assert found == [0, False, None, None], command
        assert [p["lag"] for p in group["partitions"]] == [0, None]
        assert "0 + unknown" in board(*command).out
    result = board("groups", "describe", "billing")
    assert result.err == "The lag of some partitions is unknown (DETAIL): it is not in the lag of their group.\n"
    assert detail in result.out
    board.cluster.commit("archive", {TopicPartition("gone", 0): 3, P0: 10})
    result = board("groups", "describe", "archive", "-o", "json")
    (group,) = json.loads(result.out)["groups"]
    assert (group["lag"], group["lag_exact"], group["time_lag_ms"], result.err) == (0, True, 0, "")


def test_json_yaml_and_csv_have_the_same_content(board: CommandLine) -> None:
    from_json = json.loads(board("groups", "describe", "--all-groups", "-o", "json").out)
    assert from_json == yaml.safe_load(board("groups", "describe", "--all-groups", "-o", "yaml").out)
    rows = list(csv.DictReader(io.StringIO(board("groups", "describe", "--all-groups", "-o", "csv").out)))
    flat = [(g["group"], p) for g in from_json["groups"] for p in g["partitions"]]
    assert [(r["group"], r["topic"], r["partition"], r["lag"]) for r in rows] == [
        (g, p["topic"], str(p["partition"]), "" if p["lag"] is None else str(p["lag"])) for g, p in flat
    ]


def test_the_lag_of_a_share_group_is_unknown(board: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCluster, "group_ids", lambda _: ["queue"])
    monkeypatch.setattr(FakeCluster, "describe", lambda _, name: GroupDescription(name, "Stable", "share", "share"))
    (group,) = json.loads(board("groups", "describe", "queue", "-o", "json").out)["groups"]
    assert [group[name] for name in ("type", "lag", "lag_exact", "open")] == ["share", None, None, None]
    assert "lag" not in board("groups", "describe", "queue").out.splitlines()[0]


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", '"', ",", "\r"])
def test_csv_can_be_read_whatever_a_cell_contains(
    board: CommandLine, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(FakeCluster, "describe", lambda _, name: GroupDescription(name, text))
    out = board("groups", "list", "-o", "csv").out
    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert [row["state"] for row in rows] == [text] * 2


def test_O3_lag_in_time_is_looked_up_on_request(board: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def times(*arguments: str) -> tuple[list[object], str]:
        result = board("groups", "describe", "stopped", "-o", "json", *arguments)
        (group,) = json.loads(result.out)["groups"]
        return [p["time_lag_ms"] for p in group["partitions"] if p["lag"]], result.err

    assert times() == ([600_000, 600_000], "")
    assert times("--no-time-lag") == ([None, None], "")
    monkeypatch.setattr(describing, "READS_UNASKED", 1)
    assert times() == (
        [None, None],
        "The time lag was not computed: it requires too many reads. --time-lag computes it.\n",
    )
    assert times("--time-lag") == ([600_000, 600_000], "")


def test_lists_can_be_narrowed(board: CommandLine) -> None:
    def names(*arguments: str) -> list[str]:
        return [g["group"] for g in json.loads(board("groups", "list", "-o", "json", *arguments).out)["groups"]]

    assert names() == ["board", "stopped"]
    assert names("--state", "empty") == ["stopped"]
    assert names("--state", "stable", "--state", "Empty", "--type", "classic") == ["board", "stopped"]
    assert names("--type", "consumer") == []


@pytest.fixture
def recorded(board: CommandLine) -> CommandLine:
    """The same groups; members of the one that stopped left metadata entries, and it was reset while they were running."""
    for name in (members_group_of("stopped"), resets_group_of("stopped")):
        board.cluster.commit(name, {P0: 4}, "{}")
    return board


def test_O1_metadata_groups_are_listed_on_request(recorded: CommandLine) -> None:
    def names(*arguments: str) -> list[str]:
        return [g["group"] for g in json.loads(recorded(*arguments, "-o", "json").out)["groups"]]

    assert names("groups", "list") == ["board", "stopped"]
    every = ["board", "board.streamgroups", "stopped", "stopped.streamgroups", "stopped.streamgroups.resets"]
    assert names("groups", "list", "--internal") == every
    assert names("groups", "list", "--internal", "--state", "stable") == ["board"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "describe", "--all-groups", "-o", "csv"],
        ["groups", "export", "--all-groups"],
        ["groups", "watch", "--count", "1"],
    ],
)
def test_O1_all_groups_are_those_of_readers(recorded: CommandLine, arguments: list[str]) -> None:
    shown = recorded(*arguments).out
    assert "stopped" in shown
    assert ".streamgroups" not in shown


def test_a_metadata_group_can_be_named(recorded: CommandLine) -> None:
    name = members_group_of("stopped")
    (group,) = json.loads(recorded("groups", "describe", name, "-o", "json").out)["groups"]
    assert [p["committed_offset"] for p in group["partitions"]] == [4]
    assert recorded("groups", "export", name).out == "flights,0,4\n"


def test_only_lag(board: CommandLine) -> None:
    described = json.loads(board("groups", "describe", "--all-groups", "--only-lag", "-o", "json").out)
    shown = {g["group"]: [(p["topic"], p["partition"]) for p in g["partitions"]] for g in described["groups"]}
    assert shown == {"board": [("flights", 2)], "stopped": [("flights", 0), ("flights", 1), ("gone", 0)]}


def test_lag_in_time_can_be_left_out(board: CommandLine) -> None:
    result = board("groups", "describe", "stopped", "--no-time-lag", "-o", "json")
    (group,) = json.loads(result.out)["groups"]
    assert [p["time_lag_ms"] for p in group["partitions"]] == [None, None, None]
    assert group["time_lag_ms"] is None
    assert result.err == ""


def test_O3_a_lag_that_was_not_counted_is_marked(board: CommandLine) -> None:
    result = board("groups", "describe", "stopped", "--count-limit", "0", "--no-time-lag")
    assert "lag <=14" in result.out
    assert [line.split()[4:6] for line in result.out.splitlines()[2:4]] == [["<=7", "-"], ["<=7", "-"]]
    assert "upper bound" in result.err
    assert "--count-limit" in result.err
    rows = csv.DictReader(io.StringIO(board("groups", "describe", "stopped", "--count-limit", "0", "-o", "csv").out))
    assert [(r["lag"], r["lag_exact"], r["open"]) for r in rows] == [
        ("7", "false", ""),
        ("7", "false", ""),
        ("", "", ""),
    ]


def test_O3_records_of_open_transactions_are_distinguished(board: CommandLine) -> None:
    transaction = board.cluster.begin_transaction()
    board.cluster.produce(P1, 5, transaction=transaction)
    result = board("groups", "describe", "board")
    assert "lag 10, time lag 10m, 5 in open transactions" in result.out
    (group,) = json.loads(board("groups", "describe", "board", "-o", "json").out)["groups"]
    assert [(p["lag"], p["open"], p["lag_exact"]) for p in group["partitions"]] == [
        (0, 0, True),
        (0, 5, True),
        (10, 0, True),
    ]
    assert (group["lag"], group["open"], group["lag_exact"]) == (10, 5, True)


def test_a_group_that_does_not_exist_is_an_error_beside_those_that_do(board: CommandLine) -> None:
    result = board("groups", "describe", "board", "bord", "-o", "csv")
    assert result.code == 1
    assert result.err == "Error: Group 'bord' does not exist. Did you mean 'board'? See: streamgroups groups list.\n"
    assert result.out.count("\nboard,") == 3


@pytest.mark.parametrize("arguments", [[], ["board", "--all-groups"]])
def test_groups_are_selected_in_one_way(board: CommandLine, arguments: list[str]) -> None:
    assert board("groups", "describe", *arguments).code == 2


def test_a_cluster_that_does_not_answer(board: CommandLine) -> None:
    board.cluster.reachable = False
    result = board("groups", "list")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: ")


def test_verbose_prints_the_durations_on_standard_error(board: CommandLine) -> None:
    result = board("groups", "list", "-o", "json", "--verbose")
    json.loads(result.out)
    assert result.err.startswith("1 request in 0.")
    assert result.err.endswith(" s: Metadata 1.\n")


def test_a_malformed_setting_is_a_usage_error_that_repeats_no_value(board: CommandLine) -> None:
    result = board("groups", "list", "--kafka", "hunter2")
    assert (result.code, "hunter2" in result.err) == (2, False)
    assert board("groups", "list", "--kafka", "sesion.timeout.ms=1").code == 2


def test_names_cannot_move_the_cursor_of_a_terminal(board: CommandLine) -> None:
    board.admin.alter_offsets("evil\x1b[2J\n", {P0: Committed(0)})
    out = board("groups", "list").out
    assert "\x1b" not in out
    assert "evil\\x1b[2J\\x0a" in out


def test_an_empty_cluster_has_an_empty_list(cli: CommandLine) -> None:
    assert cli("groups", "list").out == "GROUP  STATE  TYPE  PROTOCOL-TYPE  COORDINATOR\n"
    assert cli("groups", "describe", "--all-groups", "-o", "json").out == '{"schema_version": 1, "groups": []}\n'


def test_help_imports_neither_spark_nor_a_client() -> None:
    code = (
        "import sys; sys.argv = ['streamgroups', 'groups', 'describe', '--help']\n"
        "from streamgroups_cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('pyspark', 'confluent_kafka', 'kafka', 'pyarrow', 'pandas', 'yaml', 'prometheus_client')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout.splitlines()[-1] == "[]"
    assert "--bootstrap-server" in printed.stdout


def test_listing_imports_neither_spark_nor_what_spark_needs() -> None:
    code = (
        "import sys; sys.argv = ['streamgroups', 'groups', 'list', '-b', '127.0.0.1:1', '--timeout', '100ms']\n"
        "from streamgroups_cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'rich.table') if m in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.splitlines()[-1] == "[]"
    assert "Error: The cluster at 127.0.0.1:1 could not be reached" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "stoped"],
        ["delete", "stoped"],
        ["export", "stoped"],
        ["export", "stoped", "--to-spark-options"],
        ["copy", "stoped", "new"],
        ["delete-offsets", "stoped", "--topic", "flights"],
    ],
)
def test_a_group_with_a_similar_name_is_in_the_remedy(recorded: CommandLine, arguments: list[str]) -> None:
    result = recorded("groups", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("Did you mean 'stopped'? See: streamgroups groups list.\n")
    assert "Did you mean" not in recorded("groups", "describe", "something-else").err


def test_a_missing_address_names_all_ways_to_set_it(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match=r"--bootstrap-server .*STREAMGROUPS_BOOTSTRAP_SERVER.*--context"):
        command_config(None)


def test_the_help_of_the_key_separator_has_one_backslash(cli: CommandLine) -> None:
    text = cli("topics", "produce", "--help").out
    assert "\\t for a tab" in text.replace("\n", " ")
    assert "\\\\t" not in text
