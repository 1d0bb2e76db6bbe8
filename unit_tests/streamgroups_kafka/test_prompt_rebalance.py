"""S1: the requests that shorten a rebalance, one for each assignment, and heartbeats of a new member."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.membership.prompt_rebalance import PromptRebalance
from unit_tests.scripted_consumer import ScriptedConsumer
from unit_tests.streamgroups_kafka.test_member_thread import Run, stored

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def test_each_assignment_of_the_classic_protocol_is_followed_by_one_request_for_metadata(run: Run) -> None:
    run.consumer.stored = stored(5, 7)
    revoke, assign = run.consumer.revoke(P1), run.consumer.assign_all()
    run.go(run.consumer.assign_all(P0, P1), lambda: None, lambda: (revoke(), assign())[0], lambda: None)
    assert [topic for name, topic in run.consumer.calls if name == "list_topics"] == ["flights", "flights"]


def test_a_broker_that_does_not_answer_delays_the_next_rebalance_only(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times_out(_topic: str, timeout: float) -> None:
        assert timeout <= 1, "the thread commits meanwhile"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(run.consumer, "list_topics", times_out)
    run.consumer.stored = stored(5)
    assert run.go(run.consumer.assign_all(P0), lambda: None) is None


def test_partitions_of_the_option_assign_have_no_rebalance(run: Run) -> None:
    run.consumer.stored = stored(5)
    run.first = {P0: Owned(0)}
    run.adapt(assign=(P0,))
    run.go(lambda: None, lambda: None)
    assert run.consumer.names("list_topics", "subscribe") == []


def heartbeats(prompt: PromptRebalance, clock: Clock, turns: int) -> int:
    """The number of heartbeats of a member in turns of 50 ms."""
    sent = 0
    for _ in range(turns):
        sent += prompt.is_heartbeat_due()
        clock.now_s += 0.05
    return sent


def test_a_new_member_of_kip_848_sends_heartbeats_while_owners_release_partitions(clock: Clock) -> None:
    prompt = PromptRebalance(is_classic=False, clock_s=clock)
    prompt.joined()
    assert 3 <= heartbeats(prompt, clock, 20) <= 5, "about five in a second"
    heartbeats(prompt, clock, 80)
    prompt.rebalanced(new_partitions=True)
    assert heartbeats(prompt, clock, 100), "another owner can release more"
    heartbeats(prompt, clock, 100)
    assert heartbeats(prompt, clock, 400) == 0


def test_a_member_without_a_partition_for_it_stops_after_a_time(clock: Clock) -> None:
    prompt = PromptRebalance(is_classic=False, clock_s=clock)
    prompt.joined()
    for _ in range(4):
        heartbeats(prompt, clock, 40)
        prompt.rebalanced(new_partitions=False)
    assert heartbeats(prompt, clock, 400) == 0
    prompt.rebalanced(new_partitions=True)
    assert heartbeats(prompt, clock, 400) == 0, "the owner of these partitions has left"


def test_a_member_that_has_not_joined_sends_none(clock: Clock) -> None:
    assert heartbeats(PromptRebalance(is_classic=False, clock_s=clock), clock, 20) == 0


def test_the_classic_protocol_has_heartbeats_of_its_own(clock: Clock) -> None:
    prompt = PromptRebalance(is_classic=True, clock_s=clock)
    prompt.joined()
    assert heartbeats(prompt, clock, 20) == 0


def test_kip_848_needs_no_metadata() -> None:
    consumer, prompt = ScriptedConsumer(), PromptRebalance(is_classic=False)
    prompt.rebalanced(new_partitions=True)
    prompt.lift_delay(consumer, {"flights"})  # type: ignore[arg-type]
    assert consumer.calls == []


def test_the_thread_subscribes_again_for_a_heartbeat(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.consumer.stored = stored(5)
    run.adapt(consumer={"group.protocol": "consumer"})
    due = iter([True, True])
    monkeypatch.setattr(PromptRebalance, "is_heartbeat_due", lambda _: next(due, False))
    run.go(lambda: None, lambda: None, run.consumer.assign_all(P0), lambda: None)
    assert [topics for name, topics in run.consumer.calls if name == "subscribe"] == [["flights"]] * 3
    assert run.consumer.names("list_topics") == []
