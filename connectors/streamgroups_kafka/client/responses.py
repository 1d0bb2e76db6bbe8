"""The requests of this library, and the meaning of an error in each part of a response.

A response can succeed as a whole and contain errors of single partitions, topics, groups or brokers. Such an error is not
an absence: a partition whose committed offset cannot be read may have one. So only the codes in :attr:`Request.absent`
count as "does not exist", and each module that reads responses takes them from this table. ``client.errors`` defines the
error that any other code raises, ``transactions.transaction_errors`` the reaction within a transaction. ``docs/response-errors.rst``
contains the same table. Source: SEMANTICS G17; Kafka's protocol guide; ``OffsetFetcher`` and
``ConsumerCoordinator`` of Kafka's Java client, which check the same parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from streamgroups_kafka.client.error_codes import COORDINATOR_MOVES, LEADER_MOVES, Code

_RAISED = "raised"
#: A tool describes a group also without its metadata groups.
_NOT_OPTIONAL = "raised; a metadata group that a tool may not describe is left out"
_BY_VERDICT = "by the table in ``transactions.transaction_errors``"
_BY_THE_POLL = "returned by a poll, and raised unless the client recovers"
#: The partition has no leader, or not this one. Java requests the metadata after these codes.
_LEADER_MOVES = LEADER_MOVES | {Code.REPLICA_NOT_AVAILABLE, Code.OFFSET_NOT_AVAILABLE, Code.KAFKA_STORAGE_ERROR}


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and the meaning of the errors in its responses.

    Args:
        parts: the parts of a response with an error code, in the words of Kafka's protocol.
        absent: the codes by which a part does not exist. It is left out of the result.
        moved: the codes by which another broker is responsible. The responsible broker is looked up, then the request is
            repeated.
        others: the effect of each other code.
        methods: the methods of confluent-kafka's clients that send the request.
    """

    parts: tuple[str, ...]
    others: str = _RAISED
    absent: frozenset[Code] = frozenset()
    moved: frozenset[Code] = frozenset()
    methods: tuple[str, ...] = ()


#: The requests by their names in Kafka's protocol.
REQUESTS: Mapping[str, Request] = {
    "AddOffsetsToTxn": Request(("response",), _BY_VERDICT, moved=COORDINATOR_MOVES),
    "AddPartitionsToTxn": Request(("partition",), _BY_VERDICT, moved=COORDINATOR_MOVES),
    "ApiVersions": Request(("response",), "no versions: the next broker is checked"),
    "ConsumerGroupDescribe": Request(
        ("group",),
        # The second code: a broker without this protocol has no group of it.
        absent=frozenset({Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION}),
        moved=COORDINATOR_MOVES,
        methods=("describe_consumer_groups",),
    ),
    "ConsumerGroupHeartbeat": Request(("response",), _BY_THE_POLL, methods=("subscribe", "unsubscribe")),
    "CreateAcls": Request(("binding",), methods=("create_acls",)),
    "CreateTopics": Request(
        ("topic",), "raised; TOPIC_ALREADY_EXISTS: the topic is not created", methods=("create_topics",)
    ),
    "DeleteGroups": Request(
        ("group",), "returned with the group", absent=frozenset({Code.GROUP_ID_NOT_FOUND}), moved=COORDINATOR_MOVES
    ),
    "DeleteRecords": Request(("partition",), "returned with the partition", methods=("delete_records",)),
    "DeleteTopics": Request(("topic",), "returned with the topic", methods=("delete_topics",)),
    "DescribeAcls": Request(("response",), methods=("describe_acls",)),
    "DescribeCluster": Request(("response",), methods=("describe_cluster",)),
    "DescribeConfigs": Request(("resource",), methods=("describe_configs",)),
    "DescribeGroups": Request(
        ("group",),
        absent=frozenset({Code.GROUP_ID_NOT_FOUND}),
        moved=COORDINATOR_MOVES,
        methods=("describe_consumer_groups", "list_groups"),
    ),
    "DescribeLogDirs": Request(("response", "directory"), "all sizes are unknown, with a line in the log"),
    "DescribeTransactions": Request(("transactional id",), _BY_VERDICT, moved=COORDINATOR_MOVES),
    "EndTxn": Request(
        ("response",), _BY_VERDICT, moved=COORDINATOR_MOVES, methods=("commit_transaction", "abort_transaction")
    ),
    "Fetch": Request(
        ("response", "partition"),
        "the lag is an upper bound; readers: ``onDataLoss`` for OFFSET_OUT_OF_RANGE, else raised",
        moved=_LEADER_MOVES,
        methods=("consume", "poll"),
    ),
    "FindCoordinator": Request(("group or transactional id",), _NOT_OPTIONAL, moved=COORDINATOR_MOVES),
    "InitProducerId": Request(("response",), _BY_VERDICT, moved=COORDINATOR_MOVES, methods=("init_transactions",)),
    "JoinGroup": Request(("response",), _BY_THE_POLL, methods=("subscribe", "unsubscribe")),
    "ListGroups": Request(("broker",), methods=("list_consumer_groups", "list_groups")),
    "ListOffsets": Request(
        ("partition",),
        "raised; tools that show bounds: unknown, with the reason",
        absent=frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION}),
        moved=_LEADER_MOVES,
        methods=("list_offsets", "get_watermark_offsets"),
    ),
    "Metadata": Request(
        ("topic", "partition"),
        "raised; a partition with an error has no known leader",
        absent=frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION}),
        methods=("list_topics", "describe_topics"),
    ),
    "OffsetCommit": Request(
        ("partition",),
        "raised, or returned with the partition; of a member: by the second table in ``client.errors``",
        moved=COORDINATOR_MOVES,
        methods=("commit",),
    ),
    # A group that does not exist has no offset to delete.
    "OffsetDelete": Request(
        ("response", "partition"),
        "raised, or returned with the partition",
        absent=frozenset({Code.GROUP_ID_NOT_FOUND}),
        moved=COORDINATOR_MOVES,
    ),
    # A partition without a committed offset has an offset of -1, and no error.
    "OffsetFetch": Request(("group", "partition"), _NOT_OPTIONAL, moved=COORDINATOR_MOVES, methods=("committed",)),
    "OffsetForLeaderEpoch": Request(
        ("partition",),
        "raised if it is transient; else no truncation is detected, with a line in the log",
        moved=_LEADER_MOVES,
    ),
    "Produce": Request(("partition",), _BY_VERDICT, moved=_LEADER_MOVES, methods=("produce", "flush")),
    "TxnOffsetCommit": Request(("partition",), _BY_VERDICT, moved=COORDINATOR_MOVES),
}


class PartRejected(KafkaException):
    """The error of a part of a response, such as one partition.

    Args:
        error: the error of the part.
        parts: the names of the parts with this error.
        topics: the topics of these parts, separated by commas; ``None`` if they have none.
    """

    def __init__(self, error: KafkaError, parts: Iterable[object], topics: str | None = None) -> None:
        # The text of a code names no partition.
        super().__init__(KafkaError(error.code(), f"{error.str()} ({', '.join(map(str, parts))})"))
        self.topics = topics


def raise_first(partitions: Iterable[confluent_kafka.TopicPartition]) -> None:
    """Raises if partitions of a response of confluent-kafka contain an error. Call it before their values are used.

    Args:
        partitions: the partitions of the response.

    Raises:
        PartRejected: the first error, with all partitions that have it.

    >>> raise_first([confluent_kafka.TopicPartition("flights", 0, 5)])
    """
    rejected = [(p.error, p) for p in partitions if p.error is not None]
    if rejected:
        first = rejected[0][0]
        same = [p for error, p in rejected if error.code() == first.code()]
        topics = ", ".join(dict.fromkeys(p.topic for p in same))
        raise PartRejected(first, (f"{p.topic}-{p.partition}" for p in same), topics)


def topics_of(error: KafkaException) -> str | None:
    """Returns the topics that an exception names, separated by commas.

    >>> topics_of(PartRejected(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), ["flights-0"], "flights"))
    'flights'
    """
    return error.topics if isinstance(error, PartRejected) else None
