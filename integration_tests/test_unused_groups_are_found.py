"""G14, O2: ``groups sweep`` finds the times of commits in the records of a real broker.

It only plans here: other tests have groups on the same broker. ``groups delete`` shares its deletion.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from integration_tests.command_line import streamgroups
from streamgroups_testkit.waits import wait_until


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_G14_old_groups_are_unused_and_recent_and_running_ones_are_kept(
    bootstrap: str, new_topic: Callable[..., str], group: str, protocol: str
) -> None:
    topic, running, orphan = new_topic(1), f"{group}-running", f"{group}-gone.streamgroups"
    for name in (group, f"{group}.streamgroups", orphan):
        by_hand = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
        by_hand.commit(offsets=[KafkaTopicPartition(topic, 0, 0)], asynchronous=False)
        by_hand.close()
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": running, "group.protocol": protocol})
    member.subscribe([topic])
    wait_until(lambda: member.poll(0.1) is None and bool(member.assignment()), "an assignment")

    def swept(older_than: str) -> dict[str, tuple[str, str]]:
        result = streamgroups("groups", "sweep", "--older-than", older_than, "-o", "json", "-b", bootstrap)
        assert result.returncode == 0, result.stderr
        return {it["group"]: (it["action"], it["reason"]) for it in json.loads(result.stdout)["groups"]}

    old, recent = swept("1ms"), swept("1h")
    member.close()
    assert (old[group][0], old[orphan][0], old[running]) == ("delete", "delete", ("keep", "it is Stable"))
    assert (recent[group][0], recent[orphan][0]) == ("keep", "keep")
    assert "last used " in recent[group][1]
    assert f"{group}.streamgroups" not in old, "it has the fate of its group"
