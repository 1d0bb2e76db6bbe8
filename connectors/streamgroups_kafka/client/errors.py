"""The meaning of Kafka's error codes: one table from the codes of brokers and librdkafka to the errors of this library.

Used by every module that sends requests to Kafka. Sources: Kafka's ``Errors`` (the error codes of the protocol,
KIP-345, KIP-447, KIP-848), the ACL table of Kafka's security documentation, and librdkafka's ``rd_kafka_resp_err_t``.
Names with a leading underscore are local errors of librdkafka. A second, smaller table defines the reaction of a member
to a rejected offset commit; ``transactions.transaction_errors`` defines that of a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from confluent_kafka import KafkaError

from streamgroups.acls import grant
from streamgroups.errors import (
    BrokerUnreachable,
    DataLoss,
    FencedMember,
    GroupRejected,
    InvalidOption,
    LoginRejected,
    NotAuthorized,
    RecordRejected,
    StreamGroupsError,
    UnknownTopic,
)
from streamgroups_kafka.client.error_codes import BROKER_REMOVED, Code
from streamgroups_kafka.client.missing_acls import USUAL, Operations, missing_acl, topics_in


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The meaning of a code. The error class defines whether it is retriable, so the two cannot differ."""

    error: type[StreamGroupsError]
    happened: str
    remedy: str


_UNREACHABLE = _Meaning(
    BrokerUnreachable,
    "no broker responded",
    "Check 'kafka.bootstrap.servers' and 'kafka.security.protocol', and that the brokers' advertised "
    "listeners are reachable.",
)
_BUSY = _Meaning(
    BrokerUnreachable,
    "the responsible broker is not ready",
    "It is usually ready within seconds: try again.",
)
_QUEUE = _Meaning(
    BrokerUnreachable,
    "the queue of the producer is full, because the brokers acknowledge its records too slowly",
    "Check the brokers, and try again.",
)
_NO_TOPIC = _Meaning(
    UnknownTopic,
    "{topic} does not exist, or this user is not authorized to describe it",
    "Create the topic, or correct its name. If it exists: {topic_grant}",
)
_LOGIN = _Meaning(
    LoginRejected,
    "authentication failed",
    "Check 'kafka.sasl.mechanism' and its credentials: user name and password, secret or ticket.",
)
_FENCED = _Meaning(
    FencedMember,
    "the group has fenced this member",
    "No record is lost: the new owners of its partitions continue at the committed offsets. Restart "
    "this query to join again.",
)
_DUPLICATE_INSTANCE = _Meaning(
    FencedMember,
    "another live member uses the same 'kafka.group.instance.id'",
    "Set a different value for each member, or leave the option out.",
)
_MIXED_GROUP = _Meaning(
    GroupRejected,
    "the other members of the group use another protocol or assignment strategy",
    "Use another 'group.id', or set the same 'kafka.group.protocol' for all members (classic members: "
    "cooperative-sticky).",
)
_GONE = _Meaning(
    DataLoss,
    "the offsets to read no longer exist in the topic",
    "They were deleted by retention, or the topic was recreated. The option onDataLoss defines how to continue.",
)
_OLD_BROKER = _Meaning(
    GroupRejected,
    "the broker does not support this request",
    "Use a broker of version 2.5 or newer. 'kafka.group.protocol=consumer' needs 4.0 or newer, 'consumer' in the broker's "
    "group.coordinator.rebalance.protocols, and the feature group.version=1.",
)
_OPEN_TRANSACTION = _Meaning(
    BrokerUnreachable,
    "a transaction with these offsets is still open",
    "It ends within its transaction.timeout.ms. Try again.",
)
_REJECTED_RECORD = _Meaning(
    RecordRejected,
    "{topic} rejects a record or a batch of records",
    "Compare the records with the settings of the topic: max.message.bytes, compression.type, message.timestamp.*.",
)
_ZOMBIE = _Meaning(
    FencedMember,
    "a newer run has fenced this transactional id, or its transaction timed out",
    "The output of this transaction is aborted. If no newer run exists, raise "
    "'kafka.transaction.timeout.ms' above the duration of the longest batch, and restart this query.",
)

_COMMIT_SIZE = (
    "Compare the broker's message.max.bytes, and max.message.bytes of the topic __consumer_offsets, with the default "
    "1048588. Commits of this library have at most 500000 bytes."
)

_C, _L = Code, KafkaError
_LOGIN_CODES = (_C.SASL_AUTHENTICATION_FAILED, _L._AUTHENTICATION, _C.ILLEGAL_SASL_STATE)

#: The meaning of each code: of brokers, and of librdkafka.
_MEANINGS: dict[int, _Meaning] = {
    **dict.fromkeys(
        (_L._ALL_BROKERS_DOWN, _L._TRANSPORT, _L._RESOLVE, _L._TIMED_OUT, _L._TIMED_OUT_QUEUE), _UNREACHABLE
    ),
    BROKER_REMOVED: _UNREACHABLE,
    _L._QUEUE_FULL: _QUEUE,
    **dict.fromkeys(
        (_L._MSG_TIMED_OUT, _C.REQUEST_TIMED_OUT, _C.BROKER_NOT_AVAILABLE, _C.NETWORK_EXCEPTION), _UNREACHABLE
    ),
    **dict.fromkeys((_C.COORDINATOR_NOT_AVAILABLE, _C.COORDINATOR_LOAD_IN_PROGRESS, _C.NOT_COORDINATOR), _BUSY),
    **dict.fromkeys((_C.LEADER_NOT_AVAILABLE, _C.NOT_LEADER_OR_FOLLOWER, _C.REPLICA_NOT_AVAILABLE), _BUSY),
    **dict.fromkeys((_C.NOT_CONTROLLER, _C.OFFSET_NOT_AVAILABLE, _C.KAFKA_STORAGE_ERROR, _L._WAIT_COORD), _BUSY),
    **dict.fromkeys((_C.FENCED_LEADER_EPOCH, _C.UNKNOWN_LEADER_EPOCH, _C.REBALANCE_IN_PROGRESS, _L._RETRY), _BUSY),
    **dict.fromkeys((_C.THROTTLING_QUOTA_EXCEEDED, _C.NOT_ENOUGH_REPLICAS, _L._WAIT_CACHE, _L._IN_PROGRESS), _BUSY),
    # The error of ListOffsets for a new partition: "No leaders found".
    _L._NOENT: _BUSY,
    **dict.fromkeys((_C.MEMBER_ID_REQUIRED, _L._PREV_IN_PROGRESS, _C.NOT_ENOUGH_REPLICAS_AFTER_APPEND), _BUSY),
    **dict.fromkeys((_C.UNSTABLE_OFFSET_COMMIT, _C.CONCURRENT_TRANSACTIONS), _OPEN_TRANSACTION),
    **dict.fromkeys((_C.UNKNOWN_TOPIC_OR_PARTITION, _L._UNKNOWN_TOPIC, _L._UNKNOWN_PARTITION), _NO_TOPIC),
    **dict.fromkeys((_C.UNKNOWN_TOPIC_ID, _C.INCONSISTENT_TOPIC_ID), _NO_TOPIC),
    _C.INVALID_TOPIC_EXCEPTION: _Meaning(
        UnknownTopic, "{topic} has an invalid name", "Use letters, digits, '.', '_' and '-', at most 249 characters."
    ),
    # The remedy of these four is that of ``missing_acl``.
    _C.TOPIC_AUTHORIZATION_FAILED: _Meaning(NotAuthorized, "this user is not authorized to access {topic}", ""),
    _C.GROUP_AUTHORIZATION_FAILED: _Meaning(NotAuthorized, "this user is not authorized to access {group}", ""),
    _C.CLUSTER_AUTHORIZATION_FAILED: _Meaning(
        NotAuthorized, "this user is not authorized for this operation on the cluster", ""
    ),
    _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _Meaning(
        NotAuthorized, "this user is not authorized to use the transactional id", ""
    ),
    **dict.fromkeys(_LOGIN_CODES, _LOGIN),
    _C.UNSUPPORTED_SASL_MECHANISM: _Meaning(
        LoginRejected,
        "the broker does not enable this SASL mechanism",
        "Set 'kafka.sasl.mechanism' to a mechanism that the broker enables.",
    ),
    _L._SSL: _Meaning(
        LoginRejected,
        "the TLS handshake failed",
        "Check that the CA in 'kafka.ssl.truststore.location' signed the broker's certificate and that it "
        "contains its host name. Check that the broker accepts this client's certificate.",
    ),
    **dict.fromkeys(
        (_C.ILLEGAL_GENERATION, _C.UNKNOWN_MEMBER_ID, _C.STALE_MEMBER_EPOCH, _C.FENCED_MEMBER_EPOCH), _FENCED
    ),
    **dict.fromkeys((_L._ASSIGNMENT_LOST, _L._FENCED), _FENCED),
    _L._MAX_POLL_EXCEEDED: _Meaning(
        FencedMember,
        "this member exceeded the maximum poll interval",
        "Its process was paused or overloaded. If batches take this long, raise 'kafka.max.poll.interval.ms'.",
    ),
    **dict.fromkeys((_C.FENCED_INSTANCE_ID, _C.UNRELEASED_INSTANCE_ID), _DUPLICATE_INSTANCE),
    **dict.fromkeys((_C.PRODUCER_FENCED, _C.INVALID_PRODUCER_EPOCH, _C.TRANSACTION_COORDINATOR_FENCED), _ZOMBIE),
    **dict.fromkeys((_C.MESSAGE_TOO_LARGE, _C.RECORD_LIST_TOO_LARGE, _C.INVALID_RECORD), _REJECTED_RECORD),
    **dict.fromkeys((_C.INVALID_TIMESTAMP, _C.UNSUPPORTED_COMPRESSION_TYPE), _REJECTED_RECORD),
    _C.INVALID_TRANSACTION_TIMEOUT: _Meaning(
        InvalidOption,
        "the transaction timeout is longer than the broker allows",
        "Reduce the transaction timeout, or raise the broker's transaction.max.timeout.ms.",
    ),
    _C.INCONSISTENT_GROUP_PROTOCOL: _MIXED_GROUP,
    _C.GROUP_ID_NOT_FOUND: _Meaning(
        GroupRejected,
        "{group} does not exist, or is of another type",
        "Check 'group.id'. Share groups and streams groups are not supported.",
    ),
    _C.NON_EMPTY_GROUP: _Meaning(GroupRejected, "{group} has members", "Stop them first, or use another 'group.id'."),
    _C.GROUP_MAX_SIZE_REACHED: _Meaning(
        GroupRejected,
        "{group} has reached the maximum size that the broker allows",
        "Stop a member, or raise the broker's group.max.size (consumer protocol: group.consumer.max.size).",
    ),
    _C.GROUP_SUBSCRIBED_TO_TOPIC: _Meaning(
        GroupRejected, "{group} is subscribed to {topic}", "Stop its members first, and then change its offsets."
    ),
    _C.INVALID_GROUP_ID: _Meaning(
        InvalidOption, "the group id is invalid", "Set 'group.id' to a value that is not empty."
    ),
    _C.INVALID_SESSION_TIMEOUT: _Meaning(
        InvalidOption,
        "the broker does not allow this session timeout",
        "Set 'kafka.session.timeout.ms' between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.",
    ),
    _C.UNSUPPORTED_ASSIGNOR: _Meaning(
        InvalidOption,
        "the broker does not support this assignor",
        "Set 'kafka.group.remote.assignor' to 'uniform' or 'range', or leave it out.",
    ),
    _C.INVALID_REGULAR_EXPRESSION: _Meaning(
        InvalidOption, "the broker rejects this pattern", "Write 'subscribePattern' in RE2 syntax."
    ),
    _C.OFFSET_METADATA_TOO_LARGE: _Meaning(
        GroupRejected,
        "the metadata of a committed offset is longer than this broker allows",
        "Set the broker's offset.metadata.max.bytes to at least its default, 4096.",
    ),
    # Not GroupRejected: tools take it for a group with members.
    _C.INVALID_COMMIT_OFFSET_SIZE: _Meaning(
        StreamGroupsError, "the commit is larger than the topic __consumer_offsets allows", _COMMIT_SIZE
    ),
    _C.UNKNOWN_SERVER_ERROR: _Meaning(
        StreamGroupsError,
        "an unexpected error has occurred in the broker",
        f"The log of the broker contains the reason. A commit of offsets can be too large. {_COMMIT_SIZE}",
    ),
    **dict.fromkeys((_C.OFFSET_OUT_OF_RANGE, _L._AUTO_OFFSET_RESET, _L._LOG_TRUNCATION), _GONE),
    **dict.fromkeys((_C.UNSUPPORTED_VERSION, _L._UNSUPPORTED_FEATURE, _L._NOT_IMPLEMENTED), _OLD_BROKER),
    _L._BAD_COMPRESSION: _Meaning(
        StreamGroupsError,
        "the next record batch cannot be decompressed: it is damaged, or larger than 'kafka.receive.message.max.bytes'",
        "Raise 'kafka.receive.message.max.bytes', which is 100000000 by default, above the decompressed size of the batch. Or "
        "set the offset of the group after the batch, with streamgroups groups reset. Its records are skipped then.",
    ),
    _L._BAD_MSG: _Meaning(
        StreamGroupsError,
        "the next record batch is damaged",
        "Check the disks of the leader and of its replicas. To skip the batch, set the offset of the group after it, with "
        "streamgroups groups reset.",
    ),
    _L._INVALID_ARG: _Meaning(
        InvalidOption, "librdkafka rejects a setting or an argument", "Correct the setting that the text names."
    ),
}
_NO_CERTIFICATE = _Meaning(
    LoginRejected,
    "the broker rejects the TLS certificate of this client, or requires one that is not set",
    "Set 'kafka.ssl.keystore.location' to a key store with a certificate that the broker trusts and that has not expired.",
)
_TOKEN = _Meaning(
    LoginRejected,
    "the broker rejects the token, or the client has no token",
    "Check 'kafka.sasl.oauthbearer.token.provider', or the endpoint, client and scope in 'kafka.sasl.oauthbearer.*'. The "
    "issuer, the audience and the signature must be those that the listener expects (sasl.oauthbearer.expected.*, "
    "sasl.oauthbearer.jwks.endpoint.url), and its clock must agree.",
)
# The response of a broker to an invalid token (RFC 7628, section 3.2.2), and the errors of librdkafka without one.
_OF_TOKEN = re.compile(r'"status" *: *"invalid_token"|OAUTHBEARER|OAuth')
# An alert is from the broker. With TLS 1.3 it arrives after the handshake, as an error of the connection.
# One expression for both would read a text with many alerts again for each of them.
_ALERT = re.compile(r"\balert ([a-z ]*)", re.IGNORECASE)
_OF_CERTIFICATE = re.compile(r"certificate|unknown ca", re.IGNORECASE)
_UNKNOWN = _Meaning(StreamGroupsError, "Kafka returned an error", "Look up the error code in Kafka's protocol guide.")


def to_streamgroups_error(
    kafka_error: KafkaError,
    what: str,
    *,
    group: str | None = None,
    topic: str | None = None,
    transactional_id: str | None = None,
    operations: Operations = USUAL,
    redact: Callable[[str], str] = str,
) -> StreamGroupsError:
    """Translates an error of Kafka.

    Args:
        kafka_error: the error of the client or broker.
        what: the operation and its object; starts the text, before a colon.
        group: the group of the operation.
        topic: the topic of the operation, or topics separated by commas.
        transactional_id: the transactional id of the operation.
        operations: the operations that the user needs, if they are not the usual ones of :mod:`.acls`.
        redact: removes secrets from the client's text: :meth:`~streamgroups_kafka.client.config.ClientConfig.redact`.

    Returns:
        An error to raise. Its text contains the name of the code. The translation of an unknown code is a
        :class:`~streamgroups.errors.StreamGroupsError`, or a retriable error if the client marks the code as retriable.

    >>> error = to_streamgroups_error(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "Joining", group="orders")
    >>> type(error).__name__, error.remedy
    ('NotAuthorized', "Grant Read on Group 'orders': kafka-acls.sh --bootstrap-server HOST:PORT --add \
--allow-principal User:NAME --operation Read --group orders")
    >>> error.what
    "Joining: this user is not authorized to access the group 'orders' (GROUP_AUTHORIZATION_FAILED: Broker: Group authorization failed)."
    """
    name = kafka_error.name()
    if is_rejected_certificate(kafka_error):
        meaning = _NO_CERTIFICATE
    elif kafka_error.code() in _LOGIN_CODES and _OF_TOKEN.search(kafka_error.str()):
        meaning = _TOKEN
    else:
        meaning = _MEANINGS.get(kafka_error.code()) or (_BUSY if kafka_error.retriable() else _UNKNOWN)
    names = {
        "group": f"the group '{group}'" if group else "the group",
        "topic": f"the topic '{topic}'" if topic else "the topic or partition",
        "topic_grant": grant(operations.get("Topic", USUAL["Topic"]), "Topic", topics_in(topic)),
    }
    cause = redact(kafka_error.str()).strip().rstrip(".")
    acl = missing_acl(kafka_error, {"Topic": topic, "Group": group, "TransactionalId": transactional_id}, operations)
    return meaning.error(
        f"{what}: {meaning.happened.format_map(names)} ({name}: {cause}).",
        remedy=acl or meaning.remedy.format_map(names),
        group=group,
        topic=topic,
    )


def is_rejected_certificate(kafka_error: KafkaError) -> bool:
    """Returns whether the broker rejected the TLS certificate of this client, or its absence.

    Args:
        kafka_error: an error of a connection. Its text contains the alert of TLS (RFC 8446, section 6.2).

    >>> alert = "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42"
    >>> is_rejected_certificate(KafkaError(KafkaError._TRANSPORT, alert))
    True
    """
    is_of_connection = kafka_error.code() in (KafkaError._TRANSPORT, KafkaError._SSL)
    return is_of_connection and any(map(_OF_CERTIFICATE.search, _ALERT.findall(kafka_error.str())))


class CommitVerdict(Enum):
    """The reaction of a member to a rejected offset commit."""

    #: The member may still own the partition: continue to poll, and retry the commit while it does.
    RETRY_WHILE_OWNED = "retry_while_owned"
    #: The group has fenced this member: drop its uncommitted offsets, because other members own the partitions.
    FENCED = "fenced"
    #: The rejection is permanent: fail the query.
    FATAL = "fatal"


# A classic group starts a new generation before this member receives it. Until its next poll, the commits of the member
# contain the old generation, and the broker rejects them. A cooperative rebalance leaves it most partitions
# nevertheless. So a stale generation or epoch does not prove that the member is fenced; an unknown member id does.
_VERDICTS: dict[int, CommitVerdict] = {
    **dict.fromkeys(
        (_C.ILLEGAL_GENERATION, _C.REBALANCE_IN_PROGRESS, _C.STALE_MEMBER_EPOCH), CommitVerdict.RETRY_WHILE_OWNED
    ),
    **dict.fromkeys((_C.UNKNOWN_MEMBER_ID, _C.FENCED_INSTANCE_ID, _C.FENCED_MEMBER_EPOCH), CommitVerdict.FENCED),
    **dict.fromkeys((_C.UNRELEASED_INSTANCE_ID, _L._ASSIGNMENT_LOST, _L._FENCED), CommitVerdict.FENCED),
    **dict.fromkeys((_C.PRODUCER_FENCED, _C.INVALID_PRODUCER_EPOCH), CommitVerdict.FENCED),
    # The group does not exist any more, or this member is not in it (yet).
    **dict.fromkeys((_C.GROUP_ID_NOT_FOUND, _L._MAX_POLL_EXCEEDED), CommitVerdict.FENCED),
    # The connection of the member has ended. Whether all brokers reject its login is checked with a new client.
    **dict.fromkeys((*_LOGIN_CODES, _L._SSL), CommitVerdict.RETRY_WHILE_OWNED),
    # The topic of the partition is being deleted or recreated. The next assignment shows the result.
    _C.UNKNOWN_TOPIC_OR_PARTITION: CommitVerdict.RETRY_WHILE_OWNED,
}


def commit_verdict(kafka_error: KafkaError) -> CommitVerdict:
    """Returns the reaction to a rejected commit.

    Args:
        kafka_error: the error of the whole request, or of one partition.

    Returns:
        The verdict. A code without its own verdict is retried if its error is retriable, else it is fatal.

    >>> commit_verdict(KafkaError(KafkaError.ILLEGAL_GENERATION))
    <CommitVerdict.RETRY_WHILE_OWNED: 'retry_while_owned'>
    >>> commit_verdict(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    <CommitVerdict.FATAL: 'fatal'>
    """
    verdict = _VERDICTS.get(kafka_error.code())
    if verdict is not None:
        return verdict
    retriable = to_streamgroups_error(kafka_error, "").retriable and not kafka_error.fatal()
    return CommitVerdict.RETRY_WHILE_OWNED if retriable else CommitVerdict.FATAL
