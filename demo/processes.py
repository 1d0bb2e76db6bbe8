"""Queries in separate processes. Each process leads a process group, so that one signal kills all processes of a query.

Used by ``demo.scenario``. The processes of a query (Python driver, Java, Spark's Python workers) end with this one: see
``demo.query``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from streamgroups_testkit.spark_sessions import shared_spark_home

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Folders:
    """The directories of a run.

    Args:
        top: the directory of the report and of all other directories.
    """

    top: Path

    @property
    def logs(self) -> Path:
        """The logs of the queries and the broker."""
        return self.top / "logs"

    @property
    def run(self) -> Path:
        """The files of the queries, which a new run deletes."""
        return self.top / "run"

    @property
    def states(self) -> Path:
        """The states of the windows. By default this directory is beside the checkpoints."""
        return self.run / "streamgroups-state"

    @property
    def history(self) -> Path:
        """The histories of the members."""
        return self.run / "history"

    @property
    def report(self) -> Path:
        """The HTML report."""
        return self.top / "report.html"

    @property
    def image(self) -> Path:
        """The timeline of the report, as an SVG file."""
        return self.top / "timeline.svg"


class Query:
    """One query.

    Args:
        name: the name of the member.
        folders: the directories of its files.
        options: the options of its source.
        output: its output topic.
        replaces: the query whose checkpoint it uses.
    """

    def __init__(
        self, name: str, folders: Folders, options: Mapping[str, str], output: str, replaces: Query | None = None
    ) -> None:
        self.name = name
        self.log = folders.logs / f"{name}.log"
        self._run = folders.run
        self._checkpoint: Path = folders.run / f"checkpoint-{name}" if replaces is None else replaces._checkpoint
        self._config = {
            "name": name,
            "output": output,
            "checkpoint": str(self._checkpoint),
            "options": {"kafka.client.id": name, "historyDir": str(folders.history), **options},
        }
        self._log_file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it without waiting."""
        known = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        search_path = [str(_ROOT), *map(os.path.abspath, known)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(search_path),
            "SPARK_HOME": str(shared_spark_home()),
            "SPARK_LOCAL_DIRS": str(self._run / "spark"),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        self._log_file = self.log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "demo.query", json.dumps(self._config)],
            stdin=subprocess.PIPE,
            stdout=self._log_file,
            stderr=subprocess.STDOUT,
            env=environment,
            # Spark may leave files in its working directory.
            cwd=self._run,
            start_new_session=True,
        )

    @property
    def running(self) -> bool:
        """Whether it has started and not ended."""
        return self._process is not None and self._process.poll() is None

    def batches(self) -> int:
        """The number of batches that Spark has logged as finished in its checkpoint."""
        return sum(1 for file in self._checkpoint.glob("commits/*") if file.name.isdigit())

    def kill(self) -> None:
        """Kills all its processes with ``kill -9``. Does nothing after its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        self._close()

    def request_stop(self) -> None:
        """Sends SIGTERM; does not wait."""
        if self._process is not None and self.running:
            self._process.terminate()

    def wait(self, timeout_s: float) -> bool:
        """Waits for its end; returns whether it ended in time and without an error."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            return False

    def last_lines(self, count: int = 12) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])

    def _close(self) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._log_file is not None:
            self._log_file.close()
