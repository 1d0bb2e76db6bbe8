"""Permissions of the queries that an administrator revokes and grants again. Used by ``campaign.cluster_faults``.

The queries log in, and the campaign uses a listener without a login. While Write on the output topic or Read on the group is revoked, a
query fails with ``NotAuthorized``. ``sg.supervise`` restarts it (``docs/supervision.rst``): a query that has succeeded before is under
maintenance. Source: Kafka's documentation, "Authorization and ACLs".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka.admin import AclOperation, ResourceType

from integration_tests.campaign.members import CampaignMember, count_in
from integration_tests.campaign.targets import all_advance
from integration_tests.secured_brokers import Listeners
from streamgroups_testkit.waits import wait_until

USER = "ann"
#: How long a permission is revoked, and the longest time until a query fails without it and continues with it.
_REVOKED_S, _NOTICED_S, _STARTED_S = 10.0, 60.0, 240.0
_ERROR = "NotAuthorized"


class Credentials:
    """The permissions of the user of the queries.

    Args:
        listeners: the broker.
        group: their group.
        topic: their input.
        to: the output topic; empty for other sinks.
        members: the members.
        committed: returns the committed offsets.
        see_to_all: starts the members that are not running.
    """

    def __init__(
        self,
        listeners: Listeners,
        group: str,
        topic: str,
        to: str,
        members: Sequence[CampaignMember],
        committed: Callable[[], Mapping[int, int]],
        see_to_all: Callable[[], bool],
    ) -> None:
        self._listeners, self._group, self._to = listeners, group, to
        self._members, self._committed, self._see_to_all = members, committed, see_to_all
        self._allow(ResourceType.TOPIC, topic)
        self._allow(ResourceType.TRANSACTIONAL_ID, "streamgroups", prefixed=True)
        self._revocable: list[Callable[[], None]] = [self._allow_group]
        self._names = [group]
        if to:
            self._revocable.append(self._allow_output)
            self._names.append(to)
        for allow in self._revocable:
            allow()
        #: How often a permission was revoked, and how many errors of missing permissions the queries have logged.
        self.n_revoked, self.n_errors = 0, 0

    def revoke(self) -> None:
        """Revokes the permissions on the group or on the output topic, in turn, and grants them again after ten seconds.

        Raises:
            AssertionError: if no query fails without them, or the group does not continue with them.
        """
        i = self.n_revoked % len(self._names)
        before = self._errors()
        self._listeners.revoke(USER, self._names[i])
        began_s = time.monotonic()
        self.n_revoked += 1
        try:
            wait_until(
                lambda: self._see_to_all() and self._errors() > before,
                f"a query without permissions on {self._names[i]} fails",
                _NOTICED_S,
            )
            wait_until(lambda: self._see_to_all() and time.monotonic() - began_s > _REVOKED_S, "the time has passed")
        finally:
            self._revocable[i]()
        self.n_errors += self._errors() - before
        committed = self._committed()
        wait_until(
            lambda: self._see_to_all() and all_advance(committed, self._committed()),
            f"group {self._group} continues with its permissions",
            _STARTED_S,
            1.0,
        )

    def _errors(self) -> int:
        return count_in((it.log for it in self._members), _ERROR)

    def _allow_group(self) -> None:
        # The metadata groups have this prefix.
        self._allow(ResourceType.GROUP, self._group, prefixed=True)

    def _allow_output(self) -> None:
        self._allow(ResourceType.TOPIC, self._to)

    def _allow(self, kind: ResourceType, name: str, *, prefixed: bool = False) -> None:
        self._listeners.allow(USER, AclOperation.ALL, kind, name, prefixed=prefixed)
