"""The probe of topics and groups reports why a description failed, and not each failure as a missing topic."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from streamgroups.doctor.check_results import CheckResult, State
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.probes import access_probe

ALL = [SimpleNamespace(name=name) for name in ("DESCRIBE", "READ", "WRITE")]


#: The error of a broker that does not return its groups.
BROKER = "broker"


class FakeAdmin:
    """An admin client, with the error of the description of each topic or group."""

    def __init__(self, errors: Mapping[str, int]) -> None:
        self._errors = errors

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"flights": None, "delays": None})

    def describe_topics(self, topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
        return self.describe_consumer_groups(topics.topic_names)

    def describe_consumer_groups(self, names: list[str], **_: Any) -> dict[str, Future[Any]]:
        if len(set(names)) < len(names):
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "Duplicates not allowed"))
        return {name: done(self._errors.get(name)) for name in names}

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        errors = [KafkaException(KafkaError(it)) for name, it in self._errors.items() if name == BROKER]
        return done(None, valid=["board"], errors=errors)

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return done(None)


def done(error: int | None, **result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if error is None:
        future.set_result(SimpleNamespace(authorized_operations=ALL, **result))
    else:
        future.set_exception(KafkaException(KafkaError(error)))
    return future


def probed(
    monkeypatch: pytest.MonkeyPatch, errors: Mapping[str, int], *, topics: list[str], groups: list[str]
) -> list[CheckResult]:
    monkeypatch.setattr(access_probe, "AdminClient", lambda _settings: FakeAdmin(errors))
    return access_probe.probe_access(ClientConfig((("bootstrap.servers", "127.0.0.1:1"),)), topics, groups)


def test_a_name_that_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probed(monkeypatch, {}, topics=["flights", "flights"], groups=["board", "board"])
    assert [(it.about, it.state) for it in found] == [("topic", State.OK), ("group", State.OK), ("acls", State.OK)]


@pytest.mark.parametrize(
    "code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION]
)
def test_a_topic_that_does_not_exist(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    found = probed(monkeypatch, {"flights": code}, topics=["flights", "delays"], groups=[])
    assert [(it.about, it.state) for it in found[:2]] == [("topic", State.OK), ("topic", State.PROBLEM)]
    assert found[1].what == "Topic 'flights' does not exist, or this user may not describe it."
    [summary, *_] = probed(monkeypatch, {"flights": code}, topics=[], groups=[])
    assert (summary.about, summary.state) == ("topics", State.OK)


@pytest.mark.parametrize("topics", [["flights"], []], ids=["named", "all"])
def test_another_failure_of_a_topic_is_reported(monkeypatch: pytest.MonkeyPatch, topics: list[str]) -> None:
    found = probed(monkeypatch, {"flights": KafkaError._TIMED_OUT}, topics=topics, groups=[])
    assert (found[0].about, found[0].state) == ("topics", State.PROBLEM)
    assert "_TIMED_OUT" in found[0].what
    assert [it.about for it in found[1:]] == ["groups", "acls"]


def test_G17_a_broker_that_does_not_return_its_groups_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def groups(errors: Mapping[str, int]) -> CheckResult:
        (found,) = (it for it in probed(monkeypatch, errors, topics=[], groups=[]) if it.about == "groups")
        return found

    assert (groups({}).state, groups({}).in_use) == (State.OK, "1 groups")
    failed = groups({BROKER: KafkaError.COORDINATOR_LOAD_IN_PROGRESS})
    assert (failed.state, "the responsible broker is not ready" in failed.what) == (State.PROBLEM, True)


def test_failures_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(code: int) -> tuple[str, State, str]:
        found = probed(monkeypatch, {"board": code}, topics=[], groups=["board"])[1]
        return found.about, found.state, found.what

    about, absent, _ = state(KafkaError.GROUP_ID_NOT_FOUND)
    assert (about, absent) == ("group", State.WARNING)
    about, denied, what = state(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert (about, denied) == ("group", State.PROBLEM)
    assert "not permitted" in what
    about, failed, what = state(KafkaError._TIMED_OUT)
    assert (about, failed) == ("groups", State.PROBLEM)
    assert "_TIMED_OUT" in what
