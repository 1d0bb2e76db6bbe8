"""P4: a row that violates a CHECK constraint is rejected in its task, if the row decides it. Rows that the table would
accept are never rejected.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pyarrow as pa
import pytest

from component_tests.postgres_process import GROUP, P0, execute, open_at, sink, sink_of_role, stage, token
from streamgroups.errors import RecordRejected
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres.stages import PREFIX

DELETES: dict[str, Any] = {"mode": "upsert", "key": ("id",), "delete_marker": "gone"}


def written(conninfo: str, records: pa.RecordBatch, **settings: Any) -> list[tuple[Any, ...]]:
    """Writes a batch, and returns the rows of the table."""
    to = sink(conninfo, **settings)
    open_at(to, {P0: 0})
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, stage(to, records))
    with psycopg.connect(conninfo) as connection:
        return sorted(connection.execute("SELECT * FROM flights").fetchall())


@pytest.mark.parametrize(
    ("table", "settings", "columns", "message"),
    [
        ("id int8 CHECK (id > 0)", {}, {"id": [1, 2, -1]}, 'flights_id_check"'),
        # Placeholders of psycopg and of Python.
        ("id text, CONSTRAINT \"%s {}\" CHECK (id !~ '%s{2}')", {}, {"id": ["a", "b", "%ss"]}, '%s {}"'),
        # The columns have the names of other columns of the stage.
        (
            "c1 int8, c0 int8, attempt int8, row_number int8, CHECK (c1 + c0 < attempt + row_number)",
            {},
            {"row_number": [9, 9, 0], "c0": [1, 1, 8], "attempt": [8, 8, 1], "c1": [9, 9, 1]},
            'flights_check"',
        ),
        ("id int8 PRIMARY KEY, n int8 CHECK (100 / n > 1)", {}, {"id": [1, 2, 3], "n": [1, 2, 0]}, "division by zero"),
        ("id int8, at int8, CHECK (at > id) NOT VALID", {}, {"id": [1, 1, 1], "at": [2, 2, 1]}, 'flights_check"'),
        (
            "id int8 PRIMARY KEY, n int8 NOT NULL CHECK (n > 0)",
            DELETES,
            {"id": [1, 2, 3], "n": [1, 2, -1], "gone": [False, False, None]},
            'flights_n_check"',
        ),
        ("id int8 CHECK (id > 0)) PARTITION BY LIST (id", {}, {"id": [1, 2, -1]}, 'flights_id_check"'),
    ],
)
def test_a_row_that_violates_a_check_is_rejected_in_its_task(
    postgres: str, table: str, settings: dict[str, Any], columns: dict[str, Any], message: str
) -> None:
    execute(postgres, f"CREATE TABLE flights ({table})")
    records = pa.record_batch(columns)
    to = sink(postgres, **settings)
    begun = to.begin(records.schema, token())
    with pytest.raises(RecordRejected, match=r"in row 3 of a task was rejected by PostgreSQL") as rejected:
        to.write(begun, iter([records]), 0)
    assert message in rejected.value.what
    assert PREFIX not in str(rejected.value)
    assert to.write(begun, iter([records.slice(0, 2)]), 1).n_rows == 2


@pytest.mark.parametrize(
    ("statements", "settings", "columns", "expected"),
    [
        # NULL satisfies a constraint.
        (["TABLE flights (id int8 CHECK (id > 0))"], {}, {"id": pa.array([None], pa.int64())}, [(None,)]),
        # A row that deletes satisfies each constraint, also if its expression has no value.
        (
            ["TABLE flights (id int8 PRIMARY KEY, n int8 CHECK (100 / n > 1))"],
            DELETES,
            {"id": [1, 2], "n": [1, 0], "gone": [False, True]},
            [(1, 1)],
        ),
        # The records lack a column, and its default decides.
        (["TABLE flights (id int8, n int8 DEFAULT 7, CHECK (n > id))"], {}, {"id": [1, 2]}, [(1, 7), (2, 7)]),
        (
            ["TABLE flights (id int8, n int8 GENERATED ALWAYS AS (id * 2) STORED, CHECK (n > id))"],
            {},
            {"id": [1]},
            [(1, 2)],
        ),
        # An expression of the whole row, and of none of its columns.
        (
            ["TABLE flights (id int8, CHECK (flights IS NOT NULL), CHECK (now() > '2020-01-01'))"],
            {},
            {"id": [1]},
            [(1,)],
        ),
        # A trigger changes the row first.
        (
            [
                "TABLE flights (id int8 CHECK (id > 0))",
                "FUNCTION positive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id = abs(NEW.id); RETURN NEW; END $$",
                "TRIGGER positive BEFORE INSERT ON flights FOR EACH ROW EXECUTE FUNCTION positive()",
            ],
            {},
            {"id": [-1]},
            [(1,)],
        ),
        (
            [
                "TABLE flights (id int8 CHECK (id > 0)) PARTITION BY LIST (id)",
                "TABLE others PARTITION OF flights DEFAULT",
                "FUNCTION positive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id = abs(NEW.id); RETURN NEW; END $$",
                "TRIGGER positive BEFORE INSERT ON others FOR EACH ROW EXECUTE FUNCTION positive()",
            ],
            {},
            {"id": [-1]},
            [(1,)],
        ),
        # A rule writes another row.
        (
            [
                "TABLE flights (id int8 CHECK (id > 0))",
                "RULE positive AS ON INSERT TO flights WHERE NEW.id < 0 DO INSTEAD NOTHING",
            ],
            {},
            {"id": [1]},
            [(1,)],
        ),
    ],
    ids=["null", "deleted", "default", "generated", "whole row", "trigger", "trigger of a partition", "rule"],
)
def test_rows_that_the_table_accepts(
    postgres: str,
    statements: list[str],
    settings: dict[str, Any],
    columns: dict[str, Any],
    expected: list[tuple[Any, ...]],
) -> None:
    execute(postgres, *(f"CREATE {it}" for it in statements))
    assert written(postgres, pa.record_batch(columns), **settings) == expected


def test_the_order_of_columns_of_a_checked_stage(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (c1 int8 PRIMARY KEY, c0 text, attempt int8 CHECK (attempt > 0))")
    records = pa.record_batch({"attempt": [5, 6, 7], "c0": ["first", "second", "last"], "c1": [1, 2, 1]})
    assert written(postgres, records, mode="upsert", key=("c1",)) == [(1, "last", 7), (2, "second", 6)]


def test_a_check_that_the_user_may_not_parse_is_one_of_the_commit(postgres: str, role: str) -> None:
    """A function in a schema without USAGE can be called by a constraint, but not be named."""
    execute(
        postgres,
        "CREATE SCHEMA hidden",
        "CREATE FUNCTION hidden.positive(int8) RETURNS bool IMMUTABLE LANGUAGE sql AS 'SELECT $1 > 0'",
        "CREATE SCHEMA own",
        "CREATE TABLE own.flights (id int8 CHECK (hidden.positive(id)), n int8 CHECK (n > 0))",
    )
    to = sink_of_role(postgres, role)
    bad, worse = pa.record_batch({"id": [-1], "n": [1]}), pa.record_batch({"id": [1], "n": [-1]})
    with pytest.raises(RecordRejected, match="flights_n_check"):
        stage(to, worse)
    with to.open(GROUP) as ledger, pytest.raises(RecordRejected, match="flights_id_check"):
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, stage(to, bad))
