"""Prepares a data directory for its nodes: identity and ports, format, configuration files.

Used by ``embedded``. Source: KIP-631 (a formatted log directory), KIP-595 (static quorum voters).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamgroups.errors import EmbeddedBrokerError
from streamgroups_broker._data_dir import Cluster, DataDir, new_id
from streamgroups_broker._jvm import NodeCommands, write_logging
from streamgroups_broker._node import Node
from streamgroups_broker._ports import free_ports, is_free, require_free
from streamgroups_broker._properties import as_file, node_properties


def choose_cluster(data: DataDir, nodes: int, requested_ports: Sequence[int] | None) -> Cluster:
    """Chooses identity and ports of the cluster, and stores them. Stored values are preferred to new ones.

    Args:
        data: the locked data directory.
        nodes: the number of nodes.
        requested_ports: the required client ports. ``None``: any.

    Raises:
        EmbeddedBrokerError: if the data belongs to another number of nodes, or a required port is in use.
    """
    known = data.load()
    if known is not None and known.nodes != nodes:
        raise EmbeddedBrokerError(
            f"{data.path} holds a cluster of {known.nodes} node(s), not {nodes}.",
            remedy=f"Start it with nodes={known.nodes}, or use another directory.",
        )
    if requested_ports is not None:
        require_free(requested_ports)
        client = tuple(requested_ports)
    elif known is not None and all(map(is_free, known.client_ports)):
        client = known.client_ports
    else:
        client = free_ports(nodes)
    controller = known.controller_ports if known is not None else ()
    if not controller or set(controller) & set(client) or not all(map(is_free, controller)):
        controller = free_ports(nodes, taken=client)
    cluster = Cluster(known.cluster_id if known else new_id(), nodes, client, controller)
    data.save(cluster)
    return cluster


def prepare_nodes(
    data: DataDir, cluster: Cluster, commands: NodeCommands, overrides: Mapping[str, str]
) -> tuple[Node, ...]:
    """Formats new nodes, writes the configuration of each node, and returns the nodes, not yet started."""
    write_logging(data.path)
    nodes = []
    for node_id in range(1, cluster.nodes + 1):
        directory = data.node(node_id)
        log_dir = data.format_node(node_id, cluster.cluster_id, commands.jars.bootstrap_checkpoint)
        made = node_properties(node_id, cluster.client_ports, cluster.controller_ports, log_dir, overrides)
        (directory / "server.properties").write_text(as_file(made), encoding="utf-8")
        command = commands.run(directory)
        nodes.append(Node(node_id, directory, command, temporary=data.temporary, lock_fd=data.lock_fd))
    return tuple(nodes)
