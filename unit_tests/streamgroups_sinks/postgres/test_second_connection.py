"""X2: a commit writes its blocks also if the server, or a pooler, provides only the connection of its transaction."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.pq import TransactionStatus

from streamgroups.errors import SinkUnreachable
from streamgroups_sinks.postgres import blocks
from streamgroups_sinks.postgres.blocks import second_connection, write_blocks
from streamgroups_sinks.postgres.column_types import Kind, RecordColumn
from streamgroups_sinks.postgres.copy_binary import HEADER, TRAILER
from streamgroups_sinks.postgres.stages import PostgresStage, StageColumn
from streamgroups_sinks.postgres.table_names import TableName

ID = StageColumn(RecordColumn("id", Kind.INTEGER, "bigint"), "bigint", False, "int8")
STAGE = PostgresStage(TableName("public", "stage"), TableName("public", "flights"), (ID,), in_blocks=True)


class Pooled:
    """A connection to a pooler, which accepts it at once. It answers when a session of the server is free."""

    def __init__(self) -> None:
        self._client, self._pooler = socket.socketpair()
        self.pgconn, self.info = self, self
        self.sent, self.is_closed, self.is_rolled_back, self._is_answered = b"", False, False, False

    def free_a_session(self) -> None:
        self._pooler.send(b"BEGIN")

    def fileno(self) -> int:
        return self._client.fileno()

    def send_query(self, command: bytes) -> None:
        self.sent += command

    def flush(self) -> int:
        return 0

    def is_busy(self) -> bool:
        return not self._is_answered

    def consume_input(self) -> None:
        self._is_answered = bool(self._client.recv(100))

    def get_result(self) -> None:
        assert self._is_answered, "it would wait for the session"

    @property
    def transaction_status(self) -> TransactionStatus:
        return TransactionStatus.INTRANS if self._is_answered else TransactionStatus.ACTIVE

    def rollback(self) -> None:
        self.is_rolled_back = True

    def close(self) -> None:
        self.is_closed = True
        self._client.close()
        self._pooler.close()


class Transaction:
    """The connection of the ledger. Its stage has blocks of these bytes, each of one row."""

    def __init__(self, *stored: bytes) -> None:
        self._stored, self.statements, self.written = list(stored), list[str](), list[bytes]()
        self.rowcount = 0

    def execute(self, query: str | sql.Composed) -> Transaction:
        self.statements.append(query if isinstance(query, str) else query.as_string())
        return self

    @contextmanager
    def cursor(self, *, binary: bool = False) -> Iterator[Transaction]:
        yield self

    def fetchall(self) -> list[tuple[bytes]]:
        fetched, self._stored = self._stored[:2], self._stored[2:]
        self.rowcount = len(fetched)
        return [(it,) for it in fetched]

    @contextmanager
    def copy(self, query: sql.Composed) -> Iterator[Transaction]:
        self.statements.append(query.as_string())
        yield self

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.fixture
def connect_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Sets the second connection, or the error of connecting."""

    def patch(other: Any) -> None:
        @contextmanager
        def connected(_: str, doing: str) -> Iterator[Any]:
            if isinstance(other, Exception):
                raise other
            try:
                yield other
            finally:
                other.close()

        monkeypatch.setattr(blocks, "connected", connected)

    return patch


def test_X2_a_pool_of_one_session_is_no_deadlock(
    connect_to: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The session is free only when the transaction of the ledger ends."""
    monkeypatch.setattr(blocks, "_SERVED_WITHIN_S", 0.01)
    waiting, transaction = Pooled(), Transaction(b"one", b"two", b"three")
    connect_to(waiting)
    assert write_blocks(transaction, STAGE, [3, 4], "dbname=x") == 3  # type: ignore[arg-type]
    copy = 'COPY "public"."flights" ("id") FROM STDIN (FORMAT binary)'
    assert transaction.statements == [
        "DECLARE streamgroups_blocks NO SCROLL CURSOR FOR"
        ' SELECT rows FROM "public"."stage" WHERE attempt = ANY (\'{3,4}\'::int2[])',
        "FETCH FORWARD 64 FROM streamgroups_blocks",
        copy,
        "FETCH FORWARD 64 FROM streamgroups_blocks",
        copy,
        "FETCH FORWARD 64 FROM streamgroups_blocks",
        "CLOSE streamgroups_blocks",
    ]
    assert transaction.written == [HEADER + b"onetwo" + TRAILER, HEADER + b"three" + TRAILER]
    assert waiting.is_closed
    assert "at least two connections for each driver" in caplog.text


@pytest.mark.parametrize(
    "error",
    [SinkUnreachable("too many connections for role"), psycopg.OperationalError("it has closed the connection")],
)
def test_X2_a_server_without_a_free_connection_is_no_error(connect_to: Callable[[Any], None], error: Exception) -> None:
    connect_to(error)
    with second_connection("dbname=x", "Reading") as other:
        assert other is None


def test_X2_a_session_that_is_free_in_time_is_used(connect_to: Callable[[Any], None]) -> None:
    pooled = Pooled()
    connect_to(pooled)
    timer = threading.Timer(0.01, pooled.free_a_session)
    timer.start()
    with second_connection("dbname=x", "Reading") as other:
        assert other is not None
        assert other.fileno() == pooled.fileno()
        assert (pooled.sent, pooled.is_closed) == (b"BEGIN", False)
    timer.join()
    assert (pooled.is_rolled_back, pooled.is_closed) == (True, True)


def test_X2_an_error_while_reading_is_raised(connect_to: Callable[[Any], None]) -> None:
    pooled = Pooled()
    connect_to(pooled)
    pooled.free_a_session()
    lost = psycopg.OperationalError("the connection is lost")
    with pytest.raises(psycopg.OperationalError, match="is lost"), second_connection("dbname=x", "Reading"):
        raise lost
    assert pooled.is_closed
