"""Tools of the tests of the Delta sink: batches, a reader of tables that does not use deltalake, and a process that
commits.

``python -m component_tests.delta_tables URI`` reads one command per line as JSON, and writes one line per response.
"""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streamgroups as sg
from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import StreamGroupsError
from streamgroups.groups.membership import Origin, Owned
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.retry import retrying
from streamgroups_sinks.delta.stages import Stage, Staged

GROUP = "billing"
SCHEMA = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])


def partition(number: int) -> TopicPartition:
    """A partition of the input topic."""
    return TopicPartition("flights", number)


def stage(sink: sg.DeltaSink, *tasks: pa.Table) -> tuple[Stage, list[Staged]]:
    """Begins a batch and stages the records of its tasks."""
    begun = sink.begin(tasks[0].schema, uuid.uuid4().hex)
    return begun, [sink.write(begun, iter(task.to_batches()), attempt) for attempt, task in enumerate(tasks)]


def commit(sink: sg.DeltaSink, ranges: Sequence[OffsetRange], output: Sequence[Staged] | None) -> str:
    """Commits a batch, with retries as in the driver; returns the result of the ledger."""
    with sink.open(GROUP) as ledger:
        return type(retrying(60, every_s=0)(lambda: commit_batch(ledger, {GROUP: ranges}, output))).__name__


def open_at(sink: sg.DeltaSink, next_offset: int = 0, number: int = 0) -> int:
    """Takes over a partition; returns its position in the ledger."""
    with sink.open(GROUP) as ledger:
        owned = {partition(number): Owned(next_offset, Origin.STARTING)}
        taken = take_over_partitions(ledger, owned, OnRestart.FAIL, group_id=GROUP, is_owner=lambda _: True)
        return taken.next_offsets[partition(number)]


def write_batch(sink: sg.DeltaSink, begin: int, end: int, *tasks: pa.Table, number: int = 0) -> str:
    """Stages and commits the records of ``[begin, end)``, then discards the stage."""
    begun, staged = stage(sink, *(tasks or [records(begin, end, number)]))
    result = commit(sink, [OffsetRange(partition(number), begin, end)], staged)
    sink.discard(begun)
    return result


def records(begin: int, end: int, number: int = 0) -> pa.Table:
    """One record for each offset."""
    offsets = range(begin, end)
    return pa.table({"partition": [number] * len(offsets), "offset": list(offsets)}, schema=SCHEMA)


def read_by_hand(uri: str | Path) -> list[dict[str, Any]]:
    """Reads the rows of an unpartitioned table from its log and its files, without deltalake."""
    files: dict[str, int] = {}
    for entry in sorted(Path(uri, "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
            if "remove" in action:
                files.pop(action["remove"]["path"])
    tables = {path: pq.ParquetFile(Path(uri, path)).read() for path in files}
    assert {path: table.num_rows for path, table in tables.items()} == files
    return [row for table in tables.values() for row in table.to_pylist()]


class DeltaProcess:
    """A process that commits to a table on command.

    Args:
        uri: the URI of the table.
    """

    def __init__(self, uri: str | Path) -> None:
        command = [sys.executable, "-m", "component_tests.delta_tables", str(uri)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, *command: str | int) -> None:
        """Sends a command."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """The next line of its output; empty after its end."""
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        """Kills it, as a loss of the machine would."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> DeltaProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()


def _apply(sink: sg.DeltaSink) -> None:
    staged: list[Staged] = []
    for line in sys.stdin:
        verb, *numbers = json.loads(line)
        try:
            match verb:
                case "stage":
                    number, begin, end = numbers
                    _, staged = stage(sink, records(begin, end, number))
                    _respond("staged")
                case "commit":
                    number, begin, end = numbers
                    _respond(commit(sink, [OffsetRange(partition(number), begin, end)], staged))
                case "continue":
                    number, end, size = numbers
                    _continue(sink, number, end, size)
        except StreamGroupsError as e:
            _respond(type(e).__name__)


def _continue(sink: sg.DeltaSink, number: int, end: int, size: int) -> None:
    """Writes from the position of the ledger to an end, batch by batch."""
    position = open_at(sink, number=number)
    for begin in range(position, end, size):
        _, staged = stage(sink, records(begin, begin + size, number))
        _respond("staged")
        result = commit(sink, [OffsetRange(partition(number), begin, begin + size)], staged)
        assert result == "CommitGroups"
        _respond(result)
    _respond("reached")


def _respond(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _apply(sg.DeltaSink(uri=sys.argv[1]))
