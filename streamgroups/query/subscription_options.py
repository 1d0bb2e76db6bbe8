"""The options for the topics of a read: ``subscribe``, ``subscribePattern`` and ``assign``.

Called by ``query.source_settings``. Source: SEMANTICS S4; Spark's ``kafka`` source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamgroups.errors import InvalidOption
from streamgroups.groups.subscription import Partitions, Pattern, Subscription, Topics
from streamgroups.json_values import MAX_INT32, elements, items, read_unique_json, whole
from streamgroups.option_values import shown_value
from streamgroups.partitions import TopicPartition

SUBSCRIBING = ("subscribe", "subscribePattern", "assign")


def subscription_of(known: Mapping[str, str]) -> Subscription:
    """Returns the topics or partitions to read.

    Args:
        known: options under their documented names.

    Raises:
        InvalidOption: if not exactly one of the options is set, or its value is invalid.

    >>> subscription_of({"subscribe": "flights, orders"})
    Topics(names=('flights', 'orders'))
    """
    given = [name for name in SUBSCRIBING if name in known]
    if len(given) != 1:
        what = f"Options {', '.join(map(repr, given))} exclude each other" if given else "No topics to read are set"
        raise InvalidOption(f"{what}.", remedy="Set exactly one of 'subscribe', 'subscribePattern' and 'assign'.")
    (name,), value = given, known[given[0]]
    if name == "assign":
        return Partitions(_assigned(value))
    if name == "subscribePattern":
        return Pattern(topic_pattern(value))
    topics = names_of(known, "subscribe", "topics")
    assert topics is not None, "it is given"
    return Topics(topics)


def names_of(known: Mapping[str, str], name: str, what: str) -> tuple[str, ...] | None:
    """Parses names, separated by commas. A name that is there twice counts once.

    Args:
        known: options under their documented names.
        name: the option.
        what: what it names, for the error.

    Raises:
        InvalidOption: if it is set, and names nothing.
    """
    value = known.get(name)
    if value is None:
        return None
    names = tuple(dict.fromkeys(it.strip() for it in value.split(",") if it.strip()))
    if not names:
        raise InvalidOption(
            f"Option '{name}' is '{value}', which names no {what}.",
            remedy=f"Set it to {what}, separated by commas.",
        )
    return names


def topic_pattern(value: str) -> re.Pattern[str]:
    """Compiles a pattern by Spark's rules: surrounding spaces do not count.

    Raises:
        InvalidOption: if it is no regular expression, or empty: an empty one matches any topic.
    """
    if not value.strip():
        raise InvalidOption(
            f"Option 'subscribePattern' is '{value}', which is empty.", remedy="Write '.*' to read every topic."
        )
    try:
        return re.compile(value.strip())
    # Python has errors of their own for large numbers, and for parts inside parts.
    except (re.error, RecursionError, OverflowError) as e:
        raise InvalidOption(
            f"Option 'subscribePattern' is '{shown_value(value)}', which is not a regular expression: {e}.",
            remedy=("Use a regular expression of Python, such as 'flights-'; it may match any part of a topic's name."),
        ) from None


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    try:
        found = {
            TopicPartition(topic, whole(number, most=MAX_INT32))
            for topic, numbers in items(read_unique_json(value))
            for number in elements(numbers)
        }
        if not found:
            raise ValueError("it has no partition")
    except ValueError as e:
        raise InvalidOption(
            f"Option 'assign' is '{shown_value(value)}', which is not a JSON object of partitions: {e}.",
            remedy='Set it to a value such as {"flights":[0,1]}.',
        ) from None
    return tuple(sorted(found))
