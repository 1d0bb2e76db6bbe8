"""Translates the errors of deltalake and of the store, without secrets. Pure functions.

Called by all modules here that access a table. deltalake has few exception classes, so the table below also matches
their texts. Source: deltalake's mapping of its errors to Python's (``python/src/error.rs``), operating systems' error
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError, SchemaMismatchError, TableNotFoundError

from streamgroups.connections.redaction import redacted
from streamgroups.errors import (
    InvalidOption,
    NotAuthorized,
    RecordRejected,
    SinkRejected,
    SinkUnreachable,
    StreamGroupsError,
)

#: The lines of a stack trace of Rust, with RUST_BACKTRACE. Names of functions in it could match the expressions below.
_STACK = re.compile(r"^ +(\d+: |at \S+:\d).*$", re.MULTILINE)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FULL = re.compile(r"no space left|quota exceeded|file too large|os error (27|28|122)\b", re.IGNORECASE)
_DENIED = re.compile(
    r"permission ?denied|lacked the necessary privileges|access ?denied|forbidden|unauthori[sz]ed|\bstatus(?: code)?:? ?40[13]\b"
    r"|os error (1|13|30)\b|read-only file system",
    re.IGNORECASE,
)
_NOWHERE = re.compile(r"NoSuchBucket|ContainerNotFound|specified (bucket|container) does not exist", re.IGNORECASE)
_SCHEME = re.compile(r"unknown scheme|unable to recognise url|invalid table location", re.IGNORECASE)
_CONFIG = re.compile(
    r"generic config error|config(uration)? (value|key|error)|failed to parse|missing (region|bucket|cred)",
    re.IGNORECASE,
)
_STORE = re.compile(r"object ?store|https? error|error sending request|connect|timed? ?out|os error \d+", re.IGNORECASE)
_PREVIEW = re.compile(r"\sPreview\s+of\s+invalid\s+data")
_VIOLATION = re.compile(r"rows? failed validation|violates constraint|invariant violat", re.IGNORECASE)


def readable(error: BaseException, secrets: tuple[str, ...]) -> str:
    """Returns the text of an error in one line, without secrets and stack traces.

    >>> readable(OSError("Generic S3 error\\n  with key hunter2"), ("hunter2",))
    'Generic S3 error with key ***'
    >>> readable(OSError("Schema error: duplicate\\n   0: <unknown>\\n   1: connect\\n      at ./csu/start.c:360:3\\n"), ())
    'Schema error: duplicate'
    """
    return _one_line(error, redacted(_message(error), secrets))


def _message(error: BaseException) -> str:
    return _STACK.sub("", _COLOURS.sub("", str(error))).replace("↳", "")


def _one_line(error: BaseException, text: str) -> str:
    return " ".join(text.split()) or type(error).__name__


def is_violation(text: str) -> bool:
    """Returns whether an error of deltalake is about a row that violates a constraint.

    >>> is_violation("Invalid data found: 1 rows failed validation check.")
    True
    """
    return _VIOLATION.search(text) is not None


def translated(
    error: BaseException, doing: str, *, uri: str, secrets: tuple[str, ...], committing: bool = False
) -> StreamGroupsError:
    """Translates an error for the sink.

    Args:
        error: the exception of deltalake, pyarrow or the store.
        doing: the operation: "reading", "writing to".
        uri: the address of the table.
        secrets: texts that the error must not contain.
        committing: whether the operation may have succeeded in spite of the error.
    """
    # The preview contains whole rows.
    text = _PREVIEW.split(_message(error), maxsplit=1)[0]
    cause = _one_line(error, redacted(text, secrets))
    what = f"{doing[0].upper()}{doing[1:]} table {uri} failed: {cause}"
    # The address is the user's text: a directory can have any name, such as "403" or "forbidden". A secret can be a word of the
    # text, so the text is classified with its secrets.
    found = _one_line(error, text).replace(uri.removeprefix("file://"), "")
    if _SCHEME.search(found):
        return InvalidOption(
            what, remedy="Use a local path, or a URL of a store that deltalake supports, such as s3://."
        )
    if _FULL.search(found):
        return SinkUnreachable(
            what, remedy="Free disk space; then the query continues at the positions of the table's ledger."
        )
    if _DENIED.search(found):
        return NotAuthorized(
            what,
            remedy=("Grant this user the right to read and write there, or set other credentials in storage_options."),
        )
    if isinstance(error, TableNotFoundError):
        return SinkRejected(
            f"Delta table {uri} does not exist: {cause}", remedy="Check the address, or set create_table=True."
        )
    if _NOWHERE.search(found):
        return SinkRejected(what, remedy="Create the bucket, or correct its name in uri.")
    if _CONFIG.search(found):
        return InvalidOption(what, remedy="Correct storage_options.")
    if isinstance(error, OSError) or _STORE.search(found):
        maybe = " It is not known whether the batch was committed." if committing else ""
        return SinkUnreachable(
            what + maybe, remedy="Try again: the table's ledger contains the positions of all written batches."
        )
    if is_violation(found):
        return RecordRejected(what, remedy="Filter out such rows, or change the constraint.")
    if isinstance(error, SchemaMismatchError | DeltaError):
        return SinkRejected(what, remedy="Check the table's properties and constraints.")
    return SinkRejected(what)


@contextmanager
def translating(doing: str, uri: str, secrets: Callable[[], tuple[str, ...]]) -> Iterator[None]:
    """Translates the errors of the block.

    Raises:
        StreamGroupsError: for the exceptions of deltalake, pyarrow or the store.
    """
    try:
        yield
    except StreamGroupsError:
        raise
    except Exception as e:
        # The cause is not chained: its text can contain secrets.
        raise translated(e, doing, uri=uri, secrets=secrets()) from None
