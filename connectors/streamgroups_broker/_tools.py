"""Names of Kafka's command line tools, what each needs to reach a broker, and how one is run.

Used by ``EmbeddedKafka``, and by what else stands for a cluster. Source: the ``bin/kafka-*.sh`` scripts of Apache Kafka 4.1.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from streamgroups.errors import EmbeddedBrokerError, InvalidOption, StreamGroupsError

#: Short name (the script's without ``kafka-`` and ``.sh``) to main class.
TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

#: Tools that read files only, or take the address in a way of their own.
_WITHOUT_BOOTSTRAP = {"dump-log", "producer-perf-test", "storage"}


def tool_command(tool: str, args: Sequence[str], bootstrap_servers: str) -> list[str]:
    """Main class and arguments for a tool, with ``--bootstrap-server`` added where it is missing.

    Args:
        tool: a name of `TOOLS`, with or without ``kafka-`` and ``.sh``; or a full class name, which gets no addition.
        args: the tool's own arguments.
        bootstrap_servers: the address to add.

    Raises:
        InvalidOption: no such tool.

    >>> tool_command("consumer-groups", ["--list"], "127.0.0.1:9092")[1:]
    ['--bootstrap-server', '127.0.0.1:9092', '--list']
    >>> tool_command("kafka-cluster.sh", ["cluster-id"], "127.0.0.1:9092")[1:]
    ['cluster-id', '--bootstrap-server', '127.0.0.1:9092']
    """
    if "." in tool.removesuffix(".sh"):
        return [tool, *args]
    name = tool.removeprefix("kafka-").removesuffix(".sh")
    if name not in TOOLS:
        raise InvalidOption(f"Kafka has no tool {tool!r} here.", remedy=f"One of: {', '.join(sorted(TOOLS))}.")
    if name in _WITHOUT_BOOTSTRAP or any(arg.startswith("--bootstrap-") for arg in args):
        return [TOOLS[name], *args]
    address = ["--bootstrap-server", bootstrap_servers]
    if name == "cluster":  # the only one that wants its sub-command first
        return [TOOLS[name], *args[:1], *address, *args[1:]]
    return [TOOLS[name], *address, *args]


class RunsTools(ABC):
    """A cluster that Kafka's own command line tools can be run against."""

    #: What is raised when a tool takes too long.
    tool_error: ClassVar[type[StreamGroupsError]] = EmbeddedBrokerError

    def run_tool(
        self, tool: str, *args: str, timeout_s: float = 60.0, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's own command line tools against this cluster, where the cluster is: in its container, if any.

        Args:
            tool: the script's name (``topics``, ``kafka-consumer-groups.sh``), which gets ``--bootstrap-server`` added, or
                a main class, which gets nothing added.
            args: its arguments. Those that name files name files there.
            timeout_s: how long it may take, in seconds.
            stdin: text for its standard input.

        Returns:
            the finished process, with text in ``stdout`` and ``stderr``; its ``returncode`` is not judged here.

        Raises:
            InvalidOption: Kafka has no such tool.
            StreamGroupsError: it took too long, or the cluster is not running.
        """
        command = tool_command(tool, args, self._address_for_tools())
        try:
            return self._run_main_class(command, timeout_s, stdin)
        except subprocess.TimeoutExpired as error:
            raise self.tool_error(
                f"{command[0]} {' '.join(args)} took longer than {timeout_s:g} s.", remedy="Increase timeout_s."
            ) from error

    @abstractmethod
    def _address_for_tools(self) -> str:
        """Where a tool reaches the brokers."""

    @abstractmethod
    def _run_main_class(
        self, command: Sequence[str], timeout_s: float, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        """Run a main class with arguments. Raises ``subprocess.TimeoutExpired`` if it takes too long."""
