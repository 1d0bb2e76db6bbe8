"""A Delta table is created, checked, changed and written according to the settings of the sink, and other readers can
read it.
"""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

import streamgroups as sg
from component_tests.delta_tables import GROUP, commit, open_at, partition, read_by_hand, records, stage, write_batch
from streamgroups.errors import (
    NotAuthorized,
    RecordRejected,
    SinkRejected,
    SinkUnreachable,
    StageLost,
)
from streamgroups.partitions import OffsetRange
from streamgroups_sinks.delta.tables import Overtaken


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "flights")


def _rows(uri: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return sorted(rows, key=str)


def _ids(uri: str) -> list[int]:
    return sorted(row["id"] for row in _rows(uri))


# ---- types ---------------------------------------------------------------------------------------------------------

_TYPES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("id", pa.int64(), [1, 2, 3]),
    ("int8", pa.int8(), [-128, None, 127]),
    ("int16", pa.int16(), [-(2**15), None, 1]),
    ("int32", pa.int32(), [-(2**31), None, 1]),
    ("float32", pa.float32(), [0.5, None, float("-inf")]),
    ("float64", pa.float64(), [0.1, None, float("inf")]),
    ("flag", pa.bool_(), [True, None, False]),
    ("text", pa.string(), ["", None, "é😀"]),
    ("large", pa.large_string(), ["x" * 1000, None, "b"]),
    ("bytes", pa.binary(), [b"", None, b"\x00\xff"]),
    ("day", pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    ("at", pa.timestamp("us", "Europe/Berlin"), [datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc), None, None]),
    ("local", pa.timestamp("us"), [datetime(1900, 1, 2, 3, 4, 5, 6), None, None]),
    ("price", pa.decimal128(38, 10), [Decimal("1234567890123456789.0123456789"), None, Decimal("-0.0000000001")]),
    ("list", pa.list_(pa.int64()), [[1, None], None, []]),
    ("struct", pa.struct([("x", pa.int64()), ("y", pa.string())]), [{"x": 1, "y": None}, None, {"x": None, "y": "a"}]),
    ("map", pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", None)], None, []]),
]


def test_every_type_and_null_is_read_back_as_it_was(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    table = pa.table({name: pa.array(values, of) for name, of, values in _TYPES})
    open_at(sink)
    write_batch(sink, 0, 3, table)
    found = DeltaTable(uri).to_pyarrow_table().sort_by("id")
    assert {name: found[name].to_pylist() for name in found.column_names} == {
        name: table[name].to_pylist() for name in table.column_names
    }
    assert sorted(read_by_hand(uri), key=str) == sorted(found.to_pylist(), key=str)


def test_readers_that_go_by_statistics_leave_no_row_out(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    # One file for each column, because a file with several columns could lack bounds for a supported one.
    compared = [(name, of, values) for name, of, values in _TYPES if not pa.types.is_nested(of)]
    everything = pa.schema([(name, of) for name, of, _ in compared])
    for position, (name, of, values) in enumerate(compared):
        others = {field.name: pa.nulls(3, field.type) for field in everything if field.name != name}
        batch = pa.table(others | {name: pa.array(values, of)}).select(everything.names)
        write_batch(sink, position, position + 1, batch)
    table = DeltaTable(uri)
    stored = pa.schema(table.schema().to_arrow())
    for name, of, values in compared:
        field = pc.field(name)
        for value in values:
            required = field.is_null() if value is None else field == pa.scalar(value, of).cast(stored.field(name).type)
            n_rows = values.count(None) + 3 * (len(compared) - 1) if value is None else 1
            assert table.to_pyarrow_dataset().filter(required).count_rows() == n_rows, (name, value)


_PARTITIONED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a b", "x/y%z=é", "__HIVE_DEFAULT_PARTITION__", "'", None]),
    (pa.int32(), [-1, 0, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [date(2026, 1, 2), date(1, 1, 1), None]),
    (pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, 3, 4, 5, 6, timezone.utc), None]),
    (pa.timestamp("us"), [datetime(2026, 1, 2, 3, 4, 5, 6), None]),
    (pa.decimal128(20, 0), [Decimal("150"), Decimal("-100"), Decimal("-5"), None]),
]


@pytest.mark.parametrize(("of", "values"), _PARTITIONED, ids=lambda v: str(v) if isinstance(v, pa.DataType) else "")
def test_partition_values_are_read_back_as_they_were(uri: str, of: pa.DataType, values: list[Any]) -> None:
    sink = sg.DeltaSink(uri=uri, mode="overwrite_partitions", partition_by=("p",))
    open_at(sink)
    first = pa.table({"p": pa.array(values * 2, of), "id": range(2 * len(values))})
    write_batch(sink, 0, 1, first)
    assert _rows(uri) == sorted(first.to_pylist(), key=str)
    assert DeltaTable(uri).metadata().partition_columns == ["p"]
    # Each partition can also be replaced.
    for position, value in enumerate(values, 1):
        write_batch(sink, position, position + 1, pa.table({"p": pa.array([value], of), "id": [100 + position]}))
    assert [(row["p"], row["id"]) for row in sorted(_rows(uri), key=lambda row: row["id"])] == [
        (value, 100 + position) for position, value in enumerate(values, 1)
    ]


# ---- modes ---------------------------------------------------------------------------------------------------------


def test_partitions_that_others_have_written_are_overwritten(uri: str) -> None:
    write_deltalake(uri, pa.table({"p": ["a b", "é/%", "c", None], "id": [1, 2, 3, 4]}), partition_by=["p"])
    sink = sg.DeltaSink(uri=uri, mode="overwrite_partitions", partition_by=("p",))
    open_at(sink)
    write_batch(sink, 0, 1, pa.table({"p": ["a b", "é/%", None, "new"], "id": [11, 12, 14, 15]}))
    assert _ids(uri) == [3, 11, 12, 14, 15]


def test_partitions_are_overwritten_by_all_of_their_columns(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri, mode="overwrite_partitions", partition_by=("p", "q"))
    open_at(sink)
    write_batch(sink, 0, 1, pa.table({"p": ["a", "a", "b"], "id": [1, 2, 3], "q": [1, 2, 1]}))
    # Two tasks with rows of one partition: the rows of both are written.
    write_batch(sink, 1, 2, *(pa.table({"p": ["a"], "id": [i], "q": [2]}) for i in (4, 5)))
    assert _ids(uri) == [1, 3, 4, 5]


def test_rows_are_merged_by_key_and_marked_ones_deleted(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("Id", "k`e.y"), delete_marker="gone")

    def batch(begin: int, *rows: tuple[int, str, str, bool | None]) -> None:
        ids, keys, values, gone = zip(*rows, strict=True)
        table = pa.table({"Id": ids, "k`e.y": keys, "Value": values, "gone": pa.array(gone, pa.bool_())})
        assert write_batch(sink, begin, begin + 1, table) == "CommitGroups"

    def found() -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in _rows(uri)]

    open_at(sink)
    batch(0, (1, "a", "first", False), (2, "a", "first", None), (3, "a", "never", True))
    assert found() == [(1, "a", "first"), (2, "a", "first")]
    batch(1, (1, "a", "second", False), (1, "b", "new", False), (2, "a", "late", False), (2, "a", "late", True))
    assert found() == [(1, "a", "second"), (1, "b", "new")]
    # deltalake commits nothing if no row changes; the position advances nevertheless.
    batch(2, (9, "z", "never", True))
    batch(3, (2, "a", "back", True), (2, "a", "back", False))
    assert found() == [(1, "a", "second"), (1, "b", "new"), (2, "a", "back")]
    assert open_at(sink) == 4
    assert not list(Path(uri).glob("batch-*"))


def test_a_merge_that_is_overtaken_is_done_again_on_top(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("id",))
    open_at(sink)
    write_batch(sink, 0, 1, pa.table({"id": [1, 2], "by": ["a", "a"]}))
    _, staged = stage(sink, pa.table({"id": [2, 3], "by": ["b", "b"]}))
    with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
        transaction.write(staged)
        transaction.advance({partition(1): 1})
        write_batch(sink, 1, 2, pa.table({"id": [3, 4], "by": ["c", "c"]}))
    assert [(row["id"], row["by"]) for row in _rows(uri)] == [(1, "a"), (2, "b"), (3, "b"), (4, "c")]


# ---- the table's columns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.parametrize("of", [pa.int32(), pa.timestamp("us")], ids=str)
def test_a_ledger_that_is_opened_first_makes_a_table_without_columns_yet(
    uri: str, partition_by: tuple[str, ...], of: pa.DataType
) -> None:
    sink = sg.DeltaSink(uri=uri, partition_by=partition_by)
    assert open_at(sink, 7) == 7
    table = pa.table({"p": pa.array([1], of), "id": [1]})
    write_batch(sink, 7, 8, table)
    assert DeltaTable(uri).to_pyarrow_table().select(["p", "id"]).equals(table)
    assert (DeltaTable(uri).metadata().partition_columns, open_at(sink)) == (list(partition_by), 8)


def test_new_columns_are_added_if_the_setting_permits_it(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    write_batch(sink, 0, 1, pa.table({"id": [1]}))
    wider = pa.table({"id": [2], "at": pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), "l": [["x"]]})
    with pytest.raises(SinkRejected, match=r"has no column 'at', 'l'\. Set schema_evolution=True"):
        sink.begin(wider.schema, "a")
    version = DeltaTable(uri).version()
    write_batch(sg.DeltaSink(uri=uri, schema_evolution=True), 1, 2, wider)
    assert _rows(uri) == [{"id": 1, "at": None, "l": None}, {"id": 2, "at": datetime(2026, 1, 1), "l": ["x"]}]
    assert DeltaTable(uri).version() > version
    # Records without the column are still accepted.
    write_batch(sink, 2, 3, pa.table({"id": [3]}))
    assert _ids(uri) == [1, 2, 3]


def test_members_that_add_the_same_column_at_once_get_on_with_each_other(uri: str) -> None:
    write_deltalake(uri, pa.table({"id": [1]}))
    sink = sg.DeltaSink(uri=uri, schema_evolution=True)
    target, wider = sink._target, pa.schema([("id", pa.int64()), ("b", pa.string())])
    before = target.open()
    sink.begin(wider, "a")
    assert [f.name for f in target.fits(before, wider).new] == ["b"]
    # A writer with the old version of the schema does not change the new one.
    with pytest.raises(Overtaken):
        target._add_columns(before, target.fits(before, wider))
    assert DeltaTable(uri).schema().to_arrow().names == ["id", "b"]


@pytest.mark.parametrize(
    ("settings", "schema", "why"),
    [
        (
            {},
            {"id": pa.string(), "p": pa.string()},
            "Column 'id' is of type string, but in table .* it is int64. Cast it",
        ),
        ({}, {"ID": pa.int64(), "p": pa.string()}, "Column 'ID' is called 'id' in table"),
        (
            {},
            {"id": pa.int64(), "wait": pa.duration("us")},
            "Column 'wait' is of type duration.us., which Delta Lake does not support",
        ),
        ({"partition_by": ("id",)}, {"id": pa.int64(), "p": pa.string()}, "is partitioned by 'p', not by 'id'"),
        ({}, {"id": pa.int64()}, "is partitioned by 'p', but the records have no such column"),
        ({"partition_by": ("q",)}, {"id": pa.int64()}, "The records have no column 'q', which partition_by requires"),
        ({"mode": "upsert", "key": ("k",)}, {"id": pa.int64()}, "The records have no column 'k', which key requires"),
        (
            {"mode": "upsert", "key": ("id",), "delete_marker": "p"},
            {"id": pa.int64(), "p": pa.string()},
            "Column 'p' is of type string, but a delete marker must be boolean. Cast it",
        ),
        ({"partition_by": ("id",)}, {"id": pa.int64()}, "only the columns of partition_by"),
        (
            {"partition_by": ("x",)},
            {"id": pa.int64(), "x": pa.float64()},
            "Column 'x' of partition_by is of type double",
        ),
        *(
            (
                {"partition_by": ("x",), **mode},
                {"id": pa.int64(), "x": pa.decimal128(10, 2)},
                "Column 'x' of partition_by is of type decimal128.10, 2.: deltalake",
            )
            for mode in ({}, {"mode": "overwrite_partitions"}, {"mode": "upsert", "key": ("id",)})
        ),
    ],
)
def test_records_that_do_not_fit_are_rejected_and_nothing_changes(
    uri: str, settings: dict[str, Any], schema: dict[str, pa.DataType], why: str
) -> None:
    write_deltalake(uri, pa.table({"id": [1], "p": ["a"]}), partition_by=["p"])
    with pytest.raises(SinkRejected, match=why) as rejected:
        sg.DeltaSink(uri=uri, schema_evolution=True, **settings).begin(pa.schema(schema), "a")
    assert rejected.value.remedy
    assert DeltaTable(uri).version() == 0


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_that_is_partitioned_by_fractions_is_rejected(uri: str, mode: Literal["append", "upsert"]) -> None:
    prices = pa.table({"p": pa.array([Decimal("1.50")], pa.decimal128(10, 2)), "id": [1]})
    write_deltalake(uri, prices, partition_by=["p"])
    sink = sg.DeltaSink(uri=uri, mode=mode, key=("id",) if mode == "upsert" else ())
    with pytest.raises(SinkRejected, match="Column 'p' of the table's partitioning is of type decimal"):
        sink.begin(prices.schema, "a")


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_constraints_are_kept_or_the_table_is_rejected(uri: str, mode: Literal["append", "upsert"]) -> None:
    write_deltalake(uri, pa.table({"id": [1]}))
    DeltaTable(uri).alter.add_constraint({"positive": "id > 0"})
    sink = sg.DeltaSink(uri=uri, mode=mode, key=("id",) if mode == "upsert" else ())
    open_at(sink)
    with pytest.raises((SinkRejected, RecordRejected)[mode == "upsert"], match=r"positive|failed validation"):
        write_batch(sink, 0, 1, pa.table({"id": [-1]}))
    assert (_ids(uri), open_at(sink)) == ([1], 0)


@pytest.mark.parametrize("constraint", [{"later": "until > since"}, {"later": "until > since", "positive": "id > 0"}])
def test_a_constraint_with_columns_that_the_records_lack_is_checked_by_the_commit(
    uri: str, constraint: dict[str, str]
) -> None:
    """The values of these columns are in the row of the table that a record updates."""
    write_deltalake(uri, pa.table({"id": [1, 2], "since": [0, 0], "until": [5, 9]}))
    for name, condition in constraint.items():
        DeltaTable(uri).alter.add_constraint({name: condition})
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("id",))
    open_at(sink)
    assert write_batch(sink, 0, 2, pa.table({"id": [1, 2], "since": [4, 8]})) == "CommitGroups"
    for these in (pa.table({"id": [1, 2], "since": [5, 8]}), pa.table({"id": [2, 3], "since": [7, 7]})):
        begun, staged = stage(sink, these)
        with pytest.raises(RecordRejected, match=r"failed validation|later"):
            commit(sink, [OffsetRange(partition(0), 2, 4)], staged)
        sink.discard(begun)
    assert sorted(DeltaTable(uri).to_pyarrow_table().column("since").to_pylist()) == [4, 8]
    assert open_at(sink) == 2
    if "positive" in constraint:
        with pytest.raises(RecordRejected, match="positive"):
            stage(sink, pa.table({"id": [-1], "since": [0]}))


def test_a_null_that_may_not_be_is_rejected_in_the_task(uri: str) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("remark", pa.string())])
    DeltaTable.create(uri, strict)
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    with pytest.raises(RecordRejected, match="Row 1 of the task has null in column 'id'"):
        stage(sink, pa.table({"id": [1, None]}))
    merging = sg.DeltaSink(uri=uri, mode="upsert", key=("remark",))
    with pytest.raises(RecordRejected, match="Row 0 of the task has null in column 'remark'"):
        stage(merging, pa.table({"id": [1], "remark": pa.array([None], pa.string())}))
    assert write_batch(sink, 0, 1, pa.table({"id": [1]})) == "CommitGroups"


def test_a_row_that_deletes_need_not_be_whole(uri: str) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    DeltaTable.create(uri, strict)
    sink = sg.DeltaSink(uri=uri, mode="upsert", key=("id",), delete_marker="gone")
    open_at(sink)

    def batch(begin: int, n: list[int | None], gone: list[bool]) -> str:
        rows = {"id": pa.array([1, 2], pa.int64()), "n": pa.array(n, pa.int64()), "gone": gone}
        return write_batch(sink, begin, begin + 1, pa.table(rows))

    batch(0, [5, 6], [False, False])
    with pytest.raises(RecordRejected):
        batch(1, [None, 7], [False, False])
    assert _rows(uri) == [{"id": 1, "n": 5}, {"id": 2, "n": 6}]
    batch(1, [None, 7], [True, False])
    assert _rows(uri) == [{"id": 2, "n": 7}]


@pytest.mark.parametrize("partition_by", [("p",), ("f",)])
def test_a_table_without_columns_yet_is_left_as_it_is_by_what_does_not_fit(
    uri: str, partition_by: tuple[str, ...]
) -> None:
    open_at(sg.DeltaSink(uri=uri, partition_by=partition_by))
    version = DeltaTable(uri).version()
    with pytest.raises(SinkRejected, match="partition"):
        sg.DeltaSink(uri=uri).begin(pa.schema([("id", pa.int64()), ("f", pa.float64())]), "a")
    assert DeltaTable(uri).version() == version


def test_columns_that_change_under_a_batch_are_reported(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    _, staged = stage(sink, pa.table({"id": [1]}))

    def late() -> None:
        with sink.open(GROUP) as ledger, ledger.transaction() as transaction:
            transaction.write(staged)
            transaction.advance({partition(0): 1})
            write_deltalake(uri, pa.table({"id": ["a"]}), mode="overwrite", schema_mode="overwrite")

    with pytest.raises(SinkRejected, match=r"Column 'id' is of type int64, but in table .* it is string"):
        late()
    assert [row["id"] for row in _rows(uri)] == ["a"]


def test_a_new_column_under_a_batch_does_no_harm(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    _, staged = stage(sink, pa.table({"id": [1]}))
    sg.DeltaSink(uri=uri, schema_evolution=True).begin(pa.schema([("id", pa.int64()), ("new", pa.string())]), "a")
    assert commit(sink, [OffsetRange(partition(0), 0, 1)], staged) == "CommitGroups"
    assert _rows(uri) == [{"id": 1, "new": None}]


def test_a_table_that_is_missing_is_not_made_against_the_user_s_will(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri, create_table=False)
    for use in (lambda: sink.begin(pa.schema([("id", pa.int64())]), "a"), lambda: sink.open(GROUP)):
        with pytest.raises(SinkRejected, match=r"Delta table .* does not exist.* create_table=True"):
            use()
    assert not Path(uri).exists()


# ---- the store -----------------------------------------------------------------------------------------------------


def test_a_store_that_does_not_respond_is_reported_without_secrets() -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "nowhere",
        "AWS_ACCESS_KEY_ID": "hunter1",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "max_retries": "0",
    }
    sink = sg.DeltaSink(uri="s3://bucket/flights", storage_options=options)
    for use in (lambda: sink.open(GROUP), lambda: sink.begin(pa.schema([("id", pa.int64())]), "a")):
        with pytest.raises(SinkUnreachable, match="s3://bucket/flights") as raised:
            use()
        assert "hunter" not in str(raised.value)


@contextmanager
def _as_unprivileged() -> Iterator[None]:
    """Drops superuser privileges, which override permissions."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_missing_permission_is_reported_and_nothing_is_written(uri: str, tmp_path: Path) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    begun, staged = stage(sink, records(0, 5))
    for folder in (*tmp_path.parents[:2], tmp_path, Path(uri), *Path(uri).rglob("*")):
        folder.chmod(0o755 if folder in tmp_path.parents or folder == tmp_path else 0o555)
    try:
        with _as_unprivileged():
            with pytest.raises(NotAuthorized, match="Grant this user the right"):
                sink.write(begun, iter(records(0, 5).to_batches()), 7)
            with pytest.raises(NotAuthorized, match="Grant this user the right"):
                commit(sink, [OffsetRange(partition(0), 0, 5)], staged)
            sink.discard(begun)
    finally:
        for folder in (Path(uri), *Path(uri).rglob("*")):
            folder.chmod(0o755)
    assert commit(sink, [OffsetRange(partition(0), 0, 5)], staged) == "CommitGroups"
    assert len(read_by_hand(uri)) == 5


def test_a_full_disk_is_reported_and_the_batch_is_committed_later(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    begun = sink.begin(pa.schema([("bytes", pa.binary())]), "a")
    large = pa.table({"bytes": [os.urandom(1_000_000)]})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(SinkUnreachable, match="Free disk space"):
            sink.write(begun, iter(large.to_batches()), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    staged = sink.write(begun, iter(large.to_batches()), 1)
    assert commit(sink, [OffsetRange(partition(0), 0, 1)], [staged]) == "CommitGroups"
    sink.discard(begun)
    assert len(list(Path(uri).glob("batch-a/*"))) == 1


def test_a_table_that_is_lost_is_not_made_up_again(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    _, staged = stage(sink, records(0, 5))
    with sink.open(GROUP) as ledger:
        shutil.rmtree(uri)
        with pytest.raises(SinkRejected, match=r"Delta table .* does not exist"):
            ledger.positions([partition(0)])

        def late() -> None:
            open_at(sink)
            with ledger.transaction() as transaction:
                transaction.write(staged)
                transaction.advance({partition(0): 5})

        with pytest.raises(SinkRejected, match="was recreated after the batch began"):
            late()

        def lost() -> None:
            with ledger.transaction() as transaction:
                transaction.advance({partition(0): 5})
                shutil.rmtree(uri)

        with pytest.raises((SinkRejected, SinkUnreachable)):
            lost()
    assert not DeltaTable.is_deltatable(uri)


def test_staged_files_that_are_gone_are_not_committed(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    begun, staged = stage(sink, records(0, 5))
    sink.discard(begun)
    with pytest.raises(StageLost, match="is missing or has another size"):
        commit(sink, [OffsetRange(partition(0), 0, 5)], staged)
    assert (open_at(sink), read_by_hand(uri)) == (0, [])


def test_discarding_leaves_what_was_committed_and_removes_the_rest(uri: str) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    begun, staged = stage(sink, records(0, 5))
    # A failed task attempt that has written its file.
    sink.write(begun, iter(records(0, 5).to_batches()), 9)
    commit(sink, [OffsetRange(partition(0), 0, 5)], staged)
    # Files of earlier committed versions remain too.
    DeltaTable(uri).delete("offset >= 0")
    version = DeltaTable(uri).version() - 1
    for _ in range(2):
        sink.discard(begun)
    assert [str(path.relative_to(uri)) for path in Path(uri).glob("batch-*/*")] == [staged[0].files[0].path]
    assert DeltaTable(uri, version=version).to_pyarrow_table().num_rows == 5


def test_discarding_leaves_everything_if_the_log_is_unreadable(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    sink = sg.DeltaSink(uri=uri)
    open_at(sink)
    begun, staged = stage(sink, records(0, 5))
    write_batch(sink, 0, 5)
    write_batch(sink, 5, 6)
    DeltaTable(uri).create_checkpoint()
    for entry in sorted(Path(uri, "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    sink.discard(begun)
    assert Path(uri, staged[0].files[0].path).exists()
    shutil.rmtree(uri)
    sink.discard(begun)
    assert "were left in table" in caplog.text
