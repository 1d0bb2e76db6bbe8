"""Counts the groups that read a stream, enforces their limit, and deletes unused groups.

``group_cursors`` creates it. Counting reads the committed offsets of all groups, one request to each coordinator. It is
done only for a new group and for a sweep. Source: SEMANTICS G14, G15.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import closing

from streamgroups.coordination.reset_protocol import metadata_groups_of
from streamgroups.cursors.argument_checks import Reading, check_group_count, has_vanished
from streamgroups.errors import GroupRejected, InvalidOption, NotAuthorized, UnknownGroup
from streamgroups.ports import Clock
from streamgroups.printable import printable
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.group_limit import readers_on
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.topic_changes import topic_settings
from streamgroups_kafka.client.config import ClientConfig

logger = logging.getLogger(__name__)


class GroupRetention:
    """Counts groups and deletes unused ones.

    Args:
        config: the configuration of the client.
        clock: returns milliseconds since the epoch.
        most: the maximum number of groups that read one stream.
    """

    def __init__(self, config: ClientConfig, clock: Clock, *, most: int) -> None:
        self._config, self._clock, self._most = config, clock, most

    def check_room(self, stream: str, group: str) -> None:
        """Rejects a new group if the stream has the maximum number of groups (G14). Unused groups are deleted first
        (G15).

        Raises:
            GroupRejected: if the limit is reached. The error lists candidates to delete.
        """
        try:
            session = AdminSession(self._config, timeout_s=REQUEST_TIMEOUT_S)
        except InvalidOption as e:
            logger.warning(
                "The number of groups that read '%s' cannot be compared with the limit of %d: %s", stream, self._most, e
            )
            return
        with closing(session):
            groups = KafkaGroupAdmin(session)
            readers = [r for r in readers_on(groups, [stream])[stream] if r.group != group]
            if len(readers) >= self._most:
                swept = self._forget(groups, readers, stream)
                readers = [r for r in readers if r.group not in swept]
        check_group_count(stream, readers, self._most, setting="'groups_per_stream' of GroupCursors")

    def sweep(self, stream: str, group: str | None = None) -> list[str]:
        """Deletes the groups, or the given one, that were unused for longer than the retention time of the stream
        (G15).

        Returns:
            The names of the deleted groups.
        """
        with closing(AdminSession(self._config, timeout_s=REQUEST_TIMEOUT_S)) as session:
            groups = KafkaGroupAdmin(session)
            readers = readers_on(groups, [stream])[stream]
            return self._forget(groups, [r for r in readers if group in (None, r.group)], stream)

    def _forget(self, groups: KafkaGroupAdmin, readers: Collection[Reading], stream: str) -> list[str]:
        """Deletes unused groups with their metadata groups. A group that is in use again is kept."""
        retention_ms = self._retention_ms(stream)
        vanished = [r.group for r in readers if has_vanished(r, retention_ms, self._clock())]
        rejected = groups.delete_groups(vanished)
        for group, rejection in rejected.items():
            if isinstance(rejection, NotAuthorized):
                logger.warning(
                    "Unused group '%s' is not deleted: this user may not delete it. %s",
                    printable(group),
                    rejection.remedy,
                )
            elif isinstance(rejection, GroupRejected | UnknownGroup):
                logger.info("Group '%s' is in use again, or was deleted: %s", printable(group), rejection)
            else:
                raise rejection
        # If a response is lost, the repeated request finds no group.
        forgotten = [group for group in vanished if isinstance(rejected.get(group), UnknownGroup | None)]
        remaining = groups.delete_groups([name for group in forgotten for name in metadata_groups_of(group)])
        for name, rejection in remaining.items():
            if not isinstance(rejection, UnknownGroup):
                logger.warning("Metadata group '%s' of a deleted group remains: %s", printable(name), rejection)
        return forgotten

    def _retention_ms(self, stream: str) -> int | None:
        """The retention time of the stream; ``None`` if it has no limit, or if the stream is only compacted."""
        try:
            settings = topic_settings(self._config, stream)
        except NotAuthorized as e:
            logger.warning(
                "Unused groups on '%s' are not deleted: this user is not authorized to read the retention "
                "of the topic. %s",
                stream,
                e.remedy,
            )
            return None
        retention_ms = int(settings["retention.ms"])
        return retention_ms if retention_ms >= 0 and "delete" in settings["cleanup.policy"] else None
