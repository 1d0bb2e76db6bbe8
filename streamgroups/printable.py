"""Makes text of other clients safe for a terminal and a log: without control characters, on one line.

Called by :mod:`streamgroups.errors`, by the tables of the command line, and for log lines with names that clients of a
cluster choose: groups, client ids, hosts. A terminal executes the characters after ESC, and a line feed in a name would
forge a log line. Source: ECMA-48 (control sequences).
"""

from __future__ import annotations

from collections.abc import Iterable

#: The maximum number of names in one text.
MAX_LISTED = 10


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with its unprintable characters as escapes.

    Args:
        text: text from any client.
        keep: control characters that stay.

    >>> print(printable("\x1b]0;mine\x07 carol\n"))
    \x1b]0;mine\x07 carol\x0a
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(ord(c)) for c in text)


def has_half_pair(text: str) -> bool:
    r"""Returns whether a text contains half of a surrogate pair, which UTF-8 does not have and JSON can escape.

    >>> has_half_pair("\ud800"), has_half_pair("\U0001f600")
    (True, False)
    """
    return any("\ud800" <= c <= "\udfff" for c in text)


def listed(items: Iterable[object], most: int = MAX_LISTED, *, separator: str = ", ") -> str:
    """The first items, separated by commas, and the number of the others.

    Args:
        items: the items.
        most: the maximum number of items in the text.
        separator: the text between two items.

    >>> listed("abc"), listed(range(5), most=2)
    ('a, b, c', '0, 1 and 3 more')
    """
    texts = [str(item) for item in items]
    return separator.join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def _escaped(number: int) -> str:
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
