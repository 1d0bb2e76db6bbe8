"""Whether SQL keeps the dead letters of its input.

Called by the step ``sql`` after a step with state, whose dead letters are rows of ``input``. Lost letters cause no error, so a
text is accepted only if its form shows that it keeps all of them: one ``SELECT`` with the column, and at most one ``WHERE``,
which begins with ``dead_letter IS NOT NULL OR``. Source: SEMANTICS P4; the grammar of Spark's SQL (``SqlBaseLexer.g4``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from streamgroups.dlq.letter import COLUMN

_TOKEN = re.compile(
    r"""
    (?P<comment> --(?:\\\n|[^\r\n])* | /\*(?!\+)(?:(?!/\*|\*/).)*\*/ )
    | (?P<string> r'[^']*' | r"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | `(?P<quoted> (?:[^`]|``)*)`
    | (?P<word> \w+ )
    | (?P<symbol> /\* | \|> | \S )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
#: A hint, a comment in a comment, a quote without its end, a string between ``$$``, several statements.
_UNKNOWN = frozenset(("/*", "'", '"', "`", "$", ";"))
#: Clauses that can drop or merge rows.
_CLAUSES = (
    "cluster distribute except from group having intersect join lateral limit minus offset order pivot qualify select setminus "
    "sort tablesample union unpivot using window |>"
)
#: Functions that return no row, or several rows, for a row.
_GENERATORS = (
    "explode explode_outer inline inline_outer posexplode posexplode_outer stack variant_explode variant_explode_outer"
)
_REJECTED = frozenset(f"{_CLAUSES} {_GENERATORS}".split())
#: Before FROM, the words of clauses are names of columns.
_REJECTED_COLUMNS = frozenset(f"{_GENERATORS} select using".split())
_CONDITION = [COLUMN, "is", "not", "null", "or"]
_STRING = "''"


def keeps_letters(text: str) -> bool:
    """Returns whether the form of SQL shows that each dead letter of ``input`` is in one row of the result.

    Args:
        text: the SQL.

    >>> keeps_letters("SELECT key, dead_letter FROM input WHERE dead_letter IS NOT NULL OR n > 2")
    True
    >>> keeps_letters("SELECT key, dead_letter FROM input WHERE n > 2")
    False
    """
    tokens = _tokens(text)
    end = _from(tokens)
    if tokens[:1] != ["select"] or not end or not _UNKNOWN.isdisjoint(tokens):
        return False
    columns, rest = tokens[1:end], tokens[end + 1 :]
    if columns[:1] == ["distinct"] or rest[:1] != ["input"]:
        return False
    if not _REJECTED_COLUMNS.isdisjoint(columns) or not _REJECTED.isdisjoint(rest):
        return False
    names, condition = _after_input(rest[1:])
    if not any(_without_name(item, names) in (["*"], [COLUMN]) for item in _items(columns)):
        return False
    return not condition or (condition[0] == "where" and _without_name(condition[1:], names)[:5] == _CONDITION)


def _tokens(text: str) -> list[str]:
    """The tokens in lower case, without comments. A quoted name is no keyword, so its quote stays, except for the column."""
    found = []
    for token in _TOKEN.finditer(text.strip().removesuffix(";")):
        if token["quoted"] is not None:
            found.append(COLUMN if token["quoted"].lower() == COLUMN else token[0].lower())
        elif token["string"] is not None:
            found.append(_STRING)
        elif token["comment"] is None:
            found.append(token[0].lower())
    return found


def _from(tokens: Sequence[str]) -> int:
    """The index of the FROM outside of brackets; 0 without one."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token in ("(", "[")) - (token in (")", "]"))
        if token == "from" and not depth and tokens[index - 1] != ".":
            return index
    return 0


def _after_input(rest: Sequence[str]) -> tuple[tuple[str, ...], Sequence[str]]:
    """The names of the input, and the tokens after them."""
    if not rest or rest[0] == "where":
        return ("input",), rest
    alias = rest[1:] if rest[0] == "as" else rest
    return tuple(alias[:1]), alias[1:]


def _without_name(tokens: Sequence[str], names: Sequence[str]) -> list[str]:
    """The tokens without the name of the input before a column."""
    return list(tokens[2:] if len(tokens) > 2 and tokens[0] in names and tokens[1] == "." else tokens)


def _items(columns: Sequence[str]) -> Iterator[list[str]]:
    """The columns of a SELECT, which commas outside of brackets separate."""
    item: list[str] = []
    depth = 0
    for token in columns:
        depth += (token in "([") - (token in ")]")
        if token == "," and not depth:
            yield item
            item = []
        else:
            item.append(token)
    yield item
