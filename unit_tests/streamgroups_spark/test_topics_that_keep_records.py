"""S12, X9: repartitioned records and dead letters are not written to a topic that replaces them."""

from __future__ import annotations

import logging

import pytest

from streamgroups.dlq.limits import LetterLimits
from streamgroups.errors import BrokerUnreachable, InvalidOption, NotAuthorized, StreamGroupsError
from streamgroups_kafka.admin import topic_changes
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_spark.repartition import target_topic
from streamgroups_spark.repartition.target_topic import TargetTopic
from streamgroups_spark.sinks.exactly_once import _preparations_of
from streamgroups_spark.sinks.letters.of_batch import LetterOutput
from streamgroups_spark.sinks.sink_options import parse_sink

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
DEAD = parse_sink({"kafka.bootstrap.servers": "broker:9092", "topic": "dead", "checkpointLocation": "/checkpoint"})


class Topics:
    """A cluster with topics of 8 partitions, by their policies.

    An error is raised when the policy is read.
    """

    def __init__(self, **policies: str | StreamGroupsError) -> None:
        self.policies = policies
        #: The topic that another query creates at the same time.
        self.others: dict[str, str] = {}

    def topics(self) -> dict[str, int]:
        return dict.fromkeys(self.policies, 8)

    def create(self, _: object, topic: str, partitions: int, *, settings: dict[str, str]) -> bool:
        assert partitions == 8
        self.policies[topic] = self.others.get(topic, settings["cleanup.policy"])
        return topic not in self.others

    def settings(self, _: object, topic: str) -> dict[str, str]:
        policy = self.policies[topic]
        if isinstance(policy, StreamGroupsError):
            raise policy
        return {"cleanup.policy": policy}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Topics:
    topics = Topics()
    monkeypatch.setattr(target_topic, "KafkaCluster", lambda _: topics)
    monkeypatch.setattr(target_topic, "create_topic", topics.create)
    monkeypatch.setattr(topic_changes, "topic_settings", topics.settings)
    return topics


def ensure() -> None:
    TargetTopic(CONFIG, "by-airport", 8).ensure()


def test_S12_a_new_topic_keeps_all_records_whatever_the_default_of_the_broker_is(cluster: Topics) -> None:
    ensure()
    assert cluster.policies == {"by-airport": "delete"}
    ensure()


def test_S12_a_compacted_topic_is_rejected(cluster: Topics) -> None:
    cluster.policies["by-airport"] = "compact,delete"
    with pytest.raises(InvalidOption, match=r"'by-airport' has cleanup\.policy=compact,delete, so the broker deletes"):
        ensure()


def test_S12_a_compacted_topic_that_another_query_creates_meanwhile_is_rejected(cluster: Topics) -> None:
    cluster.others["by-airport"] = "compact"
    with pytest.raises(InvalidOption, match=r"'by-airport' has cleanup\.policy=compact"):
        ensure()


def test_S12_a_policy_that_this_user_may_not_read_is_a_warning(
    cluster: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.policies["by-airport"] = NotAuthorized("No.", remedy="Grant DescribeConfigs on Topic 'by-airport'.")
    with caplog.at_level(logging.WARNING):
        ensure()
    assert "'by-airport' must not be compacted, but its cleanup.policy is unknown. No. Grant" in caplog.text


def test_S12_an_outage_is_an_error_that_passes(cluster: Topics) -> None:
    cluster.policies["by-airport"] = BrokerUnreachable("No broker answers.")
    with pytest.raises(BrokerUnreachable):
        ensure()


def test_X9_a_compacted_topic_of_dead_letters_is_rejected_at_the_start(cluster: Topics) -> None:
    (check,) = _preparations_of(LetterOutput(DEAD, LetterLimits(), ("billing",), with_output=True))
    cluster.policies["dead"] = "delete"
    check(None)  # type: ignore[arg-type]
    cluster.policies["dead"] = "compact"
    with pytest.raises(InvalidOption, match=r"'dead' has cleanup\.policy=compact, so the broker rejects dead letters"):
        check(None)  # type: ignore[arg-type]
