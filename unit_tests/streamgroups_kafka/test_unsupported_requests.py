"""S7: the ends of leader epochs, from brokers whose responses follow a script."""

from __future__ import annotations

from collections import deque

import kafka.errors
import pytest

from streamgroups.errors import BrokerUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.admin import unsupported_requests as module
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.error_codes import Code
from unit_tests.scripted_admin import CONFIG, Answers, scripted_session

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    scripted = Answers({P0: 1, P1: 2})
    monkeypatch.setattr(module, "AdminSession", lambda _: scripted_session(scripted, timeout_s=0.3))
    monkeypatch.setattr(AdminSession, "close", lambda _: None)
    return scripted


def test_an_end_is_requested_of_the_leader_of_the_current_epoch(answers: Answers) -> None:
    answers.epochs = {P0: deque([(0, 2, 10)]), P1: deque([(0, -1, -1)])}
    assert module.epoch_ends(CONFIG, {P0: 2, P1: 1}, {P1: 4}) == {P0: 10}, "P1 has no epochs"
    assert answers.compared == [(0, 3, 2), (1, 4, 1)]


@pytest.mark.parametrize("code", [Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH, Code.NOT_LEADER_OR_FOLLOWER])
def test_a_former_leader_is_replaced(answers: Answers, code: Code) -> None:
    answers.epochs = {P0: deque([(int(code), -1, -1), (0, 2, 10)])}
    assert module.epoch_ends(CONFIG, {P0: 2}, {}) == {P0: 10}
    assert answers.names == ["Metadata", "OffsetForLeaderEpoch"] * 2
    answers.epochs = {P0: deque([(int(code), -1, -1)])}
    with pytest.raises(BrokerUnreachable):
        module.epoch_ends(CONFIG, {P0: 2}, {})


def test_what_cannot_be_compared_is_a_warning(answers: Answers, caplog: pytest.LogCaptureFixture) -> None:
    answers.epochs = {P0: deque([(int(Code.TOPIC_AUTHORIZATION_FAILED), -1, -1)])}
    assert module.epoch_ends(CONFIG, {P0: 2}, {}) == {}
    assert "A truncation of the log is not detected" in caplog.text
    assert "Grant Describe on Topic 'flights'" in caplog.text


def test_brokers_without_the_request(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> object:
        raise kafka.errors.IncompatibleBrokerVersion

    monkeypatch.setattr(Answers, "_OffsetForLeaderEpoch", unsupported)
    assert module.epoch_ends(CONFIG, {P0: 2}, {}) == {}
