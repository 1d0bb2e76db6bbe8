"""The faults of servers: a broker is killed or paused, a process of PostgreSQL is killed, the topic gets a partition. Used by
``campaign.running``.
"""

from __future__ import annotations

import itertools
import time
from functools import partial

from confluent_kafka.admin import AdminClient, NewPartitions

from integration_tests.campaign.fault import Fault
from integration_tests.campaign.members import CampaignMember
from integration_tests.campaign.targets import patiently
from streamgroups_broker import EmbeddedKafka

#: Longer than the time after which the controller replaces a broker that does not respond (6 s here), and than the timeouts of the
#: requests of members, planners and sinks to it.
_HANG_S = 20.0


def faults_of_servers(bootstrap: str, topic: str, to: str) -> dict[str, Fault]:
    """The faults of the topic and of PostgreSQL by their names.

    Args:
        bootstrap: the broker.
        topic: the topic.
        to: the connection string, if the sink is PostgreSQL.
    """
    return {
        "partitions": Fault(lambda _, __: patiently(partial(_add_partition, bootstrap, topic))),
        "server": Fault(lambda _, __: _crash_server(to)),
    }


def faults_of_brokers(kafka: EmbeddedKafka) -> dict[str, Fault]:
    """The faults of brokers by their names. The nodes are killed or paused in turn."""
    nodes = itertools.cycle(kafka.node_ids)
    failed: list[int] = []

    def kill(_: int, __: CampaignMember) -> None:
        failed.append(next(nodes))
        kafka.kill_node(failed[-1])

    def restart(_: str, __: CampaignMember) -> None:
        kafka.restart_node(failed.pop())

    def pause(_: int, __: CampaignMember) -> None:
        failed.append(next(nodes))
        kafka.pause_node(failed[-1])

    def resume(_: str, __: CampaignMember) -> None:
        # The members run meanwhile. A member that fails starts again at the next point, as under a supervisor.
        time.sleep(_HANG_S)
        kafka.resume_node(failed.pop())

    return {"broker": Fault(kill, restart), "hang": Fault(pause, resume)}


def _add_partition(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    n_partitions = len(admin.list_topics(topic, timeout=10).topics[topic].partitions)
    admin.create_partitions([NewPartitions(topic, n_partitions + 1)])[topic].result(30)


def _crash_server(conninfo: str) -> None:
    # Imported late: only campaigns with PostgreSQL need psycopg.
    from streamgroups_testkit.postgres import crash_server

    crash_server(conninfo)
