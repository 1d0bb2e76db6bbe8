"""The cluster of ``docker/cluster.yaml``, in containers with a project name and ports of their own.

Called by ``test_the_compose_cluster``. The images are those of the environment variables that the file reads. A process
of its own removes the containers after the end of the tests, also if they are killed. Source: docs/deploy.rst; Compose's
command line; Spark's REST API.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streamgroups_broker._ports import free_ports
from streamgroups_testkit import containers
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT

_FILE = ROOT / "docker" / "cluster.yaml"
_COMPOSE = ("docker", "compose", "--file", str(_FILE))
_SERVICES = ("broker", "postgres", "spark-master", "spark-worker", "exporter")
#: Services that start only if their image is local or can be pulled.
_OPTIONAL = ("prometheus", "grafana")
_PORTS = ("KAFKA", "POSTGRES", "SPARK", "PROMETHEUS", "GRAFANA")
_PYTHON = "/opt/streamgroups/bin/python"
#: Prints the executors of the only application of a driver, in its container.
_EXECUTORS = """
import json, urllib.request
def get(path):
    with urllib.request.urlopen("http://localhost:4040/api/v1/applications" + path) as found:
        return json.load(found)
(application,) = get("")
print(json.dumps(get("/" + application["id"] + "/allexecutors")))
"""
#: Runs a command after the end of the process that started this one, which closes its standard input.
_GUARD = "import subprocess, sys; sys.stdin.read(); sys.exit(subprocess.call(sys.argv[1:]))"


def why_unavailable() -> str | None:
    """Why the cluster cannot run here, or None if it can. Pulls missing images."""
    if shutil.which("docker") is None:
        return "There is no command docker."
    daemon = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if daemon.returncode != 0:
        return f"Docker does not answer: {daemon.stderr.strip()[-300:]}"
    config = subprocess.run([*_COMPOSE, "config", "--format", "json"], capture_output=True, text=True, check=False)
    if config.returncode != 0:
        return f"Docker Compose cannot read docker/cluster.yaml: {config.stderr.strip()[-300:]}"
    if not list((ROOT / "dist").glob("streamgroups-*.whl")):
        return "There is no wheel in dist: run make wheel first."
    services = json.loads(config.stdout)["services"]
    spark = services["spark-master"]["build"]["args"]["SPARK_IMAGE"]
    needed = (services["broker"]["image"], services["postgres"]["image"], spark)
    return next((reason for image in needed if (reason := containers.why_unavailable(image))), None)


@dataclass(frozen=True)
class ComposeCluster:
    """The running cluster.

    Args:
        project: Compose's name of the project.
        ports: the published ports, by the service in the names of the environment variables.
        services: the services that were started.
    """

    project: str
    ports: Mapping[str, int]
    services: tuple[str, ...]

    @property
    def bootstrap(self) -> str:
        """The broker, for clients on this machine."""
        return f"localhost:{self.ports['KAFKA']}"

    @property
    def database(self) -> str:
        """The database, for clients on this machine."""
        return f"postgresql://streamgroups:streamgroups@localhost:{self.ports['POSTGRES']}/streamgroups"

    def compose(self, *arguments: str, timeout_s: float = 120) -> str:
        """The output of a command of Compose; fails with its errors if the command fails."""
        return _run([*_COMPOSE, "--project-name", self.project, *arguments], self.environment(), timeout_s)

    def environment(self) -> dict[str, str]:
        """The environment of the commands, with the ports of this cluster."""
        return {**os.environ, **{f"STREAMGROUPS_{name}_PORT": str(port) for name, port in self.ports.items()}}

    def docker(self, *arguments: str) -> str:
        """The output of a command of Docker; fails with its errors if the command fails."""
        return _run(["docker", *arguments], self.environment(), 60)

    def get(self, service: str, path: str) -> Any:
        """The JSON document at a path of a service with a published HTTP port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[service]}{path}", timeout=30) as found:
            return json.load(found)

    def start_query(self, service: str) -> None:
        """Starts a service of the profile ``query``."""
        self.compose("--profile", "query", "up", "--detach", service)

    def check(self, service: str) -> None:
        """Fails with the end of the log if the container of a query has ended, or was restarted."""
        (container,) = self.containers(service)
        found = self.inspect(container)
        running = found["State"]["Running"] and found["RestartCount"] == 0
        assert running, self.compose("logs", "--no-log-prefix", "--tail", "60", service)

    def exit_code_of(self, service: str) -> int:
        """The exit code of a query that has ended."""
        (container,) = self.containers(service)
        return int(self.inspect(container)["State"]["ExitCode"])

    def containers(self, service: str) -> list[str]:
        """The ids of the containers of a service, also of those that have ended."""
        return self.compose("ps", "--all", "--quiet", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.docker("inspect", container))[0]
        return found

    def workers(self) -> dict[str, str]:
        """The containers of the running workers, by their addresses."""
        found = {}
        for container in self.compose("ps", "--quiet", "spark-worker").split():
            (network,) = self.inspect(container)["NetworkSettings"]["Networks"].values()
            found[network["IPAddress"]] = container
        return found

    def wait_for_workers(self, count: int) -> None:
        """Waits until the master has this number of workers."""

        def alive() -> bool:
            return [it["state"] for it in self.get("SPARK", "/json/")["workers"]].count("ALIVE") == count

        wait_until(alive, f"the master has {count} workers", interval_s=0.5)

    def executors(self, service: str) -> list[dict[str, Any]]:
        """The executors of a query, with ``hostPort``, ``isActive``, ``activeTasks`` and ``totalTasks``."""
        found = json.loads(self.compose("exec", "-T", service, _PYTHON, "-c", _EXECUTORS))
        return [it for it in found if it["id"] != "driver"]


def address_of(executor: Mapping[str, Any]) -> str:
    """The address of the worker of an executor."""
    return str(executor["hostPort"]).rpartition(":")[0]


@contextmanager
def compose_cluster() -> Iterator[ComposeCluster]:
    """Builds the image, starts the cluster, and removes it with its volumes at the end of the block."""
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    cluster = ComposeCluster(f"streamgroups-test-{uuid.uuid4().hex[:8]}", ports, ())
    images = json.loads(cluster.compose("config", "--format", "json"))["services"]
    optional = [it for it in _OPTIONAL if containers.why_unavailable(images[it]["image"]) is None]
    cluster = ComposeCluster(cluster.project, ports, (*_SERVICES, *optional))
    with _removed_at_the_end(cluster):
        cluster.compose("up", "--build", "--detach", "--wait", *cluster.services, timeout_s=900)
        cluster.wait_for_workers(2)
        yield cluster


@contextmanager
def _removed_at_the_end(cluster: ComposeCluster) -> Iterator[None]:
    down = ("--profile", "query", "--profile", "doctor", "down", "--volumes", "--remove-orphans", "--timeout", "1")
    command = [sys.executable, "-I", "-c", _GUARD, *_COMPOSE, "--project-name", cluster.project, *down]
    guard = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=cluster.environment(),
    )
    try:
        yield
    finally:
        guard.communicate(timeout=120)
        assert guard.returncode == 0, f"the containers of {cluster.project} were not removed"


def _run(command: list[str], environment: Mapping[str, str], timeout_s: float) -> str:
    result = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-3_000:]}\n{result.stderr[-3_000:]}"
    return result.stdout
