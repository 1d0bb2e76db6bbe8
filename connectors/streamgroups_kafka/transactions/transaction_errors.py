"""The meaning of broker errors for a transaction: one table by request type.

Used by ``coordinator`` (the driver), ``transaction_requests`` and ``writer`` (the tasks). Every transaction has its own producer
epoch. Where Kafka's clients recover by a higher epoch, this library begins a new transaction. Sources: KIP-98
(transactions), KIP-360 (unknown producer ids), KIP-447 (fencing by the group), KIP-890 (brokers verify that a partition
is in the transaction), and the error handling of Kafka's own client (``TransactionManager``, ``Sender``).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from streamgroups_kafka.client.error_codes import COORDINATOR_MOVES, LEADER_MOVES, Code


class Step(Enum):
    """The type of request. The value starts the text of an error."""

    FIND_COORDINATOR = "Finding the coordinator"
    INIT_PRODUCER_ID = "Beginning a transaction"
    ADD_PARTITIONS = "Adding partitions to the transaction"
    DESCRIBE = "Describing the transaction"
    PRODUCE = "Writing in the transaction"
    ADD_OFFSETS = "Adding the group's offsets to the transaction"
    COMMIT_OFFSETS = "Committing the group's offsets in the transaction"
    COMMIT = "Committing the transaction"
    ABORT = "Aborting the transaction"


class Verdict(Enum):
    """The reaction to a response."""

    #: The request succeeded, now or in an earlier attempt whose response was lost.
    DONE = "done"
    #: Retry the identical request.
    RETRY = "retry"
    #: This transaction cannot be committed: abort it, and write the batch in a new one.
    ABORT = "abort"
    #: A newer run is active: neither write nor abort.
    FENCED = "fenced"
    #: The rejection is permanent: abort, and fail the query with the reason.
    FATAL = "fatal"


_C = Code

#: Transient errors of any broker.
_PASSING = {_C.REQUEST_TIMED_OUT, _C.NETWORK_EXCEPTION, _C.BROKER_NOT_AVAILABLE, _C.THROTTLING_QUOTA_EXCEEDED}
#: The producer epoch is not the newest. Old brokers report INVALID_PRODUCER_EPOCH also instead of PRODUCER_FENCED.
_ZOMBIE = {_C.PRODUCER_FENCED, _C.INVALID_PRODUCER_EPOCH}
#: The broker has ended or lost the transaction: it timed out, or its producer id is unknown.
_OVER = {_C.TRANSACTION_ABORTABLE, _C.INVALID_TXN_STATE, _C.INVALID_PRODUCER_ID_MAPPING, _C.UNKNOWN_PRODUCER_ID}
#: The group has fenced this member, or this generation of it.
_STALE = {_C.ILLEGAL_GENERATION, _C.UNKNOWN_MEMBER_ID, _C.FENCED_INSTANCE_ID, _C.STALE_MEMBER_EPOCH}

#: The codes of each step by their verdicts; any other code is fatal.
VERDICTS: Mapping[Step, Mapping[Verdict, set[Code]]] = {
    Step.FIND_COORDINATOR: {Verdict.RETRY: _PASSING | COORDINATOR_MOVES, Verdict.ABORT: {_C.TRANSACTION_ABORTABLE}},
    # The coordinator first aborts an open transaction of an earlier epoch. Meanwhile it returns
    # CONCURRENT_TRANSACTIONS.
    Step.INIT_PRODUCER_ID: {
        Verdict.RETRY: _PASSING | COORDINATOR_MOVES | {_C.CONCURRENT_TRANSACTIONS},
        Verdict.ABORT: {_C.TRANSACTION_ABORTABLE},
        Verdict.FENCED: _ZOMBIE,
    },
    # The previous transaction is still being completed, or another task is adding partitions.
    Step.ADD_PARTITIONS: {
        Verdict.RETRY: _PASSING | COORDINATOR_MOVES | {_C.CONCURRENT_TRANSACTIONS, _C.UNKNOWN_TOPIC_OR_PARTITION},
        Verdict.ABORT: _OVER,
        Verdict.FENCED: _ZOMBIE,
    },
    # NOT_ENOUGH_REPLICAS also means "the transaction is being verified" (KIP-890).
    Step.PRODUCE: {
        Verdict.DONE: {_C.DUPLICATE_SEQUENCE_NUMBER},
        Verdict.RETRY: {
            *(_PASSING | COORDINATOR_MOVES | LEADER_MOVES),
            *(_C.NOT_ENOUGH_REPLICAS, _C.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _C.CONCURRENT_TRANSACTIONS),
            *(_C.UNKNOWN_TOPIC_OR_PARTITION, _C.KAFKA_STORAGE_ERROR, _C.CORRUPT_MESSAGE),
        },
        Verdict.ABORT: {*_OVER, _C.OUT_OF_ORDER_SEQUENCE_NUMBER},
        Verdict.FENCED: _ZOMBIE,
    },
    Step.ADD_OFFSETS: {
        Verdict.RETRY: _PASSING | COORDINATOR_MOVES | {_C.CONCURRENT_TRANSACTIONS},
        Verdict.ABORT: _OVER,
        Verdict.FENCED: _ZOMBIE,
    },
    # Lists the partitions of the transaction; changes nothing.
    Step.DESCRIBE: {Verdict.RETRY: _PASSING | COORDINATOR_MOVES},
    # Stale metadata aborts, unless the member has newer consumer group metadata: see Transactions.commit_offsets.
    Step.COMMIT_OFFSETS: {
        Verdict.RETRY: {
            *(_PASSING | COORDINATOR_MOVES),
            *(_C.CONCURRENT_TRANSACTIONS, _C.UNKNOWN_TOPIC_OR_PARTITION, _C.UNSTABLE_OFFSET_COMMIT),
            *(_C.NOT_ENOUGH_REPLICAS, _C.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _C.REBALANCE_IN_PROGRESS),
        },
        Verdict.ABORT: {*(_OVER | _STALE), _C.GROUP_ID_NOT_FOUND},
        Verdict.FENCED: _ZOMBIE,
    },
    Step.COMMIT: {
        Verdict.RETRY: _PASSING | COORDINATOR_MOVES | {_C.CONCURRENT_TRANSACTIONS},
        Verdict.ABORT: _OVER,
        Verdict.FENCED: _ZOMBIE,
    },
    # A transaction that has ended, or never began, needs no abort.
    Step.ABORT: {
        Verdict.RETRY: _PASSING | COORDINATOR_MOVES | {_C.CONCURRENT_TRANSACTIONS},
        Verdict.DONE: _OVER,
        Verdict.FENCED: _ZOMBIE,
    },
}

#: After these errors another broker is responsible: look up the broker again before a retry.
ELSEWHERE = frozenset(
    LEADER_MOVES
    | {_C.COORDINATOR_NOT_AVAILABLE, _C.NOT_COORDINATOR, _C.REQUEST_TIMED_OUT, _C.NETWORK_EXCEPTION}
    | {_C.BROKER_NOT_AVAILABLE, _C.UNKNOWN_TOPIC_OR_PARTITION, _C.KAFKA_STORAGE_ERROR}
)


def verdict(step: Step, code: int) -> Verdict:
    """Returns the reaction to an error code.

    Args:
        step: the type of request.
        code: the error code of the broker; 0 means success.

    >>> verdict(Step.PRODUCE, Code.NOT_ENOUGH_REPLICAS), verdict(Step.PRODUCE, Code.INVALID_PRODUCER_EPOCH)
    (<Verdict.RETRY: 'retry'>, <Verdict.FENCED: 'fenced'>)
    """
    if code == Code.NONE:
        return Verdict.DONE
    for meaning, codes in VERDICTS[step].items():
        if code in codes:
            return meaning
    return Verdict.FATAL
