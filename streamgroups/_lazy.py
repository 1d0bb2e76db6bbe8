"""Public names that are loaded at their first use.

Used by the modules of the public API, so that ``import streamgroups`` is fast and needs neither Spark nor a Kafka client.
Source: PEP 562.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def places(names: Mapping[str, str]) -> dict[str, str]:
    """Returns the module of each public name.

    Args:
        names: the names by the module that defines them. ``module:Class`` for members of a class.

    >>> places({"streamgroups.errors": "Fenced", "streamgroups.cursors.starting_position:CursorType": "LATEST AT_TIME"})["LATEST"]
    'streamgroups.cursors.starting_position:CursorType'
    """
    return {name: place for place, of_place in names.items() for name in of_place.split()}


def loaded(module: str, name: str, of: Mapping[str, str]) -> Any:
    """Returns a public name of a module.

    Args:
        module: the module, for example ``streamgroups.shapes``.
        name: the name.
        of: see :func:`places`.

    Raises:
        AttributeError: if the module has no such name.
        MissingExtra: if a package of an extra is missing.
    """
    if name not in of:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    from streamgroups.extras import load

    place, _, holder = of[name].partition(":")
    found = load(place, needed_by=f"{module.replace('streamgroups', 'sg', 1)}.{name}")
    return getattr(getattr(found, holder) if holder else found, name)
