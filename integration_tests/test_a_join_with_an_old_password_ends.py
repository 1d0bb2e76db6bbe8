"""A member whose password was changed while it joins does not wait for its whole timeout: the next run has the new password."""

from __future__ import annotations

import pytest

from integration_tests.secured_brokers import LOGIN, Listeners
from streamgroups.errors import NotAuthorized
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings

#: The join timeout: a member that waits for it fails with another error.
_JOIN_MS = 90_000


def test_a_join_ends_with_the_rejection_of_its_login(secured: Listeners, group: str) -> None:
    login = {**LOGIN, "sasl.jaas.config": LOGIN["sasl.jaas.config"].replace("right", "old")}
    client = ClientConfig.from_options({"bootstrap.servers": secured.login, **login})
    cluster = KafkaCluster(client)
    settings = MemberSettings(
        group,
        "ann",
        client.for_member(group, client_id="ann"),
        topics=lambda: ["flights"],
        login_rejection=cluster.login_rejection,
    )
    member = KafkaMember(settings, lambda _: {})
    with pytest.raises(NotAuthorized, match="authentication failed"):
        member.join(_JOIN_MS)
    member.close()
