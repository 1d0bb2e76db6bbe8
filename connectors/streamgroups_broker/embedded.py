"""`EmbeddedKafka`: a Kafka cluster of one to three nodes for the duration of a ``with`` block.

Used as ``from streamgroups_broker import EmbeddedKafka`` by tests, demos, the pytest plugin and ``streamgroups
broker``. Every node is broker and controller (KRaft). Source: KIP-500, KIP-631; ``_properties`` contains the defaults.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_broker._cache import KafkaJars, class_archive
from streamgroups_broker._data_dir import Cluster, DataDir
from streamgroups_broker._ivy import release_jars
from streamgroups_broker._java import Java, find_java
from streamgroups_broker._jvm import NodeCommands, tool_command_line
from streamgroups_broker._node import Node, await_ready
from streamgroups_broker._prepare import choose_cluster, prepare_nodes
from streamgroups_broker._properties import HOST, check_overrides
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION, check_version, main_class, release_properties
from streamgroups_broker._tools import RunsTools

_MAX_NODES = 3
_STOP_GRACE_S = 10.0
_ARCHIVE_GRACE_S = 60.0
#: Enables only the first compiler. A node starts in half the time, but its throughput under load is lower.
FAST_START = ("-XX:TieredStopAtLevel=1",)


class EmbeddedKafka(RunsTools):
    """A Kafka cluster on this machine, which is stopped at the end of the ``with`` block.

    The first use of a Kafka version downloads its jars (44 MB) into the user's cache. Later uses need no network. If
    this process ends, also by ``kill -9``, its brokers end too.

    Args:
        nodes: 1 to 3. Each is broker and controller. Their ids are 1, 2, 3.
        data_dir: the directory of data and logs. A later start with it continues the same cluster. ``None``: a
            temporary directory that is deleted at the end.
        version: the Kafka release, 3.7.0 or newer. Before 4.0 the group protocol is ``classic``.
        ports: the client ports, one per node. ``None`` chooses free ones. With kept data, the previous ones are
            preferred.
        properties: Kafka broker properties for all nodes. They override the defaults. Values can be booleans and
            numbers.
        heap_mb: the maximum heap per node, in MiB.
        jvm_options: more options for the JVMs of the nodes. The default disables the optimizing compiler, for a fast
            start. ``()`` enables it, for measurements.
        start_timeout_s: the timeout of `start`, in seconds, without the first download of jars.

    Raises:
        InvalidOption: if an argument is invalid.

    Example, with a broker::

        with EmbeddedKafka(nodes=3, properties={"log.segment.bytes": 1_048_576}) as kafka:
            kafka.run_tool("topics", "--create", "--topic", "flights", "--partitions", "6")
            kafka.kill_node(2)

    >>> EmbeddedKafka(nodes=4)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: nodes is 4. An embedded broker has 1 to 3 nodes.
    """

    def __init__(
        self,
        nodes: int = 1,
        data_dir: str | PathLike[str] | None = None,
        version: str = DEFAULT_KAFKA_VERSION,
        ports: Sequence[int] | None = None,
        properties: Mapping[str, object] | None = None,
        *,
        heap_mb: int = 512,
        jvm_options: Sequence[str] = FAST_START,
        start_timeout_s: float = 60.0,
    ) -> None:
        if not 1 <= nodes <= _MAX_NODES:
            raise InvalidOption(f"nodes is {nodes}.", remedy=f"An embedded broker has 1 to {_MAX_NODES} nodes.")
        if ports is not None and (len(set(ports)) != nodes or not all(0 < port < 65536 for port in ports)):
            raise InvalidOption(f"ports is {list(ports)}.", remedy=f"Pass {nodes} distinct ports, one for each node.")
        self._node_count = nodes
        self._requested_dir = None if data_dir is None else Path(data_dir)
        self._version = check_version(version)
        self._requested_ports = None if ports is None else tuple(ports)
        own = {name: _as_text(value) for name, value in (properties or {}).items()}
        check_overrides(own)
        self._properties = {**release_properties(self._version), **own}
        self._heap_mb = heap_mb
        self._jvm_options = tuple(jvm_options)
        self._start_timeout_s = start_timeout_s
        self._dir: DataDir | None = None
        self._cluster: Cluster | None = None
        self._nodes: tuple[Node, ...] = ()
        self._java: Java | None = None
        self._jars: KafkaJars | None = None

    def start(self) -> None:
        """Starts all nodes and waits until each serves requests. Does nothing if they are already started.

        Raises:
            EmbeddedBrokerError: if Java is missing or too old, or the jars cannot be downloaded. Also if a port or the
                data directory is in use, or the data belongs to a cluster of another size. Also if a node ended or
                exceeded the timeout.
        """
        if self._dir is not None:
            return
        java = self._java = find_java()
        self._jars = release_jars(self._version, lambda: java)
        archive = class_archive(self._jars, java.version, self._record_classes)
        self._launch(DataDir(self._requested_dir), () if archive is None else (f"-XX:SharedArchiveFile={archive}",))

    def _launch(self, data: DataDir, sharing: tuple[str, ...]) -> None:
        """Starts the nodes in a locked directory. A failure stops all nodes again."""
        self._dir = data
        try:
            assert self._java is not None
            assert self._jars is not None
            self._cluster = choose_cluster(data, self._node_count, self._requested_ports)
            commands = NodeCommands(self._java, self._jars, self._heap_mb, (*self._jvm_options, *sharing))
            self._nodes = prepare_nodes(data, self._cluster, commands, self._properties)
            for node in self._nodes:
                node.spawn()
            await_ready(self._nodes, self._start_timeout_s)
        except BaseException:
            self.stop(grace_s=0)
            raise

    def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """Stops all nodes. Idempotent, and permitted at any time.

        Kept data is closed in an orderly way (SIGTERM, and SIGKILL after the timeout). With temporary data, which is
        then deleted, the nodes are killed at once.

        Args:
            grace_s: the seconds between SIGTERM and SIGKILL.
        """
        if self._dir is None:
            return
        try:
            if not self._dir.temporary and grace_s > 0:
                deadline = time.monotonic() + grace_s
                for node in self._nodes:
                    node.terminate()
                for node in self._nodes:
                    node.join(deadline)
        finally:
            for node in self._nodes:
                node.kill()
            self._nodes = ()
            self._dir.close()
            self._dir = None

    @property
    def running(self) -> bool:
        """Whether the cluster is started and all its nodes run."""
        return bool(self._nodes) and all(node.running for node in self._nodes)

    def require_running(self) -> None:
        """Does nothing while all nodes run.

        Raises:
            EmbeddedBrokerError: if the cluster is not started, or a node has ended. The error contains the last lines
                of its log.
        """
        self._started()
        for node in self._nodes:
            if not node.running:
                raise node.died()

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients: ``host:port`` of every node, separated by commas."""
        return ",".join(f"{HOST}:{port}" for port in self._started()[1].client_ports)

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id. It is the same after a restart on kept data."""
        return self._started()[1].cluster_id

    @property
    def data_dir(self) -> Path:
        """The directory with the data and logs of all nodes."""
        return self._started()[0].path

    @property
    def version(self) -> str:
        """The Kafka release."""
        return self._version

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, as Kafka's tools show them."""
        return tuple(range(1, self._node_count + 1))

    def log_path(self, node_id: int = 1) -> Path:
        """Returns the log file of a node."""
        return self._node(node_id).log

    def kill_node(self, node_id: int) -> None:
        """Kills a node with SIGKILL, as in a crash. Its data remains. Idempotent."""
        self._node(node_id).kill()

    def pause_node(self, node_id: int) -> None:
        """Pauses a node (SIGSTOP): its connections stay open, and it does not respond.

        Raises:
            EmbeddedBrokerError: if it is not running.
        """
        self._node(node_id).pause()

    def resume_node(self, node_id: int) -> None:
        """Resumes a paused node (SIGCONT).

        Raises:
            EmbeddedBrokerError: if it is not running.
        """
        self._node(node_id).resume()

    def stop_node(self, node_id: int, grace_s: float = _STOP_GRACE_S) -> None:
        """Stops one node in an orderly way (SIGTERM, and SIGKILL after ``grace_s`` seconds). Idempotent."""
        node = self._node(node_id)
        node.terminate()
        node.join(time.monotonic() + grace_s)

    def restart_node(self, node_id: int) -> None:
        """Starts a node on its data and ports, and waits until it serves requests. A running node is stopped first.

        Raises:
            EmbeddedBrokerError: if it ended or exceeded the timeout.
        """
        self.stop_node(node_id)
        node = self._node(node_id)
        node.spawn()
        await_ready([node], self._start_timeout_s)

    def _address_for_tools(self) -> str:
        return self.bootstrap_servers

    def _run_main_class(
        self, command: Sequence[str], timeout_s: float, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        data = self._started()[0].path
        assert self._java is not None
        assert self._jars is not None
        return subprocess.run(
            tool_command_line(self._java, self._jars, data, (main_class(command[0], self._version), *command[1:])),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            input=stdin or "",
            cwd=data,
        )

    def _record_classes(self, archive: Path) -> None:
        """Runs a broker that writes its loaded classes into an archive when it stops (JEP 350)."""
        recorder = EmbeddedKafka(version=self._version)
        recorder._java, recorder._jars = self._java, self._jars
        try:
            recorder._launch(DataDir(None), (f"-XX:ArchiveClassesAtExit={archive}",))
            recorder.stop_node(1, _ARCHIVE_GRACE_S)
        finally:
            recorder.stop()

    def _started(self) -> tuple[DataDir, Cluster]:
        if self._dir is None or self._cluster is None:
            raise EmbeddedBrokerError("The embedded broker is not running.", remedy="Use it in a with block.")
        return self._dir, self._cluster

    def _node(self, node_id: int) -> Node:
        self._started()
        if node_id not in self.node_ids:
            raise InvalidOption(f"There is no node {node_id}.", remedy=f"Nodes are {list(self.node_ids)}.")
        return self._nodes[node_id - 1]


def _as_text(value: object) -> str:
    """Formats the value of a property for Kafka.

    >>> [_as_text(value) for value in (True, 5, "x")]
    ['true', '5', 'x']
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
