"""A query whose password was changed fails with the reason, instead of waiting for brokers: the next run has the new password."""

from __future__ import annotations

import time

import pytest

from integration_tests.secured_brokers import LOGIN, Listeners
from streamgroups.errors import LoginRejected
from streamgroups_kafka.admin.cluster import KafkaCluster
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.membership.member import KafkaMember
from streamgroups_kafka.membership.member_settings import MemberSettings

#: The join timeout: a member that waits for it fails with another error.
_JOIN_MS = 90_000
#: An outage of the brokers ends the requests of a query after a minute.
_OUTAGE_S = 60


@pytest.fixture
def client(secured: Listeners) -> ClientConfig:
    login = {**LOGIN, "sasl.jaas.config": LOGIN["sasl.jaas.config"].replace("right", "old")}
    return ClientConfig.from_options({"bootstrap.servers": secured.login, **login})


def test_a_join_ends_with_the_rejection_of_its_login(client: ClientConfig, group: str) -> None:
    settings = MemberSettings(
        group,
        "ann",
        client.for_member(group, client_id="ann"),
        topics=lambda: ["flights"],
        login_rejection=KafkaCluster(client).login_rejection,
    )
    member = KafkaMember(settings, lambda _: {})
    with pytest.raises(LoginRejected, match="authentication failed"):
        member.join(_JOIN_MS)
    member.close()


def test_requests_of_a_query_end_with_the_rejection_of_its_login(client: ClientConfig) -> None:
    began_s = time.monotonic()
    with pytest.raises(LoginRejected, match="authentication failed"):
        KafkaCluster(client).topics()
    # It is not the first rejection, which may be an outage of the service that verifies logins.
    assert 15 <= time.monotonic() - began_s < _OUTAGE_S
