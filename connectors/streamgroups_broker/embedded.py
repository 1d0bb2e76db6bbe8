"""`EmbeddedKafka`: a real Kafka cluster of one to three nodes that lives as long as a ``with`` block.

Used as ``from streamgroups_broker import EmbeddedKafka`` by tests, demos, the pytest plugin and ``streamgroups broker``.
Every node is broker and controller (KRaft). Source: KIP-500, KIP-631; the defaults are in ``_properties.py``.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType

from streamgroups.errors import EmbeddedBrokerError, InvalidOption
from streamgroups_broker import _ivy
from streamgroups_broker._cache import (
    DEFAULT_KAFKA_VERSION,
    KafkaJars,
    check_version,
    class_archive,
    kafka_jars,
)
from streamgroups_broker._data_dir import Cluster, DataDir
from streamgroups_broker._java import Java, find_java
from streamgroups_broker._jvm import NodeCommands, tool_command_line
from streamgroups_broker._node import Node, await_ready
from streamgroups_broker._prepare import choose_cluster, prepare_nodes
from streamgroups_broker._properties import HOST, check_overrides
from streamgroups_broker._tools import RunsTools

_MAX_NODES = 3
_STOP_GRACE_S = 10.0
_ARCHIVE_GRACE_S = 60.0
#: Only the fast compiler: a node starts in half the time, at less than full throughput under load.
FAST_START = ("-XX:TieredStopAtLevel=1",)


class EmbeddedKafka(RunsTools):
    """A Kafka cluster on this machine, stopped at the end of the ``with`` block and never left behind.

    The first use of a Kafka version fetches its jars (44 MB) into the user's cache; later ones need no network. If this
    process dies, ``kill -9`` included, the brokers die with it.

    Args:
        nodes: 1 to 3; each is broker and controller. Their ids are 1, 2, 3.
        data_dir: where data and logs are kept; a later start on it is the same cluster. None: a temporary directory that
            is deleted at the end.
        version: Kafka release, 4.0.0 or newer.
        ports: client ports, one per node; None chooses free ones (on kept data the previous ones, if free).
        properties: Kafka broker properties for all nodes; they win over the defaults. Booleans and numbers are welcome.
        heap_mb: the largest heap per node, in MiB.
        jvm_options: more options for the nodes' JVMs. The default compiles lightly, for a fast start; ``()`` compiles
            fully, for measurements.
        start_timeout_s: how long `start` may take, in seconds, without the first fetching of jars.

    Raises:
        InvalidOption: an argument cannot be right.

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
        self._wanted_dir = None if data_dir is None else Path(data_dir)
        self._version = check_version(version)
        self._wanted_ports = None if ports is None else tuple(ports)
        self._properties = {name: _as_text(value) for name, value in (properties or {}).items()}
        check_overrides(self._properties)
        self._heap_mb = heap_mb
        self._jvm_options = tuple(jvm_options)
        self._start_timeout_s = start_timeout_s
        self._dir: DataDir | None = None
        self._cluster: Cluster | None = None
        self._nodes: tuple[Node, ...] = ()
        self._java: Java | None = None
        self._jars: KafkaJars | None = None

    def __enter__(self) -> EmbeddedKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes and wait until each serves requests. Does nothing when already started.

        Raises:
            EmbeddedBrokerError: Java is missing or too old, the jars cannot be fetched, a port or the data directory is in
                use, the data belongs to a cluster of another size, or a node died or took too long.
        """
        if self._dir is not None:
            return
        java = self._java = find_java()
        self._jars = kafka_jars(self._version, lambda directory, version: _ivy.fill(directory, version, java))
        archive = class_archive(self._jars, java.version, self._record_classes)
        self._launch(DataDir(self._wanted_dir), () if archive is None else (f"-XX:SharedArchiveFile={archive}",))

    def _launch(self, data: DataDir, sharing: tuple[str, ...]) -> None:
        """Start the nodes in a locked directory; on any failure leave nothing behind."""
        self._dir = data
        try:
            assert self._java is not None
            assert self._jars is not None
            self._cluster = choose_cluster(data, self._node_count, self._wanted_ports)
            commands = NodeCommands(self._java, self._jars, self._heap_mb, (*self._jvm_options, *sharing))
            self._nodes = prepare_nodes(data, self._cluster, commands, self._properties)
            for node in self._nodes:
                node.spawn()
            await_ready(self._nodes, self._start_timeout_s)
        except BaseException:
            self.stop(grace_s=0)
            raise

    def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """Stop all nodes; may be called at any time, any number of times.

        Kept data is closed cleanly (SIGTERM, then SIGKILL when the time is up). Temporary data is about to be deleted:
        nothing is to be closed, the nodes are killed at once.

        Args:
            grace_s: seconds between SIGTERM and SIGKILL.
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
        """Whether the cluster is started and all its nodes live."""
        return bool(self._nodes) and all(node.running for node in self._nodes)

    def require_running(self) -> None:
        """Do nothing while all nodes live.

        Raises:
            EmbeddedBrokerError: the cluster is not started, or a node has ended; with the last lines of its log.
        """
        self._started()
        for node in self._nodes:
            if not node.running:
                raise node.died()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of every node, separated by commas; what clients connect to."""
        return ",".join(f"{HOST}:{port}" for port in self._started()[1].client_ports)

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster; the same after a restart on kept data."""
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
        """The log file of a node."""
        return self._node(node_id).log

    def kill_node(self, node_id: int) -> None:
        """End a node with SIGKILL, as a crash would; its data stays. Harmless when it has ended."""
        self._node(node_id).kill()

    def pause_node(self, node_id: int) -> None:
        """Freeze a node (SIGSTOP): its connections stay open and nothing answers.

        Raises:
            EmbeddedBrokerError: it is not running.
        """
        self._node(node_id).pause()

    def resume_node(self, node_id: int) -> None:
        """Let a paused node go on (SIGCONT).

        Raises:
            EmbeddedBrokerError: it is not running.
        """
        self._node(node_id).resume()

    def stop_node(self, node_id: int, grace_s: float = _STOP_GRACE_S) -> None:
        """Stop one node cleanly (SIGTERM, after ``grace_s`` seconds SIGKILL). Harmless when it has ended."""
        node = self._node(node_id)
        node.terminate()
        node.join(time.monotonic() + grace_s)

    def restart_node(self, node_id: int) -> None:
        """Start a node on its data and its ports, and wait until it serves; one that still runs is stopped first.

        Raises:
            EmbeddedBrokerError: it died or did not start in time.
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
            tool_command_line(self._java, self._jars, data, command),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            input=stdin or "",
            cwd=data,
        )

    def _record_classes(self, archive: Path) -> None:
        """Run a broker once that writes the classes it has loaded into an archive when it stops (JEP 350)."""
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
    """A property's value as Kafka reads it.

    >>> [_as_text(value) for value in (True, 5, "x")]
    ['true', '5', 'x']
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
