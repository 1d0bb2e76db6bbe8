"""X2, X3: the ledger in PostgreSQL: one winner for each position, concurrent members, and lost responses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

from component_tests.lossy_proxy import LossyProxy
from component_tests.postgres_process import GROUP, P0, P1, offsets, open_at, sink, stage
from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import (
    FencedBatch,
    LedgerConflict,
    NotAuthorized,
    SinkRejected,
    SinkUnreachable,
)
from streamgroups.groups.membership import Owned
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.ledgers.compare_and_swap import AlreadyDone, CommitGroups
from streamgroups.partitions import OffsetRange
from streamgroups.ports import Ledger
from streamgroups_sinks.postgres.ledger import PostgresLedger, PostgresTransaction
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.table_names import TableName
from streamgroups_testkit.postgres import PostgresServer
from streamgroups_testkit.waits import wait_until
from unit_tests.ledger_contract import LedgerContract, Outside


class Texts:
    """A ledger with texts as output, as the contract requires."""

    def __init__(self, sink: PostgresSink, ledger: PostgresLedger) -> None:
        self._sink, self._ledger = sink, ledger

    def positions(self, partitions: Any) -> Any:
        return self._ledger.positions(partitions)

    def transaction(self) -> Any:
        return _TextTransactions(self._sink, self._ledger)


class _TextTransactions:
    def __init__(self, sink: PostgresSink, ledger: PostgresLedger) -> None:
        self._sink, self._context = sink, ledger.transaction()

    def __enter__(self) -> _TextTransactions:
        self._transaction: PostgresTransaction = self._context.__enter__()
        self.positions, self.advance = self._transaction.positions, self._transaction.advance
        self.identities = self._transaction.identities
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._context.__exit__(*raised)

    def of(self, group_id: str) -> Any:
        return _TextsOfGroup(self, self._transaction.of(group_id))

    def write(self, text: str) -> None:
        self._transaction.write(stage(self._sink, pa.record_batch({"text": [text]})))


class _TextsOfGroup:
    def __init__(self, texts: _TextTransactions, transaction: PostgresTransaction) -> None:
        self.write, self.positions, self.advance = texts.write, transaction.positions, transaction.advance
        self.identities = transaction.identities


class Table:
    """The sink as another client sees it."""

    def __init__(self, conninfo: str, ledger: PostgresLedger) -> None:
        self._conninfo = conninfo
        self.ledger: Ledger[str] = Texts(sink(conninfo), ledger)

    @property
    def visible(self) -> list[str]:
        with psycopg.connect(self._conninfo) as connection:
            if connection.execute("SELECT to_regclass('flights')").fetchone() == (None,):
                return []
            return [text for (text,) in connection.execute("SELECT text FROM flights ORDER BY ctid")]


@pytest.fixture
def ledger(postgres: str) -> Iterator[PostgresLedger]:
    """An empty ledger."""
    with sink(postgres).open(GROUP) as ledger:
        yield ledger


class TestContract(LedgerContract):
    @pytest.fixture
    def outside(self, postgres: str, ledger: PostgresLedger) -> Outside:
        return Table(postgres, ledger)

    def test_a_request_that_conflicts_with_a_change_is_rejected(self, outside: Outside) -> None:
        """Not possible here: rows are locked, so the second transaction waits until the first one has ended."""
        begun, order = threading.Event(), list[str]()

        def other() -> None:
            begun.wait(30)
            with outside.ledger.transaction() as second:
                assert second.positions([P0]) == {P0: 10}
                order.append("second")
                second.advance({P0: 15})

        with ThreadPoolExecutor() as threads:
            with outside.ledger.transaction() as first:
                assert first.positions([P0]) == {}
                begun.set()
                waiting = threads.submit(other)
                wait_until(lambda: _waiting(outside), "the second waits", 30, 0.01)
                first.write("in time")
                first.advance({P0: 10})
                order.append("first")
            waiting.result(30)
        assert order == ["first", "second"]
        assert (outside.visible, outside.ledger.positions([P0])) == (["in time"], {P0: 15})


def _waiting(outside: Any) -> bool:
    with psycopg.connect(outside._conninfo) as connection:
        return bool(connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())


def count(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        ((n_rows,),) = connection.execute("SELECT count(*) FROM flights").fetchall()
    return int(n_rows)


@pytest.mark.parametrize("ends", [(10, 10), (10, 7)], ids=["the same batch", "another batch"])
def test_of_many_that_write_one_range_one_wins(postgres: str, ends: tuple[int, int]) -> None:
    to = sink(postgres)
    open_at(to, {P0: 0})
    barrier = threading.Barrier(4)

    def write(end: int) -> object:
        range_ = OffsetRange(P0, 0, end)
        staged = stage(to, offsets(range_))
        with to.open(GROUP) as ledger:
            barrier.wait(30)
            try:
                return type(commit_batch(ledger, {GROUP: [range_]}, staged))
            except FencedBatch as e:
                return type(e)

    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(write, [*ends, *ends]))
    assert outcomes.count(CommitGroups) == 1
    assert set(outcomes) <= {CommitGroups, AlreadyDone, FencedBatch}
    assert count(postgres) == ends[outcomes.index(CommitGroups) % 2]


def test_of_many_that_open_a_partition_all_agree(postgres: str) -> None:
    to, barrier = sink(postgres), threading.Barrier(4)

    def open_it(at: int) -> object:
        with to.open(GROUP) as ledger:
            barrier.wait(30)
            taken = take_over_partitions(
                ledger, {P0: Owned(at)}, OnRestart.CHECKPOINT, group_id=GROUP, is_owner=lambda _: True
            )
            return taken.next_offsets[P0]

    with ThreadPoolExecutor(4) as threads:
        starts = set(threads.map(open_it, range(4)))
    with to.open(GROUP) as ledger:
        assert {ledger.positions([P0])[P0]} == starts


def test_members_with_other_partitions_do_not_wait(postgres: str) -> None:
    to = sink(postgres)
    with to.open(GROUP) as one, to.open(GROUP) as other, to.open("another group") as other_client:
        with one.transaction() as holding:
            holding.positions([P0])
            holding.advance({P0: 1})
            for _ in range(2):
                with other.transaction() as transaction:
                    transaction.positions([P1])
                    transaction.advance({P1: 5})
            with other_client.transaction() as transaction:
                transaction.advance({P0: 7})
        assert one.positions([P0, P1]) == {P0: 1, P1: 5}
        assert other_client.positions([P0, P1]) == {P0: 7}


def impatient(conninfo: str, **times: int) -> AbstractContextManager[PostgresLedger]:
    """A ledger with short timeouts."""
    return closing(PostgresLedger(conninfo, TableName(None, "streamgroups_ledger"), GROUP, **times))


def test_a_lock_is_not_waited_for_indefinitely(postgres: str, ledger: PostgresLedger) -> None:
    def late() -> None:
        with impatient(postgres, lock_ms=50) as other, other.transaction() as transaction:
            transaction.positions([P0])

    with ledger.transaction() as holding:
        holding.positions([P0])
        with pytest.raises(LedgerConflict, match=r"positions of flights-0.*lock timeout.*try again"):
            late()


def test_a_driver_that_hangs_loses_its_lock_and_writes_nothing(postgres: str, ledger: PostgresLedger) -> None:
    def hang() -> None:
        with impatient(postgres, idle_ms=100) as other, other.transaction() as hanging:
            hanging.advance({P0: 5})
            # Waits until the server has ended the blocked session.
            with ledger.transaction() as transaction:
                assert transaction.positions([P0]) == {}
                transaction.advance({P0: 1})

    with pytest.raises(SinkUnreachable, match="may or may not be written"):
        hang()
    assert ledger.positions([P0]) == {P0: 1}


def test_a_deadlock_is_reported(postgres: str, ledger: PostgresLedger) -> None:
    barrier = threading.Barrier(2)

    def advance(first: Any, second: Any) -> object:
        with impatient(postgres) as ledger:
            try:
                with ledger.transaction() as transaction:
                    transaction.positions([first])
                    barrier.wait(30)
                    transaction.advance({first: 1, second: 1})
            except LedgerConflict as e:
                return type(e)
        return None

    with ThreadPoolExecutor(2) as threads:
        outcomes = [future.result(30) for future in [threads.submit(advance, P0, P1), threads.submit(advance, P1, P0)]]
    assert set(outcomes) == {None, LedgerConflict}
    assert ledger.positions([P0, P1]) == {P0: 1, P1: 1}


def test_a_lost_response_to_a_commit_is_reported_and_a_second_decision_is_safe(
    postgres: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    range_ = OffsetRange(P0, 0, 10)
    commit = PostgresLedger._commit
    with LossyProxy(postgres_server.port) as proxy:
        to = sink(make_conninfo(postgres, port=proxy.port))
        open_at(to, {P0: 0})
        staged = stage(to, offsets(range_))

        def commit_unheard(self: PostgresLedger, connection: psycopg.Connection) -> None:
            proxy.lose_answers.set()
            commit(self, connection)

        with to.open(GROUP) as ledger:
            with monkeypatch.context() as patched:
                patched.setattr(PostgresLedger, "_commit", commit_unheard)
                with pytest.raises(SinkUnreachable, match=r"may or may not be written.*Read the ledger again"):
                    commit_batch(ledger, {GROUP: [range_]}, staged)
            proxy.lose_answers.clear()
            assert commit_batch(ledger, {GROUP: [range_]}, staged) == AlreadyDone()
    assert count(postgres) == 10


def test_a_connection_that_is_cut_before_its_commit_writes_nothing(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, range_ = sink(postgres), OffsetRange(P0, 0, 10)
    open_at(to, {P0: 0})
    staged = stage(to, offsets(range_))
    commit = PostgresLedger._commit

    def cut_off(self: PostgresLedger, connection: psycopg.Connection) -> None:
        with psycopg.connect(postgres) as killer:
            killer.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])
        commit(self, connection)

    with to.open(GROUP) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(PostgresLedger, "_commit", cut_off)
            with pytest.raises(SinkUnreachable, match="may or may not be written"):
                commit_batch(ledger, {GROUP: [range_]}, staged)
        assert (count(postgres), ledger.positions([P0])) == (0, {P0: 0})
        assert isinstance(commit_batch(ledger, {GROUP: [range_]}, staged), CommitGroups)
    assert count(postgres) == 10


def test_a_block_that_continues_after_an_error_does_not_commit(postgres: str, ledger: PostgresLedger) -> None:
    def resume() -> None:
        with ledger.transaction() as transaction:
            transaction.advance({P0: 5})
            with pytest.raises(SinkRejected, match="out of range"):
                transaction.advance({P0: 2**63})
            # The transaction has failed, and COMMIT would not report it.
            with pytest.raises(SinkRejected, match="current transaction is aborted"):
                transaction.positions([P0])

    with pytest.raises(SinkRejected, match="the transaction had already failed"):
        resume()
    assert ledger.positions([P0]) == {}


def test_a_missing_server_is_reported(postgres: str, ledger: PostgresLedger) -> None:
    from streamgroups_broker._ports import free_ports

    away = sink(f"host=127.0.0.1 port={free_ports(1)[0]} dbname=x password=geheim")
    with (
        pytest.raises(SinkUnreachable, match=r"Connection refused.*host and port.*try again") as raised,
        away.open(GROUP),
    ):
        pass
    assert raised.value.retriable
    assert "geheim" not in str(raised.value)
    with pytest.raises(SinkUnreachable, match="Beginning a batch for flights: PostgreSQL cannot be reached"):
        away.begin(pa.schema({"a": pa.int64()}), "t")


def test_what_is_no_ledger_is_left_alone(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE streamgroups_ledger (group_id text, topic text, partition int)")
    with (
        pytest.raises(
            SinkRejected,
            match=r"streamgroups_ledger does not have the columns of a ledger.*Set 'ledger_table' to another",
        ),
        sink(postgres).open(GROUP),
    ):
        pass
    with sink(postgres, ledger_table="public.another").open(GROUP) as ledger:
        assert ledger.positions([P0]) == {}
    with psycopg.connect(postgres) as connection:
        connection.execute("ALTER TABLE another DROP CONSTRAINT another_pkey")
    with (
        pytest.raises(SinkRejected, match="does not have the columns of a ledger"),
        sink(postgres, ledger_table="another").open(GROUP),
    ):
        pass


def test_a_ledger_without_permission_is_reported(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
    as_reader = sink(postgres + " user=reader")
    with (
        pytest.raises(
            NotAuthorized,
            match="not authorized to create tables in schema 'public', which is the schema for the ledger",
        ),
        as_reader.open(GROUP),
    ):
        pass
    with sink(postgres).open(GROUP), psycopg.connect(postgres) as connection:
        connection.execute("GRANT SELECT ON streamgroups_ledger TO reader")
    with (
        pytest.raises(NotAuthorized, match='GRANT SELECT, INSERT, UPDATE ON "streamgroups_ledger"'),
        as_reader.open(GROUP),
    ):
        pass
    with psycopg.connect(postgres) as connection:
        connection.execute("GRANT SELECT, INSERT, UPDATE ON streamgroups_ledger TO reader")
    with as_reader.open(GROUP) as ledger, ledger.transaction() as transaction:
        transaction.advance({P0: 1})


def test_many_make_the_ledger_at_once(postgres: str) -> None:
    barrier = threading.Barrier(6)

    def open_it(_: int) -> dict[Any, int]:
        barrier.wait(30)
        with sink(postgres).open(GROUP) as ledger:
            return ledger.positions([P0])

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(open_it, range(6))) == [{}] * 6
