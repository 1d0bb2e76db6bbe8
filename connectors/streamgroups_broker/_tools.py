"""Kafka's command line tools: their main classes, their arguments to reach a broker, and how to run them.

Used by ``embedded`` and by other implementations of a cluster for tests. Source: the ``bin/kafka-*.sh`` scripts of
Apache Kafka 4.1.
"""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from streamgroups.errors import EmbeddedBrokerError, InvalidOption, StreamGroupsError

#: Main classes by short name (that of the script without ``kafka-`` and ``.sh``).
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

#: Tools that only read files, or have another option for the address.
_WITHOUT_BOOTSTRAP = {"dump-log", "producer-perf-test", "storage"}


def tool_command(tool: str, args: Sequence[str], bootstrap_servers: str) -> list[str]:
    """Returns main class and arguments of a tool. Adds ``--bootstrap-server`` if it is missing.

    Args:
        tool: a name of `TOOLS`, with or without ``kafka-`` and ``.sh``. Or a full class name, which gets no addition.
        args: the arguments of the tool.
        bootstrap_servers: the address to add.

    Raises:
        InvalidOption: if the tool does not exist.

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
    if name == "cluster":  # the only tool that requires its sub-command first
        return [TOOLS[name], *args[:1], *address, *args[1:]]
    return [TOOLS[name], *address, *args]


_Cluster = TypeVar("_Cluster", bound="RunsTools")


class RunsTools(ABC):
    """A cluster that supports Kafka's command line tools."""

    #: The error for a tool that exceeds its timeout.
    tool_error: ClassVar[type[StreamGroupsError]] = EmbeddedBrokerError

    def __enter__(self: _Cluster) -> _Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Starts the cluster. Does nothing if it is already started."""

    @abstractmethod
    def stop(self) -> None:
        """Stops the cluster. Can be called repeatedly."""

    def run_tool(
        self, tool: str, *args: str, timeout_s: float = 60.0, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's command line tools against this cluster.

        A cluster in a container runs it in its container.

        Args:
            tool: the name of the script (``topics``, ``kafka-consumer-groups.sh``), which gets ``--bootstrap-server``
                added. Or a main class, which gets no addition.
            args: its arguments. Paths of files refer to the host of the tool.
            timeout_s: the timeout, in seconds.
            stdin: text for its standard input.

        Returns:
            the finished process, with text in ``stdout`` and ``stderr``. Its ``returncode`` is not checked.

        Raises:
            InvalidOption: if Kafka has no such tool.
            StreamGroupsError: if the timeout expired, or the cluster is not running.
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
        """Returns the address of the brokers for a tool."""

    @abstractmethod
    def _run_main_class(
        self, command: Sequence[str], timeout_s: float, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a main class with arguments. Raises ``subprocess.TimeoutExpired`` after the timeout."""
