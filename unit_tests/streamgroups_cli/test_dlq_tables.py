"""P4, P5: ``streamgroups dlq`` with a table of PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from streamgroups.dlq.letter import Origin, letter_id
from streamgroups.dlq.redrive import RedrivenRecord, redriven_topic
from streamgroups.dlq.table_letters import Row
from streamgroups.errors import SinkUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.dlq import queue
from streamgroups_cli.dlq import queue as queues
from streamgroups_cli.exits import ExitCode
from unit_tests.cli_runner import CommandLine
from unit_tests.connections_file import SECRET, write_connections

TABLE, QUEUE = "public.letters", "airport.public.letters"
CONNINFO = "service=airport"


@dataclass
class FakeTable:
    """A table of dead letters in memory."""

    found: list[dict[str, object]] = field(default_factory=list)
    opened: list[tuple[str, str]] = field(default_factory=list)
    table: str = TABLE
    queue: str = QUEUE

    def find(self, conninfo: str, table: str) -> FakeTable:
        self.opened.append((conninfo, table))
        return self

    def rows(self, ids: Collection[str] = ()) -> Iterator[Row]:
        yield from [row for row in self.found if not ids or row["id"] in ids]

    def delete(self, letters: Sequence[tuple[str, int]]) -> int:
        kept = [row for row in self.found if (row["id"], row["failed_at_ms"]) not in letters]
        count = len(self.found) - len(kept)
        self.found = kept
        return count


def row(offset: int, *, attempt: int = 1, group: str = "board") -> dict[str, object]:
    origin = Origin(TopicPartition("orders", 0), offset)
    return {
        "id": letter_id(group, "decode", origin),
        "group_id": group,
        "query": "prices",
        "failed_at_ms": offset * 1_000,
        "attempt": attempt,
        "step": "decode",
        "error_class": "ValueError",
        "error": "no JSON",
        "details": "{}",
        "topic": "orders",
        "partition": 0,
        "offset": offset,
        "timestamp_ms": 5,
        "key": b"k",
        "value": b"%d" % offset,
        "headers": "[]",
    }


IDS = [f"board/orders/0/{it}/decode" for it in range(3)]


@pytest.fixture
def table(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> FakeTable:
    cli.cluster.create_topic("orders")
    for group_id in ("board", "test"):
        cli.admin.alter_offsets(group_id, {TopicPartition("orders", 0): Committed(0)})
    fake = FakeTable([row(0), row(1), row(2, attempt=5)])
    monkeypatch.setattr(queue, "find_table", fake.find)

    class Redrives:
        def send(self, records: Sequence[RedrivenRecord]) -> None:
            for it in records:
                cli.cluster.produce(TopicPartition(it.topic, 0), key=it.key, value=it.value, headers=it.headers)
                cli.cluster.produce(TopicPartition(redriven_topic(QUEUE), 0), key=it.letter_id.encode(), value=b"{}")

    @contextmanager
    def open_redrive(_cluster: Cluster, queue: str, _timeout: str) -> Iterator[Redrives]:
        assert queue == QUEUE
        if redriven_topic(queue) not in cli.cluster.topics():
            cli.cluster.create_topic(redriven_topic(queue), 1)
        yield Redrives()

    monkeypatch.setattr(queues, "open_redrive", open_redrive)
    return fake


def states(cli: CommandLine) -> list[str]:
    document = json.loads(cli("dlq", "list", TABLE, "--postgres", CONNINFO, "-o", "json").out)
    return [it["state"] for it in document["letters"]]


def test_P4_the_letters_of_a_table_are_listed(cli: CommandLine, table: FakeTable) -> None:
    result = cli("dlq", "list", TABLE, "--postgres", CONNINFO, "-o", "json", "--source", "orders")
    document = json.loads(result.out)
    assert [it["id"] for it in document["letters"]] == IDS
    assert (document["dlq"], document["letters"][0]["dlq_table"]) == (TABLE, TABLE)
    assert "dlq_offset" not in document["letters"][0]
    assert table.opened == [(CONNINFO, TABLE)]
    shown = cli("dlq", "show", TABLE, IDS[1], "--postgres", CONNINFO)
    assert (shown.code, "table public.letters" in shown.out, IDS[0] in shown.out) == (0, True, False)
    [counts] = json.loads(cli("dlq", "stats", TABLE, "--postgres", CONNINFO, "-o", "json").out)["counts"]
    assert (counts["letters"], counts["waiting"], counts["parked"]) == (3, 2, 1)
    lines = cli("dlq", "export", TABLE, "--postgres", CONNINFO).out.splitlines()
    assert [json.loads(it)["id"] for it in lines] == IDS


def test_P4_rows_that_are_no_letters_are_reported(cli: CommandLine, table: FakeTable) -> None:
    table.found.append(row(7) | {"step": None})
    result = cli("dlq", "list", TABLE, "--postgres", CONNINFO)
    assert (
        "1 record of 'public.letters' is no dead letter of this library, such as a row of table public.letters "
        "(column 'step' is null)." in result.err
    )


@pytest.mark.parametrize("conninfo", ["airport flights", "host=db password=hunter2 hunter2"])
def test_P4_a_malformed_connection_string_is_a_usage_error_and_stays_hidden(cli: CommandLine, conninfo: str) -> None:
    result = cli("dlq", "list", TABLE, "--postgres", conninfo)
    assert result.code == ExitCode.USAGE
    assert "Option '--postgres' is empty, or libpq cannot parse it" in result.err
    assert "hunter2" not in result.err


def test_the_database_of_a_connection(
    cli: CommandLine, table: FakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_connections(tmp_path, monkeypatch)
    result = cli("dlq", "list", TABLE, "--postgres", "warehouse")
    assert result.code == 0, result.err
    [(conninfo, _)] = table.opened
    assert conninfo_to_dict(conninfo)["password"] == SECRET
    assert SECRET not in result.out + result.err
    rejected = cli("dlq", "list", TABLE, "--postgres", "warehose")
    assert rejected.code == ExitCode.USAGE
    assert "Did you mean 'warehouse'?" in rejected.err


def test_P5_letters_of_a_table_are_redriven_once_and_purged(cli: CommandLine, table: FakeTable) -> None:
    where = (TABLE, "--postgres", CONNINFO)
    assert "There is nothing to do." in cli("dlq", "purge", *where, "--execute").err
    plan = cli("dlq", "redrive", *where, "-o", "json")
    assert [it["to"] for it in json.loads(plan.out)["letters"]] == ["orders", "orders", None]
    assert "2 letters redriven." in cli("dlq", "redrive", *where, "--execute").err
    assert "There is nothing to do." in cli("dlq", "redrive", *where, "--execute").err
    assert [it.value for it in cli.admin.read({TopicPartition("orders", 0): 0}, None)] == [b"0", b"1"]
    assert states(cli) == ["redriven", "redriven", "parked"]
    purge = cli("dlq", "purge", *where, "-o", "json")
    assert "Nothing was changed: this is the plan." in purge.err
    assert json.loads(purge.out) == {
        "schema_version": 1,
        "dry_run": True,
        "dlq": TABLE,
        "deleted": 2,
        "waiting": 0,
        "redriven": 2,
        "parked": 0,
        "no_record": 0,
    }
    assert len(table.found) == 3
    assert "2 letters deleted." in cli("dlq", "purge", *where, "--execute").err
    assert states(cli) == ["parked"]
    result = cli("dlq", "purge", *where, "--include-waiting", "--before", "1970-01-01T00:00:02Z", "--execute")
    assert "There is nothing to do." in result.err
    assert "1 letter deleted." in cli("dlq", "purge", *where, "--include-waiting", "--execute").err


def test_P5_tables_with_the_same_names_on_two_servers_share_only_letters_of_the_same_records(
    cli: CommandLine, table: FakeTable
) -> None:
    where = (TABLE, "--postgres", CONNINFO)
    assert "2 letters redriven." in cli("dlq", "redrive", *where, "--execute").err
    # Another server: a copy of one letter, and a letter of the same offset of another group.
    table.found = [row(0), row(1, group="test")]
    assert states(cli) == ["redriven", "waiting"]
    assert "1 letter redriven." in cli("dlq", "redrive", *where, "--execute").err
    assert states(cli) == ["redriven", "redriven"]


def test_P5_a_topic_with_the_name_of_the_table_is_a_target(cli: CommandLine, table: FakeTable) -> None:
    cli.cluster.create_topic(TABLE)
    assert cli("dlq", "redrive", TABLE, "--postgres", CONNINFO, "--to", TABLE).code == 0
    result = cli("dlq", "redrive", TABLE, "--postgres", CONNINFO, "--to", redriven_topic(QUEUE))
    assert (result.code, "is a topic of the queue itself" in result.err) == (ExitCode.USAGE, True)


def test_P4_an_unreachable_database_is_an_error(
    cli: CommandLine, table: FakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(_ids: Collection[str] = ()) -> Iterator[Row]:
        raise SinkUnreachable("PostgreSQL cannot be reached.")

    monkeypatch.setattr(table, "rows", rows)
    assert cli("dlq", "list", TABLE, "--postgres", CONNINFO).code == ExitCode.ERROR
