"""P4, X9: single rows that a UNIQUE, FOREIGN KEY or EXCLUDE constraint rejects are found, and all others are written."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from component_tests.postgres_process import GROUP, P0, execute, open_at, sink, stage
from streamgroups.errors import RecordRejected, SinkUnreachable, StageLost
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.ledgers.staging import Isolated
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres import bad_row_search, merging
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.stages import PostgresStaged

UPSERT: dict[str, Any] = {"mode": "upsert", "key": ("id",)}
PLENTY = 1_000


def rows(conninfo: str, table: str = "flights") -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        return sorted(connection.execute(f"SELECT * FROM {table}").fetchall())


def commit(to: PostgresSink, staged: Any) -> None:
    with to.open(GROUP) as ledger:
        at = ledger.positions([P0])[P0]
        commit_batch(ledger, {GROUP: [OffsetRange(P0, at, at + 1)]}, staged)


def isolated(to: PostgresSink, *tasks: pa.RecordBatch) -> Isolated:
    """Writes a batch that the table rejects, finds its rejected rows, and writes the others."""
    open_at(to, {P0: 0})
    staged = stage(to, *tasks)
    before = rows(to.conninfo)
    with pytest.raises(RecordRejected):
        commit(to, staged)
    found = to.isolate(staged, PLENTY)
    assert rows(to.conninfo) == before, "isolation changes nothing"
    assert found.n_rows + len(found.rejected) == sum(len(it) for it in tasks)
    commit(to, found.staged)
    return found


def values(found: Isolated) -> list[tuple[Any, ...]]:
    return [tuple(row.values.values()) for row in found.rejected]


def ids(*numbers: int, **others: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": numbers, **others})


@pytest.mark.parametrize(
    ("tables", "settings", "tasks", "expected", "rejected", "message"),
    [
        pytest.param(
            ["flights (id int8 UNIQUE)", "x AS SELECT 1; INSERT INTO flights VALUES (3)"],
            {},
            [ids(1, 2, 3), ids(4, 3, 5)],
            [(1,), (2,), (3,), (4,), (5,)],
            [(3,), (3,)],
            r"unique constraint .*Key \(id\)=\(3\) already exists",
            id="UNIQUE and an earlier batch",
        ),
        pytest.param(
            ["flights (id int8 UNIQUE, n int8)"],
            {},
            [ids(1, 2, n=[1, 2]), ids(2, 1, 7, n=[3, 4, 5])],
            [(1, 1), (2, 2), (7, 5)],
            [(2, 3), (1, 4)],
            "unique constraint",
            id="of equal rows in a batch the first is written",
        ),
        pytest.param(
            ["airports (code text PRIMARY KEY)", "flights (id int8, airport text REFERENCES airports)"],
            {},
            [ids(1, 2, 3, airport=["JFK", None, "LGA"])],
            [(2, None)],
            [(1, "JFK"), (3, "LGA")],
            r"foreign key constraint .*Key \(airport\)=\(JFK\) is not present",
            id="FOREIGN KEY",
        ),
        pytest.param(
            ["flights (id int8, n int8, EXCLUDE USING gist (int8range(id, id + n) WITH &&))"],
            {},
            [ids(1, 4, 5, n=[4, 2, 1])],
            [(1, 4), (5, 1)],
            [(4, 2)],
            "exclusion constraint",
            id="EXCLUDE",
        ),
        pytest.param(
            ["flights (id int8 UNIQUE DEFERRABLE INITIALLY DEFERRED)"],
            {},
            [ids(1, 1, 2)],
            [(1,), (2,)],
            [(1,)],
            "unique constraint",
            id="a deferred constraint",
        ),
        pytest.param(
            ["flights (id int8 PRIMARY KEY, tail text UNIQUE)"],
            UPSERT,
            [ids(1, 2, tail=["N1", "N2"]), ids(3, 2, 4, tail=["N1", "N3", "N2"])],
            [(1, "N1"), (2, "N3"), (4, "N2")],
            [(3, "N1")],
            "flights_tail_key",
            id="another unique column of an upsert",
        ),
        pytest.param(
            ["parents (id int8 PRIMARY KEY)", "flights (id int8 PRIMARY KEY, of int8 REFERENCES parents)"],
            UPSERT | {"delete_marker": "gone"},
            [ids(1, 2, of=[None, 9], gone=[False, False]), ids(1, of=pa.array([None], pa.int64()), gone=[True])],
            [],
            [(2, 9, False)],
            "foreign key",
            id="an upsert that deletes",
        ),
        pytest.param(
            ["flights (id int8, n int8 DEFAULT 0, CHECK (n + id < 9) NO INHERIT)", "x AS SELECT 1"],
            {},
            [ids(1, 9, 2)],
            [(1, 0), (2, 0)],
            [(9,)],
            "check constraint",
            id="CHECK with a column that the records lack",
        ),
    ],
)
def test_P4_the_rows_that_violate_a_constraint_are_isolated(
    postgres: str,
    tables: list[str],
    settings: dict[str, Any],
    tasks: list[pa.RecordBatch],
    expected: list[tuple[Any, ...]],
    rejected: list[tuple[Any, ...]],
    message: str,
) -> None:
    execute(postgres, *(f"CREATE TABLE {table}" for table in tables))
    to = sink(postgres, isolate_violations=True, **settings)
    found = isolated(to, *tasks)
    assert values(found) == rejected
    with pytest.raises(RecordRejected, match=message):
        raise found.rejected[0].error
    assert rows(postgres) == expected


def test_P4_a_batch_without_violations_is_one_piece_and_an_empty_one_none(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 UNIQUE)")
    to = sink(postgres, isolate_violations=True)
    open_at(to, {P0: 0})
    staged = stage(to, ids(1, 2), ids(3))
    found = to.isolate(staged, PLENTY)
    assert (len(found.staged[0].pieces), found.n_rows, found.rejected) == (1, 3, ())
    assert to.isolate([PostgresStaged(staged[0].stage, 0, 0)], PLENTY) == Isolated([], 0, ())


def test_P4_the_search_ends_above_the_limit(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 UNIQUE)")
    to = sink(postgres, isolate_violations=True)
    open_at(to, {P0: 0})
    assert len(to.isolate(stage(to, ids(*[1] * 300)), 10).rejected) == 11


def test_P4_isolation_can_be_repeated_when_another_transaction_has_written_meanwhile(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 UNIQUE)", "INSERT INTO flights VALUES (1)")
    to = sink(postgres, isolate_violations=True)
    open_at(to, {P0: 0})
    staged = stage(to, ids(1, 2, 3))
    first = to.isolate(staged, PLENTY)
    execute(postgres, "INSERT INTO flights VALUES (3)")
    with pytest.raises(RecordRejected):
        commit(to, first.staged)
    second = to.isolate(staged, PLENTY)
    commit(to, second.staged)
    assert (values(first), values(second)) == ([(1,)], [(1,), (3,)])
    assert rows(postgres) == [(1,), (2,), (3,)]


def test_P4_a_rejected_deletion_keeps_the_values_that_the_table_does_not_need(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE flights (id int8 PRIMARY KEY, kept date, CHECK (id > 0))",
        "CREATE TABLE seats (of int8 REFERENCES flights)",
        "INSERT INTO flights VALUES (1), (2)",
        "INSERT INTO seats VALUES (1)",
    )
    to = sink(postgres, isolate_violations=True, mode="upsert", key=("id",), delete_marker="gone")
    schema = pa.schema([("id", pa.int64()), ("kept", pa.date32()), ("gone", pa.bool_())])
    # PostgreSQL has no such date, and Python neither.
    deletions = pa.record_batch(
        [pa.array([1, 2]), pa.array([2**31 - 1] * 2, pa.int32()).cast(pa.date32()), [True] * 2], schema=schema
    )
    open_at(to, {P0: 0})
    found = to.isolate(stage(to, deletions), PLENTY)
    assert found.rejected[0].record == pa.Table.from_batches([deletions.slice(0, 1)])
    assert len(found.rejected) == 1


def test_P4_a_locked_table_is_no_rejected_row(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 UNIQUE)")
    to = sink(postgres, isolate_violations=True)
    staged = stage(to, ids(1))
    with psycopg.connect(postgres) as other:
        other.execute("LOCK TABLE flights IN ACCESS EXCLUSIVE MODE")
        impatient = sink(make_conninfo(postgres, options="-c statement_timeout=100"), isolate_violations=True)
        with pytest.raises(SinkUnreachable, match="statement timeout"):
            impatient.isolate(staged, PLENTY)


def test_P4_a_stage_that_a_crash_has_emptied_is_no_rejected_row(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 UNIQUE)")
    to = sink(postgres, isolate_violations=True)
    staged = stage(to, ids(1, 2))
    execute(postgres, f"TRUNCATE {staged[0].stage.name.quoted}")
    with pytest.raises(StageLost, match="0 of 2 rows"):
        to.isolate(staged, PLENTY)


def test_P4_the_number_of_statements_is_limited(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 UNIQUE)", "INSERT INTO flights VALUES (77), (512)")
    to = sink(postgres, isolate_violations=True)
    open_at(to, {P0: 0})
    staged = stage(to, ids(*range(600)), ids(*range(600, 1_000)))
    count, write_piece = 0, merging.write_piece

    def counted(*arguments: Any) -> None:
        nonlocal count
        count += 1
        write_piece(*arguments)

    monkeypatch.setattr(bad_row_search, "write_piece", counted)
    found = to.isolate(staged, PLENTY)
    assert values(found) == [(77,), (512,)]
    assert count <= 1 + 2 * 2 * math.ceil(math.log2(1_000))
    commit(to, found.staged)
    assert len(rows(postgres)) == 1_000


def test_P4_a_rejected_row_can_have_values_without_an_object_of_python(postgres: str) -> None:
    types = "at timestamptz, local timestamp, day date, hour time, span interval, doc jsonb, price numeric"
    execute(postgres, f"CREATE TABLE flights (id int8 UNIQUE, {types})", "INSERT INTO flights VALUES (1)")
    to = sink(postgres, isolate_violations=True)
    open_at(to, {P0: 0})
    us = pa.array([253_402_300_800_000_000], pa.int64())
    row = ids(
        1,
        at=us.cast(pa.timestamp("us", "UTC")),
        local=us.cast(pa.timestamp("us")),
        day=pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        hour=pa.array([86_399_999_999], pa.int64()).cast(pa.time64("us")),
        span=us.cast(pa.duration("us")),
        doc=[{"at": 1.5}],
        price=pa.array([Decimal("1.50")]),
    )
    [rejected] = to.isolate(stage(to, row), PLENTY).rejected
    assert rejected.values["at"].startswith("10000-01-01 00:00:00")
    assert rejected.values["local"] == "10000-01-01 00:00:00"
    assert rejected.values["day"] == "10000-01-01"
    assert (rejected.values["id"], rejected.values["price"]) == (1, "1.50")
