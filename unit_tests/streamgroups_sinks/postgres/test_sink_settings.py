"""X2: invalid settings of the PostgreSQL sink are rejected before any effect, and a password is never shown."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import InvalidOption, SinkRejected
from streamgroups_sinks.postgres.column_types import record_columns
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.table_names import TableName, lock_key

URL = "postgresql://me:geheim@db.example/flights"


def sink(**settings: Any) -> PostgresSink:
    return PostgresSink(**{"conninfo": URL, "table": "flights", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conninfo": ""}, "Option 'conninfo' is empty.*postgresql://"),
        ({"conninfo": "geheim"}, "Option 'conninfo' is empty, or libpq cannot"),
        ({"conninfo": "postgresql://me:ge%heim@db"}, "percent-encode"),
        ({"conninfo": "hosst=db password=geheim"}, "libpq cannot parse it"),
        ({"table": ""}, "Option 'table' is ''.*Write 'table' or 'schema.table'"),
        ({"table": "a.b.c"}, "Option 'table' is 'a.b.c'"),
        ({"table": '"Flights"'}, "without quotes"),
        ({"table": "x" * 64}, "64 bytes.*at most 63"),
        ({"table": "s." + "ü" * 32}, "64 bytes"),
        ({"ledger_table": "a."}, "Option 'ledger_table'"),
        ({"ledger_table": "flights"}, "both 'flights'.*a separate table"),
        ({"stage_schema": "a.b"}, "Option 'stage_schema'"),
        ({"stage_retention": "0s"}, "Option 'stage_retention' is '0s', which is 0"),
        (
            {"stage_retention": 3600},
            "Option 'stage_retention' is '3600', which is not a duration. Write a number with a unit",
        ),
        ({"mode": "merge"}, "'mode' is 'merge'.*'append' or 'upsert'"),
        ({"mode": "upsert"}, "requires a key.*key="),
        ({"key": ("id",)}, "does not support 'key'.*mode='upsert'"),
        ({"delete_marker": "gone"}, "does not support 'delete_marker'"),
        ({"mode": "upsert", "key": "id"}, "'key' is 'id'.*Pass the names"),
        ({"mode": "upsert", "key": ("id", "")}, "Pass the names"),
        ({"mode": "upsert", "key": ("id", "id")}, "contains a column twice"),
        ({"mode": "upsert", "key": ("id",), "delete_marker": "id"}, "'delete_marker' is 'id'.*not in the key"),
        ({"mode": "upsert", "key": ("id",), "delete_marker": ""}, "'delete_marker' is ''"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as rejected:
        sink(**settings)
    assert "heim" not in "".join(traceback.format_exception(rejected.value))


@pytest.mark.parametrize("name", ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"])
def test_a_column_that_no_table_can_have_is_rejected_before_a_connection(name: str) -> None:
    columns = pa.schema({"id": pa.int64(), name: pa.int64()})
    for settings in ({}, {"mode": "upsert", "key": (name,)}):
        with pytest.raises(SinkRejected, match=f"Column '{name}' of the records has the name of a system .*Rename it"):
            sink(**settings).begin(columns, "token")


def test_a_column_that_the_table_does_not_contain_can_have_the_name_of_a_system_column() -> None:
    columns = record_columns(pa.schema({"id": pa.int64(), "XMIN": pa.int64(), "xmax": pa.bool_()}))
    sink(mode="upsert", key=("id",), delete_marker="xmax")._check_columns(columns)


def test_a_password_is_not_shown() -> None:
    assert "geheim" not in repr(sink())
    assert repr(sink()).startswith("PostgresSink(connection=None, table='flights', mode='append'")


def test_it_goes_to_the_tasks() -> None:
    given = sink(mode="upsert", key=("a", "b"), delete_marker="gone")
    assert pickle.loads(pickle.dumps(given)) == given


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("flights", '"flights"'),
        ("Air.Flights", '"Air"."Flights"'),
        ("select", '"select"'),
        ("o'hare; --", '"o\'hare; --"'),
    ],
)
def test_names_are_taken_letter_by_letter(text: str, quoted: str) -> None:
    name = TableName.parse(text, "table")
    assert (name.quoted, str(name)) == (quoted, text)


def test_locks_have_the_keys_they_always_had() -> None:
    """Members of different versions share a ledger."""
    assert lock_key("streamgroups_ledger", "billing", "flights", 3) == -1421616629372045499
