"""Parses the options ``onDataLoss`` and ``failOnDataLoss``.

Called by ``streamgroups_spark.source.source_options``. ``failOnDataLoss`` is Spark's option: ``true`` means
``onDataLoss=fail``, ``false`` means ``onDataLoss=earliest``. ``onDataLoss`` is a word, or JSON in the style of Spark's
``startingOffsets``. Source: SEMANTICS S4, S7; :mod:`streamgroups.query.data_loss`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.option_values import flag
from streamgroups.partitions import TopicPartition
from streamgroups.query.data_loss import LossPolicies, OnDataLoss

_WORDS = {policy.value: policy for policy in OnDataLoss}
_REMEDY = (
    "Allowed values: fail, skip, earliest, or a JSON text with one of them for each topic or partition, such as "
    '{"flights":"skip","orders":{"0":"earliest"}}.'
)


def loss_policies(known: Mapping[str, str]) -> LossPolicies:
    """How a loss is handled in each partition.

    Args:
        known: options under their canonical names.

    Raises:
        InvalidOption: if a value is malformed, or if the two options contradict each other.

    >>> policies = loss_policies({"onDataLoss": '{"flights":"skip","orders":{"0":"earliest"}}'})
    >>> [policies.of(TopicPartition(*tp)).value for tp in (("flights", 3), ("orders", 0), ("orders", 1))]
    ['skip', 'earliest', 'fail']
    """
    fails = flag(known, "failOnDataLoss", default=True)
    default = OnDataLoss.FAIL if fails else OnDataLoss.EARLIEST
    value = known.get("onDataLoss")
    if value is None:
        return LossPolicies(default)
    word = _WORDS.get(value.strip().lower())
    policies = LossPolicies(word) if word is not None else _by_partition(value, default)
    given = {policies.default, *policies.by_topic.values(), *policies.by_partition.values()}
    if "failOnDataLoss" in known and (given != {OnDataLoss.FAIL} if fails else OnDataLoss.FAIL in given):
        raise InvalidOption(
            f"Options 'failOnDataLoss' ('{known['failOnDataLoss']}') and 'onDataLoss' ('{value}') contradict each other.",
            remedy="Set only 'onDataLoss': fail equals failOnDataLoss=true, and earliest equals failOnDataLoss=false.",
        )
    return policies


def _by_partition(value: str, default: OnDataLoss) -> LossPolicies:
    by_topic: dict[str, OnDataLoss] = {}
    by_partition: dict[TopicPartition, OnDataLoss] = {}
    try:
        parsed: Any = json.loads(value)
        for topic, policy in parsed.items():
            if isinstance(policy, str):
                by_topic[topic] = _WORDS[policy.strip().lower()]
            else:
                by_partition |= {_partition(topic, p): _WORDS[it.strip().lower()] for p, it in policy.items()}
        if not by_topic and not by_partition:
            raise ValueError
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise InvalidOption(f"Option 'onDataLoss' is '{value}'.", remedy=_REMEDY) from None
    return LossPolicies(default, by_topic, by_partition)


def _partition(topic: str, number: str) -> TopicPartition:
    if not (number.isascii() and number.isdigit()):
        raise ValueError
    return TopicPartition(topic, int(number))
