"""Decides whether groups can be deleted: only with a way back, unless the user accepts it.

``streamgroups_cli.groups`` calls it, for ``delete`` and ``sweep``. A broker omits the offsets of topics that the user may not
describe, without an error. Source: SEMANTICS G17; KIP-709 (OffsetFetch of all partitions).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.acls import grant
from streamgroups.errors import GroupRejected
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed

#: A notice about each undo file of deleted groups.
HIDDEN_OFFSETS = "Offsets of topics that this user may not describe are neither counted nor stored in the undo file."


def without_offsets(group_ids: Collection[str], committed: Mapping[str, Collection[TopicPartition]]) -> list[str]:
    """Returns the groups without a visible committed offset. No undo file can restore them.

    Args:
        group_ids: the groups.
        committed: the partitions with a visible committed offset of each group.

    >>> without_offsets(["board", "billing"], {"board": [TopicPartition("flights", 0)]})
    ['billing']
    """
    return [g for g in group_ids if not committed.get(g)]


def require_offsets(group_ids: Collection[str], committed: Mapping[str, Collection[TopicPartition]]) -> None:
    """Rejects the deletion of groups without a visible committed offset.

    Raises:
        GroupRejected: with the groups, and both remedies.

    >>> require_offsets(["board"], {"board": []})
    Traceback (most recent call last):
    streamgroups.errors.GroupRejected: Group 'board' shows no committed offset: it has none, or this user may not describe \
its topics. No undo file could restore it; nothing was changed. Grant Describe on the Topic: kafka-acls.sh --bootstrap-server \
HOST:PORT --add --allow-principal User:NAME --operation Describe --topic NAME. If it has none: --allow-no-offsets deletes it.
    """
    hidden = without_offsets(group_ids, committed)
    if hidden:
        raise GroupRejected(
            f"Group {listed(map(repr, hidden))} shows no committed offset: it has none, or this user may not describe its "
            "topics. No undo file could restore it; nothing was changed.",
            remedy=f"{grant('Describe', 'Topic')}. If it has none: --allow-no-offsets deletes it.",
            group=hidden[0] if len(hidden) == 1 else None,
        )
