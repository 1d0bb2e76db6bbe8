"""Text of others as a terminal and a log may show it: without control characters, on one line.

Called by :mod:`streamgroups.errors`, by the tables of the command line, and where a log line has a name that a cluster's clients choose: groups,
client ids, hosts. A terminal executes what comes behind ESC, and a line feed in a name would forge a line of a log.
"""

from __future__ import annotations


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with its unprintable characters as escapes.

    Args:
        text: of anybody.
        keep: control characters that stay.

    >>> print(printable("\x1b]0;mine\x07 carol\n"))
    \x1b]0;mine\x07 carol\x0a
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(ord(c)) for c in text)


def _escaped(number: int) -> str:
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
