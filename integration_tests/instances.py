"""Instances with real managers and workers, for tests that kill them."""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from integration_tests.command_line import streamgroups
from integration_tests.programs import Program, running_command
from streamgroups.instances.entries import Definition, Replica, Worker, canonical
from streamgroups.instances.instance_state import InstanceState
from streamgroups.instances.overview import ReplicaView, overview
from streamgroups_kafka.client.clock import now_ms
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_kafka.instances.instance_topic import KafkaInstanceLog
from streamgroups_testkit.waits import wait_until

LIGHT = "{python} -m integration_tests.light_worker {arguments}"
_MAIN = "from streamgroups_cli import main; main()"


@dataclass
class RealInstance:
    """An instance on a broker.

    Args:
        bootstrap: the broker.
        directory: the directory of its logs.
        environment: more environment variables of its processes.
    """

    bootstrap: str
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"board-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.log = KafkaInstanceLog(ClientConfig.from_options({"bootstrap.servers": self.bootstrap}), self.name)
        self.log.create()
        self.reader = self.log.reader()

    @contextmanager
    def manager(self, *options: str, number: int = 1) -> Iterator[Program]:
        command = [sys.executable, "-c", _MAIN, "instance", "run", self.name, "--bootstrap-server", self.bootstrap]
        with self.running(f"manager-{number}", [*command, *options]) as program:
            yield program

    @contextmanager
    def running(self, name: str, command: list[str]) -> Iterator[Program]:
        file = self.directory / f"{name}.log"
        with running_command(command, file, {**os.environ, **self.environment}) as program:
            yield program

    def text(self, name: str = "manager-1") -> str:
        return (self.directory / f"{name}.log").read_text()

    def define(self, *names: str, replicas: int = 1, **content: object) -> None:
        with closing(self.log.writer()) as writer:
            for name in names:
                document = {"name": name, "replicas": replicas, **content}
                writer.write([Definition(name, canonical(document), replicas)])

    def command(self, *arguments: str, code: int = 0) -> str:
        done = streamgroups(*arguments, "--bootstrap-server", self.bootstrap, "--instance", self.name)
        assert done.returncode == code, done.stderr + done.stdout
        return done.stdout + done.stderr

    def start(self, *names: str) -> None:
        self.command("processors", "start", *names, "--wait", "3m")

    def stop(self, *names: str) -> None:
        self.command("processors", "stop", *names, "--wait", "2m")

    def state(self) -> InstanceState:
        self.reader.read_to_end(30)
        return self.reader.state

    def wait_until(self, condition: Callable[[InstanceState], object], what: str, timeout_s: float = 60) -> None:
        wait_until(lambda: condition(self.state()), what, timeout_s)

    def view(self, name: str, index: int = 0) -> ReplicaView:
        found = overview(self.name, self.state(), now_ms())
        return next(it for it in found.replicas if it.replica == Replica(name, index))

    def wait_for_worker(self, name: str, condition: Callable[[Worker], bool], timeout_s: float = 60) -> Worker:
        """Waits until a processor runs on a worker with this condition, and returns the worker."""
        wait_until(
            lambda: (it := self.worker_of(name)) is not None and condition(it), f"{name} runs elsewhere", timeout_s
        )
        found = self.worker_of(name)
        assert found is not None
        return found

    def worker_of(self, name: str) -> Worker | None:
        """The worker on which the first replica of a processor runs; ``None`` if it does not run."""
        view = self.view(name)
        return self.state().workers.get(view.worker or "") if view.state == "running" else None

    def worker(self, name: str) -> Worker:
        found = self.worker_of(name)
        assert found is not None, self.view(name)
        return found

    def workers(self, *names: str) -> list[str]:
        return [self.worker(it).id for it in names]

    def close(self) -> None:
        """Kills all processes of the instance, also workers that have not sent a heartbeat. Each has its own process group."""
        self.reader.close()
        for process in psutil.process_iter(["cmdline"]):
            if self.name in (process.info["cmdline"] or ()):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
