"""X2: what PostgreSQL's errors mean: which may pass, and what to do about the others."""

from __future__ import annotations

import traceback

import psycopg
import pytest
from psycopg import errors

from streamgroups.errors import (
    InvalidOption,
    LedgerConflict,
    LoginRejected,
    NotAuthorized,
    RecordRejected,
    SinkRejected,
    SinkUnreachable,
    StreamGroupsError,
)
from streamgroups_sinks.postgres.connection import (
    check_conninfo,
    connect,
    connection_error,
    translated,
    translated_errors,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('connection to server at "db", port 5432 failed: Connection refused', SinkUnreachable),
        ("FATAL:  the database system is starting up", SinkUnreachable),
        ("FATAL:  sorry, too many clients already", SinkUnreachable),
        ("connection timeout expired", SinkUnreachable),
        ("session is read-only", SinkUnreachable),
        ('FATAL:  password authentication failed for user "me"', LoginRejected),
        ("fe_sendauth: no password supplied", LoginRejected),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4"', LoginRejected),
        ('FATAL:  role "me" does not exist', LoginRejected),
        ('FATAL:  permission denied for database "flights"', NotAuthorized),
        ('FATAL:  database "fligths" does not exist', SinkRejected),
    ],
)
def test_a_connection_that_is_rejected(text: str, meant: type[StreamGroupsError]) -> None:
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
        (errors.InvalidPassword, LoginRejected),
        (errors.InFailedSqlTransaction, SinkRejected),
        (errors.UndefinedTable, SinkRejected),
        (errors.UndefinedColumn, SinkRejected),
        (errors.InvalidSchemaName, SinkRejected),
        (errors.UniqueViolation, RecordRejected),
        (errors.NotNullViolation, RecordRejected),
        (errors.CheckViolation, RecordRejected),
        (errors.NumericValueOutOfRange, RecordRejected),
        (errors.StringDataRightTruncation, RecordRejected),
        (errors.InvalidTextRepresentation, RecordRejected),
        (errors.CardinalityViolation, RecordRejected),
        (psycopg.ProgrammingError, SinkRejected),
    ],
)
def test_the_message_of_the_server(raised: type[psycopg.Error], meant: type[StreamGroupsError]) -> None:
    error = translated(raised("the server's text."), "Writing to flights")
    assert type(error) is meant
    assert error.what == "Writing to flights: the server's text."
    assert error.remedy


@pytest.mark.parametrize(
    "conninfo",
    [
        "postgresql://u:pw@SECRET@host/db",
        "postgresql://u:SECRET/rest@host/db",
        "host=one,two@SECRET user=u",
        "host=h port=SECRET",
        "host=h sslmode=SECRET",
    ],
)
def test_a_password_that_is_not_encoded_is_rejected_and_not_shown(conninfo: str) -> None:
    with pytest.raises(InvalidOption, match="Option 'conninfo'") as rejected:
        check_conninfo(conninfo)
    assert "SECRET" not in "".join(traceback.format_exception(rejected.value))
    assert rejected.value.remedy


@pytest.mark.parametrize(
    "conninfo",
    [
        "postgresql://u:p%40w@host:5432,other/db?sslmode=require",
        "host=/run/pg user=u",
        "host=@abstract",
        "host=h port=1,2",
    ],
)
def test_these_are_taken(conninfo: str) -> None:
    check_conninfo(conninfo)


def test_a_rejected_connection_shows_no_value_of_the_connection_string() -> None:
    secret = "-".join(["SEC", "RET"])
    with pytest.raises(StreamGroupsError) as rejected:
        connect(f"host=127.0.0.1 port=1 user=u channel_binding={secret}", "Beginning a batch")
    assert "Beginning a batch" in str(rejected.value)
    assert secret not in "".join(traceback.format_exception(rejected.value))


def test_what_psycopg_raised_is_not_shown() -> None:
    with pytest.raises(SinkRejected) as rejected, translated_errors("Writing"):
        raise errors.UndefinedTable("relation") from ValueError("Failing row contains (SECRET)")
    assert "SECRET" not in "".join(traceback.format_exception(rejected.value))
