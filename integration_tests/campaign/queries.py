"""The configuration of the queries of a campaign: the options of their source, their sink, and their login. Used by
``campaign.running``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from integration_tests.campaign.cluster_faults import options_of
from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.input_topics import InputTopics
from integration_tests.campaign.machines import Machine
from integration_tests.campaign.plan import Plan
from integration_tests.campaign.planted import Planted
from integration_tests.campaign.resets import MAX_BATCH
from integration_tests.campaign.rotation import CONNECTION, ROTATION, Rotation
from integration_tests.campaign.turns import CURSORS, STALL
from integration_tests.secured_brokers import LOGIN

#: The lease of a batch, if one hangs.
LEASE = "10s"


class QueryConfig:
    """The configuration that all queries of a campaign share.

    Args:
        plan: the campaign.
        topics: the topics that they read.
        group: their group.
        letters: the topic of their dead letters; empty without them.
        machine: the disks of their states.
        history: receives the history of their members.
    """

    def __init__(
        self, plan: Plan, topics: InputTopics, group: str, letters: str, machine: Machine, history: CampaignHistory
    ) -> None:
        self._plan, self._topics, self._letters = plan, topics, letters
        self.planted = Planted()
        #: The connection of the queries, if their password is changed. No file of the campaign may contain a password.
        self.rotation: Rotation | None = None
        if plan.secured and ROTATION in plan.faults:
            self.rotation = Rotation(plan.secured, Path(tempfile.mkdtemp(prefix="campaign-login-")))
        #: The addresses of the brokers for the queries.
        self.bootstrap = plan.secured.login if plan.secured else plan.bootstrap
        self._settings = {**self.planted.settings, **(LOGIN if plan.secured and not self.rotation else {})}
        if self.rotation:
            # The connection has the password.
            del self._settings["sasl.password"]
        storage = plan.storage
        states = storage.state_location if storage and storage.is_remote else str(machine.storage / "states")
        #: The options of the source.
        self.options = {
            **{f"kafka.{name}": value for name, value in self._settings.items()},
            **({"connection": CONNECTION} if self.rotation else {"kafka.bootstrap.servers": self.bootstrap}),
            "subscribe": ",".join(topics.names),
            "group.id": group,
            "kafka.group.protocol": plan.protocol,
            "stateLocation": states,
            "historyDir": str(history.members),
            **_options_of(plan.kind, plan.protocol, plan.faults),
        }

    def to_json(self) -> dict[str, Any]:
        """The configuration as the argument of a query."""
        plan, rotation, topics = self._plan, self.rotation, self._topics
        to = plan.storage.to if plan.storage else plan.to
        return {
            "bootstrap": self.bootstrap,
            "place": {"connection": CONNECTION} if rotation else {"bootstrap_servers": self.bootstrap},
            "sink": plan.sink,
            "to": self.planted.conninfo(to) if plan.sink == "postgres" else to,
            "storage_options": plan.storage.storage_options if plan.storage else {},
            "settings": self._settings,
            "environment": {**self.planted.environment, **(rotation.environment if rotation else {})},
            "options": self.options,
            "sabotaged": plan.sabotaged,
            "kind": plan.kind,
            "program": "integration_tests.campaign." + ("cursor_member" if plan.kind == CURSORS else "query"),
            "between": topics.between,
            "reading_group": topics.reading_group,
            "letters": self._letters,
            "is_static": "duplicate-member" in plan.faults,
        }

    def close(self) -> None:
        """Removes the passwords."""
        if self.rotation:
            self.rotation.close()


def _options_of(kind: str, protocol: str, faults: Set[str]) -> dict[str, str]:
    """The options of the source that do not depend on places."""
    return {
        "startingOffsets": "earliest",
        # With KIP-848 the broker configures the session timeout.
        **({"kafka.session.timeout.ms": "6000"} if protocol == "classic" else {}),
        "kafka.max.poll.interval.ms": "60000",
        "maxOffsetsPerTrigger": str(MAX_BATCH),
        **({"membership": "exclusive"} if kind == "stateful" else {}),
        # The partitions of both topics of a join with the same number have one owner.
        **({"kafka.group.remote.assignor": "range"} if kind == "join" else {}),
        **({"leaseTimeout": LEASE} if STALL in faults else {}),
        **options_of(faults),
    }
