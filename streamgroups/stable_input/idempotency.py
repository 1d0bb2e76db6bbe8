"""The idempotency key of a record: other systems use it to ignore a repeated request.

Called by users as ``sg.side_effects.idempotency_key``, and by ``streamgroups_operators.pinned_records`` for the column of that name. Source:
SEMANTICS X7; RFC 9562 (UUID version 5).
"""

from __future__ import annotations

from uuid import UUID, uuid5

from streamgroups.errors import InvalidOption

#: The name of the column of the keys.
COLUMN = "idempotency_key"

_NAMESPACE = UUID("6f1d2c0e-52a5-5d53-9a51-3c1f0d8b7a44")


def idempotency_key(
    group_id: str, topic: str, partition: int, offset: int, n: int = 0, *, topic_id: str | None = None
) -> str:
    """Returns the key of a row that a group has made of a record. The same arguments have the same key, everywhere.

    Args:
        group_id: the consumer group that reads the record.
        topic: the topic of the record.
        partition: its partition.
        offset: its offset.
        n: the number of the row, if a record has several rows, from 0.
        topic_id: the id of the topic. With it a recreated topic, whose offsets begin at 0 again, has other keys. The
            column of ``sg.side_effects.stable_batches`` contains it.

    Returns:
        A UUID as text: 36 characters.

    Raises:
        InvalidOption: if a number is negative.

    >>> idempotency_key("billing", "orders", 3, 42)
    '2da74261-e61d-59db-8e8f-1f582ad3418c'
    >>> idempotency_key("billing", "orders", 3, 42) == idempotency_key("billing", "orders", 3, 42, 1)
    False
    """
    if min(partition, offset, n) < 0:
        raise InvalidOption(
            f"A key for partition {partition}, offset {offset} and row {n} does not exist.",
            remedy="These numbers are 0 or larger.",
        )
    # The group is last: it can contain any character. A topic and its id contain no slash.
    return str(uuid5(_NAMESPACE, f"{topic_id or ''}/{topic}/{partition}/{offset}/{n}/{group_id}"))
