"""The JSON Schema of processor files.

``schema.json`` is generated from the signatures of the ``sg`` functions by ``streamgroups_spark.processors.vocabulary``, and a
test compares both. ``streamgroups processors schema`` prints it, for editors. Source: JSON Schema 2020-12. Besides its
keywords, the schema has three of its own: ``x-noun`` and ``x-expected`` are words for errors, and ``x-chosen-by`` names the
key by which a table chooses one of several alternatives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

#: The steps whose state follows its partition (SEMANTICS S10).
STATEFUL = ("dedup", "join", "stateful", "windows")


@cache
def schema() -> Mapping[str, Any]:
    """Returns the JSON Schema.

    >>> sorted(schema()["properties"])[:3]
    ['checkpoint', 'dead_letters', 'name']
    """
    found: Mapping[str, Any] = json.loads((files(__package__) / "schema.json").read_text(encoding="utf-8"))
    return found


def definition(name: str) -> Mapping[str, Any]:
    """Returns a definition of the schema, such as ``windows`` or ``kafka_sink``."""
    found: Mapping[str, Any] = schema()["$defs"][name]
    return found


def resolved(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a part of the schema, or the definition to which it refers."""
    reference = part.get("$ref")
    return part if reference is None else definition(str(reference).removeprefix("#/$defs/"))


def default_of(step: str, argument: str) -> Any:
    """Returns the default of an argument of a step.

    >>> default_of("windows", "name")
    'windows'
    """
    return definition(step)["properties"][argument].get("default")
