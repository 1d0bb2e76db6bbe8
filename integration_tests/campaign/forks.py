"""Restores the savepoints of a campaign into forks, and compares the output of each fork with the plain count.

Used by ``integration_tests.campaign`` after the load. The states of the group are deleted first, as retention does later. A
fork reads from the positions of its savepoint to the end of the topic. Its rows must be the rows of the plain count
whose last record is at its positions or later. Source: SEMANTICS C3.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from integration_tests.campaign.fork_query import ERROR_FILE, ROWS_FILE
from integration_tests.campaign.savepoints import RECORD, Attempt, SavepointResults, command_points
from integration_tests.campaign.windows import compare
from integration_tests.command_line import streamgroups
from integration_tests.killed_commands import RESTORE_POINTS, is_killed, run_command
from streamgroups.supervision.failure_causes import failure_in
from streamgroups_testkit.reading import committed_offsets

_ROOT = Path(__file__).parent.parent.parent
_ERROR = re.compile(r"^streamgroups\.errors\.(\w+: .*)", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
#: The words of Spark before the error of a task.
_LOST_TASK = re.compile(r".*Lost task [^(]*\(TID \d+\) \([^)]*\): ")
#: Reading all records, in seconds.
_TIMEOUT_S = 1_800


@dataclass
class Forks:
    """The forks of a campaign.

    Args:
        options: the options of the queries.
        to: the location of the savepoints.
        directory: the directory of the campaign.
        seed: the seed of the points at which commands are killed.
        report: called with a description of each fork.
    """

    options: Mapping[str, str]
    to: Path
    directory: Path
    seed: int
    report: Callable[[str], None]
    problems: list[str] = field(default_factory=list)
    restores: Counter[str] = field(default_factory=Counter)

    def check(self, attempts: Sequence[Attempt], n_records: int) -> SavepointResults:
        """Checks all savepoints.

        Args:
            attempts: the commands that have created them.
            n_records: the number of records, without those that close the windows.
        """
        results = SavepointResults(list(attempts), restores=self.restores, problems=self.problems)
        self._check_list(results)
        for id_ in results.incomplete:
            self._check_incomplete(id_)
        shutil.rmtree(Path(self.options["stateLocation"]) / self.options["group.id"])
        complete = [it.id for it in attempts if it.id is not None and it.status == "complete"]
        points = command_points(RESTORE_POINTS, f"restore {self.seed}")
        results.cuts = len({tuple(sorted(positions(self.to / id_).items())) for id_ in complete})
        restored = [id_ for id_ in complete if self._restore(id_, next(points))]
        self._run(restored)
        for id_ in restored:
            self._compare(results, id_, n_records)
        return results

    def _check_list(self, results: SavepointResults) -> None:
        """``savepoint list`` shows each directory with its status."""
        listed = json.loads(streamgroups("savepoint", "list", str(self.to), "-o", "json").stdout)["savepoints"]
        expected = {it.id: "complete" if it.status == "complete" else "incomplete" for it in results.attempts if it.id}
        if (found := {it["id"]: it["status"] for it in listed}) != expected:
            self.problems.append(f"savepoint list: {sorted(found.items() ^ expected.items())}")

    def _check_incomplete(self, id_: str) -> None:
        """Each command rejects a directory without a commit record."""
        commands = {"show": (), "verify": (), "restore": self._target("nowhere")}
        for name, arguments in commands.items():
            result = streamgroups("savepoint", name, str(self.to), id_, *arguments)
            if result.returncode == 0 or "was not completed" not in result.stderr:
                self.problems.append(f"{id_}: savepoint {name} accepts an incomplete savepoint")

    def _target(self, group: str) -> tuple[str, ...]:
        undo_file = self.directory / f"undo-{group}-{len(os.listdir(self.directory))}.json"
        location = ("--state-location", self.options["stateLocation"], "-b", self.options["kafka.bootstrap.servers"])
        return ("--group", group, *location, "--execute", "--undo-file", str(undo_file))

    def _restore(self, id_: str, point: str | None) -> bool:
        """Restores a savepoint into a fork; again, if the command was killed before its commit."""
        verified = streamgroups("savepoint", "verify", str(self.to), id_)
        if verified.returncode:
            self.problems.append(f"{id_}: savepoint verify finds problems: {verified.stdout}")
        self.problems += [f"{id_}: {it}" for it in wrong_files(self.to / id_)]
        group = self._group(id_)
        if point is not None:
            killed = run_command(RESTORE_POINTS[point], "savepoint", "restore", str(self.to), id_, *self._target(group))
            self.restores[point] += is_killed(killed)
            committed = committed_offsets(self.options["kafka.bootstrap.servers"], group, self.options["subscribe"])
            if bool(committed) is (is_killed(killed) and point != "after-commit"):
                self.problems.append(f"{id_}: restore killed {point} has left the offsets {committed}")
            if committed:
                return True
        result = streamgroups("savepoint", "restore", str(self.to), id_, *self._target(group))
        if result.returncode:
            self.problems.append(f"{id_}: savepoint restore has failed: {result.stderr[-2_000:]}")
        return result.returncode == 0

    def _group(self, id_: str) -> str:
        return f"{self.options['group.id']}-{id_}"

    def _output(self, id_: str) -> Path:
        return self.directory / "forks" / id_

    def _run(self, ids: Sequence[str]) -> None:
        """Runs all forks in one process."""
        forks = [
            {"group": self._group(id_), "output": str(self._output(id_)), "is_direct": number % 2 == 0}
            for number, id_ in enumerate(ids)
        ]
        # A fork reads all records: in as few batches as its memory permits.
        options = {**self.options, "maxOffsetsPerTrigger": "40000"}
        config = self.directory / "forks.json"
        config.write_text(json.dumps({"options": options, "forks": forks}))
        path = os.pathsep.join([str(_ROOT), str(_ROOT / "connectors")])
        with (self.directory / "forks.log").open("wb") as log:
            subprocess.run(
                [sys.executable, "-m", "integration_tests.campaign.fork_query", str(config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
                timeout=_TIMEOUT_S,
                check=True,
            )

    def _compare(self, results: SavepointResults, id_: str, n_records: int) -> None:
        output = self._output(id_)
        results.forks += 1
        if (error := output / ERROR_FILE).exists():
            results.differences.append(f"{id_}: the fork has failed: {reason(error.read_text())}")
            self.report(f"fork of {id_}: failed: {reason(error.read_text())}")
            return
        values = json.loads((output / ROWS_FILE).read_text())
        found = compare(values, n_records, since=positions(self.to / id_))
        different = [f"{it} is missing" for it in found.missing]
        different += [f"{it} is different" for it in found.different]
        different += [f"{it} is there twice" for it in found.repeated]
        results.rows += len(values)
        results.differences += [f"{id_}: {it}" for it in different]
        self.report(f"fork of {id_}: {len(values)} rows, {len(different)} differences")


def reason(error: str) -> str:
    """The root cause in the error of a query, which ends with the plan: the error of this library, otherwise the deepest cause.

    >>> reason("[STREAM_FAILED] Traceback\\n  File ...\\nstreamgroups.errors.StateMissing: t-0: gone\\n  File ...")
    'StateMissing: t-0: gone'
    >>> reason("Job aborted: Lost task 0.0 in stage 1.0 (TID 2) (10.0.0.1 executor driver): java.io.EOFException\\n\\tat ...")
    'java.io.EOFException'
    """
    if found := _ERROR.search(error):
        return found[1]
    causes = _CAUSE.findall(error)
    return causes[-1] if causes and _TRACEBACK not in error else _LOST_TASK.sub("", failure_in(error, 2_000).what)


def wrong_files(savepoint: Path) -> list[str]:
    """The files that a savepoint has in spite of its commit record, lacks, or has with another content."""
    record = json.loads((savepoint / RECORD).read_text())
    expected = {
        Path("states", quote(operator["name"], safe=""), it["name"]): it["sha256"]
        for operator in record["operators"]
        for it in operator["files"]
    }
    files = (it for it in savepoint.rglob("*") if it.is_file() and it.name != RECORD)
    found = {it.relative_to(savepoint): hashlib.sha256(it.read_bytes()).hexdigest() for it in files}
    return sorted({str(path) for path, _ in found.items() ^ expected.items()})


def positions(savepoint: Path) -> dict[int, int]:
    """The offset of each partition in a savepoint, by its commit record."""
    record = json.loads((savepoint / RECORD).read_text())
    return {it["partition"]: it["next_offset"] for it in record["positions"]}
