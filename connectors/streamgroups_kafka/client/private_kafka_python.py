"""The classes of kafka-python that its documentation does not contain: connections, requests of the protocol, record batches.

No other module imports them: a house rule checks it. kafka-python documents clients, whose transactions belong to one process,
and which have no request for the offsets of many groups. So :mod:`streamgroups_kafka.admin` and
:mod:`streamgroups_kafka.transactions` send requests of the protocol, and :mod:`streamgroups_kafka.write` encodes record batches
without the native encoder. ``component_tests/test_client_facts.py`` checks what they need of these classes. Importing
``kafka`` loads all of them, for 90 ms of processor time. Seen with kafka-python 3.0.12; ``setup.cfg`` excludes 3.1.
"""

from __future__ import annotations

import time
from typing import Any

from kafka.net import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.partitioner.default import murmur2
from kafka.protocol.admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    OffsetSpec,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.util import calc_crc32c

__all__ = [
    "AbstractTokenProvider",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "ApiMessage",
    "ApiVersionsRequest",
    "ConsumerProtocolAssignment",
    "DefaultRecordBatchBuilder",
    "DeleteGroupsRequest",
    "DescribeGroupsRequest",
    "DescribeLogDirsRequest",
    "DescribeTransactionsRequest",
    "EndTxnRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "InitProducerIdRequest",
    "KafkaConnectionManager",
    "KafkaNetSocket",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "MetadataRequest",
    "NetworkSelector",
    "OffsetCommitRequest",
    "OffsetDeleteRequest",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochRequest",
    "OffsetSpec",
    "ProduceRequest",
    "TxnOffsetCommitRequest",
    "calc_crc32c",
    "murmur2",
    "throttled_s",
]


def throttled_s(connection: Any) -> float:
    """Returns how long a connection rejects requests because a quota throttles this user, in seconds.

    Args:
        connection: a connection of :class:`KafkaConnectionManager`; ``None`` before the first request to a node.
    """
    if connection is None or "throttle" not in connection.paused:
        return 0.0
    # At least a moment: the connection removes the pause in its own thread.
    return float(max(0.001, connection._throttle_time - time.monotonic()))
