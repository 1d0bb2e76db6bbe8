"""What each broker error means to a transaction, code by code."""

from __future__ import annotations

import pytest
from kafka.errors import for_code

from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.transactions.transaction_errors import ELSEWHERE, VERDICTS, Step, Verdict, verdict

DONE, RETRY, ABORT, FENCED, FATAL = Verdict.DONE, Verdict.RETRY, Verdict.ABORT, Verdict.FENCED, Verdict.FATAL
FIND, INIT, ADD, PRODUCE = Step.FIND_COORDINATOR, Step.INIT_PRODUCER_ID, Step.ADD_PARTITIONS, Step.PRODUCE
ADD_OFFSETS, OFFSETS, COMMIT, END = Step.ADD_OFFSETS, Step.COMMIT_OFFSETS, Step.COMMIT, Step.ABORT
WRITES = (ADD, PRODUCE, ADD_OFFSETS, OFFSETS, COMMIT)

#: By code: what it means at each step; at all others it is fatal.
MEANINGS: dict[str, dict[Step, Verdict]] = {
    "REQUEST_TIMED_OUT": dict.fromkeys(Step, RETRY),
    "NETWORK_EXCEPTION": dict.fromkeys(Step, RETRY),
    "BROKER_NOT_AVAILABLE": dict.fromkeys(Step, RETRY),
    "THROTTLING_QUOTA_EXCEEDED": dict.fromkeys(Step, RETRY),
    "COORDINATOR_LOAD_IN_PROGRESS": dict.fromkeys(Step, RETRY),
    "COORDINATOR_NOT_AVAILABLE": dict.fromkeys(Step, RETRY),
    "NOT_COORDINATOR": dict.fromkeys(Step, RETRY),
    "CONCURRENT_TRANSACTIONS": dict.fromkeys((INIT, *WRITES, END), RETRY),
    "UNKNOWN_TOPIC_OR_PARTITION": dict.fromkeys((ADD, PRODUCE, OFFSETS), RETRY),
    "LEADER_NOT_AVAILABLE": {PRODUCE: RETRY},
    "NOT_LEADER_OR_FOLLOWER": {PRODUCE: RETRY},
    "FENCED_LEADER_EPOCH": {PRODUCE: RETRY},
    "UNKNOWN_LEADER_EPOCH": {PRODUCE: RETRY},
    "KAFKA_STORAGE_ERROR": {PRODUCE: RETRY},
    "CORRUPT_MESSAGE": {PRODUCE: RETRY},
    "NOT_ENOUGH_REPLICAS": {PRODUCE: RETRY, OFFSETS: RETRY},
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": {PRODUCE: RETRY, OFFSETS: RETRY},
    "UNSTABLE_OFFSET_COMMIT": {OFFSETS: RETRY},
    "DUPLICATE_SEQUENCE_NUMBER": {PRODUCE: DONE},
    "OUT_OF_ORDER_SEQUENCE_NUMBER": {PRODUCE: ABORT},
    "INVALID_TXN_STATE": {**dict.fromkeys(WRITES, ABORT), END: DONE},
    "INVALID_PRODUCER_ID_MAPPING": {**dict.fromkeys(WRITES, ABORT), END: DONE},
    "UNKNOWN_PRODUCER_ID": {**dict.fromkeys(WRITES, ABORT), END: DONE},
    "TRANSACTION_ABORTABLE": {**dict.fromkeys((FIND, INIT, *WRITES), ABORT), END: DONE},
    "PRODUCER_FENCED": dict.fromkeys((INIT, *WRITES, END), FENCED),
    "INVALID_PRODUCER_EPOCH": dict.fromkeys((INIT, *WRITES, END), FENCED),
    "ILLEGAL_GENERATION": {OFFSETS: ABORT},
    "UNKNOWN_MEMBER_ID": {OFFSETS: ABORT},
    "FENCED_INSTANCE_ID": {OFFSETS: ABORT},
    "STALE_MEMBER_EPOCH": {OFFSETS: ABORT},
    "REBALANCE_IN_PROGRESS": {OFFSETS: RETRY},
    "GROUP_ID_NOT_FOUND": {OFFSETS: ABORT},
}

#: What kafka-python calls otherwise.
RENAMED = {
    Code.CORRUPT_MESSAGE: "corruptrecord",
    Code.NOT_LEADER_OR_FOLLOWER: "notleaderforpartition",
    Code.MESSAGE_TOO_LARGE: "messagesizetoolarge",
    Code.INVALID_TOPIC_EXCEPTION: "invalidtopic",
    Code.KAFKA_STORAGE_ERROR: "kafkastorage",
    Code.UNKNOWN_SERVER_ERROR: "unknown",
}


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("name", [code.name for code in Code if code is not Code.NONE])
def test_a_code_at_a_step(name: str, step: Step) -> None:
    assert verdict(step, Code[name]) is MEANINGS.get(name, {}).get(step, FATAL)


def test_every_code_with_a_meaning_is_tested() -> None:
    used = {code for by_verdict in VERDICTS.values() for codes in by_verdict.values() for code in codes}
    assert {code.name for code in used} == MEANINGS.keys()


def test_no_code_has_two_meanings_at_one_step() -> None:
    for step, by_verdict in VERDICTS.items():
        codes = [code for codes in by_verdict.values() for code in codes]
        assert len(codes) == len(set(codes)), step


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("code", [-1, 999, 36])
def test_what_is_not_known_is_fatal_and_nothing_is_done(step: Step, code: int) -> None:
    assert verdict(step, code) is FATAL
    assert verdict(step, 0) is DONE


#: What kafka-python has no name for.
UNNAMED = {Code.NONE, Code.TRANSACTION_ABORTABLE, Code.INVALID_REGULAR_EXPRESSION}


@pytest.mark.parametrize("code", [code for code in Code if code not in UNNAMED])
def test_the_numbers_are_kafkas(code: Code) -> None:
    name = for_code(code).__name__.removesuffix("Error").lower()
    assert name == RENAMED.get(code, code.name.replace("_", "").lower())


def test_only_retriable_errors_look_up_another_broker() -> None:
    retried = {code for by_verdict in VERDICTS.values() for code in by_verdict.get(RETRY, ())}
    assert retried >= ELSEWHERE
