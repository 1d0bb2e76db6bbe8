"""X2: the constraints of a table decide how many statements write a batch. Single situations of users of other sinks."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from component_tests.postgres_process import GROUP, P0, execute, open_at, sink, stage, token
from component_tests.test_postgres_rows import rows, write
from streamgroups.errors import RecordRejected, SinkRejected
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres.stages import Way

UPSERT: dict[str, Any] = {"mode": "upsert", "key": ("id",), "delete_marker": "gone"}


def records(*given: tuple[Any, ...], names: tuple[str, ...] = ("id", "x", "gone")) -> pa.RecordBatch:
    columns = zip(*given, strict=True)
    types = {"id": pa.int64(), "x": pa.string(), "gone": pa.bool_()}
    return pa.record_batch(
        [pa.array(it, types.get(n)) for n, it in zip(names, columns, strict=True)], names=list(names)
    )


@pytest.mark.parametrize(
    ("columns", "more", "upsert", "append"),
    [
        ("id int8 PRIMARY KEY, x text NOT NULL DEFAULT ''", "CREATE INDEX ON flights (x)", Way.TOGETHER, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text CHECK (x <> 'a')", "", Way.TOGETHER, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text, y text CHECK (y <> 'a')", "", Way.RUNS, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text UNIQUE", "", Way.RUNS, Way.TOGETHER),
        ("id numeric PRIMARY KEY, x text", "", Way.RUNS, Way.TOGETHER),
        ("id numeric(9,2) PRIMARY KEY, x text", "", Way.TOGETHER, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text", "CREATE UNIQUE INDEX ON flights (lower(x))", Way.RUNS, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text", "CREATE INDEX ON flights (x) WHERE x > 'a'", Way.RUNS, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text", "CREATE TABLE y (id int8 REFERENCES flights)", Way.RUNS, Way.TOGETHER),
        (
            "id int8 PRIMARY KEY, x text UNIQUE",
            "CREATE TABLE y (x text REFERENCES flights (x))",
            Way.ROWS,
            Way.TOGETHER,
        ),
        ("id int8 PRIMARY KEY, x text UNIQUE DEFERRABLE", "", Way.ROWS, Way.TOGETHER),
        ("id int8 PRIMARY KEY, x text, y int8 REFERENCES flights", "", Way.ROWS, Way.ROWS),
        (
            "id int8 PRIMARY KEY, x text",
            "CREATE TABLE y (id int8 PRIMARY KEY REFERENCES flights); ALTER TABLE flights ADD FOREIGN KEY (id) REFERENCES y",
            Way.ROWS,
            Way.ROWS,
        ),
        ("id int8 PRIMARY KEY, x text, y int8 GENERATED ALWAYS AS (1 / id) STORED", "", Way.RUNS, Way.TOGETHER),
    ],
)
def test_X2_the_table_decides_how_many_statements_write_a_batch(
    postgres: str, columns: str, more: str, upsert: Way, append: Way
) -> None:
    execute(postgres, f"CREATE TABLE flights ({columns})", more or "SELECT")
    schema = pa.schema({"id": pa.int64(), "x": pa.string()})
    found = [sink(postgres, **mode).begin(schema, token()).way for mode in ({"mode": "upsert", "key": ("id",)}, {})]
    assert found == [upsert, append]


def test_X2_a_partition_has_constraints_of_its_own(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE flights (id int8 PRIMARY KEY, x text) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF flights FOR VALUES FROM (0) TO (100)",
        "CREATE UNIQUE INDEX ON part (x)",
    )
    assert (
        sink(postgres, mode="upsert", key=("id",))
        .begin(records((1, "a", False)).select(["id", "x"]).schema, token())
        .way
        is Way.RUNS
    )


def test_X2_a_value_can_move_to_another_key_in_a_batch(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    execute(
        postgres, "CREATE TABLE flights (id int8 PRIMARY KEY, x text UNIQUE)", "INSERT INTO flights VALUES (5, 'x')"
    )
    with caplog.at_level(logging.INFO, "streamgroups_sinks.postgres"):
        write(sink(postgres, **UPSERT), records((5, None, True), (9, "x", False)))
    assert rows(postgres) == [(9, "x")]
    assert "were written in 2 statements without repeated keys" in caplog.text


@pytest.mark.parametrize(
    ("columns", "statements"),
    [
        ("id int8 PRIMARY KEY, x text", {}),
        ("id int8 PRIMARY KEY, x text UNIQUE", {"runs": 2}),
        ("id int8 PRIMARY KEY, x text UNIQUE DEFERRABLE", {"rows": 3}),
    ],
)
def test_X2_the_ledger_counts_the_statements_of_a_divided_batch(
    postgres: str, columns: str, statements: dict[str, int]
) -> None:
    execute(postgres, f"CREATE TABLE flights ({columns})")
    to = sink(postgres, **UPSERT)
    open_at(to, {P0: 0})
    staged = stage(to, records((1, "a", False), (2, "b", False), (1, "c", False)))
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 3)]}, staged)
        assert ledger.statements == statements
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 3)]}, staged)
        assert ledger.statements == {}, "the batch is already written"


def test_X2_a_row_that_is_deleted_and_inserted_is_a_new_one(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE flights (id int8 PRIMARY KEY, x text, remark text DEFAULT 'new')",
        "INSERT INTO flights VALUES (1, 'a', 'old'), (2, 'b', 'old')",
    )
    write(sink(postgres, **UPSERT), records((1, None, True), (1, "c", False), (2, "d", False)))
    assert sorted(rows(postgres)) == [(1, "c", "new"), (2, "d", "old")]


def test_X2_an_identity_is_a_key_and_no_updated_column(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x text UNIQUE)")
    write(sink(postgres, **UPSERT), records((7, "a", False)))
    write(sink(postgres, **UPSERT), records((7, "b", False)))
    write(sink(postgres), records((8, "c", False)).select(["id", "x"]))
    assert rows(postgres) == [(7, "b"), (8, "c")]
    with pytest.raises(SinkRejected, match=r"GENERATED ALWAYS AS IDENTITY.*SET GENERATED BY DEFAULT"):
        sink(postgres, mode="upsert", key=("x",)).begin(records((1, "a", False)).select(["id", "x"]).schema, token())


def test_X2_a_row_that_deletes_needs_no_value_of_a_domain(postgres: str) -> None:
    execute(
        postgres,
        "CREATE DOMAIN word AS text NOT NULL CHECK (VALUE <> '')",
        "CREATE TABLE flights (id int8 PRIMARY KEY, x word)",
    )
    write(sink(postgres, **UPSERT), records((1, "a", False), (2, "b", False)))
    write(sink(postgres, **UPSERT), records((1, None, True), (2, "", True)))
    assert rows(postgres) == []
    for value in (None, ""):
        with pytest.raises(RecordRejected):
            write(sink(postgres, **UPSERT), records((1, value, False)))


@pytest.mark.parametrize("name", ["load %", "%s", "%(x)s", "{}", "é ;--", "excluded", "old"])
def test_X2_names_contain_any_characters(postgres: str, name: str) -> None:
    to = sink(postgres, **UPSERT | {"key": (name,)}, table=name, ledger_table=f"ledger {name}")
    for x, gone in (("a", False), ("b", False), (None, True), ("c", False)):
        write(to, records((1, x, gone), names=(name, "x", "gone")))
    with psycopg.connect(postgres) as connection:
        identifier = psycopg.sql.Identifier(name)
        found = connection.execute(psycopg.sql.SQL("SELECT * FROM {}").format(identifier)).fetchall()
    assert found == [(1, "c")]


def test_X2_the_server_parses_strings_as_arrays_and_ranges(postgres: str) -> None:
    execute(postgres, 'CREATE TABLE flights (a text[], b int4range, c "char", d jsonb)')
    gone = dt.timedelta(days=1, hours=2, seconds=3.5)
    batch = pa.record_batch({"a": ["{x,y}"], "b": ["[1,3)"], "c": ["z"], "d": pa.array([[gone, -gone, None]])})
    write(sink(postgres), batch)
    found = rows(postgres, "SELECT a, b::text, c::text, d FROM flights")
    assert found == [(["x", "y"], "[1,3)", "z", ["P1DT2H3.5S", "P-1DT-2H-3.5S", None])]
    assert rows(postgres, "SELECT (d->>1)::interval = '-1 day -2:00:03.5' FROM flights") == [(True,)]


def test_P4_an_error_of_a_trigger_is_about_a_row(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE flights (id int8 PRIMARY KEY, x text)",
        "CREATE FUNCTION limit_x() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.x = ''bad'' THEN RAISE EXCEPTION ''no''; END IF; RETURN NEW; END'",
        "CREATE TRIGGER limits BEFORE INSERT OR UPDATE ON flights FOR EACH ROW EXECUTE FUNCTION limit_x()",
    )
    with pytest.raises(RecordRejected, match="no"):
        write(sink(postgres, **UPSERT), records((1, "bad", False)))
    with pytest.raises(RecordRejected, match="no"):
        write(sink(postgres, **UPSERT), records((1, "bad", False), (1, "good", False)))
