"""Public names that are loaded at their first use.

Used by the modules of the public API, so that ``import streamgroups`` is fast and needs neither Spark nor a Kafka client.
Source: PEP 562.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def places(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the module of each public name.

    Args:
        names: the names by the module that defines them. ``module:Class`` for members of a class.

    >>> places({"streamgroups.errors": "Fenced", "streamgroups.cursors.starting_position:CursorType": "LATEST AT_TIME"})["LATEST"]
    'streamgroups.cursors.starting_position:CursorType'
    """
    return {name: place for place, of_place in names.items() for name in of_place.split()}


def accessors(module: str, of: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns ``__getattr__`` and ``__dir__`` of a module with public names.

    Args:
        module: the module, for example ``streamgroups.shapes``.
        of: see :func:`places`.
    """
    api = "sg" + module.removeprefix("streamgroups") if f"{module}.".startswith("streamgroups.") else module

    def get(name: str) -> Any:
        if name not in of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from streamgroups.extras import load

        place, _, holder = of[name].partition(":")
        found = load(place, needed_by=f"{api}.{name}")
        return getattr(getattr(found, holder) if holder else found, name)

    return get, lambda: sorted(of)
