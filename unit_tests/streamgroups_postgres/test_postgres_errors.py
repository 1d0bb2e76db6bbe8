"""X2: what PostgreSQL's errors mean: which may pass, and what to do about the others."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from streamgroups.errors import (
    LedgerConflict,
    NotAuthorized,
    RecordRefused,
    SinkRefused,
    SinkUnreachable,
    StreamGroupsError,
)
from streamgroups_postgres.connecting import connection_error, translated


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('connection to server at "db", port 5432 failed: Connection refused', SinkUnreachable),
        ("FATAL:  the database system is starting up", SinkUnreachable),
        ("FATAL:  sorry, too many clients already", SinkUnreachable),
        ("connection timeout expired", SinkUnreachable),
        ("session is read-only", SinkUnreachable),
        ('FATAL:  password authentication failed for user "me"', NotAuthorized),
        ("fe_sendauth: no password supplied", NotAuthorized),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4"', NotAuthorized),
        ('FATAL:  role "me" does not exist', NotAuthorized),
        ('FATAL:  permission denied for database "flights"', NotAuthorized),
        ('FATAL:  database "fligths" does not exist', SinkRefused),
    ],
)
def test_a_connection_that_is_refused(text: str, meant: type[StreamGroupsError]) -> None:
    error = connection_error(text, "Beginning a batch")
    assert type(error) is meant
    assert text.split()[-1] in error.what
    assert error.remedy


@pytest.mark.parametrize(
    ("raised", "meant"),
    [
        (errors.SerializationFailure, LedgerConflict),
        (errors.DeadlockDetected, LedgerConflict),
        (errors.LockNotAvailable, LedgerConflict),
        (errors.AdminShutdown, SinkUnreachable),
        (errors.CrashShutdown, SinkUnreachable),
        (errors.QueryCanceled, SinkUnreachable),
        (errors.CannotConnectNow, SinkUnreachable),
        (errors.ConnectionFailure, SinkUnreachable),
        (errors.TooManyConnections, SinkUnreachable),
        (errors.DiskFull, SinkUnreachable),
        (errors.IdleInTransactionSessionTimeout, SinkUnreachable),
        (errors.ReadOnlySqlTransaction, SinkUnreachable),
        (psycopg.OperationalError, SinkUnreachable),
        (errors.InsufficientPrivilege, NotAuthorized),
        (errors.InvalidPassword, NotAuthorized),
        (errors.InFailedSqlTransaction, SinkRefused),
        (errors.UndefinedTable, SinkRefused),
        (errors.UndefinedColumn, SinkRefused),
        (errors.InvalidSchemaName, SinkRefused),
        (errors.UniqueViolation, RecordRefused),
        (errors.NotNullViolation, RecordRefused),
        (errors.CheckViolation, RecordRefused),
        (errors.NumericValueOutOfRange, RecordRefused),
        (errors.StringDataRightTruncation, RecordRefused),
        (errors.InvalidTextRepresentation, RecordRefused),
        (errors.CardinalityViolation, RecordRefused),
        (psycopg.ProgrammingError, SinkRefused),
    ],
)
def test_what_the_server_says(raised: type[psycopg.Error], meant: type[StreamGroupsError]) -> None:
    error = translated(raised("it said so."), "Writing to flights")
    assert type(error) is meant
    assert error.what == "Writing to flights: it said so."
    assert error.remedy
