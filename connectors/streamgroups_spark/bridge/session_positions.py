"""Where the queries of a session of Spark Connect have started, for a session that runs a declarative pipeline.

Each flow of a pipeline is a query with a process of its own for its source. The processes have no connection to each other. A
run of a pipeline is one session. ``source.flow_of_session`` records where each query starts, and rejects a second query of a
group.
Source: SEMANTICS S13; Spark's ``PythonPlannerRunner``, which names the session of Connect to the process that creates a data
source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamgroups.json_values import flag, string, whole
from streamgroups.partitions import TopicPartition
from streamgroups_spark.bridge.rpc import task_directory_of


@dataclass(frozen=True, slots=True)
class QueryStart:
    """The start of a query.

    Args:
        is_new: whether its checkpoint had no batch.
        first_offsets: an offset from which it has read each partition: of a new query its first position, otherwise the start of the
            last batch in its checkpoint.
    """

    is_new: bool
    first_offsets: Mapping[TopicPartition, int]


class SessionPositions:
    """The starts of the queries of a group in one session of Spark Connect.

    Args:
        application: the key of the application.
        connect_session: the id of the session of Spark Connect.
        group_id: the group.
    """

    def __init__(self, application: str, connect_session: str, group_id: str) -> None:
        self._application = application
        self._name = hashlib.sha256(f"{connect_session}/{group_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def record(self, start: QueryStart) -> None:
        """Adds a query.

        Raises:
            StreamGroupsError: if the directory cannot be used.
        """
        offsets = [[tp.topic, tp.partition, offset] for tp, offset in sorted(start.first_offsets.items())]
        with self._file().open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps([start.is_new, offsets])}\n")

    def starts(self) -> list[QueryStart]:
        """Returns all queries, in their order."""
        try:
            lines = self._file().read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [_parsed(*json.loads(line)) for line in lines]

    def _file(self) -> Path:
        return task_directory_of(self._application) / f"task-positions-{self._name}"


def _parsed(is_new: object, offsets: list[list[object]]) -> QueryStart:
    found = {TopicPartition(string(topic), whole(partition)): whole(offset) for topic, partition, offset in offsets}
    return QueryStart(flag(is_new), found)
