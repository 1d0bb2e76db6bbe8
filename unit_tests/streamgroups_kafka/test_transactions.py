"""X1-X3: the requests of the driver and the tasks in one transaction, and how they handle the responses, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing

import pytest

from streamgroups.errors import (
    BrokerUnreachable,
    FencedMember,
    NotAuthorized,
    SinkUnreachable,
    StreamGroupsError,
    TransactionFailed,
    UnknownTopic,
)
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.membership.group_metadata import ConsumerGroupMetadata
from streamgroups_kafka.transactions import transaction_requests as transaction_session
from streamgroups_kafka.transactions.coordinator import Transactions, abort_failed
from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
from streamgroups_kafka.transactions.writer import TransactionWriter
from streamgroups_kafka.write.encoder import EncodedBatch, ProducerIdentity
from unit_tests.scripted_brokers import ScriptedBrokers

CONFIG = ClientConfig.from_options({"bootstrap.servers": "broker:9092"})
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
OUT0, OUT1 = TopicPartition("out", 0), TopicPartition("out", 1)
GROUP_METADATA = ConsumerGroupMetadata("airline", 7, "member-1")
OFFSETS = {P0: Committed(9, "ours"), P1: Committed(8, "ours")}
GONE = BrokerUnreachable("the answer was lost")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> ScriptedBrokers:
    brokers = ScriptedBrokers(out=2)
    monkeypatch.setattr(transaction_session, "AdminSession", brokers)
    monkeypatch.setattr(transaction_session, "_FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(transaction_session, "_MAX_WAIT_S", 0.0)
    return brokers


def run_of(name: str = "board", *, retry_timeout_s: float = 30.0) -> Transactions:
    return Transactions(CONFIG, name, retry_timeout_s=retry_timeout_s)


def batch(tp: TopicPartition, data: bytes = b"records") -> EncodedBatch:
    return EncodedBatch(tp.partition, 0, 1, 0, data)


def write(transaction: OpenTransaction | None, *batches: EncodedBatch) -> None:
    with closing(TransactionWriter(CONFIG, transaction)) as writer:
        writer.write("out", batches)


# ---- the driver ------------------------------------------------------------------------------------------------------


def test_X1_output_and_offsets_are_one_transaction(brokers: ScriptedBrokers) -> None:
    run = run_of()
    transaction = run.begin()
    write(transaction, batch(OUT0), batch(OUT1))
    run.commit_offsets(transaction, OFFSETS, GROUP_METADATA)
    assert brokers.committed == {}, "nothing counts before the commit"
    run.commit(transaction)
    assert brokers.committed == {P0: 9, P1: 8}
    assert brokers.ids["board"].partitions == {OUT0, OUT1}
    assert not brokers.ids["board"].is_open


def test_X1_what_was_aborted_is_over_and_moves_no_offset(brokers: ScriptedBrokers) -> None:
    run = run_of()
    transaction = run.begin()
    run.commit_offsets(transaction, OFFSETS, GROUP_METADATA)
    run.abort(transaction)
    run.abort(transaction)
    with pytest.raises(TransactionFailed):
        run.commit(transaction)
    assert brokers.committed == {}


def test_a_transaction_without_offsets_names_no_group(brokers: ScriptedBrokers) -> None:
    run = run_of()
    run.commit_offsets(run.begin(), {}, GROUP_METADATA)
    assert "AddOffsetsToTxn" not in brokers.names


def test_X3_each_transaction_has_an_epoch_of_its_own(brokers: ScriptedBrokers) -> None:
    run = run_of()
    epochs = [run.begin().producer.epoch for _ in range(3)]
    assert epochs == [0, 1, 2]


def test_X3_an_old_run_that_wakes_up_does_not_abort_the_transaction_of_a_newer_one(brokers: ScriptedBrokers) -> None:
    old, new = run_of(), run_of()
    old.begin()
    of_new = new.begin()
    write(of_new, batch(OUT0))
    with pytest.raises(FencedMember):
        old.begin()
    assert brokers.ids["board"].is_open, "what the newer run writes is not aborted"
    new.commit_offsets(of_new, OFFSETS, GROUP_METADATA)
    new.commit(of_new)
    assert brokers.committed == {P0: 9, P1: 8}


def test_X3_an_old_run_does_not_fence_one_that_begins_just_before_it(brokers: ScriptedBrokers) -> None:
    old, new = run_of(), run_of()
    old.begin()
    began: list[OpenTransaction] = []
    brokers.script["InitProducerId"].append(lambda _: began.append(new.begin()))
    with pytest.raises(FencedMember):
        old.begin()
    (of_new,) = began
    new.commit_offsets(of_new, OFFSETS, GROUP_METADATA)
    new.commit(of_new)


def test_X3_an_abort_of_what_a_newer_run_has_ended_does_nothing(brokers: ScriptedBrokers) -> None:
    old, new = run_of(), run_of()
    of_old = old.begin()
    of_new = new.begin()
    write(of_new, batch(OUT0))
    old.abort(of_old)
    assert brokers.ids["board"].is_open


def test_X3_a_zombie_commits_nothing(brokers: ScriptedBrokers) -> None:
    old = run_of()
    of_old = old.begin()
    run_of().begin()
    with pytest.raises(FencedMember):
        old.commit_offsets(of_old, OFFSETS, GROUP_METADATA)
    with pytest.raises(FencedMember):
        old.commit(of_old)
    assert brokers.committed == {}


def test_X3_offsets_of_an_older_generation_are_rejected_and_those_of_the_newer_one_are_not(
    brokers: ScriptedBrokers,
) -> None:
    run = run_of()
    transaction = run.begin()
    brokers.generation = 8
    with pytest.raises(FencedMember):
        run.commit_offsets(transaction, OFFSETS, GROUP_METADATA)
    run.commit_offsets(transaction, OFFSETS, ConsumerGroupMetadata("airline", 8, "member-1"))
    run.commit(transaction)
    assert brokers.committed == {P0: 9, P1: 8}


def test_a_commit_whose_response_was_lost_is_requested_again_and_may_be_done(brokers: ScriptedBrokers) -> None:
    run = run_of()
    transaction = run.begin()
    run.commit_offsets(transaction, OFFSETS, GROUP_METADATA)
    brokers.script["EndTxn"].append(int(Code.CONCURRENT_TRANSACTIONS))
    run.commit(transaction)
    assert brokers.committed == {P0: 9, P1: 8}


def test_X1_a_commit_that_is_rejected_after_a_lost_answer_is_not_called_failed(brokers: ScriptedBrokers) -> None:
    run = run_of()
    transaction = run.begin()
    run.commit_offsets(transaction, OFFSETS, GROUP_METADATA)
    brokers.lost["EndTxn"].append(GONE)
    with pytest.raises(SinkUnreachable, match="transaction of 'board' may or may not be committed"):
        run.commit(transaction)
    assert brokers.committed == {P0: 9, P1: 8}, "it had"


def test_X1_a_commit_without_any_answer_is_not_called_failed(brokers: ScriptedBrokers) -> None:
    run = run_of(retry_timeout_s=0.0)
    transaction = run.begin()
    brokers.script["EndTxn"].append(GONE)
    with pytest.raises(SinkUnreachable):
        run.commit(transaction)


def test_X1_a_commit_that_is_rejected_at_once_is_reported_as_it_is(brokers: ScriptedBrokers) -> None:
    run = run_of()
    transaction = run.begin()
    with pytest.raises(TransactionFailed, match="Committing the transaction of transactional id 'board'"):
        run.commit(transaction)


@pytest.mark.parametrize(
    "code", [Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.CONCURRENT_TRANSACTIONS]
)
def test_temporary_errors_are_retried_and_a_moved_coordinator_is_found(brokers: ScriptedBrokers, code: Code) -> None:
    brokers.script["InitProducerId"].append(int(code))
    run_of().begin()
    assert brokers.names.count("InitProducerId") == 2
    assert brokers.names.count("FindCoordinator") == (2 if code is Code.NOT_COORDINATOR else 1)


def test_errors_that_outlast_the_timeout_are_reported(brokers: ScriptedBrokers) -> None:
    brokers.script["InitProducerId"].append(int(Code.COORDINATOR_LOAD_IN_PROGRESS))
    with pytest.raises(StreamGroupsError, match="Beginning a transaction of transactional id 'board'"):
        run_of(retry_timeout_s=0.0).begin()


def test_missing_permissions_are_reported_at_once(brokers: ScriptedBrokers) -> None:
    brokers.script["InitProducerId"].append(int(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(NotAuthorized):
        run_of().begin()
    assert brokers.names.count("InitProducerId") == 1


# ---- the tasks -------------------------------------------------------------------------------------------------------


def test_batches_of_one_partition_arrive_in_order_one_at_a_time(brokers: ScriptedBrokers) -> None:
    write(run_of().begin(), batch(OUT0, b"a"), batch(OUT0, b"b"), batch(OUT1, b"c"))
    assert brokers.log == {OUT0: [b"a", b"b"], OUT1: [b"c"]}
    assert brokers.names.count("AddPartitionsToTxn") == 1


def test_partitions_are_added_once(brokers: ScriptedBrokers) -> None:
    with closing(TransactionWriter(CONFIG, run_of().begin())) as writer:
        for data in (b"a", b"b"):
            writer.write("out", [batch(OUT0, data)])
    assert brokers.names.count("AddPartitionsToTxn") == 1


def test_X1_two_writers_of_one_partition_in_one_transaction_are_rejected(brokers: ScriptedBrokers) -> None:
    transaction = run_of().begin()
    write(transaction, batch(OUT0, b"first"))
    with pytest.raises(TransactionFailed, match="out-0"):
        write(transaction, batch(OUT0, b"second"), batch(OUT1))
    assert brokers.log == {OUT0: [b"first"]}
    write(transaction, batch(OUT1))


def test_X3_a_task_of_an_old_run_is_fenced_and_distinguished_from_another_task(brokers: ScriptedBrokers) -> None:
    of_old = run_of().begin()
    of_new = run_of().begin()
    write(of_new, batch(OUT0, b"new"))
    with pytest.raises(FencedMember):
        write(of_old, batch(OUT0, b"old"))
    assert brokers.log == {OUT0: [b"new"]}


def test_what_a_broker_could_not_take_is_sent_again_and_nothing_else(brokers: ScriptedBrokers) -> None:
    brokers.script["Produce"].append(int(Code.NOT_LEADER_OR_FOLLOWER))
    write(run_of().begin(), batch(OUT0, b"a"), batch(OUT1, b"b"))
    assert brokers.log == {OUT0: [b"a"], OUT1: [b"b"]}
    assert brokers.names.count("Metadata") == 2, "the leader has moved"


def test_a_batch_that_is_there_already_counts_as_written(brokers: ScriptedBrokers) -> None:
    brokers.script["Produce"].append(int(Code.DUPLICATE_SEQUENCE_NUMBER))
    write(run_of().begin(), batch(OUT0))
    assert brokers.names.count("Produce") == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, TransactionFailed),
        (Code.INVALID_PRODUCER_EPOCH, FencedMember),
        (Code.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
    ],
)
def test_what_ends_a_transaction(brokers: ScriptedBrokers, code: Code, error: type[StreamGroupsError]) -> None:
    brokers.script["Produce"].append(int(code))
    with pytest.raises(error, match="out"):
        write(run_of().begin(), batch(OUT0))


def test_without_a_transaction_nothing_is_added_to_one(brokers: ScriptedBrokers) -> None:
    with closing(TransactionWriter(CONFIG, None)) as writer:
        writer.write("out", [batch(OUT0)])
        assert writer.partition_count("out") == 2
        assert not writer.producer.transactional
    assert {"AddPartitionsToTxn", "DescribeTransactions"}.isdisjoint(brokers.names)
    assert brokers.closed == 1


def test_a_writer_that_gets_no_producer_id_closes_its_connections(brokers: ScriptedBrokers) -> None:
    brokers.script["InitProducerId"].append(int(Code.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(NotAuthorized):
        TransactionWriter(CONFIG, None)
    assert brokers.closed == 1


def test_a_topic_that_is_not_there(brokers: ScriptedBrokers) -> None:
    with closing(TransactionWriter(CONFIG, None, retry_timeout_s=0.0)) as writer, pytest.raises(UnknownTopic):
        writer.partition_count("nowhere")


def test_requests_are_of_the_protocol_that_every_broker_understands(brokers: ScriptedBrokers) -> None:
    """Partitions are added by requests of their own, and the broker checks the member (KIP-447)."""
    run = run_of()
    transaction = run.begin()
    write(transaction, batch(OUT0))
    run.commit_offsets(transaction, OFFSETS, GROUP_METADATA)
    by_name: Mapping[str, Iterable[object]] = {type(r).__name__: r for r in brokers.requests}
    commit = by_name["TxnOffsetCommitRequest"]
    assert (commit.generation_id, commit.member_id, commit.group_id) == (7, "member-1", "airline")  # type: ignore[attr-defined]
    assert {p.committed_leader_epoch for t in commit.topics for p in t.partitions} == {-1}  # type: ignore[attr-defined]
    mark = CommitMark(exclusive=False, written=True, leader_epoch=4).encode()
    run.commit_offsets(transaction, {P0: Committed(9, mark + "\0")}, GROUP_METADATA)
    (of_topic,) = brokers.requests[-1].topics
    assert [p.committed_leader_epoch for p in of_topic.partitions] == [4]
    produce = by_name["ProduceRequest"]
    assert (produce.acks, produce.transactional_id) == (-1, "board")  # type: ignore[attr-defined]
    with closing(TransactionWriter(CONFIG, None)) as writer:
        assert not writer.producer.transactional


def test_a_failed_job_has_its_own_error_without_brokers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark aborts the transaction of a job that has failed. An error of the abort would be beside that of the job."""

    def unreachable(*_: object, **__: object) -> None:
        raise GONE

    monkeypatch.setattr(transaction_session, "AdminSession", unreachable)
    abort_failed(run_of, OpenTransaction("board", ProducerIdentity(77, 0, transactional=True)))
    assert "The transaction of 'board' stays open until the next one begins or until it times out" in caplog.text
