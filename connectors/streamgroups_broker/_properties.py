"""The configuration of an embedded node: Kafka's properties, with defaults for tests and laptops.

Used by ``_prepare``, ``_ivy`` and ``embedded``. Pure functions. Source: Kafka's broker configuration reference, KIP-595
(quorum), KIP-848 (group coordinator).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from streamgroups.errors import InvalidOption

#: The interface of all listeners.
HOST = "127.0.0.1"

#: Properties that the embedded broker sets for each node. They cannot be overridden.
RESERVED = frozenset({"node.id", "broker.id", "process.roles", "controller.quorum.voters", "log.dir", "log.dirs"})


#: The defaults for any number of nodes.
_DEFAULTS = {
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    # Groups: both protocols, without an initial delay, with short sessions for tests.
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
    # The failure of a node is detected after 6 s instead of 9 s.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    # A concurrent stop of all nodes leaves no quorum for a controlled shutdown, which would never complete.
    "controlled.shutdown.enable": "false",
    # Threads for a laptop. Kafka's defaults are for servers.
    "num.network.threads": "2",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}


def default_properties(nodes: int) -> dict[str, str]:
    """Returns the defaults that differ from Kafka's. ``properties`` override them.

    Classic groups: members can use a session timeout of 1 s (``group.min.session.timeout.ms``). KIP-848 groups: the
    broker sets the session timeout, 45 s as in Kafka. ``group.consumer.session.timeout.ms``, or the ``configs`` tool
    for one group, can reduce it to 1 s. Their heartbeat interval is 1 s instead of 5 s, so that rebalances take a
    second.

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
    """Returns all properties of one node.

    Args:
        node_id: the id of the node, from 1.
        client_ports, controller_ports: one per node, in the order of their ids.
        log_dir: the directory of the node's partitions.
        overrides: the user's properties. They override the defaults.

    Raises:
        InvalidOption: if an override is reserved.

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
    """Rejects properties that the embedded broker sets for each node.

    Raises:
        InvalidOption: for the first such property.
    """
    for name in overrides:
        if name in RESERVED:
            raise InvalidOption(f"The embedded broker sets property {name!r} for each node.", remedy="Leave it out.")


def as_file(properties: Mapping[str, str]) -> str:
    """Returns the text of a Java properties file.

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
