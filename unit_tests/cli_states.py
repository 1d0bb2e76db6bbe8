"""The state files of a group, for tests of commands about them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa

from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState, Segment
from streamgroups.state.origins import Named
from streamgroups_operators.locations import files_below
from streamgroups_operators.store import NewState, Operator, StateStore
from unit_tests.cli_runner import CommandLine

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
SCHEMA = pa.schema([("n", pa.int64())])
MINUTE_MS = 60_000
NOW_MS = 1_732_334_000_000


class States:
    """The state files of a group, whose clock is that of the cluster.

    Args:
        cli: the command line.
        location: the location of the files.
        group_id: the group.
    """

    def __init__(self, cli: CommandLine, location: Path, group_id: str = "board") -> None:
        self._cli, self.location, self._group_id = cli, location, group_id
        cli.clock.now_ms = NOW_MS
        cli.cluster.create_topic("flights", 2)
        self.files = files_below(str(location), self._group_id, "windows")

    def write(
        self,
        minutes_ago: int,
        end: int,
        *,
        first: int | None = None,
        cluster_id: str | None = None,
        tp: TopicPartition = P0,
        before: tuple[Segment, ...] = (),
        operator: str = "windows",
    ) -> StateFileName:
        """Writes the state of an offset, with a new row after earlier segments."""
        file = StateFileName(NOW_MS - minutes_ago * MINUTE_MS, "1f3a9c2b7d10", 1, minutes_ago)
        identity = self._cli.cluster.identities(["flights"])["flights"]
        if cluster_id is not None:
            identity = TopicIdentity(cluster_id, identity.topic_id)
        state = PartitionState(OffsetRange(tp, end - 1 if first is None else first, end), 0, identity)
        new = NewState(state, {"0": [*before, pa.table({"n": [1]})]})
        files = files_below(str(self.location), self._group_id, operator)
        StateStore(Operator(self._group_id, operator, "", SCHEMA), files).write(file, [new])
        written_s = time.time() - minutes_ago * 60
        os.utime(self.location / self._group_id / operator / str(file), (written_s, written_s))
        return file

    def path(self, file: StateFileName) -> Path:
        """The path of a file."""
        return self.location / self._group_id / "windows" / str(file)

    def commit(self, next_offset: int, file: StateFileName | None = None, tp: TopicPartition = P0) -> None:
        """Commits an offset, which names a state."""
        mark = "" if file is None else CommitMark(False, state=Named(file, next_offset)).encode()
        self._cli.cluster.commit(self._group_id, {tp: next_offset}, mark)

    def left(self) -> set[StateFileName]:
        """The files that exist."""
        return set(self.files.list())
