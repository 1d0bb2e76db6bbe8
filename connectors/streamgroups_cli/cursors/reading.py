"""``streamgroups cursors get``, ``heartbeat``, ``commit`` and ``leave``: the commands with a cursor.

A cursor is validated first: an altered or expired one is rejected here. Then a cursor of an instance is sent to the
process of the instance. A cursor of a partition is read in this process. ``streamgroups_cli.cursors`` imports it.
Source: SEMANTICS G4-G7.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgroups.cursors.argument_checks import MAX_MESSAGES
from streamgroups.cursors.cursor_tokens import GroupCursor, PartitionCursor, covers_the_same, decode
from streamgroups.errors import InvalidCursor, InvalidOption
from streamgroups.message import Message
from streamgroups.tables import Column, Table
from streamgroups_cli.connection import Connect
from streamgroups_cli.cursors import opening
from streamgroups_cli.cursors.cursor_errors import command_words
from streamgroups_cli.cursors.paths import KeyOption, signing_key
from streamgroups_cli.cursors.requests import request_instance
from streamgroups_cli.file_changes import locked, replace_file
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message
from streamgroups_cli.record_output import FullOption, RecordPrinter, Show, ShowOption
from streamgroups_kafka.client.clock import now_ms
from streamgroups_spark.bridge.dataclass_json import from_json

CursorArgument = Annotated[
    str,
    typer.Argument(
        metavar="CURSOR",
        help="The cursor that the last request returned; or @FILE, a file that contains it and receives the next cursor.",
    ),
]


@with_options
def get(
    connect: Connect,
    cursor: CursorArgument,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=MAX_MESSAGES,
            metavar="N",
            help="Maximum number of messages. Default: one fetch.",
            show_default=False,
        ),
    ] = None,
    show: ShowOption = Show.auto,
    full: FullOption = False,
    signing_key_file: KeyOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Print the next messages, and the next cursor.

    For an instance this commits the messages of the previous request, unless it was created with --no-commit-on-get.
    Only cursors of partitions require the options of the cluster. JSON and YAML contain messages and cursor; otherwise
    the cursor is printed to standard error.
    """
    with command_words():
        token, key = read_cursor(cursor), signing_key(signing_key_file)
        claims = decode(token, key, now_ms())
        if isinstance(claims, GroupCursor):
            answer = request_instance(claims, key, {"do": "get", "cursor": token, "limit": limit})
            messages, after = [from_json(it, Message) for it in answer["messages"]], answer["cursor"]
        else:
            with connect() as cluster, opening.open_cursors(*opening.settings_of(cluster.config), key) as cursors:
                messages, after = cursors.get_messages(token, limit)
        printer = RecordPrinter(output, show, full)
        if output in (Output.json, Output.yaml):
            document = {"messages": [printer.document(m) for m in messages], "cursor": after}
            emit(output, document=lambda: document, tables=list)
        else:
            printer.print(messages)
        # If the messages cannot be printed, the cursor that covers them must not be printed either.
        sys.stdout.flush()
        if not _is_file(cursor):
            if output in (Output.table, Output.csv):
                print_message(f"The next cursor: {after}")
        elif not _put_back(cursor, token, after):
            _report_other_cursor(cursor, after)


def heartbeat(cursor: CursorArgument, signing_key_file: KeyOption = None, output: OutputOption = Output.table) -> None:
    """Extend the lease of an instance, without reading or committing. Print its cursor, valid for five minutes.

    With @FILE it can run while another command uses the file: it does not replace the next cursor of that command.
    """
    token, after = _continue("heartbeat", cursor, signing_key_file)
    if not _is_file(cursor):
        print_cursor(after, output)
    else:
        # Another cursor was returned during this command, so it hardly expires earlier.
        _put_back(cursor, token, after)


def commit(cursor: CursorArgument, signing_key_file: KeyOption = None, output: OutputOption = Output.table) -> None:
    """Commit the messages of an instance up to this cursor, without reading more. Print the next cursor."""
    token, after = _continue("commit", cursor, signing_key_file)
    if not _is_file(cursor):
        print_cursor(after, output)
    elif not _put_back(cursor, token, after):
        _report_other_cursor(cursor, after)


def leave(cursor: CursorArgument, signing_key_file: KeyOption = None) -> None:
    """Remove an instance from its group now. The next owners read the messages that it has not committed."""
    _of_instance("leave", read_cursor(cursor), signing_key_file)


def print_cursor(cursor: str, output: Output) -> None:
    """Prints a cursor for a shell: alone, unless an output format is requested."""
    if output is Output.table:
        print(cursor)
    else:
        emit(output, document=lambda: {"cursor": cursor}, tables=lambda: [Table([Column("cursor")], [[cursor]])])


def read_cursor(text: str) -> str:
    """Returns a cursor from the argument, or from the file that it names.

    Raises:
        InvalidOption: if the file cannot be read.
    """
    if not _is_file(text):
        return text
    try:
        return _read_file(_path(text))
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not text"
        raise InvalidOption(f"{_path(text)} cannot be read: {why}.", remedy="Set a file that contains a cursor.") from e


def _is_file(text: str) -> bool:
    return text.startswith("@")


def _path(text: str) -> Path:
    return Path(text[1:])


def _read_file(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig").strip()


def _put_back(text: str, before: str, after: str) -> bool:
    """Replaces the cursor in a file with the next one, unless another command has written a different one.

    The cursor of another command can cover more messages. A heartbeat during a read writes the same cursor again.

    Args:
        text: the argument with the file.
        before: the cursor that this command has read from it.
        after: the next one.

    Returns:
        Whether the file contains the next cursor now.
    """
    path = _path(text)
    try:
        with locked(path):
            if not _contains(path, before):
                return False
            replace_file(path, f"{after}\n")
    except OSError as e:
        raise InvalidOption(
            f"{path} cannot be written: {e.strerror}.", remedy=f"Continue with the cursor {after}"
        ) from e
    return True


def _contains(path: Path, cursor: str) -> bool:
    try:
        return covers_the_same(_read_file(path), cursor)
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _report_other_cursor(text: str, after: str) -> None:
    print_message(
        f"{_path(text)} was not changed: it no longer contains the cursor that this command has read, so another command "
        f"has used the file meanwhile. The next cursor of this command: {after}"
    )


def _continue(what: str, cursor: str, key_file: Path | None) -> tuple[str, str]:
    """Returns the cursor of the argument, and the next one."""
    token = read_cursor(cursor)
    return token, _of_instance(what, token, key_file)["cursor"]


def _of_instance(what: str, token: str, key_file: Path | None) -> dict[str, Any]:
    with command_words():
        key = signing_key(key_file)
        claims = decode(token, key, now_ms())
        if isinstance(claims, PartitionCursor):
            raise InvalidCursor(
                f"This is a cursor of partition {claims.stream}-{claims.partition}, which belongs to no group.",
                remedy="Commit, heartbeat and leave require a cursor of a group.",
            )
        return request_instance(claims, key, {"do": what, "cursor": token})
