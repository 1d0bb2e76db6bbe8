"""A process that writes batches to PostgreSQL exactly once and can be killed at any point: ``python -m
component_tests.postgres_process``.

Its argument is JSON: ``conninfo``, and in ``kill`` the point of the first batch at which it kills itself. Output: one
row for each offset that was read.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any, NoReturn
from unittest import mock

import psycopg
import pyarrow as pa
from psycopg.conninfo import make_conninfo

from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_sinks.postgres import blocks
from streamgroups_sinks.postgres.ledger import PostgresLedger, PostgresTransaction
from streamgroups_sinks.postgres.sink import PostgresSink
from streamgroups_sinks.postgres.stages import PostgresStaged

GROUP, P0, P1 = "billing", TopicPartition("flights", 0), TopicPartition("flights", 1)
ROWS_IN_BATCH = 200


def sink(conninfo: str, **settings: Any) -> PostgresSink:
    """The sink of the tests."""
    return PostgresSink(**{"conninfo": conninfo, "table": "flights", **settings})


def sink_of_role(conninfo: str, role: str) -> PostgresSink:
    """A sink of a user who may only insert into ``own.flights`` and create tables beside it, at the start of P0."""
    execute(conninfo, f"GRANT USAGE, CREATE ON SCHEMA own TO {role}", f"GRANT INSERT ON own.flights TO {role}")
    to = sink(make_conninfo(conninfo, user=role), table="own.flights", ledger_table="own.ledger")
    open_at(to, {P0: 0})
    return to


def execute(conninfo: str, *statements: str) -> None:
    """Executes statements in one transaction."""
    with psycopg.connect(conninfo) as connection:
        for statement in statements:
            connection.execute(statement)


def token() -> str:
    """A unique token of a batch."""
    return uuid.uuid4().hex


def stage(sink: PostgresSink, *tasks: pa.RecordBatch) -> list[PostgresStaged]:
    """Begins a batch, and stages the records of each task."""
    begun = sink.begin(tasks[0].schema, token())
    return [sink.write(begun, iter([records]), attempt) for attempt, records in enumerate(tasks)]


def offsets(range_: OffsetRange) -> pa.RecordBatch:
    """One row for each offset."""
    numbers = list(range(range_.next_offset, range_.end_offset))
    return pa.record_batch({"partition": pa.array([range_.topic_partition.partition] * len(numbers)), "at": numbers})


def open_at(sink: PostgresSink, positions: dict[TopicPartition, int], *, group: str = GROUP) -> None:
    """Opens the ledger for new partitions."""
    with sink.open(group) as ledger, ledger.transaction() as transaction:
        missing = positions.keys() - transaction.positions(positions.keys()).keys()
        transaction.advance({tp: positions[tp] for tp in missing})


def start(**requested: Any) -> subprocess.Popen[bytes]:
    """Starts this module in a new process."""
    command = [sys.executable, "-m", "component_tests.postgres_process", json.dumps(requested)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def _die_committing(ledger: PostgresLedger, connection: psycopg.Connection) -> None:
    """Sends COMMIT and kills this process before the response arrives."""
    connection.pgconn.send_query(b"COMMIT")
    connection.pgconn.flush()
    _die()


def _die_after_first(write: Callable[[psycopg.Copy, Any], None]) -> Callable[[psycopg.Copy, Any], None]:
    """Sends a part of the rows to the table."""

    def write_some(copying: psycopg.Copy, data: Any) -> None:
        write(copying, data)
        copying.connection.pgconn.flush()
        _die()

    return write_some


def write_batch(sink: PostgresSink, kill: str | None = None) -> None:
    """Writes the next batch, as a driver and two tasks would."""
    with sink.open(GROUP) as ledger:
        at = ledger.positions([P0])[P0]
        range_ = OffsetRange(P0, at, at + ROWS_IN_BATCH)
        rows = offsets(range_)
        half = ROWS_IN_BATCH // 2
        staged = stage(sink, rows.slice(0, half), rows.slice(half))
        if kill == "staged":
            _die()
        if kill == "copying":
            mock.patch.object(blocks, "_WRITTEN_BYTES", 1).start()
            mock.patch.object(psycopg.Copy, "write", _die_after_first(psycopg.Copy.write)).start()
        if kill == "written":
            mock.patch.object(PostgresTransaction, "advance", _die).start()
        if kill == "advanced":
            mock.patch.object(PostgresLedger, "_commit", _die).start()
        if kill == "committing":
            mock.patch.object(PostgresLedger, "_commit", _die_committing).start()
        commit_batch(ledger, {GROUP: [range_]}, staged)
    sink.discard(staged[0].stage)


def _main() -> None:
    requested = json.loads(sys.argv[1])
    to = sink(requested["conninfo"])
    while True:
        write_batch(to, requested.get("kill"))
        # A test that kills at a random time waits for the first batch.
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
