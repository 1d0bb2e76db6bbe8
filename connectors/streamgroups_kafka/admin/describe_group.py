"""``sg.groups.describe_group``: the state, the members and the lag of a group, for notebooks and programs.

Called by users. It makes the snapshot of ``streamgroups groups describe`` (:mod:`streamgroups.monitoring.snapshots`). Source:
SEMANTICS O1, O3.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from streamgroups.monitoring.group_tables import DescribedGroup, exists, unknown_groups
from streamgroups.monitoring.snapshots import survey
from streamgroups.option_values import folded, without_prefix
from streamgroups_kafka.admin.cluster import REQUEST_TIMEOUT_S
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.admin.topics import KafkaTopicAdmin
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.config import ClientConfig


def describe_group(
    group_id: str, *, bootstrap_servers: str, settings: Mapping[str, str] | None = None
) -> DescribedGroup:
    """Describes a consumer group of any Kafka client: its state, its members, and the lag of each partition.

    It joins no group and commits nothing. To compute the lag in records it reads at most 16 MiB.

    Args:
        group_id: the group.
        bootstrap_servers: the brokers, as ``host:port`` separated by commas.
        settings: further Kafka settings with their Java or librdkafka names, such as ``security.protocol``. Their secrets
            are never shown.

    Returns:
        The group. ``print`` shows it as ``streamgroups groups describe`` does, and a notebook displays it as a table.

    Raises:
        InvalidOption: if a setting is invalid.
        UnknownGroup: if the group does not exist.
        BrokerUnreachable: if no broker responds within 10 seconds.
        NotAuthorized: if the user may not describe the group or its topics.

    Example::

        group = sg.groups.describe_group("flight-board", bootstrap_servers="localhost:9092")
        print(group)
        behind = [it.topic_partition for it in group.partitions if it.records]

    >>> describe_group("flight-board", bootstrap_servers="localhost:9092", settings={"sasl.pasword": "hunter2"})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'kafka.sasl.pasword' is unknown. Did you mean 'kafka.sasl.password'?
    """
    given = folded((name, str(it)) for name, it in without_prefix((settings or {}).items()))
    config = ClientConfig.from_options({**given, "bootstrap.servers": bootstrap_servers})
    with closing(AdminSession(config, timeout_s=REQUEST_TIMEOUT_S)) as session:
        (found,) = survey(KafkaGroupAdmin(session), KafkaTopicAdmin(session, config), [group_id])
        described = DescribedGroup(found, now_ms())
    if not exists(found):
        raise unknown_groups([group_id])
    return described
