"""Requests the descriptions of groups from librdkafka, and avoids its fault that ends the process.

Used by ``admin.cluster``, ``admin.metadata_store`` and ``probes.access_probe``. A request of librdkafka's admin API that times out
while it waits for the coordinator of a group is freed twice when a coordinator is there, and an assertion ends the process
(librdkafka#4605). So the timeout of the request is longer than each outage, and the caller waits for a shorter time.
Source: ``rd_kafka_admin_coord_request`` and ``rd_kafka_coord_req_fsm``. The end of the client ends its requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

#: The longest timeout of a request that librdkafka accepts.
_LONGEST_S = 3600.0


def request_descriptions(
    admin: AdminClient, group_ids: Sequence[str], *, with_operations: bool = False
) -> Mapping[str, Future[Any]]:
    """Requests descriptions without waiting for them.

    Args:
        admin: the client. A caller that does not wait for a response ends the client.
        group_ids: the groups.
        with_operations: whether to request the operations for which this user is authorized.
    """
    found: Mapping[str, Future[Any]] = admin.describe_consumer_groups(
        [*group_ids], include_authorized_operations=with_operations, request_timeout=_LONGEST_S
    )
    return found


def response(requested: Future[Any], timeout_s: float) -> Any:
    """Waits for a description.

    Args:
        requested: the request.
        timeout_s: how long to wait, in seconds.

    Raises:
        KafkaException: the error of the response. ``_TIMED_OUT`` without one.
    """
    try:
        return requested.result(timeout_s)
    except FutureTimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
