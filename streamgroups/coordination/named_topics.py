"""How many partitions the topics have that reset requests name.

Used by :mod:`streamgroups.coordination.reset_participant`. A request waits for the members of all its topics, except deleted ones.
One list of all topics without a topic is no proof that it is deleted: a broker that has just started can lack metadata for a
moment. Source: SEMANTICS G8, G17.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: A topic counts as deleted when all lists of this duration lack it. As long as for the partitions of a query.
ABSENT_MS = 2_000


class NamedTopics:
    """The topics of the pending requests of one member. Used by one thread.

    >>> topics = NamedTopics()
    >>> topics.counts(["flights"], {"flights": 8, "gates": 1}, now_ms=0)
    {'flights': 8, 'gates': 1}
    >>> topics.counts(["flights"], {"gates": 1}, now_ms=1_000)
    {'flights': 8, 'gates': 1}
    >>> topics.counts(["flights"], {"gates": 1}, now_ms=3_000)
    {'gates': 1}
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._absent_ms: dict[str, int] = {}

    def counts(self, named: Collection[str], existing: Mapping[str, int], now_ms: int) -> dict[str, int]:
        """Returns the number of partitions of each topic.

        Args:
            named: the topics of the requests.
            existing: the number of partitions of each topic in the list of all topics.
            now_ms: the time of a monotonic clock, in milliseconds.

        Returns:
            ``existing``, and the topics that the lists lack for less than :data:`ABSENT_MS`, with their last number. It is 0
            for a topic that no list had: its requests are incomplete until then.
        """
        absent = set(named) - existing.keys()
        self._absent_ms = {topic: self._absent_ms.get(topic, now_ms) for topic in absent}
        unsure = {topic for topic, since_ms in self._absent_ms.items() if now_ms - since_ms < ABSENT_MS}
        known = {topic: self._counts.get(topic, 0) for topic in sorted(unsure)}
        self._counts = {topic: existing[topic] for topic in set(named) & existing.keys()} | known
        return {**known, **existing}
