"""X2, X3: the ledger in PostgreSQL with more partitions than the server has space for locks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any
from unittest import mock

import psycopg
import pytest

from component_tests.postgres_process import GROUP, offsets, sink, stage
from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import LedgerConflict, SinkUnreachable
from streamgroups.groups.membership import Owned
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.ledgers.compare_and_swap import CommitGroups
from streamgroups.ledgers.fences import fence_partitions
from streamgroups.ledgers.ledger_states import state_partition
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_sinks.postgres import position_locks
from streamgroups_sinks.postgres.ledger import PostgresLedger
from streamgroups_sinks.postgres.table_names import TableName
from streamgroups_testkit.waits import wait_until

FEW, MANY = "few", "many"


def partitions(first: int, end: int) -> list[TopicPartition]:
    return [TopicPartition("flights", number) for number in range(first, end)]


@pytest.fixture
def table(postgres: str) -> str:
    """The connection string of a database with an empty ledger."""
    with sink(postgres).open(GROUP):
        return postgres


@pytest.fixture
def few_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction with more than two partitions has many."""
    monkeypatch.setattr(position_locks, "_MAX_EXACT", 2)


def ledger(conninfo: str, **times: int) -> closing[PostgresLedger]:
    return closing(PostgresLedger(conninfo, TableName(None, "streamgroups_ledger"), GROUP, **times))


def take_over(conninfo: str, tps: list[TopicPartition], at: int = 0, epoch: int = 1) -> dict[TopicPartition, int]:
    owned = {tp: Owned(at, epoch=epoch) for tp in tps}
    with ledger(conninfo) as to:
        taken = take_over_partitions(to, owned, OnRestart.CHECKPOINT, group_id=GROUP, is_owner=lambda _: True)
    return dict(taken.next_offsets)


def waits(conninfo: str) -> bool:
    with psycopg.connect(conninfo) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())


def n_advisory_locks(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        ((n_locks,),) = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchall()
    return int(n_locks)


@pytest.mark.parametrize(("n_partitions", "n_locks"), [(256, 257), (257, 1), (10_000, 1)])
def test_x3_new_partitions_need_few_locks(table: str, n_partitions: int, n_locks: int) -> None:
    """One for the group, and one for each partition up to a maximum, whatever the number of their positions is."""
    tps = partitions(0, n_partitions)
    with ledger(table) as to, to.transaction() as transaction:
        transaction.positions([*tps, *map(state_partition, tps), *fence_partitions(tps)])
        transaction.advance(dict.fromkeys(tps, 0))
        assert n_advisory_locks(table) == n_locks


def test_x3_two_members_commit_5000_partitions_each_at_the_same_time(table: str) -> None:
    one, other = partitions(0, 5_000), partitions(5_000, 10_000)
    assert len(take_over(table, one)) == len(take_over(table, other)) == 5_000
    with ledger(table) as first, first.transaction() as holding:
        assert len(holding.positions([*one, *fence_partitions(one)])) == 10_000
        holding.advance(dict.fromkeys(one, 10))
        assert n_advisory_locks(table) == 0
        ranges = [OffsetRange(tp, 0, 10) for tp in other]
        with ledger(table, lock_ms=5_000) as second:
            verdict = commit_batch(second, {GROUP: ranges}, None, epochs={GROUP: dict.fromkeys(other, 1)})
        assert isinstance(verdict, CommitGroups)
    with ledger(table) as found:
        assert set(found.positions([*one, *other]).values()) == {10}


@pytest.mark.usefixtures("few_locks")
@pytest.mark.parametrize("are_there", [0, 1, 4], ids=["no row", "some rows", "all rows"])
@pytest.mark.parametrize("second", [FEW, MANY])
@pytest.mark.parametrize("first", [FEW, MANY])
def test_x3_transactions_of_one_partition_exclude_each_other(
    table: str, first: str, second: str, are_there: int
) -> None:
    """Both advance the same partition, with few or many others."""
    sets = {FEW: partitions(3, 4), MANY: partitions(0, 4)}
    if are_there:
        take_over(table, partitions(4 - are_there, 4))
    begun, order = threading.Event(), list[str]()

    def other() -> None:
        begun.wait(30)
        with ledger(table) as to, to.transaction() as transaction:
            # A position of the partition needs the same lock as its offset.
            found = transaction.positions([*sets[second], *fence_partitions(sets[second])])
            order.append("second")
            assert found[TopicPartition("flights", 3)] == 10
            transaction.advance(dict.fromkeys(sets[second], 15))

    with ThreadPoolExecutor(1) as threads:
        with ledger(table) as to, to.transaction() as transaction:
            transaction.positions(sets[first])
            begun.set()
            waiting = threads.submit(other)
            wait_until(lambda: waits(table), "the second waits", 30, 0.01)
            transaction.advance(dict.fromkeys(sets[first], 10))
            order.append("first")
        waiting.result(30)
    assert order == ["first", "second"]


@pytest.mark.usefixtures("few_locks")
@pytest.mark.parametrize("given", [fence_partitions(partitions(0, 4)), fence_partitions(partitions(3, 4))])
def test_x3_each_position_of_a_partition_needs_its_lock(table: str, given: list[TopicPartition]) -> None:
    take_over(table, partitions(0, 4))
    with ledger(table) as one, one.transaction() as holding, ledger(table, lock_ms=50) as other:
        holding.positions(partitions(0, 4))

        def late() -> None:
            with other.transaction() as transaction:
                transaction.advance(dict.fromkeys(given, 1))

        with pytest.raises(LedgerConflict, match="lock timeout"):
            late()


@pytest.mark.usefixtures("few_locks")
@pytest.mark.parametrize("n_threads", [4])
def test_x3_of_many_that_open_partitions_all_agree(table: str, n_threads: int) -> None:
    barrier = threading.Barrier(n_threads)

    def open_them(number: int) -> dict[TopicPartition, int]:
        barrier.wait(30)
        # Members with few and with many partitions.
        return take_over(table, partitions(number % 2 * 2, 4), at=number, epoch=number + 1)

    for _ in range(10):
        with psycopg.connect(table) as connection:
            connection.execute("TRUNCATE streamgroups_ledger")
        with ThreadPoolExecutor(n_threads) as threads:
            found = list(threads.map(open_them, range(n_threads)))
        with ledger(table) as to:
            positions = to.positions(partitions(0, 4))
        assert all(positions[tp] == at for taken in found for tp, at in taken.items())


@pytest.mark.usefixtures("few_locks")
@pytest.mark.parametrize("n_next", [2, 4])
def test_x3_a_frozen_driver_with_many_partitions_loses_their_locks(postgres: str, n_next: int) -> None:
    """It freezes in a COPY, so the server does not end its session as an idle one. The next owner does."""
    tps, to = partitions(0, 4), sink(postgres)
    with to.open(GROUP):
        take_over(postgres, tps)
    staged = stage(to, offsets(OffsetRange(tps[0], 0, 10)))
    write = psycopg.Copy.write

    def attempt(idle_ms: int) -> None:
        with ledger(postgres, lock_ms=200, idle_ms=idle_ms) as next_owner, next_owner.transaction() as transaction:
            assert transaction.positions(tps[:n_next]) == dict.fromkeys(tps[:n_next], 0)
            transaction.advance(dict.fromkeys(tps[:n_next], 3))

    def freeze(copying: psycopg.Copy, data: Any) -> None:
        for idle_ms in (60_000, 100):
            with pytest.raises(LedgerConflict, match="try again"):
                attempt(idle_ms)
        attempt(100)
        write(copying, data)

    ranges = [OffsetRange(tp, 0, 10) for tp in tps]
    with to.open(GROUP) as frozen:
        with mock.patch.object(psycopg.Copy, "write", freeze), pytest.raises(SinkUnreachable):
            commit_batch(frozen, {GROUP: ranges}, staged)
        assert frozen.positions(tps[:n_next]) == dict.fromkeys(tps[:n_next], 3)


@pytest.fixture
def full(table: str) -> Iterator[str]:
    """A server whose lock table is full."""
    with psycopg.connect(table) as connection:
        connection.execute("CREATE SEQUENCE n")
        for n_locks in (100, 1):
            with suppress(psycopg.errors.OutOfMemory):
                while True:
                    with connection.transaction():
                        connection.execute(
                            "SELECT pg_advisory_xact_lock(nextval('n')) FROM generate_series(1, %s)", [n_locks]
                        )
        yield table


def test_x3_a_full_lock_table_names_its_setting(full: str) -> None:
    with (
        ledger(full) as to,
        pytest.raises(SinkUnreachable, match=r"shared memory.*max_locks_per_transaction") as e,
        to.transaction() as transaction,
    ):
        transaction.positions(partitions(0, 250))
    assert len(str(e.value)) < 1_000
