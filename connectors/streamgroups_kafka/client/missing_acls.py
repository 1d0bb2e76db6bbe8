"""The ACL that a rejected request needs.

Used by :mod:`streamgroups_kafka.client.errors`. A response of a broker contains the type of the resource only. The caller
has the name, and the operation if it is not the usual one. Sources: Kafka's documentation, "Authorization and ACLs"
(the operations of each request); ``kafka-acls.sh``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from confluent_kafka import KafkaError

from streamgroups.acls import Resource, grant
from streamgroups.coordination.reset_protocol import group_of, members_group_of
from streamgroups_kafka.client.error_codes import Code

#: The operations of a request on each type of resource. The usual ones apply to types that are left out.
Operations: TypeAlias = Mapping[Resource, str]

USUAL: Operations = MappingProxyType(
    {"Topic": "Read", "Group": "Read", "TransactionalId": "Write", "Cluster": "Describe"}
)
WRITE: Operations = MappingProxyType({"Topic": "Write"})
CREATE: Operations = MappingProxyType({"Topic": "Create", "Cluster": "Create"})
#: Of a topic, its records, or a group.
DELETE: Operations = MappingProxyType({"Topic": "Delete", "Group": "Delete"})
#: Of the offsets of a group, for which Read on the topic suffices.
DELETE_OFFSETS: Operations = MappingProxyType({"Group": "Delete"})
DESCRIBE: Operations = MappingProxyType({"Topic": "Describe", "Group": "Describe", "TransactionalId": "Describe"})
DESCRIBE_CONFIGS: Operations = MappingProxyType({"Topic": "DescribeConfigs", "Cluster": "DescribeConfigs"})

_RESOURCES: dict[int, Resource] = {
    Code.TOPIC_AUTHORIZATION_FAILED: "Topic",
    Code.GROUP_AUTHORIZATION_FAILED: "Group",
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalId",
    Code.CLUSTER_AUTHORIZATION_FAILED: "Cluster",
}


def missing_acl(kafka_error: KafkaError, names: Mapping[Resource, str | None], operations: Operations) -> str | None:
    """Returns how to grant the ACL that a request needs; ``None`` if the error is about something else.

    Args:
        kafka_error: the error of a broker.
        names: the names of the resources of the request. Names of topics can be separated by commas.
        operations: the operations of the request, if they are not the usual ones.

    >>> print(missing_acl(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), {"Topic": "flights"}, WRITE))
    Grant Write on Topic 'flights': kafka-acls.sh --bootstrap-server HOST:PORT --add --allow-principal User:NAME --operation Write --topic flights
    """
    resource = _RESOURCES.get(kafka_error.code())
    if resource is None:
        return None
    operation, name = operations.get(resource, USUAL[resource]), names.get(resource) or ""
    if resource == "Topic":
        return grant(operation, resource, topics_in(name))
    if resource == "Group" and group_of(name) != name:
        # One ACL covers all metadata groups of a group.
        return grant(operation, resource, [members_group_of(group_of(name))], prefixed=True)
    return grant(operation, resource, [name] if name else [])


def topics_in(names: str | None) -> list[str]:
    """Returns the topics in a text of names separated by commas.

    >>> topics_in("flights, board"), topics_in(None)
    (['flights', 'board'], [])
    """
    return [topic.strip() for topic in (names or "").split(",") if topic.strip()]
