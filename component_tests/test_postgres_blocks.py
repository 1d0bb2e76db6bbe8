"""X2: rows that a table can store whatever their values are staged in blocks. The result is that of single rows."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from component_tests.postgres_process import GROUP, P0, execute, offsets, open_at, sink, sink_of_role, stage, token
from streamgroups.errors import LedgerConflict, NotAuthorized, RecordRejected, SinkUnreachable, StageLost
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres.ledger import PostgresLedger
from streamgroups_sinks.postgres.stages import PostgresStaged
from streamgroups_sinks.postgres.table_names import TableName


def rows(conninfo: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        return sorted(connection.execute("SELECT * FROM flights").fetchall())


def commit(conninfo: str, staged: list[PostgresStaged]) -> None:
    to = sink(conninfo)
    open_at(to, {P0: 0})
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, staged)


@pytest.mark.parametrize(
    ("statements", "settings", "in_blocks"),
    [
        ([], {}, True),
        (["TABLE flights (id int8 PRIMARY KEY, name varchar NOT NULL)"], {}, True),
        (["TABLE flights (id int8, name text) PARTITION BY RANGE (id)", "TABLE p PARTITION OF flights DEFAULT"], {}, True),
        (["TABLE flights (n bigserial, id int8, name text, at timestamptz DEFAULT now())"], {}, True),
        # The server decides about values.
        (["TABLE flights (id int8, name varchar(5))"], {}, False),
        (["TABLE flights (id int8, name text CHECK (name <> ''))"], {}, False),
        (["DOMAIN name AS text CHECK (VALUE <> '')", "TABLE flights (id int8, name name)"], {}, False),
        (["TABLE flights (id int4, name text)"], {}, False),
        # A COPY ignores rules.
        (["TABLE flights (id int8, name text)", "RULE r AS ON INSERT TO flights WHERE NEW.id < 0 DO INSTEAD NOTHING"], {}, False),
        # Rows have numbers.
        ([], {"isolate_violations": True}, False),
        ([], {"mode": "upsert", "key": ("id",)}, False),
    ],
)  # fmt: skip
def test_tables_whose_rows_are_staged_in_blocks(
    postgres: str, statements: list[str], settings: dict[str, Any], in_blocks: bool
) -> None:
    execute(postgres, *(f"CREATE {it}" for it in statements))
    to = sink(postgres, **settings)
    records = pa.record_batch({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})
    begun = to.begin(records.schema, token())
    assert begun.in_blocks is in_blocks
    commit(postgres, [to.write(begun, iter([records.slice(0, 2)]), 5), to.write(begun, iter([records.slice(2)]), 3)])
    with psycopg.connect(postgres) as connection:
        found = connection.execute("SELECT id, name FROM flights ORDER BY id").fetchall()
    assert found == [(1, "a"), (2, "b"), (3, "c")]


def test_a_policy_of_the_table_applies(postgres: str, role: str) -> None:
    execute(
        postgres,
        "CREATE SCHEMA own",
        "CREATE TABLE own.flights (id int8)",
        "ALTER TABLE own.flights ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY positive ON own.flights FOR INSERT WITH CHECK (id > 0)",
    )
    to = sink_of_role(postgres, role)
    rejected, accepted = (stage(to, pa.record_batch({"id": numbers})) for numbers in ([1, -1], [1, 2]))
    with to.open(GROUP) as ledger:
        with pytest.raises(NotAuthorized, match="row-level security"):
            commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, rejected)
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, accepted)
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT id FROM own.flights").fetchall() == [(1,), (2,)]


def test_rows_of_any_size(postgres: str) -> None:
    sizes = [0, 100, 7_990, 8_000, 1_500_000, 3, 3_000_000, 12, *[500] * 3_000]
    records = pa.record_batch({"id": range(len(sizes)), "data": [b"%d" % (i % 10) * n for i, n in enumerate(sizes)]})
    to = sink(postgres)
    begun = to.begin(records.schema, token())
    to.write(begun, iter([records]), 9)
    first = to.write(begun, iter([records.slice(0, 5), records.slice(5, 1_000)]), 0)
    commit(postgres, [first, to.write(begun, iter([records.slice(1_005)]), 1)])
    assert rows(postgres) == [(i, b"%d" % (i % 10) * n) for i, n in enumerate(sizes)]


_DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("arrow_type", "first", "last"),
    [
        # Days and microseconds since 1970. PostgreSQL's first moment is 4714-11-24 BC.
        (pa.date32(), -2_440_588, 2_145_042_905),
        (pa.time64("us"), 0, _DAY_US),
        (pa.timestamp("us"), -2_440_588 * _DAY_US, 9_223_371_331_199_999_999 + 10_957 * _DAY_US),
        (pa.timestamp("us", "UTC"), -2_440_588 * _DAY_US, 9_223_371_331_199_999_999 + 10_957 * _DAY_US),
    ],
    ids=str,
)
def test_the_first_and_the_last_time(postgres: str, arrow_type: pa.DataType, first: int, last: int) -> None:
    integer = pa.int32() if arrow_type == pa.date32() else pa.int64()
    to = sink(postgres)
    begun = to.begin(pa.schema({"at": arrow_type}), token())
    last = min(last, 2**63 - 1)

    def records(*numbers: int) -> pa.RecordBatch:
        return pa.record_batch({"at": pa.array(numbers, integer).view(arrow_type)})

    commit(postgres, [to.write(begun, iter([records(first, last)]), 0)])
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT count(*) FROM flights WHERE at IS NOT NULL").fetchone() == (2,)
    for outside in (first - 1, *([last + 1] if last < 2**63 - 1 else [])):
        with pytest.raises(RecordRejected, match="column 'at' in row 2 of a task"):
            to.write(begun, iter([records(first, outside)]), 1)


def test_a_commit_needs_only_one_connection(postgres: str, role: str) -> None:
    """A pool of one session, or a limit of the user, leaves no second connection to read the stage."""
    execute(postgres, "CREATE SCHEMA own", "CREATE TABLE own.flights (id int8, data bytea)")
    to = sink_of_role(postgres, role)
    sizes = [0, 100, 8_000, 500_000, *[500] * 2_000]
    records = pa.record_batch({"id": range(len(sizes)), "data": [b"%d" % (i % 10) * n for i, n in enumerate(sizes)]})
    staged = stage(to, records.slice(0, 700), records.slice(700))
    assert staged[0].stage.in_blocks
    with to.open(GROUP) as ledger:
        execute(postgres, f"ALTER ROLE {role} CONNECTION LIMIT 1")
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, staged)
        assert ledger.positions([P0]) == {P0: 1}
    with psycopg.connect(postgres) as connection:
        found = connection.execute("SELECT id, data FROM own.flights ORDER BY id").fetchall()
    assert found == [(i, b"%d" % (i % 10) * n) for i, n in enumerate(sizes)]


def test_a_stage_without_some_of_its_blocks_is_lost(postgres: str) -> None:
    to = sink(postgres)
    open_at(to, {P0: 0})
    staged = stage(to, *[offsets(OffsetRange(P0, 0, 5)), offsets(OffsetRange(P0, 5, 10))])
    with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("DELETE FROM {} WHERE attempt = 1").format(staged[0].stage.name.identifier))
    with pytest.raises(StageLost, match="it contains 5 of 10 rows"):
        commit(postgres, staged)
    assert rows(postgres) == []


def test_a_driver_that_hangs_in_a_copy_loses_its_lock_and_writes_nothing(postgres: str) -> None:
    to, range_ = sink(postgres), OffsetRange(P0, 0, 10)
    open_at(to, {P0: 0})
    staged = stage(to, offsets(range_))
    write = psycopg.Copy.write

    def next_owner(idle_ms: int) -> PostgresLedger:
        return PostgresLedger(postgres, TableName(None, "streamgroups_ledger"), GROUP, lock_ms=200, idle_ms=idle_ms)

    def hang(copying: psycopg.Copy, data: Any) -> None:
        with (
            closing(next_owner(60_000)) as early,
            pytest.raises(LedgerConflict),
            early.transaction() as transaction,
        ):
            transaction.positions([P0])
        # The session is not idle, so only the next owner ends it.
        with closing(next_owner(100)) as ledger, ledger.transaction() as transaction:
            assert transaction.positions([P0]) == {P0: 0}
            transaction.advance({P0: 3})
        write(copying, data)

    with to.open(GROUP) as ledger:
        with mock.patch.object(psycopg.Copy, "write", hang), pytest.raises(SinkUnreachable):
            commit_batch(ledger, {GROUP: [range_]}, staged)
        assert (rows(postgres), ledger.positions([P0])) == ([], {P0: 3})
