"""Parses options as Spark passes them: names are case-insensitive, values are text.

Called by the options of the source and of the sink (``streamgroups_spark``) and of event time
(:mod:`streamgroups.event_time.settings`). :mod:`streamgroups.durations` parses durations. Source: Spark's
``CaseInsensitiveStringMap``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import TypeVar

from streamgroups.errors import InvalidOption
from streamgroups.json_values import MAX_INT64
from streamgroups.similar_names import nearest

KAFKA = "kafka."
#: No number of more digits fits in 64 bits, and Python does not convert thousands of them.
_WHOLE = re.compile(r"\+?0*([0-9]{1,19})")
_MAX_SHOWN = 200
_Choice = TypeVar("_Choice", bound=Enum)
_Value = TypeVar("_Value")


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


def repeated_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of names that are one name without spaces and case: the first one, and each later one.

    >>> repeated_names(["kafka.acks", "topic", "kafka.ACKS "])
    [('kafka.acks', 'kafka.ACKS ')]
    """
    first: dict[str, str] = {}
    found = []
    for name in names:
        if _folded(name) in first:
            found.append((first[_folded(name)], name))
        first.setdefault(_folded(name), name)
    return found


def folded(settings: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """Settings of Kafka under their names in lower case.

    Args:
        settings: the names without the prefix ``kafka.``, and the values. All of them have one source: none overrides another one.

    Raises:
        InvalidOption: if a setting is given twice: one of its values would have no effect. The error contains no value.

    >>> folded({"ACKS": "all"}.items())
    {'acks': 'all'}
    >>> folded([("acks", "all"), ("ACKS", "1")])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Options 'kafka.acks' and 'kafka.ACKS' are the same option. Set only one of them.
    """
    pairs = list(settings)
    check_once((name for name, _ in pairs), KAFKA)
    return {_folded(name): value for name, value in pairs}


def without_prefix(settings: Iterable[tuple[str, _Value]]) -> Iterator[tuple[str, _Value]]:
    """Settings whose names have the prefix ``kafka.`` or not, without it.

    >>> list(without_prefix({"Kafka.ACKS": "all", "linger.ms": "5"}.items()))
    [('ACKS', 'all'), ('linger.ms', '5')]
    """
    for name, value in settings:
        yield (name[len(KAFKA) :] if name.lower().startswith(KAFKA) else name), value


def _folded(name: str) -> str:
    return name.strip().lower()


def check_once(names: Iterable[str], prefix: str = "") -> None:
    """Rejects names of options that differ only in case or in spaces around them.

    Args:
        names: the names.
        prefix: precedes each name in the error.

    Raises:
        InvalidOption: for the first two such names.

    >>> check_once(["topic", "Topic"])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Options 'topic' and 'Topic' are the same option. Set only one of them.
    """
    for first, other in repeated_names(names):
        what = f"Options '{prefix}{first}' and '{prefix}{other}' are the same option."
        raise InvalidOption(what, remedy="Set only one of them.")


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
        InvalidOption: for the first option that is neither, or is given twice.

    >>> own_and_kafkas({"Topic": "a", "kafka.ACKS": "all"}, ["topic"], unknown="is unknown", no_path=InvalidOption)
    ({'topic': 'a'}, {'acks': 'all'})
    """
    own: dict[str, str] = {}
    kafkas: list[tuple[str, str]] = []
    check_once(options)
    for name, value in options.items():
        if name.lower().startswith(KAFKA):
            kafkas.append((name[len(KAFKA) :], value))
        elif name.lower() == "path":
            raise no_path(value)
        else:
            own[canonical(name, known, unknown=unknown, otherwise="Names of Kafka settings start with 'kafka.'.")] = (
                value
            )
    return own, folded(kafkas)


def whole_number(text: str, *, least: int = 0, most: int = MAX_INT64) -> int:
    """A whole number in decimal digits, as Java's parser reads it: a sign ``+`` and zeros in front have no meaning.

    Args:
        text: the text of the user, without spaces around it.
        least: the smallest permitted number, at least 0.
        most: the largest permitted number.

    Raises:
        ValueError: if it is not such a number. Python alone accepts ``1_000`` and digits of other scripts.

    >>> whole_number("+10"), whole_number("007")
    (10, 7)
    >>> whole_number("1_0")
    Traceback (most recent call last):
    ValueError: not a whole number between 0 and 9223372036854775807
    """
    found = _WHOLE.fullmatch(text)
    if found is None or not least <= int(found[1]) <= most:
        raise ValueError(f"not a whole number between {least} and {most}")
    return int(found[1])


def shown_value(text: str) -> str:
    """The value of an option, for its error: of a long one the beginning.

    >>> shown_value("[" * 100_000)[-5:], shown_value("earliest")
    ('[[[[…', 'earliest')
    """
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


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
