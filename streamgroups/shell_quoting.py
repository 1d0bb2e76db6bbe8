"""Names quoted for a shell, in the commands that errors and outputs print.

A name can contain a space, ``;`` or ``$()``. Without quotes a pasted command would change other groups, or run another
program. Source: the shell of POSIX; SEMANTICS O1.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable


def names(groups: Iterable[str]) -> str:
    """Returns names of groups as the last arguments of a command to paste. A group can have the name ``x; reboot``.

    >>> print(names(["billing", "x; reboot"]))
    billing 'x; reboot'
    >>> print(names(["--execute"]))
    -- --execute
    """
    listed = list(groups)
    return ("-- " if any(name.startswith("-") for name in listed) else "") + shlex.join(listed)


def command(words: str, groups: Iterable[str], options: str = "") -> str:
    """Returns a command of ``streamgroups`` about groups, to paste.

    Args:
        words: the words of the command.
        groups: the groups.
        options: its options. Their values are quoted.

    >>> print(command("groups reset", ["billing eu"], "--to-earliest --execute"))
    streamgroups groups reset 'billing eu' --to-earliest --execute
    >>> print(command("groups undo", ["-x"], "--execute"))
    streamgroups groups undo --execute -- -x
    """
    quoted = names(groups)
    # No option is read after ``--``.
    parts = (options, quoted) if quoted.startswith("-- ") else (quoted, options)
    return " ".join(part for part in ("streamgroups", words, *parts) if part)


def topic_options(topics: Iterable[object]) -> str:
    """Returns the options ``--topic`` of a command.

    Args:
        topics: topics, or texts as ``flights:0,1``. Each is named once.

    >>> print(topic_options(["flights:0,1", "a b", "a b"]))
    --topic flights:0,1 --topic 'a b'
    """
    return " ".join(f"--topic {shlex.quote(topic)}" for topic in dict.fromkeys(map(str, topics)))
