"""The queries of a campaign as processes. Used by ``campaign.running`` and ``campaign.faults``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from integration_tests.history.events import ProcessEnded, ProcessStarted
from integration_tests.history.outputs_read import now_ms
from streamgroups_testkit.spark_sessions import spark_home
from streamgroups_testkit.waits import NotInTime

#: The Spark master of the queries with separate executors.
MASTER = "local-cluster[2,1,1024]"
#: An error of a state in the log of a query, with the partition.
_STATE_ERROR = re.compile(r"State(?:Missing|Damaged|Mismatch): [^\s:]+")
_HERE = Path(__file__).parent.parent


class CampaignMember:
    """A query that restarts after every failure.

    Args:
        directory: the directory of its checkpoint and log.
        name: its name.
        config: the configuration for its program, such as ``campaign.query``.
        master: the Spark master. Separate executors write their files to ``spark_home``.
        record: stores events of the history.
        storage: the directory of the checkpoint, if it is another one.
        environment: further environment variables.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        config: dict[str, Any],
        master: str = "local[2]",
        record: Callable[..., None] = lambda *_: None,
        storage: Path | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name, self._directory, self._record = name, directory, record
        self._storage, self._environment = storage or directory, environment
        checkpoint = self._storage / f"checkpoint-{name}"
        self._config = {**config, "name": name, "master": master, "checkpoint": str(checkpoint)}
        self._config["options"] = {**config["options"], "kafka.client.id": name}
        if config.get("is_static"):
            self._config["options"]["kafka.group.instance.id"] = name
        #: The output of its processes.
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        #: Whether the history has its start, and not its end.
        self._is_started = False
        self._n_lost = 0
        #: How often its program has ended without a signal of the campaign, such as by ``QueryGivenUp``.
        self.n_ended = 0

    def see_to_it(self) -> None:
        """Starts it if it is not running."""
        if self._process is not None and self._process.poll() is None:
            return
        self._has_ended("ended")
        python_path = [str(_HERE / "dying"), str(_HERE.parent), str(_HERE.parent / "connectors")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYSPARK_PYTHON": sys.executable,
            "STREAMGROUPS_DEATHS": str(self._directory / "deaths"),
            "STREAMGROUPS_MEMBER": self.name,
            "STREAMGROUPS_SABOTAGE": self._config["sabotaged"],
            "STREAMGROUPS_HISTORY": str(self._directory / "history"),
            **self._environment,
            **self._config["environment"],
        }
        if self._config["master"] == MASTER:
            environment["SPARK_HOME"] = str(spark_home(self._directory / "spark"))
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._config["program"], json.dumps(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._is_started = True
        self._record(ProcessStarted(now_ms(), self.name, self._process.pid))

    def _has_ended(self, cause: str) -> None:
        """Records the end of the driver, once."""
        if self._process is not None and self._is_started:
            self._record(ProcessEnded(now_ms(), self.name, self._process.pid, cause))
            self.n_ended += cause == "ended"
            self._is_started = False

    def processes(self) -> list[psutil.Process]:
        """All processes of the query, the driver first."""
        assert self._process is not None
        driver = psutil.Process(self._process.pid)
        return [driver, *driver.children(recursive=True)]

    def kill(self) -> None:
        """Kills all its processes with ``kill -9``."""
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        _, left = psutil.wait_procs(processes, 30)
        assert not left, left
        self._has_ended("killed")

    def lose_checkpoint(self) -> None:
        """Deletes its checkpoint, configures another one, or restores the one that was deleted last, in turn."""
        self._n_lost += 1
        checkpoint, deleted = Path(self._config["checkpoint"]), self._storage / f"deleted-{self.name}"
        if self._n_lost % 3 == 2:
            self._config["checkpoint"] += "+"
            return
        if self._n_lost % 3 == 0 and deleted.exists():
            shutil.rmtree(checkpoint, ignore_errors=True)
            deleted.rename(checkpoint)
            return
        shutil.rmtree(deleted, ignore_errors=True)
        # A kill can precede the first write to the checkpoint.
        with suppress(FileNotFoundError):
            checkpoint.rename(deleted)

    def state_errors(self) -> list[str]:
        """The errors of states in its log."""
        return _STATE_ERROR.findall(self.log.read_text(errors="replace")) if self.log.exists() else []

    def stop(self) -> None:
        """Stops it with SIGTERM; kills it after a timeout."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(60)
            self._has_ended("stopped")
        except subprocess.TimeoutExpired:
            self.kill()
            raise NotInTime(f"{self.name} did not stop within 60 s after SIGTERM") from None


def all_are_up(members: Iterable[CampaignMember]) -> bool:
    """Starts the members that are not running. Always ``True``, for the conditions of waits."""
    for member in members:
        member.see_to_it()
    return True


def count_in(logs: Iterable[Path], text: str) -> int:
    """How often logs contain a text."""
    return sum(log.read_text(errors="replace").count(text) for log in logs if log.exists())


def waiting_file(deaths: Path, member: str, pid: int) -> Path:
    """The file that exists while a process waits at its point. Without it, the process continues (``dying/sitecustomize.py``)."""
    return deaths / f"reached.{member}.{pid}"


def stopped(members: Iterable[CampaignMember]) -> list[str]:
    """Stops all members. Returns what did not stop in time."""
    found = []
    for member in members:
        try:
            member.stop()
        except NotInTime as e:
            found.append(str(e))
    return found
