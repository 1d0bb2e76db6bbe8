"""Exit codes, by which a script tells what happened (SEMANTICS O2).

Used by ``streamgroups_cli.main``; 2 is also what typer ends with when it cannot read the command line.
"""

from __future__ import annotations

from enum import IntEnum

from streamgroups.errors import (
    CursorExpired,
    FencedMember,
    GroupRejected,
    InvalidCursor,
    InvalidOption,
    PartlyDone,
    StreamGroupsError,
)


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    #: Something failed, an unreachable broker included.
    ERROR = 1
    #: The command line, a cursor on it, or a file it names makes no sense.
    USAGE = 2
    #: It made sense and was refused; nothing was changed.
    REJECTED = 3
    #: Some of it was done, some was not; the message says what.
    PARTLY_DONE = 4


def exit_code(error: StreamGroupsError) -> ExitCode:
    """The exit code of a command that ends with this error.

    >>> exit_code(GroupRejected("Group 'g' is Stable."))
    <ExitCode.REJECTED: 3>
    """
    match error:
        case InvalidOption() | InvalidCursor():
            return ExitCode.USAGE
        case GroupRejected() | FencedMember() | CursorExpired():
            return ExitCode.REJECTED
        case PartlyDone():
            return ExitCode.PARTLY_DONE
    return ExitCode.ERROR
