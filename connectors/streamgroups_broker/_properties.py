"""The configuration of an embedded node: Kafka's own, with defaults that suit tests and laptops.

Used by ``streamgroups_broker.embedded``; pure. Source: Kafka's broker configuration reference, KIP-595 (quorum), KIP-848
(group coordinator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamgroups.errors import InvalidOption

#: The interface all listeners bind to.
HOST = "127.0.0.1"

#: What the embedded broker decides per node; overriding these would break it.
RESERVED = frozenset({"node.id", "broker.id", "process.roles", "controller.quorum.voters", "log.dir", "log.dirs"})


#: The defaults that do not depend on the number of nodes.
_DEFAULTS = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # The groups: both protocols, at once, with sessions as short as a test wants them.
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    # A node that dies is noticed in seconds, not in nine.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    # Stopping all nodes at once leaves no quorum to hand leadership to: waiting for it would wait forever.
    "controlled.shutdown.enable": "false",
    # Threads for a laptop: Kafka's defaults are for servers.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}


def default_properties(nodes: int) -> dict[str, str]:
    """The defaults that differ from Kafka's, before ``properties`` override them.

    Sessions: members may ask for 1 s (``group.min.session.timeout.ms``; for KIP-848 groups the broker decides, the default
    here stays Kafka's 45 s and may be set down to 1 s with ``group.consumer.session.timeout.ms``, or per group with the
    ``configs`` tool). Heartbeats of KIP-848 groups: 1 s instead of 5 s, so that rebalances take a second.

    Args:
        nodes: 1 to 3.

    >>> default_properties(3)["offsets.topic.replication.factor"], default_properties(3)["min.insync.replicas"]
    ('3', '1')
    """
    copies = str(min(nodes, 3))
    return {
        **_DEFAULTS,
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "share.coordinator.state.topic.replication.factor": copies,
    }


def node_properties(
    node_id: int,
    client_ports: Sequence[int],
    controller_ports: Sequence[int],
    log_dir: Path,
    overrides: Mapping[str, str],
) -> dict[str, str]:
    """All properties of one node.

    Args:
        node_id: from 1.
        client_ports, controller_ports: one per node, in the order of their ids.
        log_dir: where the node keeps its partitions.
        overrides: the user's properties; they win.

    Raises:
        InvalidOption: an override is reserved.

    >>> made = node_properties(1, [9092], [9093], Path("/tmp/k"), {"num.io.threads": "8"})
    >>> made["controller.quorum.voters"], made["num.io.threads"]
    ('1@127.0.0.1:9093', '8')
    """
    check_overrides(overrides)
    voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(controller_ports, start=1))
    client = f"PLAINTEXT://{HOST}:{client_ports[node_id - 1]}"
    controller = f"CONTROLLER://{HOST}:{controller_ports[node_id - 1]}"
    return {
        **default_properties(len(client_ports)),
        "listeners": f"{client},{controller}",
        "advertised.listeners": client,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        **overrides,
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "log.dirs": str(log_dir),
    }


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Refuse properties that the embedded broker sets per node.

    Raises:
        InvalidOption: naming the property.
    """
    for name in overrides:
        if name in RESERVED:
            raise InvalidOption(f"The embedded broker sets property {name!r} for each node.", remedy="Leave it out.")


def as_file(properties: Mapping[str, str]) -> str:
    """The text of a Java properties file.

    >>> print(as_file({"a.b": "1", "path": "C:\\\\x y"}), end="")
    a.b=1
    path=C:\\\\x y
    """
    return "".join(f"{_escaped(name, key=True)}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(text: str, *, key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    escaped = "".join(c if ord(c) < 127 else "".join(f"\\u{u:04x}" for u in _utf16(c)) for c in escaped)
    if key:
        for separator in " =:#!":
            escaped = escaped.replace(separator, "\\" + separator)
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    return escaped


def _utf16(character: str) -> list[int]:
    encoded = character.encode("utf-16-be")
    return [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
