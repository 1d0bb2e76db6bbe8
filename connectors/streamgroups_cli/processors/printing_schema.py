"""``streamgroups processors schema``: the JSON Schema of processor files, for editors. Source: SEMANTICS P1."""

from __future__ import annotations

import json

from streamgroups.processors.schema import schema


def print_schema() -> None:
    """Print the JSON Schema of processor files, for the completion and the checks of an editor."""
    print(json.dumps(schema(), indent=1, ensure_ascii=False))
