"""A Delta table on an object store is written exactly once, also if the response of the store to a commit is lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import streamgroups as sg
from component_tests.delta_tables import GROUP, commit, open_at, partition, records, stage, write_batch
from component_tests.object_store import BUCKET, ObjectStore
from streamgroups.errors import SinkRejected, SinkUnreachable, StreamGroupsError
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


def _sink(store: ObjectStore, **settings: Any) -> sg.DeltaSink:
    return sg.DeltaSink(uri=f"s3://{BUCKET}/flights", storage_options=store.storage_options, **settings)


def _rows(sink: sg.DeltaSink) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        DeltaTable(sink.uri, storage_options=dict(sink.storage_options)).to_pyarrow_table().to_pylist()
    )
    return sorted(rows, key=str)


def _offsets(sink: sg.DeltaSink, number: int = 0) -> list[int]:
    return sorted(row["offset"] for row in _rows(sink) if row["partition"] == number)


def test_partitions_are_overwritten_and_rows_are_merged(store: ObjectStore) -> None:
    sink = _sink(store, mode="overwrite_partitions", partition_by=("p",))
    open_at(sink)
    write_batch(sink, 0, 1, pa.table({"p": ["a b", "é", None], "id": [1, 2, 3]}))
    write_batch(sink, 1, 2, pa.table({"p": ["a b", None], "id": [4, 5]}))
    merging = _sink(store, mode="upsert", key=("id",), schema_evolution=True)
    write_batch(merging, 2, 3, pa.table({"p": ["a b", "c"], "id": [4, 6], "new": [1, 2]}))
    assert [(row["id"], row["p"], row["new"]) for row in sorted(_rows(sink), key=lambda row: row["id"])] == [
        (2, "é", None),
        (4, "a b", 1),
        (5, None, None),
        (6, "c", 2),
    ]


def test_identifiers_are_read_from_a_checkpoint_without_a_lookup_of_each(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = _sink(store)
    for number in range(3):
        open_at(sink, 7, number=number)
    write_batch(sink, 7, 9)
    DeltaTable(sink.uri, storage_options=dict(sink.storage_options)).create_checkpoint()
    write_batch(sink, 9, 12)
    monkeypatch.delattr(DeltaTable, "transaction_version")
    requested = [partition(number) for number in range(4)]
    with sink.open(GROUP) as ledger:
        assert ledger.positions(requested) == dict(zip(requested, (12, 7, 7), strict=False))


def test_members_at_once_lose_and_repeat_nothing(store: ObjectStore) -> None:
    sink = _sink(store)

    def member(number: int) -> None:
        open_at(sink, number=number)
        for begin in range(0, 40, 10):
            assert write_batch(sink, begin, begin + 10, number=number) == "CommitGroups"

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(member, range(3)))
    assert [_offsets(sink, number) for number in range(3)] == [list(range(40))] * 3


def test_a_commit_whose_answer_is_lost_is_not_done_twice(store: ObjectStore) -> None:
    sink = _sink(store)
    open_at(sink)
    begun, staged = stage(sink, records(0, 5))
    ranges = [OffsetRange(partition(0), 0, 5)]
    version = DeltaTable(sink.uri, storage_options=store.storage_options).version() + 1
    store.lose_answers_for(f"{version:020}.json")
    with sink.open(GROUP) as ledger, pytest.raises(StreamGroupsError) as lost:
        commit_batch(ledger, {GROUP: ranges}, staged)
    assert lost.value.retriable
    assert commit(sink, ranges, staged) == "AlreadyDone"
    sink.discard(begun)
    assert _offsets(sink) == list(range(5))


def test_a_store_that_is_lost_in_the_middle_of_a_commit_is_reported_without_secrets() -> None:
    with ObjectStore() as store:
        sink = _sink(store)
        open_at(sink)
        _, staged = stage(sink, records(0, 5))
        with sink.open(GROUP) as ledger:
            transaction = ledger.transaction()
            inside = transaction.__enter__()
            inside.positions([partition(0)])
            inside.write(staged)
            inside.advance({partition(0): 5})
    with pytest.raises(SinkUnreachable, match="A batch of group 'billing' may or may not be committed") as raised:
        transaction.__exit__(None, None, None)
    assert "hunter" not in str(raised.value)


def test_discarding_leaves_what_may_still_be_committed_and_removes_what_may_not(store: ObjectStore) -> None:
    sink = _sink(store)
    open_at(sink)
    begun, staged = stage(sink, records(0, 5))
    sink.write(begun, iter(records(0, 5).to_batches()), 9)
    sink.discard(begun)
    assert len([key for key in store.sizes if begun.directory in key]) == 2
    assert commit(sink, [OffsetRange(partition(0), 0, 5)], staged) == "CommitGroups"
    sink.discard(begun)
    assert [key for key in store.sizes if begun.directory in key] == [f"flights/{staged[0].files[0].path}"]
    assert _offsets(sink) == list(range(5))


def test_large_files_come_through_whole(store: ObjectStore) -> None:
    sink = _sink(store)
    open_at(sink)
    table = pa.table({"id": range(400_000), "text": [f"{i * 7919 % 1_000_003:032x}" * 3 for i in range(400_000)]})
    write_batch(sink, 0, 1, table)
    assert max(store.sizes.values()) > 6_000_000  # sent in parts
    found = DeltaTable(sink.uri, storage_options=store.storage_options).to_pyarrow_table()
    assert found.sort_by("id").equals(table.cast(found.schema))


def test_a_table_that_is_missing_is_rejected(store: ObjectStore) -> None:
    with pytest.raises(SinkRejected, match=r"Delta table s3://bucket/flights does not exist.*create_table=True"):
        _sink(store, create_table=False).open(GROUP)
