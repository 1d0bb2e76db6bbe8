"""``streamgroups processors schema``: the JSON Schema of processor files, for editors. Source: SEMANTICS P1."""

from __future__ import annotations

from streamgroups.json_values import write_json
from streamgroups.processors.schema import schema


def print_schema() -> None:
    """Print the JSON Schema of processor files, for the completion and the checks of an editor."""
    print(write_json(schema(), indent=1))
