"""Warns of groups that a list of groups omits, because their partitions of ``__consumer_offsets`` have no leader.

The commands that process all groups use it: those under ``groups``, ``gaps`` and ``metrics``. ``groups sweep`` has a message
of its own. Source: SEMANTICS G17.
"""

from __future__ import annotations

from streamgroups.errors import NotAuthorized, StreamGroupsError
from streamgroups.groups.unused_groups import OFFSETS_TOPIC
from streamgroups.monitoring.snapshots import unlisted_partitions
from streamgroups.printable import listed
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.output import print_message


class UnlistedGroups:
    """Prints a warning when groups are missing in the list of groups, once until other ones are missing.

    A check is one request. A user who may not describe the topic receives no warning.
    """

    def __init__(self) -> None:
        self._warned: str | None = None
        self._is_denied = False

    def check(self, cluster: Cluster) -> None:
        """Prints the warning. An error of the check is a warning too: the list of groups was returned."""
        if self._is_denied:
            return
        try:
            partitions = unlisted_partitions(cluster.topics)
            warning = _warning(partitions) if partitions else None
        except NotAuthorized:
            self._is_denied = True
            return
        except StreamGroupsError as e:
            warning = f"Warning: It is unknown whether all groups are listed. {e}"
        if warning is not None and warning != self._warned:
            print_message(warning)
        self._warned = warning


def warn_of_unlisted(cluster: Cluster) -> None:
    """Prints a warning if groups are missing in the list of groups. It sends one request."""
    UnlistedGroups().check(cluster)


def _warning(partitions: list[int]) -> str:
    return (
        f"Warning: Groups can be missing. The brokers do not list the groups of partitions of {OFFSETS_TOPIC} without a leader: "
        f"{listed(partitions)}. Try again later."
    )
