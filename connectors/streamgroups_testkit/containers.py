"""A Kafka broker in a container, with the interface of the embedded broker as far as tests use it.

One node in KRaft mode, from
``apache/kafka`` or any image that reads the same variables (``docker/broker`` builds one where no registry is
reachable). The properties and tools are the embedded broker's, so that tests use the same broker in both cases. Source:
Kafka's container image (KIP-975), testcontainers' ``DockerContainer``.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import itertools
import math
import os
import socket
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient

from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups_broker._ports import free_ports
from streamgroups_broker._properties import check_overrides, default_properties
from streamgroups_broker._tools import RunsTools
from streamgroups_broker.embedded import _as_text

#: Docker's Python client. The import is dynamic, because type checkers resolve ``docker`` to the folder of this
#: repository.
docker: Any = importlib.import_module("docker")

#: The environment variable with the image to run; if it is unset or empty, `DEFAULT_IMAGE`.
IMAGE_VARIABLE = "STREAMGROUPS_KAFKA_IMAGE"
#: The digest identifies the image; the tag is informative.
DEFAULT_IMAGE = "apache/kafka:4.1.1@sha256:0bc1bb2478f45b6cea78864df86acdc11e8df2c5172477819a4d12942cbe5d40"

_CLUSTER_ID = "ATdGup8-Ul6ISkLqRUL6EA"
_HOST_PORT, _LOCAL_PORT, _CONTROLLER_PORT = 9092, 19092, 29093
_PORT_ATTEMPTS = 5
#: The request that can begin a connection to a broker: ApiVersions, version 0, without a client id (KIP-35).
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_ANSWER_TIMEOUT_S = 2.0
_POLL_S = 0.05
_STOP_GRACE_S = 10.0
#: The timeout of Docker's responses, which exceeds the run time of the longest tool without output.
_DOCKER_TIMEOUT_S = 600
_TAIL_LINES = 30

#: The JVM options of a tool: it runs for a second, so the JVM compiles lightly.
_TOOL_ENVIRONMENT = {
    "KAFKA_HEAP_OPTS": "-Xmx256m",
    "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
#: The exit codes of ``timeout`` when it ended the command: coreutils, SIGKILL, BusyBox.
_TIMED_OUT = {124, 137, 143}

#: Removes a container after the process that started it has ended, which closes its standard input. It imports the
#: Docker client only then.
_GUARD = """
import sys
sys.stdin.read()
import docker
docker.from_env().containers.get(sys.argv[1]).remove(force=True, v=True)
"""


class ContainerKafkaError(StreamGroupsError):
    """The container did not start or failed, or a tool in it failed."""


def kafka_image() -> str:
    """The image to run: the value of `IMAGE_VARIABLE`, or `DEFAULT_IMAGE`."""
    return os.environ.get(IMAGE_VARIABLE) or DEFAULT_IMAGE


def why_unavailable(image: str | None = None) -> str | None:
    """Why no broker can run in a container here, or None if one can. Pulls the image if it is missing.

    Args:
        image: the image to run; `kafka_image` by default.
    """
    required = image or kafka_image()
    client = _docker_client()
    if isinstance(client, str):
        return client
    with contextlib.closing(client):
        try:
            client.ping()
            return _why_no_image(client, required)
        except (docker.errors.DockerException, OSError) as error:
            return f"Docker does not answer: {error}"


def _docker_client() -> Any | str:
    """A client of the Docker engine, or the reason why the engine is unavailable.

    docker-py leaves its socket open after a failed connection. This function releases the socket together with its
    warning. Otherwise the garbage collector would emit the warning during a later test, which would fail.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            return docker.from_env()
        except docker.errors.DockerException as error:
            reason = f"Docker is not there: {error}"
        gc.collect()
    return reason


def _why_no_image(client: Any, image: str) -> str | None:
    """Why an image is neither available locally nor from a registry, or None."""
    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        try:
            client.images.pull(image)
        except docker.errors.APIError as error:
            return f"Image {image} is not here and cannot be pulled: {error.explanation or error}"
    return None


@functools.cache
def reaper_available() -> bool:
    """Whether testcontainers' reaper can remove the containers of a killed test run. If not, this function disables it.

    The reaper is a container. If its image is neither available locally nor from a registry, no container could start.
    """
    if testcontainers_config.ryuk_disabled:
        return False
    with contextlib.closing(docker.from_env()) as client:
        missing = _why_no_image(client, testcontainers_config.ryuk_image)
    if missing is not None:
        testcontainers_config.ryuk_disabled = True
    return missing is None


def environment(properties: Mapping[str, str], host: str, host_port: int) -> dict[str, str]:
    """The variables that configure the image as one node, for clients on the host and tools in the container.

    Args:
        properties: broker properties, which override the defaults.
        host, host_port: the address that clients outside the container use.

    >>> made = environment({"group.coordinator.rebalance.protocols": "classic"}, "127.0.0.1", 25001)
    >>> made["KAFKA_ADVERTISED_LISTENERS"]
    'HOST://127.0.0.1:25001,LOCAL://localhost:19092'
    >>> made["KAFKA_GROUP_COORDINATOR_REBALANCE_PROTOCOLS"]
    'classic'
    """
    settings = {
        **default_properties(1),
        "listeners": f"HOST://0.0.0.0:{_HOST_PORT},LOCAL://0.0.0.0:{_LOCAL_PORT},CONTROLLER://0.0.0.0:{_CONTROLLER_PORT}",
        "advertised.listeners": f"HOST://{host}:{host_port},LOCAL://localhost:{_LOCAL_PORT}",
        "listener.security.protocol.map": "HOST:PLAINTEXT,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "LOCAL",
        "controller.listener.names": "CONTROLLER",
        **properties,
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
    }
    variables = {variable(name): value for name, value in settings.items()}
    return {"CLUSTER_ID": _CLUSTER_ID, "KAFKA_HEAP_OPTS": "-Xmx512m", **variables}


def variable(name: str) -> str:
    """The environment variable of a broker property in the image.

    >>> variable("log.dirs"), variable("a.b-c_d")
    ('KAFKA_LOG_DIRS', 'KAFKA_A_B___C__D')
    """
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


class ContainerKafka(RunsTools):
    """One Kafka broker in a container. The ``with`` block or the end of this process removes it.

    Args:
        properties: Kafka broker properties; they override the defaults of the embedded broker. Values can be booleans
            and numbers.
        image: the image to run; None: `kafka_image`.
        start_timeout_s: the timeout of `start` in seconds, without the first pull of the image.

    Raises:
        InvalidOption: if a property would change the identity of the broker.

    Example, with a container::

        with ContainerKafka(properties={"message.max.bytes": 2_000_000}) as kafka:
            kafka.run_tool("topics", "--create", "--topic", "flights", "--partitions", "6")
            kafka.kill_node(1)
    """

    tool_error = ContainerKafkaError

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        *,
        image: str | None = None,
        start_timeout_s: float = 90.0,
    ) -> None:
        self._properties = {name: _as_text(value) for name, value in (properties or {}).items()}
        check_overrides(self._properties)
        self._image = image or kafka_image()
        self._start_timeout_s = start_timeout_s
        self._container: DockerContainer | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._bootstrap_servers = ""
        self._inputs = itertools.count(1)

    def start(self) -> None:
        """Start the container and wait until the broker serves requests. Does nothing if it is already started.

        Raises:
            ContainerKafkaError: if it failed or timed out; the message ends with its log.
        """
        if self._container is not None:
            return
        reaped = reaper_available()
        try:
            self._start_on_a_free_port()
            if not reaped:
                self._guard = _start_guard(self.container_id)
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Remove the container and its data. Can be called repeatedly and in every state."""
        container, self._container = self._container, None
        guard, self._guard = self._guard, None
        try:
            if container is not None:
                _remove(container)
        finally:
            if guard is not None:
                guard.kill()
                guard.communicate()

    @property
    def running(self) -> bool:
        """Whether the container is started and its broker runs or is paused."""
        return self._container is not None and self._status() in {"running", "paused"}

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients on this machine. A restart of the node does not change it."""
        self._started()
        return self._bootstrap_servers

    @property
    def container_id(self) -> str:
        """Docker's id of the container."""
        return str(self._started().id)

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster."""
        return _CLUSTER_ID

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, as in the output of Kafka's tools: always one."""
        return (1,)

    def kill_node(self, node_id: int) -> None:
        """End the node with SIGKILL, as a crash would; its data remains. Does nothing after its end."""
        self._check_node(node_id)
        if self._unpaused_status() == "running":
            self._started().kill()
            self._started().wait()

    def pause_node(self, node_id: int) -> None:
        """Freeze the node: its connections remain open without responses.

        Raises:
            ContainerKafkaError: if it is not running.
        """
        self._check_node(node_id)
        if self._status() not in {"running", "paused"}:
            raise ContainerKafkaError(f"Node {node_id} is not running.")
        if self._status() == "running":
            self._started().pause()

    def resume_node(self, node_id: int) -> None:
        """Resume a paused node.

        Raises:
            ContainerKafkaError: if it is not running.
        """
        self._check_node(node_id)
        if self._unpaused_status() != "running":
            raise ContainerKafkaError(f"Node {node_id} is not running.")

    def stop_node(self, node_id: int, grace_s: float = _STOP_GRACE_S) -> None:
        """Stop the node cleanly (SIGTERM, after ``grace_s`` seconds SIGKILL). Does nothing after its end."""
        self._check_node(node_id)
        if self._unpaused_status() == "running":
            self._started().stop(timeout=math.ceil(grace_s))

    def restart_node(self, node_id: int) -> None:
        """Start the node with its data and its port, and wait until it serves requests. A running node is stopped
        first.

        Raises:
            ContainerKafkaError: if it failed or did not start in time.
        """
        self.stop_node(node_id)
        self._started().start()
        self._await_ready()

    def _address_for_tools(self) -> str:
        return f"localhost:{_LOCAL_PORT}"

    def _run_main_class(
        self, command: Sequence[str], timeout_s: float, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        line = ["timeout", str(math.ceil(timeout_s)), "/opt/kafka/bin/kafka-run-class.sh", *command]
        container = self._started()
        if stdin is not None:
            path = f"/tmp/stdin-{next(self._inputs)}"
            assert self._container is not None
            self._container.copy_into_container(stdin.encode(), path)
            line = ["sh", "-c", 'exec "$@" <"$0"', path, *line]
        begun = time.monotonic()
        try:
            code, (stdout, stderr) = container.exec_run(line, demux=True, environment=_TOOL_ENVIRONMENT)
        except docker.errors.APIError as error:
            raise ContainerKafkaError(f"{command[0]} could not be run: {error.explanation or error}") from error
        if code in _TIMED_OUT and time.monotonic() - begun >= timeout_s:
            raise subprocess.TimeoutExpired(line, timeout_s)
        return subprocess.CompletedProcess(command, code, (stdout or b"").decode(), (stderr or b"").decode())

    def _start_on_a_free_port(self) -> None:
        """Start the container; retry with another port if another process has bound the chosen one in between."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            (port,) = free_ports(1)
            container = DockerContainer(self._image, docker_client_kw={"timeout": _DOCKER_TIMEOUT_S})
            host = _host(container.get_docker_client())
            container.with_envs(**environment(self._properties, host, port))
            # Docker accepts an address with the port; the method of testcontainers accepts only the port.
            container.ports[str(_HOST_PORT)] = published(host, port)  # type: ignore[assignment]
            try:
                container.start()
            except docker.errors.APIError as error:
                _remove(container)
                taken = any(text in str(error) for text in ("already allocated", "already in use"))
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise ContainerKafkaError(f"{self._image} could not be started: {error.explanation}") from error
                continue
            except BaseException:
                _remove(container)
                raise
            self._container = container
            self._bootstrap_servers = f"{host}:{port}"
            return

    def _await_ready(self) -> None:
        """Return when the broker responds to a client on this machine. An open port is no evidence, because Docker
        opens it first.
        """
        deadline = time.monotonic() + self._start_timeout_s
        while not _answers(self._bootstrap_servers):
            status = self._status()
            if status != "running":
                raise ContainerKafkaError(f"The broker's container is {status}. Its log ends:\n{self._tail()}")
            if time.monotonic() > deadline:
                raise ContainerKafkaError(
                    f"The broker did not answer for {self._start_timeout_s:g} s. Its log ends:\n{self._tail()}"
                )
            time.sleep(_POLL_S)

    def _started(self) -> Any:
        """Docker's own object for the container."""
        if self._container is None:
            raise ContainerKafkaError("The broker is not started: use it in a with block.")
        return self._container.get_wrapped_container()

    def _status(self) -> str:
        container = self._started()
        container.reload()
        return str(container.status)

    def _unpaused_status(self) -> str:
        """The status after the end of a pause, because Docker sends no signal to a paused container."""
        if self._status() == "paused":
            self._started().unpause()
        return self._status()

    def _tail(self) -> str:
        return str(self._started().logs(tail=_TAIL_LINES).decode(errors="replace"))

    def _check_node(self, node_id: int) -> None:
        self._started()
        if node_id not in self.node_ids:
            raise InvalidOption(f"There is no node {node_id}.", remedy=f"Nodes are {list(self.node_ids)}.")


def _answers(address: str) -> bool:
    """Whether a broker serves requests at ``host:port``, which it does only after its start."""
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT_S) as connection,
    ):
        connection.sendall(_API_VERSIONS)
        return len(connection.recv(4)) > 0
    return False


def _host(client: DockerClient) -> str:
    """The address of published ports. It is numeric for the loopback interface, because the name can have two
    addresses.
    """
    host = client.host()
    return "127.0.0.1" if host == "localhost" else host


def published(host: str, port: int) -> tuple[str, int] | int:
    """The address to publish a port of a container at: only loopback, if clients reach Docker there.

    Args:
        host: the address of ports that this Docker publishes.
        port: the published port.

    >>> published("127.0.0.1", 9092)
    ('127.0.0.1', 9092)
    >>> published("docker.example", 9092)
    9092
    """
    return (host, port) if host == "127.0.0.1" else port


def _remove(container: DockerContainer) -> None:
    """Remove a container in any state, and close the connection to Docker."""
    client = container.get_docker_client().client
    try:
        with contextlib.suppress(docker.errors.NotFound):
            container.stop()
    finally:
        client.close()


def _start_guard(container_id: str) -> subprocess.Popen[bytes]:
    """Start the process that removes the container after the end of this one. A separate session protects it from
    Ctrl-C.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-c", _GUARD, container_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
