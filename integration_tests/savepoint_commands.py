"""The commands about savepoints, for tests with a broker and Spark.

Used by the tests of savepoints. A command runs in the process of the test, and must succeed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.command_line import streamgroups
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.commit_record import CommitRecord
from streamgroups_operators.savepoints.directory import SavepointDirectory


@dataclass(frozen=True, slots=True)
class SavepointCommands:
    """Creates and restores savepoints of one broker.

    Args:
        bootstrap: the broker.
        to: the location of the savepoints.
        states: the option ``stateLocation`` of the queries.
    """

    bootstrap: str
    to: Path
    states: Path

    def run(self, *arguments: str) -> Any:
        """The JSON document of a command of ``streamgroups savepoint``."""
        result = streamgroups("savepoint", *arguments, "-o", "json")
        assert result.returncode == 0, (result.returncode, result.stderr, result.stdout)
        return json.loads(result.stdout)

    @property
    def _at(self) -> tuple[str, ...]:
        return "--state-location", str(self.states), "-b", self.bootstrap

    def create(self, group: str, *arguments: str) -> str:
        """Creates a savepoint of a group. Returns its id."""
        made = self.run("create", group, "--to", str(self.to), *self._at, *arguments)
        return str(made["savepoint"]["id"])

    def record(self, id_: str) -> CommitRecord:
        """The commit record of a savepoint."""
        return SavepointDirectory(str(self.to), id_).read()

    def positions(self, id_: str) -> dict[TopicPartition, int]:
        """The offsets of a savepoint."""
        return {tp: it.next_offset for tp, it in self.record(id_).positions.items()}

    def restore(self, id_: str, *arguments: str) -> Any:
        """Restores a savepoint."""
        return self.run("restore", str(self.to), id_, *self._at, "--execute", *arguments)

    def delete_states(self, group: str) -> None:
        """Deletes the state files of a group, as retention does later."""
        for file in (self.states / group).rglob("*.state"):
            file.unlink()
