"""Decides from which state ``sg.dedup`` with ``on_reset="keep"`` continues after a reset.

Called by ``streamgroups_operators.store`` on the driver. Such a state contains ids of records after the position, so they are
seen. These records must have reached the output, or they would be lost. The offset that a tool has committed does not
name a state any more, so the files must prove that a state was committed: a later batch has continued with it at its
offset, or its batch has read no records. Source: SEMANTICS X5, S10.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamgroups.state.manifest import Manifest
from streamgroups.state.state_lookup import Position, Stored


def newest_committed(position: Position, manifests: Iterable[Manifest]) -> Stored | None:
    """Returns the newest state of a partition that was committed; ``None`` if the files prove no commit.

    Args:
        position: the position. Its offset has no effect.
        manifests: the manifests of all files of the operator.

    >>> from streamgroups.partitions import TopicPartition
    >>> from streamgroups.state.origins import UNNAMED
    >>> newest_committed(Position(TopicPartition("flights", 0), 5, UNNAMED), []) is None
    True
    """
    tp = position.topic_partition
    found = [Stored(it.file, state) for it in manifests if (state := it.state_of(tp)) is not None]
    of_topic = [it for it in found if not it.state.identity.differs_from(position.identity)]
    continued = {(it.state.after, it.state.range.next_offset) for it in of_topic}
    committed = [it for it in of_topic if not len(it.state.range) or (it.file, it.state.next_offset) in continued]
    return max(committed, key=lambda it: it.file, default=None)
