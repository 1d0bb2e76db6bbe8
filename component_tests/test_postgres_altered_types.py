"""X2: a batch whose table gets another column type before the commit is rejected. No value is stored as another one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from threading import Timer
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from component_tests.postgres_process import GROUP, P0, execute, open_at, sink, stage
from streamgroups.errors import SinkRejected
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres import merging
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.stages import PostgresStaged

RANGE = OffsetRange(P0, 0, 1)
_NOON = datetime(2024, 1, 1, 12, 0, 0, 600_000, timezone.utc)
_NUMBERS, _INTEGERS = pa.array([1, 2**60 + 1], pa.int64()), pa.array([1, 2**24 + 1], pa.int32())
_TIMES, _PRICES = pa.array([_NOON], pa.timestamp("us", "UTC")), pa.array([Decimal("1.2345")], pa.decimal128(10, 4))


def commit(to: PostgresSink, staged: list[PostgresStaged]) -> None:
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [RANGE]}, staged)


def stored(conninfo: str, to: PostgresSink) -> tuple[int, int]:
    """The number of rows, and the position."""
    with psycopg.connect(conninfo) as connection, to.open(GROUP) as ledger:
        (n_rows,) = connection.execute("SELECT count(*) FROM flights").fetchone() or (0,)
        return n_rows, ledger.positions([P0])[P0]


@pytest.mark.parametrize("settings", [{}, {"isolate_violations": True}, {"mode": "upsert", "key": ("id",)}], ids=str)
@pytest.mark.parametrize(
    ("before", "after", "values", "message"),
    [
        (
            "bigint",
            "timestamptz USING to_timestamp(value / 1000.0)",
            _NUMBERS,
            "column 'value' was bigint and is timestamp with time zone",
        ),
        ("bigint", "double precision", _NUMBERS, "column 'value' was bigint and is double precision"),
        ("integer", "real", _INTEGERS, "column 'value' was integer and is real"),
        ("numeric(10,4)", "numeric(10,2)", _PRICES, r"was numeric\(10,4\) and is numeric\(10,2\)"),
        ("timestamptz", "timestamptz(0)", _TIMES, r"is timestamp\(0\) with time zone"),
    ],
)
def test_X2_a_type_that_changes_during_a_batch(
    postgres: str, settings: dict[str, Any], before: str, after: str, values: pa.Array, message: str
) -> None:
    execute(postgres, f"CREATE TABLE flights (id int8 PRIMARY KEY, value {before})")
    to, records = sink(postgres, **settings), pa.record_batch({"id": range(len(values)), "value": values})
    open_at(to, {P0: 0})
    staged = stage(to, records)
    assert staged[0].stage.in_blocks is (not settings and before != "numeric(10,4)")
    execute(postgres, f"ALTER TABLE flights ALTER COLUMN value TYPE {after}")
    with pytest.raises(SinkRejected, match=f"flights was altered during the batch: .*{message}.*Restart the query"):
        commit(to, staged)
    assert stored(postgres, to) == (0, 0)


def test_X2_a_type_that_changes_while_rows_are_isolated(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 PRIMARY KEY, value numeric(10,4))")
    to = sink(postgres, isolate_violations=True)
    open_at(to, {P0: 0})
    staged = stage(to, pa.record_batch({"id": [1, 1, 2], "value": pa.concat_arrays([_PRICES] * 3)}))
    isolated = to.isolate(staged, 10)
    assert len(isolated.rejected) == 1
    execute(postgres, "ALTER TABLE flights ALTER COLUMN value TYPE numeric(10,2)")
    with pytest.raises(SinkRejected, match="altered during the batch"):
        to.isolate(staged, 10)
    with to.open(GROUP) as ledger, pytest.raises(SinkRejected, match="altered during the batch"):
        commit_batch(ledger, {GROUP: [RANGE]}, isolated.staged)
    assert stored(postgres, to) == (0, 0)


@pytest.mark.parametrize(
    ("settings", "writes"),
    [({}, "write_blocks"), ({"isolate_violations": True}, "write_piece")],
    ids=["blocks", "columns"],
)
def test_X2_no_type_changes_between_the_check_and_the_commit(
    postgres: str, settings: dict[str, Any], writes: str
) -> None:
    to, alter = sink(postgres, **settings), "ALTER TABLE flights ALTER COLUMN value TYPE float8"
    open_at(to, {P0: 0})
    staged = stage(to, pa.record_batch({"value": _NUMBERS}))
    write: Callable[..., Any] = getattr(merging, writes)

    def altered(*args: Any) -> Any:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            execute(postgres, "SET LOCAL lock_timeout = 100", alter)
        return write(*args)

    with psycopg.connect(postgres) as another:
        # The commit waits for this transaction, and then reads the types that it has committed.
        another.execute(alter)
        Timer(0.5, another.commit).start()
        with pytest.raises(SinkRejected, match="altered during the batch"):
            commit(to, staged)
    staged = stage(to, pa.record_batch({"value": pa.array([0.5, 1.5])}))
    alter = alter.replace("float8", "real")
    with mock.patch.object(merging, writes, altered):
        commit(to, staged)
    assert stored(postgres, to) == (2, 1)


@pytest.mark.parametrize("settings", [{}, {"isolate_violations": True}], ids=["blocks", "columns"])
@pytest.mark.parametrize(
    "alter",
    [
        "ADD COLUMN gate varchar(3)",
        "ADD CHECK (id > 0)",
        "ALTER COLUMN value SET NOT NULL",
        "DROP COLUMN n, ADD COLUMN n text",
    ],
)
def test_other_changes_during_a_batch(postgres: str, settings: dict[str, Any], alter: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8, n int, value int8)")
    to = sink(postgres, **settings)
    open_at(to, {P0: 0})
    staged = stage(to, pa.record_batch({"id": [1, 2], "value": _NUMBERS}))
    execute(postgres, f"ALTER TABLE flights {alter}")
    commit(to, staged)
    assert stored(postgres, to) == (2, 1)


@pytest.mark.parametrize("settings", [{}, {"isolate_violations": True}], ids=["blocks", "columns"])
def test_a_user_with_privileges_for_columns(postgres: str, role: str, settings: dict[str, Any]) -> None:
    """``LOCK TABLE`` would need a privilege for the table."""
    execute(
        postgres,
        "CREATE TABLE flights (id int8, value int8, gate text DEFAULT 'none')",
        f"GRANT INSERT (id, value) ON flights TO {role}",
        f"CREATE SCHEMA own AUTHORIZATION {role}",
    )
    user = make_conninfo(postgres, user=role)
    to = sink(user, table="public.flights", ledger_table="own.ledger", stage_schema="own", **settings)
    open_at(to, {P0: 0})
    commit(to, stage(to, pa.record_batch({"id": [1, 2], "value": _NUMBERS})))
    assert stored(postgres, to) == (2, 1)
