"""Exit codes, by which a script distinguishes results (SEMANTICS O2).

``streamgroups_cli.main`` uses them. typer also exits with 2 if it cannot parse the command line.
"""

from __future__ import annotations

from enum import IntEnum

from streamgroups.errors import (
    CheckpointRejected,
    CursorExpired,
    FencedMember,
    GroupRejected,
    InvalidCursor,
    InvalidOption,
    InvalidProcessor,
    PartitionsAdded,
    PartlyDone,
    ProgramMismatch,
    StreamGroupsError,
)


class ExitCode(IntEnum):
    """The result of a command."""

    DONE = 0
    #: An error, including an unreachable broker, or a problem that a check has found.
    ERROR = 1
    #: The command line, a cursor in it, or a file that it names is invalid.
    USAGE = 2
    #: The command was valid and was rejected. Nothing was changed.
    REJECTED = 3
    #: Some changes succeeded and some failed: the message lists them. Or a result is incomplete.
    PARTLY_DONE = 4
    #: An audit has found missing or double ranges.
    FINDINGS = 5
    #: Ctrl-C has ended the command: 128 and the number of SIGINT, as in a shell.
    INTERRUPTED = 130


class Interrupted(Exception):
    """Ctrl-C has ended a command.

    Args:
        interrupt: the exception of Ctrl-C. If it has an error as its cause, this is the error of the command.
    """

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        super().__init__(*interrupt.args)
        cause = interrupt.__cause__
        self.error = (
            cause if isinstance(cause, StreamGroupsError) else StreamGroupsError("The command was interrupted.")
        )


def exit_code(error: StreamGroupsError) -> ExitCode:
    """Returns the exit code of a command that ends with this error.

    >>> exit_code(GroupRejected("Group 'g' is Stable."))
    <ExitCode.REJECTED: 3>
    """
    match error:
        case InvalidOption() | InvalidCursor() | InvalidProcessor():
            return ExitCode.USAGE
        case GroupRejected() | CheckpointRejected() | ProgramMismatch() | FencedMember() | CursorExpired():
            return ExitCode.REJECTED
        case PartitionsAdded():
            return ExitCode.REJECTED
        case PartlyDone():
            return ExitCode.PARTLY_DONE
    return ExitCode.ERROR
