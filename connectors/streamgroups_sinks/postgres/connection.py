"""Connects to PostgreSQL, and translates its errors by one table.

Used by all modules of ``streamgroups_sinks.postgres``. A connection detects a lost host within half a minute, and the
server ends an idle transaction that blocks others. A batch waits for a server that does not respond on a host that does, such
as one with a stalled disk: the client cannot distinguish it from a server that executes a long statement. The lease of the
batch limits the wait (``leaseTimeout``). Source: libpq's "Connection Control Functions"; PostgreSQL's "Error Codes" (SQLSTATE).
For a rejected connection libpq reports only a text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from streamgroups.connections.redaction import redacted
from streamgroups.connections.secret_names import is_secret
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

#: Defaults, unless the user or libpq's environment sets other values. Times are in seconds, except the last one.
_DEFAULTS = {
    "application_name": ("streamgroups", "PGAPPNAME"),
    "connect_timeout": ("10", "PGCONNECT_TIMEOUT"),
    "keepalives_idle": ("10", ""),
    "keepalives_interval": ("5", ""),
    "keepalives_count": ("4", ""),
    "tcp_user_timeout": ("30000", ""),
}
#: The parameters of a connection string that an error may contain.
_SHOWN = frozenset({"host", "hostaddr", "port", "dbname", "user", "service", "passfile", "client_encoding", *_DEFAULTS})
_SHOWN_PATHS = ("sslcert", "sslkey", "sslrootcert", "sslcrl")
#: Values of other parameters that an error may contain: numbers, and words of libpq. Another value can be a misplaced secret.
_NO_SECRET = re.compile(
    r"\d+|disable|allow|prefer|require|verify-ca|verify-full|any|read-write|read-only|primary|standby|prefer-standby|postgres|direct"
    r"|random|gssapi|sspi|TLSv1(\.\d)?|on|off"
)
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: How long a transaction waits for a lock, and how long it may be idle before the server ends it. A stalled driver must
#: not block the partitions of others.
LOCK_TIMEOUT_MS = 60_000
IDLE_TIMEOUT_MS = 60_000


def check_conninfo(conninfo: str, option: str = "conninfo") -> None:
    """Rejects a connection string that libpq cannot parse.

    The error does not repeat it, because it can contain a password.

    Args:
        conninfo: the connection string.
        option: the option that contains it, for the error.

    Raises:
        InvalidOption: if it is empty or malformed.
    """
    try:
        settings = conninfo_to_dict(conninfo)
    except psycopg.Error:
        settings = {}
    if not settings:
        raise InvalidOption(
            f"Option '{option}' is empty, or libpq cannot parse it.",
            remedy=(
                "Write 'host=... dbname=... user=...' or 'postgresql://user@host/database'; quote or "
                "percent-encode special characters."
            ),
        )
    # libpq parses the rest of a password with such a character as host or port, and its error prints that.
    hosts = str(settings.get("host") or "").split(",")
    ports = str(settings.get("port") or "").split(",")
    if any("@" in host[1:] for host in hosts) or not all(port.isdecimal() for port in ports if port):
        raise InvalidOption(
            f"Option '{option}' has an invalid host or port.",
            remedy=(
                "Percent-encode special characters in a password: '@' is %40, '/' is %2F, ':' is %3A. Or write "
                "'host=... password=...'."
            ),
        )
    sslmode = settings.get("sslmode")
    if sslmode is not None and sslmode not in _SSL_MODES:
        raise InvalidOption(f"Option '{option}' has an invalid sslmode.", remedy=f"Use {', '.join(_SSL_MODES)}.")


class _Connection(psycopg.Connection):
    """Sends names and values of a composed statement unchanged, whatever characters they contain."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> psycopg.Cursor:
        return super().execute(query if params is None else escaped(query), params, **options)


def escaped(query: Any) -> Any:
    """Escapes the names and values of a composed statement for psycopg, which replaces ``%s`` also inside of them.

    >>> escaped(sql.SQL("SELECT {} WHERE id = %s").format(sql.Identifier("load %"))).as_string()
    'SELECT "load %%" WHERE id = %s'
    """
    if isinstance(query, sql.Composed):
        return sql.Composed([escaped(part) for part in query])
    if isinstance(query, sql.Identifier | sql.Literal):
        return sql.SQL(query.as_string().replace("%", "%%"))
    return query


@contextmanager
def connected(conninfo: str, doing: str) -> Iterator[psycopg.Connection]:
    """Connects for the duration of a block, as :func:`connect`. Uncommitted changes are rolled back at its end."""
    connection = connect(conninfo, doing)
    try:
        yield connection
    finally:
        connection.close()


def connect(conninfo: str, doing: str) -> psycopg.Connection:
    """Connects to the server.

    Args:
        conninfo: libpq's connection string.
        doing: the purpose of the connection. The error begins with it.

    Raises:
        SinkUnreachable: if the server does not respond, is starting, stopping, full, or a standby.
        LoginRejected: if the login is rejected.
        SinkRejected: if the database does not exist.
    """
    defaults = {name: value for name, (value, variable) in _DEFAULTS.items() if variable not in os.environ}
    settings = defaults | conninfo_to_dict(conninfo) | {"client_encoding": "UTF8"}
    try:
        # Prepared statements do not work with all poolers, and no statement here runs five times.
        connection = _Connection.connect(autocommit=True, prepare_threshold=None, **settings)  # type: ignore[arg-type]
    except psycopg.Error as e:
        # The original error is not chained: the text of libpq can contain values of the connection string.
        raise connection_error(str(e), doing, settings) from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def set_up(connection: psycopg.Connection, *, lock_ms: int = LOCK_TIMEOUT_MS, idle_ms: int = IDLE_TIMEOUT_MS) -> None:
    """Sets the parameters of a transaction inside it. Behind a pooler, other clients share the session."""
    connection.execute(
        sql.SQL(
            "SET LOCAL TimeZone = 'UTC'; SET LOCAL lock_timeout = {}; SET LOCAL idle_in_transaction_session_timeout = {}"
        ).format(lock_ms, idle_ms)
    )


def connection_error(text: str, doing: str, settings: Mapping[str, object] = MappingProxyType({})) -> StreamGroupsError:
    """Translates the error of a rejected connection.

    A server with messages in another language than English counts as unreachable.

    Args:
        text: the text of libpq.
        doing: the purpose of the connection. The error begins with it.
        settings: the parameters of the connection string. The error contains none of them that can be a secret.

    >>> connection_error('FATAL:  database "fligths" does not exist', "Beginning a batch").code
    'sink_rejected'
    >>> connection_error("password authentication failed", "Beginning a batch", {"password": "auth", "port": "5432"}).code
    'login_rejected'
    """
    # A password can be a word of the text, so the text is classified as it is.
    secrets = [str(value or "") for name, value in settings.items() if _can_be_secret(name, str(value or ""))]
    what = f"{doing}: PostgreSQL cannot be reached: {_one_line(redacted(text, secrets))}."
    if re.search(r"database .* does not exist", text):
        return SinkRejected(what, remedy="Create the database, or set another one in 'conninfo'.")
    if "permission denied" in text:
        return NotAuthorized(what, remedy="Grant this user the right to CONNECT to the database.")
    if re.search(
        r"authentication failed|no pg_hba\.conf entry|role .* does not exist|not permitted|no password",
        text,
    ):
        return LoginRejected(what, remedy="Check user and password, and the server's pg_hba.conf.")
    return SinkUnreachable(
        what, remedy="Check that the server runs and that host and port are correct; then try again."
    )


@contextmanager
def translated_errors(doing: str, *, has_records: bool = False) -> Iterator[None]:
    """Translates the errors of psycopg in the block.

    Args:
        doing: the operation. The error begins with it.
        has_records: whether the statements write records. Other statements reject none.
    """
    try:
        yield
    except psycopg.Error as e:
        found = translated(e, doing)
        if isinstance(found, RecordRejected) and not has_records:
            found = SinkRejected(found.what, remedy=_NAMES if e.sqlstate in _ENCODINGS else _TABLES)
        # The original error is not chained: it contains the rejected row.
        raise found from None


#: The remedies of statements without records.
_NAMES = (
    "The encoding of the database has no such character: use other names for groups and tables, or a database with the "
    "encoding UTF8."
)
_TABLES = "Check the constraints and triggers of the table."
_ENCODINGS = frozenset({"22P05", "22021"})
_FROM_THE_SERVER = "Check the server's log; then try again."
_OF_A_FUNCTION = "A function of the table has raised this error: filter out such records, or change it."
#: Errors and remedies by SQLSTATE, or by its class.
_MEANINGS: dict[str, tuple[type[StreamGroupsError], str]] = {
    "40": (LedgerConflict, "Try again."),
    "55P03": (LedgerConflict, "Another transaction holds a lock that this one needs; try again."),
    "08": (SinkUnreachable, "Check that the server runs; then try again."),
    "57014": (
        SinkUnreachable,
        "If statement_timeout ended the statement, set a longer one for this user; then try again.",
    ),
    "57": (SinkUnreachable, _FROM_THE_SERVER),
    "53": (SinkUnreachable, "The server has no disk space, memory or connections left: free some; then try again."),
    # Shared memory contains the locks of all sessions.
    "53200": (
        SinkUnreachable,
        "If the server is out of shared memory, set a larger max_locks_per_transaction in its configuration and restart it. "
        "Otherwise free memory. Then try again.",
    ),
    "58": (SinkUnreachable, _FROM_THE_SERVER),
    "XX": (SinkUnreachable, _FROM_THE_SERVER),
    "25P02": (SinkRejected, "Let the error that failed the transaction end the block."),
    "25P04": (
        SinkUnreachable,
        "If transaction_timeout ended the transaction, set a longer one, or 0, for this user; then try again.",
    ),
    "25P": (SinkUnreachable, "The transaction took too long to continue; try again."),
    "25006": (
        SinkUnreachable,
        "The server is a standby, or read-only: add target_session_attrs=read-write and all hosts to 'conninfo'.",
    ),
    "42501": (NotAuthorized, "Grant the privilege, or set another user in 'conninfo'."),
    "28": (LoginRejected, "Check user and password."),
    "42": (
        SinkRejected,
        "Check that the table exists and was not altered since the query started; then restart the query.",
    ),
    "3F": (SinkRejected, "Create the schema, or use another one."),
    "23": (RecordRejected, "Filter out such records, or change the constraint."),
    # A row or an entry of an index that is larger than a page.
    "54000": (RecordRejected, "Filter out such records, or shorten the value."),
    "P0001": (RecordRejected, _OF_A_FUNCTION),
    # A trigger has changed the row that the statement writes, or a function has ended without a result.
    "27": (RecordRejected, _OF_A_FUNCTION),
    "2F": (RecordRejected, _OF_A_FUNCTION),
    # A function in another language than SQL. It can depend on another system.
    "38": (SinkRejected, "Check the functions of the table's triggers and defaults; then restart the query."),
    "39": (SinkRejected, "Check the functions of the table's triggers and defaults; then restart the query."),
    "54": (
        SinkRejected,
        "Check the table's triggers, and the limit that the message contains; then restart the query.",
    ),
    "55000": (
        SinkRejected,
        "If a publication contains the table, set its replica identity, or add a primary key; then restart the query.",
    ),
    **dict.fromkeys(
        ("HV00N", "HV000", "HV001", "HV014"),
        (SinkUnreachable, "Check that the server of the foreign table runs; then try again."),
    ),
    # An object in use, and a value of an enum that another transaction has added.
    **dict.fromkeys(("55006", "55P04"), (SinkUnreachable, "Another transaction prevents this one; try again.")),
    "22": (RecordRejected, "Filter out such records, correct the value in the query, or alter the column's type."),
    "21": (RecordRejected, "Use a key whose values the table's unique index compares in the same way as the sink."),
    "44": (RecordRejected, "Filter out such records."),
}


def translated(error: psycopg.Error, doing: str) -> StreamGroupsError:
    """Translates an error of PostgreSQL.

    >>> translated(psycopg.errors.ObjectNotInPrerequisiteState("no replica identity"), "Writing to flights").code
    'sink_rejected'
    """
    state, what = error.sqlstate or "", f"{doing}: {describe(error)}."
    # The server has sent each error with a state, so the connection was not lost.
    if not state and isinstance(error, psycopg.OperationalError):
        return SinkUnreachable(what, remedy="The connection is lost. Check that the server runs; then try again.")
    found = (_MEANINGS[state[:length]] for length in (5, 3, 2) if state[:length] in _MEANINGS)
    class_, remedy = next(found, (SinkRejected, "Check the server's log."))
    # A hint about a row could contain its values.
    if class_ is SinkRejected and (hint := _one_line(error.diag.message_hint or "")):
        remedy += f" The server's hint: {hint}."
    return class_(what, remedy=remedy)


def describe(error: psycopg.Error) -> str:
    """Returns the message of PostgreSQL. Includes details only if they do not contain whole records."""
    text = error.diag.message_primary or _one_line(str(error))
    # The details of unique, foreign key and exclusion constraints contain the key only.
    if error.sqlstate in {"23505", "23503", "23P01"} and error.diag.message_detail:
        text += f" ({error.diag.message_detail.rstrip('.')})"
    return text


def _can_be_secret(name: str, value: str) -> bool:
    is_shown = name in _SHOWN or name.startswith(_SHOWN_PATHS) or _NO_SECRET.fullmatch(value) is not None
    return is_secret(name, value) or not is_shown


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
