"""The name of an operator with state, and the topics of a join, as the plan of a query contains them.

Spark shows the name of the function of ``mapInArrow`` in the plan of a query. ``state.stage`` sets it, and the source
finds it there (``internals.plan``). The separator occurs neither in names of operators nor in names of topics. Source:
SEMANTICS S9, S10, W18.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.state.joined_topics import JoinedTopics


@dataclass(frozen=True, slots=True)
class StageName:
    """The name of an operator in the stage that reads.

    Args:
        operator: its name in the query.
        topics: the topics that it joins; ``None`` if it is no join.
    """

    operator: str
    topics: JoinedTopics | None = None

    def __str__(self) -> str:
        """The name as text.

        >>> str(StageName("paid", JoinedTopics("orders", "payments")))
        'paid:orders:payments'
        """
        return self.operator if self.topics is None else f"{self.operator}:{self.topics.left}:{self.topics.right}"

    @classmethod
    def parse(cls, text: str) -> StageName:
        """Parses a name.

        >>> StageName.parse("windows")
        StageName(operator='windows', topics=None)
        """
        operator, *topics = text.split(":")
        return cls(operator, JoinedTopics(*topics) if topics else None)
