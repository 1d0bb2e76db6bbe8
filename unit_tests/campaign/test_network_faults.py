"""The faults of the network of a campaign, and their order."""

from __future__ import annotations

import doctest
from collections import Counter

import pytest

from integration_tests.campaign import network_faults
from integration_tests.campaign.network_faults import (
    NETWORK_FAULTS,
    Network,
    rule_of,
    variants,
    with_variants,
)
from integration_tests.campaign.turns import VICTIMS_OF, all_turns
from integration_tests.protocol_rules import Action, ApiKey

CONFIG = {"bootstrap": "127.0.0.1:1", "options": {"kafka.bootstrap.servers": "127.0.0.1:1", "group.id": "g"}}


@pytest.mark.parametrize("sink", ["kafka", "postgres"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("fault", NETWORK_FAULTS)
def test_each_key_is_used_once_before_one_repeats(sink: str, protocol: str, fault: str) -> None:
    expected = [f"{fault}:{it}" for it in variants(fault, sink, protocol)]
    turns = with_variants([("mid-read", fault)] * (2 * len(expected)), sink, protocol)
    names = [name for _, name in turns]
    assert sorted(names[: len(expected)]) == sorted(names[len(expected) :]) == sorted(expected)


def test_the_faults_of_a_short_campaign_have_different_keys() -> None:
    for faults in (["duplicate", "response", "no-response", "cut"], ["response", "no-response", "cut"] * 4):
        turns = with_variants([("mid-read", fault) for fault in faults], "kafka", "classic")
        assert max(Counter(name.partition(":")[2] for _, name in turns).values()) == 1


def test_the_keys_are_those_of_the_sink_and_the_protocol() -> None:
    transactional = {"InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"}
    assert transactional | {"JoinGroup", "SyncGroup", "Heartbeat"} < set(variants("response", "kafka", "classic"))
    consumer = set(variants("response", "delta", "consumer"))
    assert {"ConsumerGroupHeartbeat", "OffsetCommit", "Fetch", "Metadata", "FindCoordinator", "ListOffsets"} == consumer
    assert "InitProducerId" not in variants("duplicate", "kafka", "classic")


@pytest.mark.parametrize("kind", ["stateless", "stateful", "windows", "savepoints"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_fault_of_the_network_has_a_rule(kind: str, protocol: str) -> None:
    turns = all_turns("kafka", 200, VICTIMS_OF[kind], seed=4, kind=kind, protocol=protocol)
    found = [fault for _, fault in turns if network_faults.is_of_network(fault)]
    assert {fault.partition(":")[0] for fault in found} == set(NETWORK_FAULTS)
    for fault in found:
        rule = rule_of(fault)
        assert (rule.action is Action.DELAY) is (rule.key is None) is (rule.count is None)


@pytest.mark.parametrize("name", ["response", "slow", "slow:EndTxn", "broker", "response:Nothing"])
def test_a_wrong_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        rule_of(name)


def test_queries_connect_directly_without_a_fault_of_the_network() -> None:
    network = Network("127.0.0.1:1", ["ann"], ["broker"], dict)
    assert network.connected("ann", CONFIG) == CONFIG
    assert network.counts() == {}


def test_each_query_has_a_proxy_of_its_own() -> None:
    network = Network("127.0.0.1:1,127.0.0.1:2", ["ann", "bob"], ["broker", "cut:Fetch"], dict)
    ann, bob = (network.connected(name, CONFIG) for name in ("ann", "bob"))
    assert len({*ann["bootstrap"].split(","), *bob["bootstrap"].split(",")}) == 4
    assert ann["options"] == {"kafka.bootstrap.servers": ann["bootstrap"], "group.id": "g"}
    assert CONFIG["bootstrap"] == "127.0.0.1:1"
    network.close()


def test_a_fault_that_does_not_happen_fails_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_faults, "_TIMEOUT_S", 0.01)
    network = Network("127.0.0.1:1", ["ann"], ["cut:Fetch"], dict)
    network.begin("cut:Fetch", "ann")
    with pytest.raises(AssertionError, match=r"cut:Fetch has happened to ann, which has sent \{\}"):
        network.finish(lambda: True, lambda _: None)
    network.close()


def test_a_group_that_stops_fails_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_faults, "_TIMEOUT_S", 0.01)
    restarted: list[str] = []
    network = Network("127.0.0.1:1", ["ann", "bob"], ["cut:JoinGroup"], lambda: dict.fromkeys(range(4), 7))
    network.begin("cut:JoinGroup", "ann")
    rules = network._proxies["ann"].rules
    (applied,) = rules._applied
    rules.has_happened(applied, ApiKey.JOIN_GROUP)
    with pytest.raises(AssertionError, match="the group commits offsets of all partitions after cut:JoinGroup of ann"):
        network.finish(lambda: True, restarted.append)
    assert restarted == ["bob"]
    assert network.counts() == {"cut JoinGroup": 1}
    network.close()


def test_the_examples_run() -> None:
    failed, n = doctest.testmod(network_faults)
    assert (failed, n > 0) == (0, True)
