"""X2: PostgreSQL contains the rows of the tasks: every type, NULLs, appends, upserts by key in order, deletions."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from component_tests.postgres_process import GROUP, P0, open_at, sink, stage
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.stages import PostgresStaged


def commit(to: PostgresSink, staged: Sequence[PostgresStaged]) -> None:
    """Commits a batch at the position of the ledger."""
    open_at(to, {P0: 0})
    with to.open(GROUP) as ledger:
        at = ledger.positions([P0])[P0]
        commit_batch(ledger, {GROUP: [OffsetRange(P0, at, at + 1)]}, staged)


def write(to: PostgresSink, *tasks: pa.RecordBatch) -> None:
    """Writes a batch, and discards its stage."""
    staged = stage(to, *tasks)
    commit(to, staged)
    to.discard(staged[0].stage)


def rows(conninfo: str, query: str = "SELECT * FROM flights ORDER BY ctid") -> list[tuple[Any, ...]]:
    with psycopg.connect(conninfo) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # The binary format is exact, and does not depend on the settings of the database.
        return connection.execute(query, binary=True).fetchall()


def test_appending_keeps_the_order_and_what_was_there(postgres: str) -> None:
    to = sink(postgres)
    write(to, pa.record_batch({"id": [3, 1]}), pa.record_batch({"id": [2]}))
    write(to, pa.record_batch({"id": [1]}))
    assert rows(postgres) == [(3,), (1,), (2,), (1,)]


def test_only_what_is_named_becomes_output(postgres: str) -> None:
    """Failed or late task attempts have also staged rows."""
    to = sink(postgres)
    batch = pa.record_batch({"id": [1, 2]})
    stage_ = to.begin(batch.schema, "t")
    failed, good, empty = (to.write(stage_, iter([b]), i) for i, b in enumerate([batch, batch, batch.slice(0, 0)]))
    late = to.write(stage_, iter([batch]), 7)
    assert (failed.n_rows, good.n_rows, empty.n_rows, late.n_rows) == (2, 2, 0, 2)
    commit(to, [good, empty])
    assert rows(postgres) == [(1,), (2,)]
    commit(to, [empty])
    assert rows(postgres) == [(1,), (2,)]


def test_a_task_of_many_batches(postgres: str) -> None:
    to = sink(postgres)
    batches = [pa.record_batch({"id": range(i * 30_000, (i + 1) * 30_000)}) for i in range(3)]
    stage_ = to.begin(batches[0].schema, "t")
    commit(to, [to.write(stage_, iter(batches), 0)])
    assert rows(postgres, "SELECT count(*), count(DISTINCT id), max(id) FROM flights") == [(90_000, 90_000, 89_999)]


UPSERT: dict[str, Any] = {"mode": "upsert", "key": ("flight", "day"), "delete_marker": "gone"}


def flights(*given: tuple[str, int, str | None, bool | None]) -> pa.RecordBatch:
    flight, day, gate, gone = zip(*given, strict=True) if given else ([], [], [], [])
    return pa.record_batch(
        {
            "flight": pa.array(flight, pa.string()),
            "day": pa.array(day, pa.int32()),
            "gate": pa.array(gate, pa.string()),
            "gone": pa.array(gone, pa.bool_()),
        }
    )


def test_upserts_take_the_last_of_a_key_in_the_order_of_tasks_and_records(postgres: str) -> None:
    to = sink(postgres, **UPSERT)
    first = flights(("UA1", 1, "A1", False), ("UA1", 2, "A2", None), ("UA1", 1, "A3", False), ("DL5", 1, "D1", False))
    second = flights(("UA1", 1, "B1", False), ("DL5", 1, None, True), ("AA9", 1, None, True), ("AA9", 1, "C1", False))
    write(to, first, second)
    assert sorted(rows(postgres)) == [("AA9", 1, "C1"), ("UA1", 1, "B1"), ("UA1", 2, "A2")]
    write(to, flights(("UA1", 2, None, True), ("AA9", 1, None, False), ("XX0", 0, None, True)))
    assert sorted(rows(postgres), key=str) == [("AA9", 1, None), ("UA1", 1, "B1")]


def test_the_order_of_tasks_is_the_one_they_are_named_in(postgres: str) -> None:
    to = sink(postgres, mode="upsert", key=("id",))
    stage_ = to.begin(pa.schema({"id": pa.int64(), "of": pa.int64()}), "t")
    staged = [to.write(stage_, iter([pa.record_batch({"id": [1], "of": [i]})]), i) for i in (5, 3, 9)]
    commit(to, [staged[2], staged[0], staged[1]])
    assert rows(postgres) == [(1, 3)]


_KEYS = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 1))
_ROWS = st.tuples(_KEYS, st.none() | st.text("xy", max_size=2), st.booleans())


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(batches=st.lists(st.lists(st.lists(_ROWS, max_size=6), min_size=1, max_size=3), min_size=1, max_size=3))
def test_upserts_are_those_of_a_dictionary(postgres: str, batches: list[list[list[Any]]]) -> None:
    to, expected = sink(postgres, **UPSERT), dict[Any, Any]()
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS flights")
    for tasks in batches:
        for key, gate, gone in (row for task in tasks for row in task):
            expected.pop(key, None)
            if not gone:
                expected[key] = gate
        write(to, *(flights(*((*key, gate, gone) for key, gate, gone in task)) for task in tasks))
    assert {(flight, day): gate for flight, day, gate in rows(postgres)} == expected


def test_a_row_to_delete_needs_nothing_but_its_key(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE flights (flight text, day int, gate text NOT NULL, PRIMARY KEY (day, flight))")
        connection.execute("INSERT INTO flights VALUES ('UA1', 1, 'A1')")
    write(sink(postgres, **UPSERT), flights(("UA1", 1, None, True), ("UA2", 1, "A2", False)))
    assert rows(postgres) == [("UA2", 1, "A2")]


def test_a_delete_marker_can_have_the_name_of_a_system_column(postgres: str) -> None:
    to = sink(postgres, mode="upsert", key=("id",), delete_marker="xmax")
    write(to, pa.record_batch({"id": [1, 2], "xmax": [False, False]}))
    write(to, pa.record_batch({"id": [1], "xmax": [True]}))
    assert rows(postgres) == [(2,)]


def test_columns_that_the_records_lack_are_left_alone(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute(
            "CREATE TABLE flights (n bigserial, id int UNIQUE, gate text, remark text NOT NULL DEFAULT 'new',"
            " twice int GENERATED ALWAYS AS (id * 2) STORED)"
        )
        connection.execute("INSERT INTO flights (id, gate, remark) VALUES (1, 'A1', 'kept')")
    to = sink(postgres, mode="upsert", key=("id",), create_table=False)
    write(to, pa.record_batch({"gate": ["B1", "B2"], "id": [1, 2]}))
    found = rows(postgres, "SELECT id, gate, remark, twice FROM flights ORDER BY id")
    assert found == [(1, "B1", "kept", 2), (2, "B2", "new", 4)]


def test_what_the_table_has_decides_how_text_is_read(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('late', 'on time')")
        connection.execute("CREATE DOMAIN gate AS varchar(3) CHECK (VALUE ~ '^[A-Z]')")
        connection.execute(
            'CREATE TABLE flights (a jsonb, b uuid, c inet, d mood, e gate, f smallint, g numeric(5,1), "H h" float4)'
        )
    values: dict[str, Any] = {
        "a": ['{"x":  1}'],
        "b": ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
        "c": ["10.0.0.1"],
        "d": ["late"],
        "e": ["A12"],
        "f": pa.array([7], pa.int64()),
        "g": [1.5],
        "H h": [3],
    }
    write(sink(postgres), pa.record_batch(values))
    found = rows(postgres, "SELECT a->>'x', b::text, host(c), d::text, e, f, g, \"H h\" FROM flights")
    uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert found == [("1", uuid, "10.0.0.1", "late", "A12", 7, decimal.Decimal("1.5"), 3.0)]


_MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
#: For each column: its type, its values, and the values that PostgreSQL returns.
_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pa.float64(), st.floats(allow_nan=False)),
    "decimal": (pa.decimal128(20, 5), st.decimals(-(10**14), 10**14, places=5)),
    "string": (pa.string(), _TEXTS),
    "binary": (pa.binary(), st.binary(max_size=8)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp": (pa.timestamp("us"), _MOMENTS),
    "timestamptz": (pa.timestamp("us", "UTC"), _MOMENTS.map(lambda at: at.replace(tzinfo=dt.timezone.utc))),
    "interval": (pa.duration("us"), st.timedeltas(dt.timedelta(-9999), dt.timedelta(9999))),
    "list": (pa.list_(pa.string()), st.lists(st.none() | _TEXTS, max_size=3)),
    "struct": (
        pa.struct({"a": pa.int64(), "b": pa.list_(pa.float64())}),
        st.fixed_dictionaries(
            {"a": st.none() | st.integers(-(2**63), 2**63 - 1), "b": st.lists(st.floats(-1e9, 1e9), max_size=2)}
        ),
    ),
}
_TYPED_ROWS = st.lists(st.tuples(*(st.none() | values for _, values in _COLUMNS.values())), max_size=4)


@settings(
    max_examples=10, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(written=_TYPED_ROWS)
def test_every_type_comes_back(postgres: str, written: list[tuple[Any, ...]]) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP TABLE IF EXISTS flights")
    columns = zip(*written, strict=True) if written else [()] * len(_COLUMNS)
    arrays = [pa.array(values, t) for values, (t, _) in zip(columns, _COLUMNS.values(), strict=True)]
    write(sink(postgres), pa.record_batch(arrays, names=list(_COLUMNS)))
    assert rows(postgres) == written


def test_what_is_no_number_comes_back(postgres: str) -> None:
    values = pa.array([float("nan"), float("inf"), -float("inf")])
    write(sink(postgres), pa.record_batch({"a": values, "b": values.cast(pa.float32())}))
    found = rows(postgres, "SELECT a::text, b::text FROM flights ORDER BY ctid")
    assert found == [("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity")]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_points_in_time_whatever_the_zone(postgres: str, unit: str) -> None:
    at = dt.datetime(2013, 7, 1, 12, 30, tzinfo=dt.timezone.utc)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("ALTER DATABASE " + connection.info.dbname + " SET TimeZone = 'America/New_York'")
        connection.execute("ALTER DATABASE " + connection.info.dbname + " SET DateStyle = 'German'")
    batch = pa.record_batch({"at": pa.array([at], pa.timestamp(unit, "Asia/Tokyo")), "day": [dt.date(2013, 2, 3)]})
    write(sink(postgres), batch)
    assert rows(postgres, "SELECT at, day FROM flights") == [(at, dt.date(2013, 2, 3))]
