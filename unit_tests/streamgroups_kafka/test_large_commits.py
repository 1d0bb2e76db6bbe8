"""S2, S6, S7, X1: a commit above the size limit of a broker is divided, because the broker rejects it for good."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError

from streamgroups.coordination.admin_metadata_store import AdminMetadataStore
from streamgroups.coordination.reset_protocol import gaps_group_of, resets_group_of
from streamgroups.coordination.reset_requests import ResetRequests
from streamgroups.errors import BrokerUnreachable, NotAuthorized, StreamGroupsError
from streamgroups.fakes import FakeHistory
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.gaps import Cause, Gap, Gaps, PartitionGap
from streamgroups.groups.history import Kind
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed, MetadataStore
from streamgroups_kafka.admin import metadata_store as store_module
from streamgroups_kafka.admin.gap_records import GapRecords
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.metadata_store import KafkaMetadataStore
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.membership import consumer_thread
from streamgroups_kafka.membership.consumer_thread import ConsumerOwner
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.membership.member_settings import MemberSettings
from streamgroups_kafka.membership.member_state import MemberState
from streamgroups_kafka.transactions import transaction_requests
from streamgroups_kafka.transactions.coordinator import Transactions
from unit_tests.scripted_admin import CONFIG, Answers, scripted_session
from unit_tests.scripted_brokers import ScriptedBrokers
from unit_tests.scripted_consumer import ScriptedConsumer

FLIGHTS = [TopicPartition("flights", p) for p in range(1_000)]
#: The mark of a query with a form of 900 bytes.
LARGE = "x" * 900


@pytest.fixture
def consumer() -> ScriptedConsumer:
    return ScriptedConsumer()


@pytest.fixture
def metadata_store(consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaMetadataStore]:
    monkeypatch.setattr(store_module, "Consumer", consumer)
    metadata_store = KafkaMetadataStore(CONFIG, retry_timeout_s=5.0)
    yield metadata_store
    metadata_store.close()


# ---- metadata entries --------------------------------------------------------------------------------------------------


def test_S6_a_reset_request_for_100_topics(metadata_store: KafkaMetadataStore, consumer: ScriptedConsumer) -> None:
    """Each entry names all topics of the request."""
    topics = {f"a-topic-with-a-quite-long-name-{i:03}": 3 for i in range(100)}
    where = {TopicPartition(topic, p): 5 for topic, n in topics.items() for p in range(n)}
    requests = ResetRequests(metadata_store, lambda: 0, lambda names: {name: topics[name] for name in names})
    number = requests.write("airline", where)
    assert len(consumer.commits) == 3
    assert consumer.settings["group.id"] == resets_group_of("airline")
    waiting = requests.waiting("airline", where)
    assert {tp: (it.id, it.next_offset) for tp, it in waiting.items()} == dict.fromkeys(where, (number, 5))


def test_G8_a_reset_request_of_a_command_for_100_topics() -> None:
    topics = {f"a-topic-with-a-quite-long-name-{i:03}": 3 for i in range(100)}
    where = {TopicPartition(topic, p): 5 for topic, n in topics.items() for p in range(n)}
    answers = Answers(committed={FLIGHTS[0]: deque([(0, -1)])})
    store = AdminMetadataStore(KafkaGroupAdmin(scripted_session(answers)))
    ResetRequests(store, lambda: 0, lambda names: {name: topics[name] for name in names}).write("airline", where)
    assert answers.stored[resets_group_of("airline")].keys() == where.keys()


def _full() -> Gaps:
    """The gaps of a partition that fill its entry."""
    gaps = Gaps()
    for n in range(200):
        gaps = gaps.plus(Gap(n, n + 1, Cause.EXPIRED, 1_700_000_000_000))
    return gaps


def test_S7_gaps_of_300_partitions_with_full_entries(
    metadata_store: KafkaMetadataStore, consumer: ScriptedConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    text = _full().encode()
    assert len(text) > 3_900
    consumer.stored = dict.fromkeys(FLIGHTS[:300], (200, text))
    found = [PartitionGap(tp, Gap(300, 400, Cause.EXPIRED, 1_700_000_000_000)) for tp in FLIGHTS[:300]]
    GapRecords(lambda: metadata_store, "airline", lambda: 0).record(found)
    assert caplog.messages == []
    assert {offset for offset, _ in consumer.stored.values()} == {400}


class _Failing:
    def __init__(self, error: StreamGroupsError) -> None:
        self._error = error

    def read(self, *_: object) -> dict[TopicPartition, Committed]:
        return {}

    def write(self, *_: object) -> None:
        raise self._error

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "names_grant"), [(NotAuthorized("Denied."), True), (BrokerUnreachable("No response."), False)]
)
def test_S7_the_warning_of_lost_gaps_names_a_grant_only_if_it_is_missing(
    caplog: pytest.LogCaptureFixture, error: StreamGroupsError, names_grant: bool
) -> None:
    def new_store() -> MetadataStore:
        return _Failing(error)

    found = PartitionGap(FLIGHTS[0], Gap(3, 4, Cause.EXPIRED, 0))
    with caplog.at_level(logging.WARNING):
        GapRecords(new_store, "airline", lambda: 0).record([found])
    (warning,) = caplog.messages
    assert error.what in warning
    assert gaps_group_of("airline") in warning
    assert ("Grant Read" in warning) is names_grant


# ---- tools ---------------------------------------------------------------------------------------------------------------


def _altered(answers: Answers) -> Mapping[TopicPartition, StreamGroupsError]:
    admin = KafkaGroupAdmin(scripted_session(answers, timeout_s=0.0))
    return admin.alter_offsets("airline", {tp: Committed(7, "x" * 1_500) for tp in FLIGHTS})


def test_O1_a_tool_changes_1000_partitions_with_large_metadata() -> None:
    answers = Answers()
    assert _altered(answers) == {}
    assert answers.stored["airline"].keys() == set(FLIGHTS)
    assert answers.names.count("OffsetCommit") == 4


def test_O1_an_error_of_a_later_commit_is_returned_with_the_rest() -> None:
    answers = Answers(commits=deque([0, int(Code.COORDINATOR_NOT_AVAILABLE)]))
    failures = _altered(answers)
    changed = answers.stored["airline"].keys()
    assert 0 < len(changed) < len(FLIGHTS)
    assert failures.keys() == set(FLIGHTS) - changed
    assert {type(it) for it in failures.values()} == {BrokerUnreachable}


def test_O1_an_error_of_the_first_commit_is_raised() -> None:
    with pytest.raises(BrokerUnreachable):
        _altered(Answers(commits=deque([int(Code.COORDINATOR_NOT_AVAILABLE)])))


# ---- members -------------------------------------------------------------------------------------------------------------


def _starting(missing: Collection[TopicPartition]) -> Mapping[TopicPartition, Owned]:
    return dict.fromkeys(missing, Owned(3, Origin.STARTING))


class Member:
    """A member that receives all partitions, and whose marks are large."""

    def __init__(self, consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(consumer_thread, "Consumer", consumer)
        self.consumer, self.history = consumer, FakeHistory(lambda: 0, "airline", "alice")
        settings = MemberSettings("airline", "alice", {}, topics=lambda: ["flights"])
        self.state = MemberState(replace(settings, form=LARGE), self.history, lambda: 0.0)
        self._settings = settings

    def run(self, partitions: Collection[TopicPartition] = FLIGHTS) -> None:
        self.consumer.then(self.consumer.assign_all(*partitions), lambda: None, self.state.close)
        ConsumerOwner(self._settings, _starting, self.state, self.history).run()


@pytest.fixture
def member(consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch) -> Member:
    return Member(consumer, monkeypatch)


def test_S2_a_member_commits_1000_partitions_with_large_marks(member: Member) -> None:
    member.run()
    assert {offset for offset, _ in member.consumer.stored.values()} == {3}
    assert len(member.consumer.stored) == len(FLIGHTS)
    assert len(member.consumer.commits) == 3
    assert member.state.due() == {}


def test_S2_only_the_rejected_part_of_a_commit_is_repeated(member: Member) -> None:
    member.consumer.rejections.extend([None, KafkaError.ILLEGAL_GENERATION])
    member.run()
    assert member.consumer.names("commit", "refused") == ["commit", "refused", "commit", "commit"]
    committed = [tp for commit in member.consumer.commits for tp in commit]
    assert sorted(committed) == FLIGHTS, "each partition once"


def test_F2_a_member_marks_the_resets_of_other_clients_in_parts(member: Member) -> None:
    partitions = [TopicPartition("f" * 200, p) for p in range(3_500)]
    member.consumer.stored = dict.fromkeys(partitions, (5, ""))
    member.run(partitions)
    assert {mark == "" for _, mark in member.consumer.stored.values()} == {False}


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_MEMBER_ID, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_S3_a_member_commits_no_further_part_after_a_permanent_rejection(member: Member, code: int) -> None:
    member.consumer.rejections.extend([None, code])
    member.run()
    assert member.consumer.names("commit", "refused") == ["commit", "refused"]
    assert len([it for it in member.history.events if it.kind is Kind.REJECTED]) == 1


# ---- transactions --------------------------------------------------------------------------------------------------------


def test_X1_the_offsets_of_a_transaction_are_committed_in_parts_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = ScriptedBrokers(out=1)
    monkeypatch.setattr(transaction_requests, "AdminSession", brokers)
    run = Transactions(CONFIG, "board")
    transaction = run.begin()
    mark = CommitMark(exclusive=False, written=True).encode() + LARGE
    run.commit_offsets(
        transaction, dict.fromkeys(FLIGHTS, Committed(9, mark)), ConsumerGroupMetadata("airline", 7, "member-1")
    )
    assert brokers.names.count("TxnOffsetCommit") == 3
    assert brokers.names.count("AddOffsetsToTxn") == 1
    assert brokers.committed == {}
    run.commit(transaction)
    assert brokers.committed == dict.fromkeys(FLIGHTS, 9)


# ---- the error of a broker with a smaller limit ------------------------------------------------------------------------


@pytest.mark.parametrize("code", [Code.INVALID_COMMIT_OFFSET_SIZE, Code.UNKNOWN_SERVER_ERROR])
def test_a_broker_with_a_smaller_limit_is_named(code: Code) -> None:
    failures = _altered(Answers(commits=deque([int(code)])))
    (remedy,) = {it.remedy for it in failures.values()}
    assert "message.max.bytes" in remedy
    assert "__consumer_offsets" in remedy
