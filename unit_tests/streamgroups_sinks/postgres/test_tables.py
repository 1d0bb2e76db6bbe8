"""X2: a table that does not fit is rejected with every difference and its remedy; the texts of SQL."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from streamgroups.errors import NotAuthorized, SinkRejected
from streamgroups_sinks.postgres.column_types import record_columns
from streamgroups_sinks.postgres.output_table import ExistingColumn, ExistingTable, RequiredTable, create_table, judge
from streamgroups_sinks.postgres.stages import PostgresStage, create_stage, stage_columns
from streamgroups_sinks.postgres.statements import append_all, delete, insert, upsert_last
from streamgroups_sinks.postgres.table_names import TableName

TABLE = TableName("public", "flights")
COLUMNS = record_columns(pa.schema({"id": pa.int64(), "delay": pa.float64()}))
ID = ExistingColumn("id", "bigint", "int8", "N", not_null=True)
DELAY = ExistingColumn("delay", "double precision", "float8", "N", not_null=True)
NOTE = ExistingColumn("remark", "text", "text", "S")
FOUND = ExistingTable(TABLE, True, (ID, DELAY, NOTE), (frozenset({"id"}),))
APPEND, UPSERT = RequiredTable(TABLE, COLUMNS), RequiredTable(TABLE, COLUMNS, ("id",))


def test_what_fits_is_taken() -> None:
    judge(FOUND, APPEND)
    judge(FOUND, UPSERT)
    for harmless in (
        replace(NOTE, not_null=True, has_default=True),
        replace(NOTE, not_null=True, generated=True),
    ):
        judge(replace(FOUND, columns=(ID, DELAY, harmless)), APPEND)


@pytest.mark.parametrize(
    ("found", "what", "remedy"),
    [
        (replace(FOUND, is_table=False), "is not a table", "not to a view"),
        (replace(FOUND, columns=(ID,)), "it has no column 'delay'", 'ADD COLUMN "delay" double precision'),
        (
            replace(FOUND, columns=(ID, replace(DELAY, type="text", type_name="text", category="S"))),
            "column 'delay' is text, but the records have a float",
            'ALTER COLUMN "delay" TYPE double precision',
        ),
        (
            replace(FOUND, columns=(ID, replace(DELAY, generated=True))),
            "only the server can write",
            "Leave 'delay' out",
        ),
        (
            replace(FOUND, columns=(ID, DELAY, replace(NOTE, not_null=True))),
            "column 'remark' is NOT NULL, but the records do not have it",
            'ALTER COLUMN "remark" SET DEFAULT',
        ),
        (replace(FOUND, unique=(frozenset({"id", "delay"}),)), "no unique index on", 'ON "public"."flights" ("id")'),
    ],
)
def test_differences_are_rejected(found: ExistingTable, what: str, remedy: str) -> None:
    with pytest.raises(SinkRejected) as rejected:
        judge(found, UPSERT)
    assert what in rejected.value.what
    assert remedy in rejected.value.remedy


def test_all_differences_are_reported_at_once() -> None:
    with pytest.raises(
        SinkRejected, match=r"no column 'delay'; it has no unique index.*ADD COLUMN.*CREATE UNIQUE INDEX"
    ):
        judge(replace(FOUND, columns=(ID,), unique=()), UPSERT)


def test_missing_rights_are_reported_by_name() -> None:
    with pytest.raises(NotAuthorized, match=r'SELECT, UPDATE not granted. GRANT SELECT, UPDATE ON "public"."flights"'):
        judge(replace(FOUND, lacks=("SELECT", "UPDATE")), UPSERT)


def stage(*, key: tuple[str, ...] = (), delete_marker: str | None = None) -> PostgresStage:
    schema = {"id": pa.int64(), "delay": pa.float64()} | ({delete_marker: pa.bool_()} if delete_marker else {})
    columns = stage_columns(record_columns(pa.schema(schema)), FOUND.columns, key, delete_marker)
    return PostgresStage(TableName("public", "s"), TABLE, columns, key, delete_marker)


def test_a_new_table() -> None:
    assert create_table(TABLE, COLUMNS, ("id", "delay")).as_string() == (
        'CREATE TABLE "public"."flights" ("id" bigint, "delay" double precision, PRIMARY KEY ("id", "delay"))'
    )


def test_a_stage_rejects_what_the_table_would() -> None:
    assert create_stage(stage()).as_string() == (
        'CREATE UNLOGGED TABLE "public"."s" ("attempt" bigint, "row_number" bigint, "c0" bigint NOT NULL,'
        ' "c1" double precision NOT NULL) WITH (autovacuum_enabled = false)'
    )


def test_a_stage_of_blocks_does_not_read_them() -> None:
    assert create_stage(replace(stage(), in_blocks=True)).as_string() == (
        'CREATE UNLOGGED TABLE "public"."s" (attempt bigint, rows bytea)'
        " WITH (autovacuum_enabled = false, toast_tuple_target = 8160);"
        ' ALTER TABLE "public"."s" ALTER COLUMN rows SET STORAGE EXTERNAL'
    )


def test_a_row_that_deletes_needs_only_its_key() -> None:
    assert create_stage(stage(key=("id",), delete_marker="gone")).as_string() == (
        'CREATE UNLOGGED TABLE "public"."s" ("attempt" bigint, "row_number" bigint, "c0" bigint NOT NULL,'
        ' "c1" double precision CONSTRAINT "c1" CHECK ("c2" IS TRUE OR "c1" IS NOT NULL), "c2" boolean)'
        " WITH (autovacuum_enabled = false)"
    )


#: The rows of a piece, by the parameters of a statement.
ROWS = (
    ' FROM "public"."s" JOIN unnest(%s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY'
    " AS task (number, first_row, end_row, place)"
    " ON attempt = task.number AND row_number >= task.first_row AND row_number < task.end_row"
)


def test_appending() -> None:
    assert append_all(stage()).as_string() == (
        'INSERT INTO "public"."flights" AS old ("id", "delay") OVERRIDING SYSTEM VALUE SELECT "c0", "c1" FROM "public"."s"'
        " WHERE attempt = ANY (%s)"
    )
    assert insert(stage()).as_string() == (
        'INSERT INTO "public"."flights" AS old ("id", "delay") OVERRIDING SYSTEM VALUE SELECT "c0", "c1"'
        + ROWS
        + " ORDER BY task.place, row_number"
    )


def test_upserting() -> None:
    conflict = ' ON CONFLICT ("id") DO UPDATE SET "delay" = EXCLUDED."delay"'
    assert upsert_last(stage(key=("id",))).as_string() == (
        'INSERT INTO "public"."flights" AS old ("id", "delay") OVERRIDING SYSTEM VALUE SELECT "c0", "c1" FROM ('
        'SELECT DISTINCT ON ("c0") "c0", "c1"'
        + ROWS
        + ' ORDER BY "c0", task.place DESC, row_number DESC) AS last'
        + conflict
    )
    assert insert(stage(key=("id",))).as_string().endswith(" ORDER BY task.place, row_number" + conflict)


def test_upserting_what_is_all_key() -> None:
    assert upsert_last(stage(key=("id", "delay"))).as_string().endswith('ON CONFLICT ("id", "delay") DO NOTHING')


def test_deleting() -> None:
    deleting = stage(key=("id",), delete_marker="gone")
    assert delete(deleting).as_string() == (
        'DELETE FROM "public"."flights" AS old USING (SELECT DISTINCT "c0"' + ROWS + ' WHERE "c2") AS gone'
        ' WHERE old."id" = gone."c0"'
    )
    assert ') AS last WHERE "c2" IS NOT TRUE ON CONFLICT' in upsert_last(deleting).as_string()
