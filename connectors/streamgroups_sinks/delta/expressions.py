"""The expressions of a table: its constraints and generated columns. Pure functions.

Used by ``sink``, ``tables`` and ``merging``. Source: Delta's protocol, "CHECK Constraints" (``delta.constraints.*``),
"Generated Columns" (``delta.generationExpression``), "Column Invariants".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

_CONSTRAINT = "delta.constraints."
_TOKENS = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`|[^\W\d]\w*|\d\w*|\s+|.", re.DOTALL)


def generated_columns(table: DeltaTable) -> dict[str, str]:
    """Returns the expression of each generated column."""
    return {
        name: str(metadata["delta.generationExpression"])
        for name, metadata in _metadata(table).items()
        if "delta.generationExpression" in metadata
    }


def conditions(table: DeltaTable) -> dict[str, str]:
    """Returns the conditions that each row of the table must satisfy, by the names of the constraints."""
    found = {
        name.removeprefix(_CONSTRAINT): text
        for name, text in table.metadata().configuration.items()
        if name.startswith(_CONSTRAINT) and text
    }
    for i, metadata in enumerate(_metadata(table).values()):
        if invariant := metadata.get("delta.invariants"):
            found[f"invariant_{i}"] = json.loads(invariant)["expression"]["expression"]
    for i, (name, text) in enumerate(generated_columns(table).items()):
        found[f"generated_{i}"] = f"{quoted(name)} IS NOT DISTINCT FROM ({text})"
    return found


def _metadata(table: DeltaTable) -> dict[str, dict[str, Any]]:
    fields = json.loads(table.schema().to_json())["fields"]
    return {field["name"]: field.get("metadata") or {} for field in fields}


def quoted(name: str) -> str:
    """Returns a name as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def qualified(expression: str, values: Mapping[str, str]) -> str:
    """Replaces the columns of an expression.

    Args:
        expression: the expression of a generated column.
        values: for each column of the table, what replaces it.

    >>> qualified("year(at) || ' at' || `n`", {"at": "source.`at`", "n": "target.`n`"})
    "year(source.`at`) || ' at' || target.`n`"
    >>> qualified("CAST(at AS date) + extract(day FROM at)", {"at": "x", "date": "y", "day": "z"})
    'CAST(x AS date) + extract(day FROM x)'
    """
    by_name = {name.lower(): value for name, value in values.items()}
    tokens = _TOKENS.findall(expression)
    words = [i for i, token in enumerate(tokens) if not token.isspace()]
    written = list(tokens)
    for before, at, after in zip([None, *words], words, [*words[1:], None], strict=False):
        name = tokens[at].strip("`").replace("``", "`").lower()
        previous = "" if before is None else tokens[before].lower()
        following = "" if after is None else tokens[after].lower()
        # A function, a field of a struct, a type, or the unit of EXTRACT.
        is_other = following == "(" or previous in (".", "as") or (previous, following) == ("(", "from")
        if name in by_name and (tokens[at].startswith("`") or not is_other) and previous != ".":
            written[at] = by_name[name]
    return "".join(written)
