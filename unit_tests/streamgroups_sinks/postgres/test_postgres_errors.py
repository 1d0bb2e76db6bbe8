"""X2: what PostgreSQL's errors mean: which may pass, and what to do about the others."""

from __future__ import annotations

import traceback

import psycopg
import pytest
from psycopg import errors
from psycopg.pq import DiagnosticField

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


#: The states that pass by themselves, by their class or as a whole: the server or another transaction causes them.
_PASSING = {
    "08": SinkUnreachable,
    "25006": SinkUnreachable,
    "25P01": SinkUnreachable,
    "25P03": SinkUnreachable,
    "25P04": SinkUnreachable,
    "40": LedgerConflict,
    "53": SinkUnreachable,
    "55P03": LedgerConflict,
    "57": SinkUnreachable,
    "58": SinkUnreachable,
    **dict.fromkeys(("HV00N", "HV000", "HV001", "HV014", "55006", "55P04"), SinkUnreachable),
    "XX": SinkUnreachable,
}


def states() -> list[str]:
    """All states that psycopg has a class for."""
    classes = [it for it in vars(errors).values() if isinstance(it, type) and issubclass(it, psycopg.Error)]
    return sorted({it.sqlstate for it in classes if it.sqlstate})


@pytest.mark.parametrize("state", states())
def test_an_error_with_a_state_is_retriable_only_if_it_passes_by_itself(state: str) -> None:
    error = translated(errors.lookup(state)("the server's text"), "Writing to flights")
    passing = _PASSING.get(state) or _PASSING.get(state[:2])
    assert error.retriable == (passing is not None)
    if passing is not None:
        assert type(error) is passing
    assert "connection is lost" not in error.remedy


def test_a_full_lock_table_names_its_setting() -> None:
    """The server's own hint is not in the error, because it could contain values of a row."""
    error = translated(errors.OutOfMemory("out of shared memory"), "The ledger of group 'billing'")
    assert error.retriable
    assert "max_locks_per_transaction" in error.remedy


def test_a_name_that_the_database_cannot_store_rejects_no_record() -> None:
    """A group can have any name, and the database another encoding than UTF8."""
    raised = errors.UntranslatableCharacter('no equivalent in encoding "LATIN1"')
    with (
        pytest.raises(SinkRejected, match="group '漢字': no equivalent in encoding") as rejected,
        translated_errors("The ledger of group '漢字'"),
    ):
        raise raised
    assert "use other names for groups" in rejected.value.remedy


@pytest.mark.parametrize("raised", [errors.CheckViolation, errors.RaiseException, errors.NumericValueOutOfRange])
def test_only_statements_with_records_reject_records(raised: type[psycopg.Error]) -> None:
    with pytest.raises(SinkRejected, match="the server's text"), translated_errors("The ledger"):
        raise raised("the server's text")
    with pytest.raises(RecordRejected, match="the server's text"), translated_errors("Writing", has_records=True):
        raise raised("the server's text")


@pytest.mark.parametrize(("state", "parameter"), [("57014", "statement_timeout"), ("25P04", "transaction_timeout")])
def test_a_timeout_of_the_server_is_named(state: str, parameter: str) -> None:
    error = translated(errors.lookup(state)("the server's text"), "Staging rows for flights")
    assert error.retriable
    assert parameter in error.remedy


@pytest.mark.parametrize("state", ["27000", "2F005", "P0001"])
def test_an_error_of_a_function_of_the_table_rejects_the_record(state: str) -> None:
    error = translated(errors.lookup(state)("the server's text"), "Writing to flights")
    assert isinstance(error, RecordRejected)
    assert "A function of the table" in error.remedy


@pytest.mark.parametrize("state", ["54001", "55000", "38000", "39P01", "F0000", "HV005"])
def test_other_rejected_statements_reject_the_sink(state: str) -> None:
    assert isinstance(translated(errors.lookup(state)("the server's text"), "Writing to flights"), SinkRejected)


def test_the_hint_of_the_server_follows_the_remedy() -> None:
    hint = b"To enable deleting from the table,\nset REPLICA IDENTITY using ALTER TABLE."
    info: dict[int, bytes | None] = {
        DiagnosticField.MESSAGE_PRIMARY: b"cannot delete from table",
        DiagnosticField.MESSAGE_HINT: hint,
    }
    error = translated(errors.ObjectNotInPrerequisiteState("", info=info), "Writing to flights")
    assert error.what == "Writing to flights: cannot delete from table."
    assert error.remedy.endswith(
        "restart the query. The server's hint: To enable deleting from the table, set REPLICA IDENTITY using ALTER TABLE."
    )
    rejected = translated(errors.RaiseException("", info=info), "Writing to flights")
    assert "hint" not in rejected.remedy


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


@pytest.mark.parametrize("password", ["a", "auth", "failed", "base", "database", "exist", "password", "1", "FATAL"])
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('FATAL:  password authentication failed for user "me"', LoginRejected),
        ('FATAL:  database "flights" does not exist', SinkRejected),
        ('FATAL:  permission denied for database "flights"', NotAuthorized),
        ('connection to server at "10.1.1.1", port 5432 failed: Connection refused', SinkUnreachable),
    ],
)
def test_X2_a_password_that_is_a_word_of_the_error_does_not_change_its_meaning(
    text: str, meant: type[StreamGroupsError], password: str
) -> None:
    settings = {"password": password, "port": "5432", "sslpassword": f"{password}-tail"}
    error = connection_error(f"{text}; {password}-tail", "Beginning a batch", settings)
    assert type(error) is meant
    assert "-tail" not in error.what
    # A shorter one is a part of too many words.
    assert len(password) < 4 or password not in error.what.partition("reached:")[2]


def test_X2_a_rejected_connection_shows_values_that_are_no_secrets() -> None:
    text = (
        'connection to server at "10.1.1.1", port 5431 failed: server does not support SSL, but sslmode require is set'
    )
    settings = {
        "keepalives": "1",
        "port": "5431",
        "sslmode": "require",
        "gssencmode": "disable",
        "target_session_attrs": "any",
        "krbsrvname": "postgres",
        "dbname": "server",
    }
    assert connection_error(text, "Beginning a batch", settings).what.endswith(f"reached: {text}.")


@pytest.mark.parametrize("password", ["auth", "failed", "password"])
def test_X2_connect_classifies_the_error_of_libpq(password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(**_: object) -> None:
        raise psycopg.OperationalError('FATAL:  password authentication failed for user "me"')

    monkeypatch.setattr(psycopg.Connection, "connect", reject)
    with pytest.raises(LoginRejected):
        connect(f"host=db user=me password={password}", "Beginning a batch")


def test_what_psycopg_raised_is_not_shown() -> None:
    with pytest.raises(SinkRejected) as rejected, translated_errors("Writing"):
        raise errors.UndefinedTable("relation") from ValueError("Failing row contains (SECRET)")
    assert "SECRET" not in "".join(traceback.format_exception(rejected.value))
