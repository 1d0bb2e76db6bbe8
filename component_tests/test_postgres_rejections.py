"""X2: a record that cannot be written is rejected with a remedy, in the task if it can be detected there. No partial
output remains, and the sink resumes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from component_tests.postgres_process import GROUP, P0, execute, offsets, open_at, sink, stage, token
from streamgroups.errors import (
    InvalidOption,
    LedgerConflict,
    LoginRejected,
    NotAuthorized,
    RecordRejected,
    SinkRejected,
    SinkUnreachable,
    StageLost,
    StreamGroupsError,
)
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.stages import PREFIX
from streamgroups_testkit.postgres import PASSWORD, WITH_PASSWORD, PostgresServer

SCHEMA = pa.schema({"id": pa.int64(), "gate": pa.string(), "gone": pa.bool_()})
UPSERT: dict[str, Any] = {"mode": "upsert", "key": ("id",)}


def relations(conninfo: str) -> set[str]:
    with psycopg.connect(conninfo) as connection:
        query = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v') AND relnamespace::regnamespace::text IN ('public', 'own')"
        return {name for (name,) in connection.execute(query)}


def rows(conninfo: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        return sorted(connection.execute("SELECT * FROM flights").fetchall())


def records(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


@pytest.mark.parametrize(
    ("table", "settings", "error", "message"),
    [
        ("", {"create_table": False}, SinkRejected, "Table flights does not exist.*create_table=True"),
        ("", {"table": "own.flights"}, SinkRejected, "Cannot make table own.flights: schema 'own' does not exist"),
        ("", {"stage_schema": "own"}, SinkRejected, "Cannot make the batch's stage: schema 'own' does not exist"),
        ("", {"mode": "upsert", "key": ("no",)}, InvalidOption, "no column 'no', which is in the key.*id, gate, gone"),
        ("", {**UPSERT, "delete_marker": "gate"}, InvalidOption, "no boolean column 'gate'"),
        ("VIEW flights AS SELECT 1 AS id", {}, SinkRejected, "flights is not a table.*not to a view"),
        ("TABLE flights (id int8, gone bool)", {}, SinkRejected, "no column 'gate'; |ADD COLUMN \"gate\" text"),
        (
            "TABLE flights (id int8, gate int, gone bool)",
            {},
            SinkRejected,
            "'gate' is integer, but the records have a string",
        ),
        (
            "TABLE flights (id int8, gate text, gone bool, must int NOT NULL)",
            {},
            SinkRejected,
            "column 'must' is NOT NULL, but the records do not have it",
        ),
        (
            "TABLE flights (id int8, gate text, gone bool GENERATED ALWAYS AS (id > 1) STORED)",
            {},
            SinkRejected,
            "only the server can write column 'gone'",
        ),
        (
            "TABLE flights (id int8, gate text, gone bool)",
            UPSERT,
            SinkRejected,
            r'no unique index on \("id"\).*CREATE UNIQUE',
        ),
        (
            "TABLE flights (id int8, gate text, gone bool, UNIQUE (id, gate), UNIQUE (gate) INCLUDE (id), UNIQUE (id) DEFERRABLE)",
            UPSERT,
            SinkRejected,
            "no unique index",
        ),
    ],
)
def test_a_target_that_does_not_fit(
    postgres: str, table: str, settings: dict[str, Any], error: type[StreamGroupsError], message: str
) -> None:
    if table:
        execute(postgres, f"CREATE {table}")
    before = relations(postgres)
    with pytest.raises(error, match=message) as rejected:
        sink(postgres, **settings).begin(SCHEMA, token())
    assert rejected.value.remedy
    assert relations(postgres) == before


def test_columns_with_names_of_system_columns_are_those_that_a_table_cannot_have(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        query = "SELECT attname FROM pg_attribute WHERE attrelid = 'pg_class'::regclass AND attnum < 0"
        names = [name for (name,) in connection.execute(query)]
    assert {"xmin", "ctid"} <= set(names)
    before = relations(postgres)
    for name in names:
        with pytest.raises(SinkRejected, match=f"Column '{name}' of the records has the name of a system column"):
            sink(postgres).begin(pa.schema({"id": pa.int64(), name: pa.int64()}), token())
    assert relations(postgres) == before
    sink(postgres).begin(pa.schema({"id": pa.int64(), "oid": pa.int64(), "XMIN": pa.int64()}), token())


def test_a_unique_index_in_any_order_of_columns_will_do(postgres: str) -> None:
    execute(
        postgres, "CREATE TABLE flights (id int8, gate text, gone bool)", "CREATE UNIQUE INDEX ON flights (gate, id)"
    )
    sink(postgres, mode="upsert", key=("id", "gate")).begin(SCHEMA, token())


@pytest.mark.parametrize(
    ("table", "settings", "batch", "message"),
    [
        ("id int2", {}, records(id=[1, 2, 70_000]), "column 'id' in row 3 .*70000.* is out of range for type smallint"),
        (
            "id varchar(3)",
            {},
            records(id=["a", "abcd"]),
            r"column 'id' in row 2 .*too long for type character varying\(3\)",
        ),
        ("id numeric(3,1)", {}, records(id=[1.0, 1e9]), "column 'id' in row 2 .*numeric field overflow"),
        (
            "n int, id jsonb",
            {},
            records(n=[1, 2], id=["{}", "{"]),
            "column 'id' in row 2 .*invalid input syntax for type json",
        ),
        ("id jsonb", {}, records(id=[[""], ["\0"]]), r"column 'id' in row 2 .*unsupported Unicode escape sequence"),
        ("id text", {}, records(id=["a", "b\0"]), "column 'id' in row 2 .*NUL"),
        ("id int NOT NULL", {}, records(id=[1, None]), "column 'id' in row 2 .*null value in column \"id\""),
        ("id timestamp", {}, records(id=pa.array([0, -3 * 10**17], pa.timestamp("us"))), "column 'id' in row 2"),
        ("id int PRIMARY KEY", UPSERT, records(id=[1, None]), "column 'id' in row 2 .*null value"),
        (
            "id int PRIMARY KEY, a text NOT NULL",
            {**UPSERT, "delete_marker": "x"},
            records(id=[1, 2, 3], a=["", None, None], x=[False, True, False]),
            "column 'a' in row 3 .*violates check constraint",
        ),
    ],
)
def test_the_error_names_column_and_row_of_a_rejected_value(
    postgres: str, table: str, settings: dict[str, Any], batch: pa.RecordBatch, message: str
) -> None:
    execute(postgres, f"CREATE TABLE flights ({table})")
    to = sink(postgres, **settings)
    begun = to.begin(batch.schema, token())
    good = batch.slice(0, 1)
    with pytest.raises(RecordRejected, match=message) as rejected:
        to.write(begun, iter([good, good.slice(0, 0), batch.slice(1)]), 0)
    assert PREFIX not in str(rejected.value)
    assert rejected.value.remedy
    # The stage can still be used.
    open_at(to, {P0: 0})
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 1)]}, [to.write(begun, iter([good]), 1)])
    assert len(rows(postgres)) == 1


def test_a_line_break_does_not_confuse_the_row(postgres: str) -> None:
    execute(postgres, "CREATE TABLE flights (a text, id int2)")
    batch = records(a=["\n\n", "\r\n", "x"], id=[1, 2, 70_000])
    to = sink(postgres)
    with pytest.raises(RecordRejected, match="column 'id' in row 3 "):
        to.write(to.begin(batch.schema, token()), iter([batch]), 0)


def test_a_group_whose_name_the_database_cannot_store_is_named(postgres: str) -> None:
    name = f"latin_{token()[:8]}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        try:
            what = "The ledger streamgroups_ledger of group '漢字', positions of flights-0: .*LATIN1"
            with pytest.raises(SinkRejected, match=what) as rejected:
                open_at(sink(make_conninfo(postgres, dbname=name)), {P0: 0}, group="漢字")
            assert "use other names for groups" in rejected.value.remedy
            open_at(sink(make_conninfo(postgres, dbname=name)), {P0: 0}, group="gruppe-ä")
        finally:
            connection.execute(f"DROP DATABASE {name}")


def test_a_deletion_from_a_published_table_without_replica_identity_is_not_retriable(postgres: str) -> None:
    execute(
        postgres,
        "CREATE TABLE flights (id int8, gate text)",
        "CREATE UNIQUE INDEX ON flights (id)",
        "INSERT INTO flights VALUES (1, 'A1')",
        "CREATE PUBLICATION changes FOR TABLE flights",
    )
    to, range_ = sink(postgres, **UPSERT, delete_marker="gone"), OffsetRange(P0, 0, 1)
    open_at(to, {P0: 0})
    staged = stage(to, records(id=[1], gate=pa.nulls(1, pa.string()), gone=[True]))
    with to.open(GROUP) as ledger:
        with pytest.raises(SinkRejected, match=r"Writing to public\.flights: cannot delete from table") as rejected:
            commit_batch(ledger, {GROUP: [range_]}, staged)
        assert not rejected.value.retriable
        assert "The server's hint: To enable deleting from the table" in rejected.value.remedy
        assert ledger.positions([P0]) == {P0: 0}
        execute(postgres, "ALTER TABLE flights REPLICA IDENTITY FULL")
        commit_batch(ledger, {GROUP: [range_]}, staged)
    assert rows(postgres) == []


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("UNIQUE (at) DEFERRABLE INITIALLY DEFERRED", r"committing: duplicate key value"),
        ("UNIQUE (at)", r"Writing to public.flights: duplicate key value.*Key \(at\)=\(3\) already exists"),
        ("CHECK (flights IS NULL OR at < 9)", "violates check constraint"),
        ("FOREIGN KEY (partition) REFERENCES partitions", r"Key \(partition\)=\(0\) is not present"),
    ],
)
def test_what_a_constraint_rejects_leaves_nothing_and_can_be_written_once_it_is_gone(
    postgres: str, constraint: str, message: str
) -> None:
    execute(
        postgres,
        "CREATE TABLE partitions (id int8 PRIMARY KEY)",
        "CREATE TABLE flights (partition int8, at int8)",
        "INSERT INTO flights SELECT NULL, 3",
        f"ALTER TABLE flights ADD CONSTRAINT limits {constraint}",
    )
    to, range_ = sink(postgres), OffsetRange(P0, 0, 10)
    open_at(to, {P0: 0})
    staged = stage(to, offsets(range_))
    with to.open(GROUP) as ledger:
        with pytest.raises(RecordRejected, match=message):
            commit_batch(ledger, {GROUP: [range_]}, staged)
        assert ledger.positions([P0]) == {P0: 0}
        execute(postgres, "ALTER TABLE flights DROP CONSTRAINT limits")
        commit_batch(ledger, {GROUP: [range_]}, staged)
        assert ledger.positions([P0]) == {P0: 10}
    with psycopg.connect(postgres) as connection:
        assert connection.execute("SELECT count(*) FROM flights").fetchone() == (11,)


def test_records_of_another_schema_are_rejected(postgres: str) -> None:
    to = sink(postgres)
    begun = to.begin(pa.schema({"id": pa.int64()}), token())
    for other in (records(id=["1"]), records(other=[1]), records(id=[1], other=[1])):
        with pytest.raises(SinkRejected, match=r"those of the batch are others: id \(integer\)"):
            to.write(begun, iter([other]), 0)


def test_missing_rights_are_reported_and_those_that_are_documented_are_enough(postgres: str, role: str) -> None:
    as_role = make_conninfo(postgres, user=role)
    upsert = {**UPSERT, "delete_marker": "gone", "stage_schema": "own"}

    def rejected(reported: str, **settings: Any) -> None:
        before = relations(postgres)
        with pytest.raises(NotAuthorized, match=reported) as error:
            sink(as_role, **settings).begin(SCHEMA, token())
        assert "GRANT" in error.value.remedy
        assert relations(postgres) == before

    rejected("not authorized to create tables in schema 'public', which is the schema for table flights")
    execute(postgres, "CREATE TABLE flights (id int8 PRIMARY KEY, gate text)", "CREATE SCHEMA own")
    rejected("INSERT, SELECT, UPDATE, DELETE not granted", **upsert)
    execute(postgres, f"GRANT INSERT, SELECT, UPDATE ON flights TO {role}")
    rejected("DELETE not granted", **upsert)
    execute(postgres, f"GRANT DELETE ON flights TO {role}")
    rejected("not authorized to create tables in schema 'own', which is the schema for the batch's stage", **upsert)
    execute(postgres, f"GRANT CREATE, USAGE ON SCHEMA own TO {role}")
    to = sink(as_role, ledger_table="own.ledger", **upsert)
    batch = pa.record_batch({"id": [1, 2], "gate": ["A", None], "gone": [False, True]})
    staged = stage(to, batch)
    open_at(to, {P0: 0})
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [OffsetRange(P0, 0, 2)]}, staged)
    to.discard(staged[0].stage)
    assert rows(postgres) == [(1, "A")]
    assert relations(postgres) == {"flights", "ledger"}


def test_appending_needs_no_more_than_insert(postgres: str, role: str) -> None:
    execute(
        postgres,
        "CREATE TABLE flights (partition int8, at int8)",
        "CREATE SCHEMA own",
        f"GRANT INSERT ON flights TO {role}",
        f"GRANT CREATE, USAGE ON SCHEMA own TO {role}",
    )
    to = sink(make_conninfo(postgres, user=role), stage_schema="own", ledger_table="own.ledger", create_table=False)
    open_at(to, {P0: 0})
    range_ = OffsetRange(P0, 0, 3)
    with to.open(GROUP) as ledger:
        commit_batch(ledger, {GROUP: [range_]}, stage(to, offsets(range_)))
    assert len(rows(postgres)) == 3


def test_a_password_is_required_and_never_shown(postgres: str) -> None:
    wrong = make_conninfo(postgres, user=WITH_PASSWORD, password="geheim")
    with pytest.raises(LoginRejected, match=r"password authentication failed.*Check user and password") as rejected:
        sink(wrong).begin(SCHEMA, token())
    assert "geheim" not in repr(rejected.getrepr(style="short"))
    with pytest.raises(LoginRejected, match="password"):
        sink(make_conninfo(postgres, user=WITH_PASSWORD)).begin(SCHEMA, token())
    right = make_conninfo(postgres, user=WITH_PASSWORD, password=PASSWORD)
    with pytest.raises(NotAuthorized, match="not authorized to create tables in schema 'public'"):
        sink(right).begin(SCHEMA, token())
    with pytest.raises(SinkRejected, match=r"database .* does not exist.*Create the database"):
        sink(make_conninfo(postgres, dbname="no")).begin(SCHEMA, token())


def _drop(conninfo: str, to: PostgresSink, staged: Any, server: PostgresServer) -> None:
    to.discard(staged[0].stage)


def _crash(conninfo: str, to: PostgresSink, staged: Any, server: PostgresServer) -> None:
    server.crash()


@pytest.mark.parametrize(
    ("lose", "message"), [(_drop, "no longer exists"), (_crash, "it contains 0 of 10 rows")], ids=["dropped", "crashed"]
)
@pytest.mark.parametrize("settings", [{}, {"mode": "upsert", "key": ("at",)}], ids=["append", "upsert"])
def test_a_stage_that_is_lost_is_never_taken_for_an_empty_one(
    postgres: str, postgres_server: PostgresServer, lose: Callable[..., None], message: str, settings: dict[str, Any]
) -> None:
    to, range_ = sink(postgres, **settings), OffsetRange(P0, 0, 10)
    open_at(to, {P0: 0})
    staged = stage(to, offsets(range_))
    lose(postgres, to, staged, postgres_server)
    with to.open(GROUP) as ledger:
        with pytest.raises(StageLost, match=f"{message}. The batch was not written. Restart the query"):
            commit_batch(ledger, {GROUP: [range_]}, staged)
        assert (rows(postgres), ledger.positions([P0])) == ([], {P0: 0})
        commit_batch(ledger, {GROUP: [range_]}, stage(to, offsets(range_)))
    assert len(rows(postgres)) == 10


def test_a_server_that_is_down_is_reported_and_when_it_is_back_the_sink_resumes(
    postgres: str, postgres_server: PostgresServer
) -> None:
    to, range_ = sink(postgres), OffsetRange(P0, 0, 10)
    open_at(to, {P0: 0})
    begun = to.begin(offsets(range_).schema, token())
    with to.open(GROUP) as ledger:
        postgres_server.stop()
        try:
            with pytest.raises(SinkUnreachable, match=r"cannot be reached.*try again"):
                to.begin(SCHEMA, token())
            with pytest.raises(SinkUnreachable, match=r"Staging rows for public.flights"):
                to.write(begun, iter([offsets(range_)]), 0)
            for _ in range(2):
                with pytest.raises(SinkUnreachable, match="The ledger streamgroups_ledger of group 'billing'"):
                    ledger.positions([P0])
            to.discard(begun)
        finally:
            postgres_server.start()
        assert ledger.positions([P0]) == {P0: 0}
        commit_batch(ledger, {GROUP: [range_]}, stage(to, offsets(range_)))
    assert len(rows(postgres)) == 10


def test_a_task_whose_stage_is_gone_is_reported(postgres: str) -> None:
    to, batch = sink(postgres), records(id=[1])
    begun = to.begin(batch.schema, token())
    to.discard(begun)
    to.discard(begun)
    with pytest.raises(StageLost, match=r"public.flights is lost: it no longer exists"):
        to.write(begun, iter([batch]), 0)


def test_a_table_that_is_altered_or_locked_meanwhile(postgres: str) -> None:
    to, range_ = sink(postgres), OffsetRange(P0, 0, 2)
    open_at(to, {P0: 0})
    staged = stage(to, offsets(range_))
    with to.open(GROUP) as ledger:
        execute(postgres, "ALTER TABLE flights RENAME COLUMN at TO other")
        with pytest.raises(SinkRejected, match=r'column "at" of relation "flights" does not exist.*altered'):
            commit_batch(ledger, {GROUP: [range_]}, staged)
        execute(postgres, "ALTER TABLE flights RENAME COLUMN other TO at")
        with psycopg.connect(postgres) as another:
            another.execute("LOCK TABLE flights")
            ledger._lock_ms = 50
            with pytest.raises(LedgerConflict, match="lock timeout"):
                commit_batch(ledger, {GROUP: [range_]}, staged)
        commit_batch(ledger, {GROUP: [range_]}, staged)
    assert rows(postgres) == [(0, 0), (0, 1)]


def _age(conninfo: str, name: str, age_s: int) -> None:
    """Sets an earlier creation time for a stage."""
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("SELECT extract(epoch FROM now())::bigint - %s", [age_s]).fetchone()
        assert row
        comment = f"streamgroups: output for public.flights that is not committed, begun at {row[0]} s"
        connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(sql.Identifier(name), comment))


def test_what_killed_runs_leave_is_dropped_and_nothing_else(postgres: str, role: str) -> None:
    to = sink(postgres, stage_retention="1000s")
    schema = pa.schema({"id": pa.int64()})
    dead, young, in_use = (to.begin(schema, name).name.name for name in ("dead", "young", "in_use"))
    for name in (dead, in_use):
        _age(postgres, name, 1_001)
    _age(postgres, young, 990)
    execute(
        postgres,
        f"CREATE TABLE {PREFIX}of_somebody (id int)",
        f"CREATE UNLOGGED TABLE {PREFIX}unmarked (id int)",
    )
    with psycopg.connect(postgres) as task:
        with task.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(in_use))):
            last = to.begin(schema, "last").name.name
        left = {PREFIX + "of_somebody", PREFIX + "unmarked", "flights", young, in_use, last}
        assert relations(postgres) == left
    to.begin(schema, "more")
    assert relations(postgres) == left - {in_use} | {PREFIX + "more"}


def test_discarding_waits_for_no_lock_and_raises_nothing(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    to = sink(postgres)
    begun = to.begin(pa.schema({"id": pa.int64()}), "t")
    caplog.set_level("INFO", "streamgroups_sinks.postgres")
    copy = sql.SQL("COPY {} FROM STDIN").format(begun.name.identifier)
    with psycopg.connect(postgres) as task, task.cursor().copy(copy):
        to.discard(begun)
    assert "remains for now" in caplog.text
    sink("host=127.0.0.1 port=1 dbname=x").discard(begun)
