"""Identifies the topic and the cluster of an offset.

Part of every stored position: checkpoints (:mod:`streamgroups.checkpoints.offset`), committed offsets
(:mod:`streamgroups.groups.commit_metadata`) and ledgers. Without these ids an offset is ambiguous. A recreated topic
counts from 0 again, and so does another cluster at the same address. Source: KIP-516 (topic ids, brokers from 2.8),
KIP-78 (cluster ids); SEMANTICS S7, S11.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

#: The prefix of an id that is stored as a fingerprint. Kafka's ids never start with it.
_FINGERPRINT = "#"


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """The ids of a topic, as far as they are known. Only ids that are known on both sides are compared.

    Args:
        cluster_id: the id of the cluster; ``None`` if the broker, or the writer of the position, has not provided it.
        topic_id: the id of the topic; ``None`` likewise (brokers before 2.8, positions that other tools commit).

    >>> first, second = TopicIdentity("c1", "t1"), TopicIdentity("c1", "t2")
    >>> first.differs_from(second), first.differs_from(TopicIdentity("c1"))
    (True, False)
    """

    cluster_id: str | None = None
    topic_id: str | None = None

    def is_of_another_cluster(self, other: TopicIdentity) -> bool:
        """Whether both clusters are known and differ."""
        return _differ(self.cluster_id, other.cluster_id)

    def differs_from(self, other: TopicIdentity) -> bool:
        """Whether an id is known on both sides and differs."""
        return self.is_of_another_cluster(other) or _differ(self.topic_id, other.topic_id)

    def completed_by(self, other: TopicIdentity) -> TopicIdentity:
        """The same identity, with unknown ids from ``other``.

        >>> TopicIdentity(None, "t1").completed_by(TopicIdentity("c1", "t2"))
        TopicIdentity(cluster_id='c1', topic_id='t1')
        """
        return TopicIdentity(
            _fuller(self.cluster_id, other.cluster_id),
            _fuller(self.topic_id, other.topic_id),
        )

    def __str__(self) -> str:
        return f"topic id {self.topic_id or 'unknown'}, cluster id {self.cluster_id or 'unknown'}"


#: The identity of a position whose writer has provided no ids.
UNKNOWN = TopicIdentity()


def fingerprint(id_: str) -> str:
    """A short substitute for an id, for stores that contain numbers only. It compares equal to the id.

    >>> TopicIdentity(topic_id=fingerprint("t1")).differs_from(TopicIdentity(topic_id="t1"))
    False
    """
    return id_ if id_.startswith(_FINGERPRINT) else f"{_FINGERPRINT}{fingerprint_bits(id_):08x}"


def fingerprint_bits(id_: str | None) -> int:
    """The 31 bits of a fingerprint; 0 represents an unknown id.

    >>> fingerprint_bits(None), fingerprint_bits("t1") == fingerprint_bits(fingerprint("t1"))
    (0, True)
    """
    if id_ is None:
        return 0
    if id_.startswith(_FINGERPRINT):
        return int(id_.removeprefix(_FINGERPRINT), 16)
    return 1 + int.from_bytes(hashlib.sha256(id_.encode()).digest()[:8], "big") % (2**31 - 1)


def from_fingerprint_bits(bits: int) -> str | None:
    """The id that :func:`fingerprint_bits` represents; ``None`` for 0."""
    return f"{_FINGERPRINT}{bits:08x}" if bits else None


def _differ(one: str | None, other: str | None) -> bool:
    if one is None or other is None or one == other:
        return False
    if _FINGERPRINT in (one[:1], other[:1]):
        return fingerprint(one) != fingerprint(other)
    return True


def _fuller(one: str | None, other: str | None) -> str | None:
    """The id itself rather than its fingerprint, if both represent the same id."""
    if one is None or (one.startswith(_FINGERPRINT) and other is not None and not _differ(one, other)):
        return other
    return one
