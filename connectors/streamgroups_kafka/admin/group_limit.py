"""The limit of groups that read a topic, for queries.

Created by ``streamgroups_spark.source.running_query``. ``streamgroups_kafka.cursors.group_cleanup`` has the same limit for
cursors, and counts with :func:`readers_on`. A query that starts for a new group sends one request to each broker, which
lists the groups. Only if these are as many as the limit, it also requests the committed offsets of all of them. Two
groups that start at the same moment can exceed the limit, which is no guarantee but a protection from forgotten groups.
Source: SEMANTICS G14; KIP-222 (ListGroups), KIP-709 (OffsetFetch of many groups).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING

from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.cursors.argument_checks import Reading, check_group_count, readers_of
from streamgroups.errors import GroupRejected, StreamGroupsError
from streamgroups.groups.description import INACTIVE_STATES
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S, KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.import_lock import KAFKA_PYTHON

if TYPE_CHECKING:
    from streamgroups_kafka.admin.groups import KafkaGroupAdmin

logger = logging.getLogger(__name__)


class GroupLimit:
    """The maximum number of groups that read a topic.

    Args:
        cluster: the cluster.
        config: the configuration of its clients.
        group_id: the group of the query, which does not count.
        most: the limit.
    """

    def __init__(self, cluster: KafkaCluster, config: ClientConfig, group_id: str, most: int) -> None:
        self._cluster, self._config, self._group_id, self._most = cluster, config, group_id, most

    def check(self, topics: Collection[str]) -> None:
        """Rejects a new group if one of the topics has reached the limit.

        An error of the count is logged only: a query must not fail because it may not list groups.

        Raises:
            GroupRejected: with the topic, and the groups without members.
        """
        try:
            readers = self._readers(topics)
        except StreamGroupsError as e:
            logger.warning(
                "The number of groups that read the topics of group '%s' cannot be compared with the limit of %d: %s",
                self._group_id,
                self._most,
                e,
            )
            return
        for topic, found in readers.items():
            try:
                check_group_count(topic, found, self._most, setting="the option 'maxGroupsPerTopic'")
            except GroupRejected as e:
                raise GroupRejected(e.what, remedy=e.remedy, topic=topic, group=self._group_id) from None

    def _readers(self, topics: Collection[str]) -> dict[str, list[Reading]]:
        others = {name for name in self._cluster.group_ids() if name != self._group_id and not is_metadata_group(name)}
        if len(others) < self._most:
            return {}
        # These modules import kafka-python, which takes 90 ms of processor time.
        with KAFKA_PYTHON:
            from streamgroups_kafka.admin.connection import AdminSession
            from streamgroups_kafka.admin.groups import KafkaGroupAdmin

        with closing(AdminSession(self._config, timeout_s=REQUEST_TIMEOUT_S)) as session:
            found = readers_on(KafkaGroupAdmin(session), topics)
        return {topic: [r for r in readers if r.group != self._group_id] for topic, readers in found.items()}


def readers_on(groups: KafkaGroupAdmin, topics: Collection[str]) -> dict[str, list[Reading]]:
    """Returns the groups that have committed offsets of each topic, without metadata groups.

    Args:
        groups: the groups of the cluster.
        topics: the topics.
    """
    listed = {g.group_id: g.state not in INACTIVE_STATES for g in groups.list_groups()}
    committed = groups.committed_offsets(listed)
    metadata = {g: {tp: c.metadata for tp, c in found.items()} for g, found in committed.items()}
    return readers_of(topics, listed, metadata)
