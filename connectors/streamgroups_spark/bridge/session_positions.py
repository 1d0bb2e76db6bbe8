"""The first positions of the queries of a session of Spark Connect, for a session that runs a declarative pipeline.

Each flow of a pipeline is a query with a process of its own for its source. The processes have no connection to each other. A
run of a pipeline is one session. ``formats.unregistered`` records where each query starts, and rejects a new query of a group whose
records another one has read before. Source: SEMANTICS S13; Spark's ``PythonPlannerRunner``, which names the session of Connect to
the process that creates a data source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from streamgroups.json_values import string, whole
from streamgroups.partitions import TopicPartition
from streamgroups_spark.bridge.rpc import task_directory_of


class SessionPositions:
    """The first positions of the queries of a group in one session of Spark Connect.

    Args:
        application: the key of the application.
        connect_session: the id of the session of Spark Connect.
        group_id: the group.
    """

    def __init__(self, application: str, connect_session: str, group_id: str) -> None:
        self._application = application
        self._name = hashlib.sha256(f"{connect_session}/{group_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def record(self, positions: Mapping[TopicPartition, int]) -> None:
        """Adds the first positions of a query.

        Args:
            positions: the next offset of each partition.

        Raises:
            StreamGroupsError: if the file cannot be written.
        """
        line = json.dumps([[tp.topic, tp.partition, next_offset] for tp, next_offset in sorted(positions.items())])
        with self._file().open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def earliest(self) -> dict[TopicPartition, int]:
        """Returns the least first position of each partition. Empty before the first query."""
        try:
            lines = self._file().read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        found: dict[TopicPartition, int] = {}
        for line in lines:
            for topic, partition, next_offset in json.loads(line):
                tp = TopicPartition(string(topic), whole(partition))
                found[tp] = min(found.get(tp, next_offset), whole(next_offset))
        return found

    def _file(self) -> Path:
        return task_directory_of(self._application) / f"task-positions-{self._name}"
