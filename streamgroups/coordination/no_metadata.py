"""The metadata store of a query that joins no group: it stores nothing.

Used by ``streamgroups_spark.source.running_query`` for the option ``assign``. Source: SEMANTICS G8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed


class NoMetadata:
    """The :class:`MetadataStore` of a query that joins no group: it stores nothing."""

    def read(self, group_id: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Committed]:
        """Returns no entries."""
        return {}

    def write(self, group_id: str, entries: Mapping[TopicPartition, Committed]) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
