"""Savepoints of windows with many open keys: their creation, their cost for the running query, their memory, and a fork.

A family of ``benchmarks.command``. The state is a count by key in windows of a minute, over 8 partitions. Source: SEMANTICS C3.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import MB, MS, Missing, Row, S, compare, median_of, percentile_of
from benchmarks.rounds import WrongCount
from benchmarks.sources import STREAMGROUPS, stream_frame
from benchmarks.state_queries import triggers_s, until_all_is_read, windows
from benchmarks.timed_topics import BEGIN_MS, PARTITIONS, TimedSpec, write_more
from streamgroups_admin.savepoints.api import Savepoints

COPY = "plain copy of the same files"
WITHOUT_SAVEPOINTS = "without savepoints"
RESTART = "restart of the same group"
#: The second measurement of memory has this part of the keys.
_TIMES = 10
_DELAY = "10 seconds"
_PAUSE_S = 0.2

#: Creates or restores a savepoint, and prints the highest memory of its process in KiB.
_IN_A_PROCESS = """
import json, resource, sys
import streamgroups as sg
config = json.loads(sys.argv[1])
savepoints = sg.savepoints.Savepoints(config["to"], bootstrap_servers=config["bootstrap"])
method = getattr(savepoints, config["method"])
made = method(*config["arguments"], **config["named"])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(getattr(made, "id", ""))
"""


@dataclass(frozen=True, slots=True)
class _Group:
    """A stopped group with states of many keys.

    Args:
        id: the group.
        topic: its topic.
        keys: the number of open keys of each partition.
        states: the state location.
        directory: the directory of its checkpoints.
    """

    id: str
    topic: str
    keys: int
    states: Path
    directory: Path


def savepoints(bench: Bench) -> Iterator[Row]:
    """One row for each promise."""
    keys = max(bench.scale.state_keys)
    group = _group(bench, keys)
    yield from _creations(bench, group)
    yield from _memory(bench, group)
    yield from _forks(bench, group)
    yield from _running(bench, keys)


def _group(bench: Bench, keys: int) -> _Group:
    spec = TimedSpec(f"savepoints-{keys}", 1, keys * PARTITIONS, keys)
    directory = bench.directory / uuid.uuid4().hex
    group = _Group(uuid.uuid4().hex, bench.timed_topic(spec), keys, directory / "states", directory)
    _run(bench, group, group.id, "first")
    return group


def _run(bench: Bench, group: _Group, group_id: str, name: str) -> list[float]:
    """Reads all records. Returns the durations of the triggers with records, in seconds."""
    options = {"group.id": group_id, "maxOffsetsPerTrigger": str(bench.scale.state_batch)}
    frame = stream_frame(bench, STREAMGROUPS, group.topic, stateLocation=str(group.states), **options)
    rows = windows(frame.select("key", "timestamp", "partition", "offset"), by="key", delay=_DELAY)
    return [triggers_s([it]) for it in until_all_is_read(rows, group.directory / name) if it.numInputRows]


def _savepoints(bench: Bench, group: _Group) -> Savepoints:
    return sg.savepoints.Savepoints(str(group.directory / "savepoints"), bootstrap_servers=bench.bootstrap)


# ---- creation --------------------------------------------------------------------------------------------------------


def _creations(bench: Bench, group: _Group) -> Iterator[Row]:
    at = _savepoints(bench, group)
    files = [
        path
        for operator in at.create(group.id, state_location=str(group.states)).operators
        for file in operator.files
        if (path := group.states / group.id / operator.name / str(file.name)).exists()
    ]
    n_mib = sum(it.stat().st_size for it in files) / 2**20
    what = f"savepoint create, {group.keys:,} open keys in each of {PARTITIONS} partitions, {len(files)} files of {n_mib:.0f} MiB"

    def create() -> float:
        began_s = time.monotonic()
        at.create(group.id, state_location=str(group.states))
        return time.monotonic() - began_s

    def copy() -> float:
        target = group.directory / uuid.uuid4().hex
        began_s = time.monotonic()
        target.mkdir()
        for file in files:
            shutil.copyfile(file, target / file.name)
            _sync(target / file.name)
        _sync(target)
        return time.monotonic() - began_s

    yield from _raced(bench, what, {STREAMGROUPS: create, COPY: copy})


def _sync(path: Path) -> None:
    """The copy survives a crash of the machine, as a savepoint does."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raced(bench: Bench, what: str, runs: dict[str, Callable[[], float]]) -> list[Row]:
    found = bench.race(what, runs, bench.scale.state_rounds)
    figures = {name: cell if isinstance(cell, Missing) else median_of(cell) for name, cell in found.items()}
    return compare(what, S, figures, own=STREAMGROUPS)


# ---- memory ----------------------------------------------------------------------------------------------------------


def _memory(bench: Bench, group: _Group) -> Iterator[Row]:
    """The highest memory of a process that creates or restores, with the state and with a tenth of it."""
    smaller = _group(bench, group.keys // _TIMES)
    found: dict[str, dict[str, list[float]]] = {}
    for name, it in ((STREAMGROUPS, group), (f"{smaller.keys:,} keys", smaller)):
        peaks: dict[str, list[float]] = {"create": [], "restore": []}
        for _ in range(bench.scale.state_rounds.counted):
            states = {"state_location": str(it.states)}
            mib, id_ = _peak_mib(bench, it, "create", it.id, **states)
            peaks["create"].append(mib)
            mib, _ = _peak_mib(
                bench,
                it,
                "restore",
                id_,
                group=uuid.uuid4().hex,
                undo_file=str(it.directory / uuid.uuid4().hex),
                **states,
            )
            peaks["restore"].append(mib)
        found[name] = peaks
    for method in ("create", "restore"):
        figures = {name: median_of(peaks[method]) for name, peaks in found.items()}
        what = f"savepoint {method}, memory with {group.keys:,} keys in each partition, {_TIMES} times as many"
        yield from compare(what, MB, figures, own=STREAMGROUPS)


def _peak_mib(bench: Bench, of: _Group, method: str, *arguments: str, **named: str) -> tuple[float, str]:
    config = {
        "to": str(of.directory / "savepoints"),
        "bootstrap": bench.bootstrap,
        "method": method,
        "arguments": arguments,
        "named": named,
    }
    command = [sys.executable, "-c", _IN_A_PROCESS, json.dumps(config)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")
    return int(printed[0]) / 1024, printed[1]


# ---- forks -----------------------------------------------------------------------------------------------------------


def _forks(bench: Bench, group: _Group) -> Iterator[Row]:
    what = f"fork, {group.keys:,} open keys in each of {PARTITIONS} partitions: its first trigger"
    at, records = _savepoints(bench, group), bench.scale.state_trigger

    def first_trigger(group_id: str) -> float:
        write_more(bench.bootstrap, group.topic, records=records, keys=group.keys, time_ms=BEGIN_MS)
        return _run(bench, group, group_id, uuid.uuid4().hex)[0]

    def fork() -> float:
        group_id = uuid.uuid4().hex
        made = at.create(group.id, state_location=str(group.states))
        at.restore(
            made.id,
            state_location=str(group.states),
            group=group_id,
            undo_file=group.directory / uuid.uuid4().hex,
        )
        return first_trigger(group_id)

    def restart() -> float:
        return first_trigger(group.id)

    yield from _raced(bench, what, {STREAMGROUPS: fork, RESTART: restart})


# ---- a running query -------------------------------------------------------------------------------------------------


def _running(bench: Bench, keys: int) -> Iterator[Row]:
    """Small triggers of a query while savepoints of it are created, one after the other."""
    scale = bench.scale
    batches = scale.batches + scale.warm_up_batches
    window_records = scale.state_trigger * 10
    spec = TimedSpec(f"running-{keys}", batches // 10 + bool(batches % 10), window_records, keys)
    topic = bench.timed_topic(spec)
    what = (
        f"trigger of {scale.state_trigger:,} records while savepoints are created, {keys:,} keys in each partition, p50"
    )
    runs = {
        STREAMGROUPS: partial(_durations, bench, topic, keys, with_savepoints=True),
        WITHOUT_SAVEPOINTS: partial(_durations, bench, topic, keys, with_savepoints=False),
    }
    found = bench.race(what, runs, scale.state_rounds)
    figures = {n: c if isinstance(c, Missing) else percentile_of(c, 50) for n, c in found.items()}
    yield from compare(what, MS, figures, own=STREAMGROUPS)


def _durations(bench: Bench, topic: str, keys: int, *, with_savepoints: bool) -> list[float]:
    """The durations of small triggers after the warm-up, in milliseconds."""
    directory, group_id = bench.directory / uuid.uuid4().hex, uuid.uuid4().hex
    group = _Group(group_id, topic, keys, directory / "states", directory)
    at, is_over = _savepoints(bench, group), threading.Event()
    made: list[str] = []

    def create() -> None:
        while not is_over.wait(_PAUSE_S):
            try:
                id_ = at.create(group_id, state_location=str(group.states)).id
            except sg.errors.StreamGroupsError:
                # Before the first commit of the group.
                continue
            made.append(id_)
            at.delete(id_)

    creating = threading.Thread(target=create)
    if with_savepoints:
        creating.start()
    try:
        frame = stream_frame(
            bench,
            STREAMGROUPS,
            topic,
            stateLocation=str(group.states),
            maxOffsetsPerTrigger=str(bench.scale.state_trigger),
            **{"group.id": group_id},
        )
        rows = windows(frame.select("key", "timestamp", "partition", "offset"), by="key", delay=_DELAY)
        progress = until_all_is_read(rows, directory / "checkpoint")
    finally:
        is_over.set()
        if with_savepoints:
            creating.join()
    if with_savepoints and not made:
        raise WrongCount("no savepoint was created while the query ran")
    read = [float(it.durationMs["triggerExecution"]) for it in progress if it.numInputRows]
    return read[bench.scale.warm_up_batches :]
