"""Standard output: its encoding, and errors of the disk or the pipe behind it.

:mod:`streamgroups_cli.command_line` uses it. One name that the encoding of a terminal does not have would otherwise hide a
whole list. Source: PEP 528, PEP 538; the section about SIGPIPE in Python's ``signal``.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from streamgroups.errors import StreamGroupsError


def prepare() -> None:
    """Makes standard output accept every text.

    A program receives UTF-8 in every locale, as in the files of this library. A terminal shows an escape for a character that
    it does not have.
    """
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        if not output.isatty() and not is_unicode():
            output.reconfigure(encoding="utf-8")
        output.reconfigure(errors="backslashreplace")


def is_unicode() -> bool:
    """Whether the encoding of standard output has every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf")


def drop() -> None:
    """Drops what could not be written. Otherwise Python writes it again at its exit, and prints a traceback."""
    with suppress(OSError, ValueError, AttributeError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def failure(error: OSError | UnicodeError) -> StreamGroupsError:
    """Returns the error of a command for an error of the system that no command explains.

    >>> print(failure(PermissionError(13, "Permission denied", "/data")))
    The system has failed: /data: Permission denied. Check the output of the command, its disk and permissions.
    """
    if isinstance(error, UnicodeError):
        return StreamGroupsError(f"A text has another encoding: {error}.", remedy="Use UTF-8: LC_ALL=C.UTF-8.")
    place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    return StreamGroupsError(
        f"The system has failed: {place}{error.strerror or error}.",
        remedy="Check the output of the command, its disk and permissions.",
    )
