"""Names of Kafka's command line tools, and what each needs to reach a broker.

Used by ``EmbeddedKafka.run_tool``. Source: the ``bin/kafka-*.sh`` scripts of Apache Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamgroups.errors import InvalidOption

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
