"""Parses options as Spark passes them: names are case-insensitive, values are text.

Called by the options of the source and of the sink (``streamgroups_spark``) and of event time
(:mod:`streamgroups.event_time.settings`). :mod:`streamgroups.durations` parses durations. Source: Spark's
``CaseInsensitiveStringMap``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import TypeVar

from streamgroups.errors import InvalidOption
from streamgroups.similar_names import nearest

KAFKA = "kafka."
_Choice = TypeVar("_Choice", bound=Enum)


def canonical(name: str, known: Collection[str], *, unknown: str = "is unknown", otherwise: str = "") -> str:
    """The documented name of an option.

    Args:
        name: the name that the user wrote.
        known: all valid names.
        unknown: the text of the error about an invalid name.
        otherwise: the remedy if no valid name is similar; by default it lists the valid names.

    Raises:
        InvalidOption: if the name is invalid.

    >>> canonical("MEMBERSHIP", ["membership"])
    'membership'
    >>> canonical("menbership", ["membership"])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'menbership' is unknown. Did you mean 'membership'?
    """
    names = {it.lower(): it for it in known}
    if name.lower() in names:
        return names[name.lower()]
    remedy = nearest(name, known, otherwise=otherwise or f"Allowed options: {', '.join(known)}.")
    raise InvalidOption(f"Option '{name}' {unknown}.", remedy=remedy)


def own_and_kafkas(
    options: Mapping[str, str], known: Collection[str], *, unknown: str, no_path: Callable[[str], InvalidOption]
) -> tuple[dict[str, str], dict[str, str]]:
    """The options of this library under their documented names, and Kafka's in lower case and without their prefix.

    Args:
        options: the options of the user.
        known: the names of the options of this library.
        unknown: the text of the error about other names.
        no_path: creates the error if the user passed a path, which Spark passes as an option.

    Raises:
        InvalidOption: for the first option that is neither.

    >>> own_and_kafkas({"Topic": "a", "kafka.ACKS": "all"}, ["topic"], unknown="is unknown", no_path=InvalidOption)
    ({'topic': 'a'}, {'acks': 'all'})
    """
    own: dict[str, str] = {}
    kafkas: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(KAFKA):
            kafkas[name[len(KAFKA) :].lower()] = value
        elif name.lower() == "path":
            raise no_path(value)
        else:
            own[canonical(name, known, unknown=unknown, otherwise="Names of Kafka settings start with 'kafka.'.")] = (
                value
            )
    return own, kafkas


def choice(given: Mapping[str, str], name: str, of: type[_Choice], default: _Choice) -> _Choice:
    """The variant that an option names.

    Raises:
        InvalidOption: if it names no variant. The remedy lists them.

    >>> from streamgroups.event_time.violations import OnViolation
    >>> choice({"onViolation": "Drop"}, "onViolation", OnViolation, OnViolation.KEEP)
    <OnViolation.DROP: 'drop'>
    """
    if name not in given:
        return default
    for variant in of:
        if str(variant.value).lower() == given[name].strip().lower():
            return variant
    allowed = ", ".join(str(variant.value) for variant in of)
    raise InvalidOption(f"Option '{name}' is '{given[name]}'.", remedy=f"Allowed values: {allowed}.")


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether an option is on.

    Raises:
        InvalidOption: if it is neither ``true`` nor ``false``.

    >>> flag({"includeHeaders": "TRUE"}, "includeHeaders", default=False)
    True
    """
    value = given.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise InvalidOption(f"Option '{name}' is '{given[name]}'.", remedy="Allowed values: true, false.")
    return value == "true"
