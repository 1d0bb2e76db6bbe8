"""The data directory of an embedded cluster: its identity, its lock, and one directory per node.

Used by ``embedded`` and ``_prepare``. It contains ``cluster.json``, ``lock``, and ``node-<id>/`` per node. The latter
contains ``server.properties``, ``data/`` (Kafka's log.dirs), ``broker.log`` and ``stdout.log``. Source: KIP-631
(meta.properties).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamgroups.errors import EmbeddedBrokerError
from streamgroups.private_directories import make_private

_CLUSTER = "cluster.json"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The identity of a cluster, stored in its data directory between two runs.

    Args:
        cluster_id: Kafka's cluster id: 16 bytes, URL-safe base64 without padding.
        nodes: the number of nodes.
        client_ports, controller_ports: the ports of the last run.
    """

    cluster_id: str
    nodes: int
    client_ports: tuple[int, ...] = ()
    controller_ports: tuple[int, ...] = ()


def new_id() -> str:
    """Creates an id in Kafka's format: 16 random bytes, URL-safe base64, without a leading dash.

    >>> len(new_id())
    22
    """
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


def meta_properties(cluster_id: str, node_id: int, directory_id: str) -> str:
    """Returns the ``meta.properties`` of a formatted log directory, version 1.

    >>> print(meta_properties("AAAAAAAAAAAAAAAAAAAAAQ", 1, "WSWp-AYdkeo8365OqFWWpg"), end="")
    version=1
    cluster.id=AAAAAAAAAAAAAAAAAAAAAQ
    node.id=1
    directory.id=WSWp-AYdkeo8365OqFWWpg
    """
    return f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={directory_id}\n"


class DataDir:
    """A data directory, locked for one embedded cluster.

    Args:
        path: the directory. ``None`` creates a temporary one, which :meth:`close` deletes.

    Raises:
        EmbeddedBrokerError: if it cannot be created, or another broker uses it.
    """

    def __init__(self, path: Path | None) -> None:
        self.temporary = path is None
        try:
            if path is None:
                self.path = Path(tempfile.mkdtemp(prefix="streamgroups-kafka-"))
            else:
                make_private(path)
                self.path = path.resolve()
            self._lock: IO[bytes] | None = (self.path / "lock").open("wb")
        except OSError as error:
            raise EmbeddedBrokerError(
                f"The data directory {path or tempfile.gettempdir()} cannot be used: {error}.",
                remedy="Use a directory that this user can write to.",
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise EmbeddedBrokerError(
                f"Another embedded broker uses the data directory {self.path}.",
                remedy="Stop it (streamgroups broker stop), or use another directory.",
            ) from error

    @property
    def lock_fd(self) -> int:
        """The file descriptor of the lock. A process that inherits it keeps the directory locked until it ends."""
        assert self._lock is not None
        return self._lock.fileno()

    def node(self, node_id: int) -> Path:
        """Returns the directory of one node."""
        return self.path / f"node-{node_id}"

    def load(self) -> Cluster | None:
        """Returns the stored cluster. ``None`` in a new directory.

        Raises:
            EmbeddedBrokerError: if the directory contains no embedded cluster.
        """
        file = self.path / _CLUSTER
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            return Cluster(
                str(found["cluster_id"]),
                int(found["nodes"]),
                tuple(int(port) for port in found["client_ports"]),
                tuple(int(port) for port in found["controller_ports"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise EmbeddedBrokerError(f"{file} is unreadable: {error!r}.", remedy="Use another directory.") from error

    def save(self, cluster: Cluster) -> None:
        """Stores the cluster atomically."""
        content = {
            "cluster_id": cluster.cluster_id,
            "nodes": cluster.nodes,
            "client_ports": cluster.client_ports,
            "controller_ports": cluster.controller_ports,
        }
        new = self.path / f"{_CLUSTER}.new"
        new.write_text(json.dumps(content) + "\n", encoding="utf-8")
        os.replace(new, self.path / _CLUSTER)

    def format_node(self, node_id: int, cluster_id: str, bootstrap_checkpoint: Path) -> Path:
        """Formats the log directory of a node once, as Kafka's ``StorageTool format`` does.

        ``meta.properties`` is written last: a partly formatted directory without it counts as unformatted.

        Returns:
            the log directory.
        """
        data = self.node(node_id) / "data"
        meta = data / "meta.properties"
        if not meta.exists():
            make_private(data)
            shutil.copyfile(bootstrap_checkpoint, data / "bootstrap.checkpoint")
            new = data / "meta.properties.new"
            new.write_text(meta_properties(cluster_id, node_id, new_id()), encoding="utf-8")
            os.replace(new, meta)
        return data

    def close(self) -> None:
        """Releases the lock, and deletes a temporary directory. Idempotent."""
        if self._lock is None:
            return
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        self._lock.close()
        self._lock = None
        if self.temporary:
            shutil.rmtree(self.path, ignore_errors=True)
