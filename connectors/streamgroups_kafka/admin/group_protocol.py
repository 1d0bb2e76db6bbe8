"""Checks that the brokers support the group protocol of a query, before it joins.

Called by ``admin.cluster`` at the start of queries and cursors. librdkafka requires version 1 of ConsumerGroupHeartbeat,
which Kafka 4.0 introduced. With older brokers it retries forever and reports no error. Source: KIP-848, KIP-35.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kafka.protocol.metadata import ApiVersionsRequest

from streamgroups.errors import GroupRejected
from streamgroups_kafka.admin.session import AdminSession
from streamgroups_kafka.client.config import ClientConfig

_HEARTBEAT, _MIN_VERSION = 68, 1
_WHAT = "The versions of the brokers' requests could not be read"


def check_group_protocol(config: ClientConfig) -> None:
    """Checks the brokers of a client with the protocol ``consumer``. Every broker supports ``classic``.

    Args:
        config: the configuration of the client.

    Raises:
        GroupRejected: if a broker does not support the protocol.
        BrokerUnreachable: if no broker responds.
    """
    with closing(AdminSession(config)) as session:
        reply = session.run(_WHAT, lambda: session.send(ApiVersionsRequest(max_version=0)))
    found = {it.api_key: it.max_version for it in reply.api_keys}
    if not supports_consumer_protocol(found):
        raise GroupRejected(
            f"The brokers at {config.get('bootstrap.servers')} do not support 'kafka.group.protocol=consumer' (KIP-848).",
            remedy="Upgrade the brokers to Kafka 4.0 or newer, or set 'kafka.group.protocol=classic', also for the other "
            "members of the group.",
        )


def supports_consumer_protocol(max_versions: Mapping[int, int]) -> bool:
    """Returns whether a broker supports the group protocol ``consumer`` as librdkafka requires it.

    Args:
        max_versions: the latest version of each request that the broker supports, by the key of the request.

    >>> supports_consumer_protocol({68: 1}), supports_consumer_protocol({68: 0}), supports_consumer_protocol({})
    (True, False, False)
    """
    return max_versions.get(_HEARTBEAT, -1) >= _MIN_VERSION
