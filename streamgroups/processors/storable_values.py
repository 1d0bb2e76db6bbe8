"""Rejects values that an instance cannot store: its topic contains JSON in UTF-8.

Called by ``reading``. YAML and Python have values that UTF-8 or JSON does not have. Source: RFC 8259 (6, 8.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from streamgroups.printable import has_half_pair
from streamgroups.processors.problems import Problem, shown
from streamgroups.processors.values import Items, Node, Scalar, Table

_CHARACTER = "Write the character itself, or in double quotes an escape sequence with eight digits, as in \\U0001F600."


def unstorable(node: Node, field: str = "") -> Iterator[Problem]:
    r"""Yields the keys and values that cannot be stored.

    Args:
        node: the value.
        field: its field, such as ``steps[0]``.

    >>> [it.what for it in unstorable(Scalar("\ud800", "\ud800"), "steps[0].sql")]
    ['The text contains half of a surrogate pair.']
    """
    if isinstance(node, Scalar):
        yield from _of_scalar(node, field)
    elif isinstance(node, Items):
        for number, item in enumerate(node.items):
            yield from unstorable(item, f"{field}[{number}]")
    else:
        yield from _of_table(node, field)


def _of_scalar(node: Scalar, field: str) -> Iterator[Problem]:
    if isinstance(node.value, str) and has_half_pair(node.value):
        yield Problem(node.line, field, "The text contains half of a surrogate pair.", _CHARACTER)
    if isinstance(node.value, float) and not math.isfinite(node.value):
        what = f"'{shown(node.text, field)}' is not a finite number."
        yield Problem(node.line, field, what, "Write a number between -1e308 and 1e308.")


def _of_table(table: Table, field: str) -> Iterator[Problem]:
    for it in table.entries:
        if has_half_pair(it.key):
            # The key itself would be part of the output.
            yield Problem(it.line, field, "A key contains half of a surrogate pair.", _CHARACTER)
        else:
            yield from unstorable(it.value, f"{field}.{it.key}" if field else it.key)
