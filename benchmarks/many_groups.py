"""A broker with 200 groups of 100 partitions, and the commands that list and describe them.

Used by ``test_groups_cli_is_quick`` and by the benchmark of the same commands.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups_broker import EmbeddedKafka
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.admin.groups import KafkaGroupAdmin
from streamgroups_kafka.client.properties_file import command_config
from streamgroups_testkit.broker import Broker
from streamgroups_testkit.producing import produce

GROUPS, PARTITIONS = 200, 100
#: Our command and Kafka's command for the same operation, by operation.
COMMANDS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    "list": (["list"], ["--list"]),
    "describe one": (["describe", "group-007"], ["--describe", "--group", "group-007"]),
    "describe all": (["describe", "--all-groups"], ["--describe", "--all-groups"]),
}
_OWN_GROUPS = [sys.executable, "-c", "from streamgroups_cli import main; main()", "groups"]


@contextmanager
def many_groups() -> Iterator[EmbeddedKafka]:
    """A separate broker, because a list of groups contains all groups of a broker. Each group has read half of the
    records.
    """
    with EmbeddedKafka() as kafka:
        kafka.run_tool("topics", "--create", "--topic", "t", "--partitions", str(PARTITIONS))
        produce(kafka.bootstrap_servers, "t", 10 * PARTITIONS, partitions=PARTITIONS)
        session = AdminSession(command_config(kafka.bootstrap_servers), timeout_s=30)
        offsets = {TopicPartition("t", p): Committed(5) for p in range(PARTITIONS)}
        for n in range(GROUPS):
            assert KafkaGroupAdmin(session).alter_offsets(f"group-{n:03}", offsets) == {}
        session.close()
        yield kafka


def our_groups_command(kafka: Broker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``streamgroups groups`` in a separate process."""
    command = [*_OWN_GROUPS, *arguments, "--bootstrap-server", kafka.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, check=True)
