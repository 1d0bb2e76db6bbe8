"""Rejects a topic whose ``cleanup.policy`` makes the broker delete records that this library needs.

Called by ``streamgroups_kafka.admin.topic_changes`` for topics that must keep all records, and by the modules of topics that
must be compacted. Source: Kafka's topic configuration, ``cleanup.policy``: names, separated by commas.
"""

from __future__ import annotations

import shlex

from streamgroups.errors import InvalidOption
from streamgroups.shell_quoting import topic_options


def check_compacted(topic: str, policy: str, consequence: str) -> None:
    """Rejects a topic whose records the broker deletes after a time.

    Args:
        topic: the topic.
        policy: its ``cleanup.policy``.
        consequence: the consequence of another policy, for the error.

    Raises:
        InvalidOption: if the policy is not ``compact`` alone.

    >>> check_compacted("flights.dlq.redriven", "compact", "these letters would be sent again")
    >>> check_compacted("flights.dlq.redriven", "compact,delete", "these letters would be sent again")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Topic 'flights.dlq.redriven' has cleanup.policy=compact,delete, so these letters would \
be sent again. Set it with: kafka-configs.sh --alter --topic flights.dlq.redriven --add-config cleanup.policy=compact
    """
    if _names(policy) != {"compact"}:
        raise _other(topic, policy, consequence, "compact", "")


def check_not_compacted(topic: str, policy: str, consequence: str) -> None:
    """Rejects a topic in which a record replaces earlier ones with its key.

    Args:
        topic: the topic.
        policy: its ``cleanup.policy``.
        consequence: the consequence of compaction, for the error.

    Raises:
        InvalidOption: if the policy contains ``compact``.

    >>> check_not_compacted("by-airport", "delete", "windows would be wrong")
    >>> check_not_compacted("by-airport", "compact", "windows would be wrong")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Topic 'by-airport' has cleanup.policy=compact, so windows would be wrong. Use another \
topic, or set it with: kafka-configs.sh --alter --topic by-airport --add-config cleanup.policy=delete
    """
    if "compact" in _names(policy):
        raise _other(topic, policy, consequence, "delete", "Use another topic, or ")


def _names(policy: str) -> set[str]:
    return {name.strip() for name in policy.split(",")}


def _other(topic: str, policy: str, consequence: str, required: str, before: str) -> InvalidOption:
    command = (
        f"kafka-configs.sh --alter {topic_options([topic])} --add-config {shlex.quote(f'cleanup.policy={required}')}"
    )
    return InvalidOption(
        f"Topic '{topic}' has cleanup.policy={policy}, so {consequence}.",
        remedy=f"{before}{'set' if before else 'Set'} it with: {command}",
        topic=topic,
    )
