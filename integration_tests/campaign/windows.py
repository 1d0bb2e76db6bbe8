"""Windows of a campaign: the query, its plain count by pandas, the check of its output, and resets of its group.

Used by ``integration_tests.campaign`` and ``campaign.query``. Key, time and value of a record follow from its number, so
the plain count needs the number of records only. The records are out of order, and some are too late for their window.

A row with revision ``r`` contains the records in time and the first ``r`` late ones, however batches cut the records. So
each row has one correct result. A batch emits it that contains its last record: once, and once more for each reset back
to this record or before it. Source: SEMANTICS S10, W4-W7.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from streamgroups_testkit.waits import wait_until

#: The partitions of the input. Record ``number`` is in partition ``number % PARTITIONS``.
PARTITIONS = 4
#: The first number of the records that close all windows, one for each partition.
CLOSING = 1_000_000_000
#: A window is longer than a batch with the maximum of records, so that its state has several segments.
SIZE_MS, DELAY_MS, LATENESS_MS = 600_000, 20_000, 50_000
#: The event time between two records. An hour of event time is 9,000 offsets of each partition.
STEP_MS = 100
HOUR_OFFSETS = 3_600_000 // STEP_MS // PARTITIONS
_ROOT = Path(__file__).parent.parent.parent
START_MS = 1_750_000_000_000
#: The topic keeps old records, and accepts those that close all windows, which are in the future.
TOPIC_CONFIG = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
#: Records a reset: its phase, the time in milliseconds since the epoch, and the target of each partition.
RecordReset: TypeAlias = Callable[[str, int, Mapping[int, int]], None]
#: A row of the output, without its result.
_PANE = ["start", "place", "revision"]


def ignore_reset(phase: str, time_ms: int, targets: Mapping[int, int]) -> None:
    """Records no reset."""


def key_of(number: int) -> str:
    """The key of a record: a place of its partition."""
    return f"{number % PARTITIONS}-{number * 613 % 7}"


def time_ms_of(number: int) -> int:
    """The timestamp of a record."""
    delay_ms = number * 7919 % 1009 // 700 * (number * 104729 % 200_003)
    return START_MS + number * STEP_MS - delay_ms


def windows(source: Any) -> Any:
    """The windows of a stream. A row is JSON in ``value``, with its partition and its revision as ``offset``.

    Args:
        source: the stream.
    """
    from pyspark.sql import functions as F  # noqa: N812

    import streamgroups as sg

    timed = source.withWatermark("timestamp", f"{DELAY_MS} milliseconds").withColumn(
        "key", F.expr("cast(key AS string)")
    )
    counted = sg.windows(
        timed,
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling(f"{SIZE_MS} milliseconds"),
        aggregate={"n": "count(*)", "total": "sum(offset)"},
        allowed_lateness=f"{LATENESS_MS} milliseconds",
    ).withColumnRenamed("key", "place")
    return counted.selectExpr(
        "to_json(struct(unix_millis(window_start) AS start, place, revision, n, total)) AS value",
        "cast(split(place, '-')[0] AS int) AS partition",
        "cast(revision AS bigint) AS offset",
    )


def all_records(count: int) -> pd.DataFrame:
    """All records, in the order of partitions and offsets, with the newest time in their partition so far."""
    number = np.concatenate([np.arange(count), np.arange(CLOSING, CLOSING + PARTITIONS)])
    found = pd.DataFrame({"number": number, "partition": number % PARTITIONS})
    found["time"] = [time_ms_of(it) for it in number.tolist()]
    found["place"] = [key_of(it) for it in number.tolist()]
    found["offset"] = found.groupby("partition").cumcount()
    found = found.sort_values(["partition", "offset"], ignore_index=True)
    found["newest"] = found.groupby("partition").time.cummax()
    return found


@lru_cache(maxsize=1)
def plain_count(count: int) -> pd.DataFrame:
    """Every row that a query can emit: start, place, revision, result, and the offset of its last record.

    Args:
        count: the number of records, without those that close the windows.
    """
    records = all_records(count)
    watermark = records.groupby("partition").newest.shift() - DELAY_MS
    start = records.time - records.time % SIZE_MS
    records = records.assign(start=start, late=start + SIZE_MS <= watermark)
    in_time = records[~(start + SIZE_MS + LATENESS_MS <= watermark) & (records.number < CLOSING)]
    panes = in_time.groupby(["start", "place"])
    counted = in_time.assign(revision=panes.late.cumsum(), n=panes.cumcount() + 1, total=panes.offset.cumsum())
    rows = counted.groupby(_PANE, as_index=False).last()
    for partition, of_partition in records.groupby("partition"):
        # A window is emitted first with the record that advances the watermark to its end.
        first = (rows.partition == partition) & (rows.revision == 0)
        reached = (of_partition.newest - DELAY_MS).to_numpy()
        rows.loc[first, "offset"] = np.searchsorted(reached, rows.start[first] + SIZE_MS)
    return rows[[*_PANE, "n", "total", "partition", "offset"]]


@dataclass(frozen=True, slots=True)
class Reset:
    """A reset of a partition.

    Args:
        partition: the partition.
        next_offset: its target.
        end_offset: the end of the partition after the reset: no later record was read before it.
    """

    partition: int
    next_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of an output from the plain count; each is a row as text.

    Args:
        missing: windows whose last result is not in the output.
        different: rows with another result, or of another window.
        repeated: rows that are in the output more often than the resets explain.
    """

    missing: list[str]
    different: list[str]
    repeated: list[str]


def compare(
    values: Iterable[str], count: int, resets: Iterable[Reset] = (), since: Mapping[int, int] = MappingProxyType({})
) -> Differences:
    """Compares the rows of an output with the plain count.

    Args:
        values: the rows, as JSON.
        count: the number of records, without those that close the windows.
        resets: the resets.
        since: the offset at which the query has continued in each partition. The output has only rows whose last record
            is there or later.
    """
    expected = plain_count(count).assign(most=1)
    expected["is_last"] = ~expected.duplicated(["start", "place"], keep="last")
    expected = expected[expected.offset >= expected.partition.map(lambda it: since.get(it, 0))]
    for it in resets:
        again = (expected.partition == it.partition) & expected.offset.between(it.next_offset, it.end_offset - 1)
        expected.loc[again, "most"] += 1
    types = dict.fromkeys([*_PANE, "n", "total"], "int64") | {"place": "str"}
    rows = pd.DataFrame([json.loads(value) for value in values], columns=list(types)).astype(types)
    found = rows.groupby(list(types), as_index=False).size().merge(expected, "outer", _PANE, suffixes=("", "_expected"))
    is_there = found["size"].notna()
    is_right = (found.n == found.n_expected) & (found.total == found.total_expected)
    return Differences(
        missing=_texts(found[~is_there & (found.is_last == True)]),  # noqa: E712
        different=_texts(found[is_there & ~is_right]),
        repeated=_texts(found[is_right & (found["size"] > found.most)]),
    )


def _texts(rows: pd.DataFrame) -> list[str]:
    return [f"{it.place} at {it.start}, revision {it.revision}" for it in rows.itertuples()]


class Resets:
    """Resets the running group back with its states, by the command line.

    Args:
        command: the arguments of all resets.
        directory: the directory of the undo files.
        record: called with ``requested`` or ``applied``, the time in milliseconds since the epoch, and the targets.
    """

    def __init__(self, command: Sequence[str], directory: Path, record: RecordReset = ignore_reset) -> None:
        self._command, self._directory, self._record = command, directory, record
        self._begun_ms = 0
        self._process: subprocess.Popen[str] | None = None
        self._n = 0
        #: The resets so far.
        self.done: list[Reset] = []

    def begin(self) -> None:
        """Starts a reset. Returns when its request is written."""
        self._n += 1
        self._begun_ms = time.time_ns() // 1_000_000
        undo_file = self._directory / f"undo-{self._n}.json"
        # Every second reset goes back by an hour. The others by any distance, so that most targets are within a batch.
        distance = HOUR_OFFSETS if self._n % 2 == 0 else 1 + self._n * 613 % 2_000
        command = [sys.executable, "-c", "from streamgroups_cli import main; main()", "groups", "reset", *self._command]
        command += [
            "--shift-by",
            str(-distance),
            "--execute",
            "--wait",
            "2m",
            "-o",
            "json",
            "--undo-file",
            str(undo_file),
        ]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "connectors")])}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        # The command writes this file immediately before the request.
        wait_until(lambda: undo_file.exists() or self._has_ended, "the reset has begun")

    @property
    def _has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def is_applied(self, ends: Callable[[], Mapping[int, int]]) -> bool:
        """Whether all members have applied the reset. Starts it again if the group was in a rebalance.

        Args:
            ends: returns the end offsets of the partitions.

        Raises:
            AssertionError: if the command has failed.
        """
        assert self._process is not None
        if not self._has_ended:
            return False
        output, error = self._process.communicate()
        if '"group_rejected"' in error and "nothing was changed" in error:
            self.begin()
            return False
        assert self._process.returncode == 0, error
        end_offsets = ends()
        moves = json.loads(output)["moves"]
        self.done += [Reset(it["partition"], it["to_offset"], end_offsets[it["partition"]]) for it in moves]
        targets = {it["partition"]: it["to_offset"] for it in moves}
        self._record("requested", self._begun_ms, targets)
        self._record("applied", time.time_ns() // 1_000_000, targets)
        return True
