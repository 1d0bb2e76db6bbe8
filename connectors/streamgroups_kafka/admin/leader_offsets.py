"""Requests offsets of partitions from their leaders, and refreshes the leaders, through librdkafka's admin API.

Called by :mod:`streamgroups_kafka.admin.cluster`. librdkafka sends ListOffsets to the leaders in its metadata. Neither a
new partition nor the error of a former leader refreshes them: a former leader that lives, as after a preferred election,
would return its error for as long as no other request of the client contains metadata. Source: KIP-396, KIP-320 (the
errors of leader epochs); SEMANTICS G17.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from streamgroups.errors import BrokerUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.client.partition_conversion import from_confluent, to_confluent
from streamgroups_kafka.client.responses import REQUESTS, PartRejected

#: The errors that end with new metadata. librdkafka returns the last one for a partition that is newer than its metadata.
_OTHER_LEADER = frozenset[int](REQUESTS["ListOffsets"].moved | REQUESTS["ListOffsets"].absent) | {KafkaError._NOENT}


def request_offsets(
    admin: AdminClient, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout_s: float
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    """Requests one offset of each partition.

    Args:
        admin: the client.
        specs: the offset of each partition: earliest, latest, or that of a time.
        isolation: whether the latest offset is the last stable offset.
        timeout_s: the timeout of the request, in seconds.

    Returns:
        The offsets, with -1 if no record has the time, and the epochs of the leaders.

    Raises:
        PartRejected: the first error of a partition.
        BrokerUnreachable: if a leader disconnects before it responds.
    """
    futures = admin.list_offsets(
        {to_confluent(tp): spec for tp, spec in specs.items()}, isolation_level=isolation, request_timeout=timeout_s
    )
    found = {}
    for tp, future in futures.items():
        try:
            found[from_confluent(tp)] = future.result()
        except KafkaException as e:
            raise PartRejected(e.args[0], [from_confluent(tp)], tp.topic) from None
    # librdkafka returns this offset, without an error, if the connection closes during a request.
    unanswered = [tp for tp, it in found.items() if it.offset == OFFSET_INVALID]
    if unanswered:
        raise BrokerUnreachable(
            f"The leaders of {topics_in(unanswered)} disconnected before they returned the offsets.",
            remedy="Check that they are up. The request is repeated fetchOffset.numRetries times.",
        )
    return found


def refreshed_leaders(
    admin: AdminClient, rejected: PartRejected, partitions: Collection[TopicPartition], timeout_s: float
) -> list[TopicPartition]:
    """Requests the metadata after an error of a leader.

    Args:
        admin: the client.
        rejected: the error.
        partitions: the partitions of the request.
        timeout_s: the timeout of the metadata request, in seconds.

    Returns:
        The partitions that do not exist.

    Raises:
        PartRejected: the same error, if another leader does not change it; or the error of a topic in the metadata.
    """
    if rejected.args[0].code() not in _OTHER_LEADER:
        raise rejected
    topics = admin.list_topics(timeout=timeout_s).topics
    names = {tp.topic for tp in partitions}
    there = {name: topics[name].partitions for name in names & topics.keys() if is_there(name, topics[name])}
    return [tp for tp in partitions if tp.partition not in there.get(tp.topic, ())]


def retried(rejected: PartRejected) -> PartRejected:
    """Returns the error to retry for a partition that is in the metadata.

    A broker receives its partitions after the controller. Until then it reports that they do not exist.
    """
    if rejected.args[0].code() not in REQUESTS["ListOffsets"].absent:
        return rejected
    return PartRejected(KafkaError(Code.LEADER_NOT_AVAILABLE), [rejected.args[0].str()], rejected.topics)


def is_there(name: str, topic: Any) -> bool:
    """Returns whether a topic in the metadata exists.

    Args:
        name: the name of the topic.
        topic: its ``TopicMetadata``.

    Raises:
        PartRejected: if its error has another meaning. Its partitions are unknown then.
    """
    if topic.error is None:
        return True
    if topic.error.code() in REQUESTS["Metadata"].absent:
        return False
    raise PartRejected(topic.error, [name], name)


def topics_in(partitions: Collection[TopicPartition]) -> str:
    """Returns the topics of partitions for the text of an error.

    >>> topics_in([TopicPartition("orders", 0), TopicPartition("flights", 0), TopicPartition("flights", 1)])
    'flights, orders'
    """
    return listed(sorted({tp.topic for tp in partitions}))
