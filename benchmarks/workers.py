"""Processors in one worker of an instance beside drivers of their own, and a small processor beside a large one.

A family of ``benchmarks.command``. Each processor copies a topic, and a Kafka sink writes it exactly once. The drivers are
``streamgroups processors run``, one for each processor, with two task slots. The worker has its default: one for each processor. All
processes have Spark's default memory. The memory of pages that processes share counts once. Source: SEMANTICS P2; Spark's "Job Scheduling".
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from benchmarks.bench import TASKS, Bench
from benchmarks.figures import MB, MS, RECORDS_PER_S, Cell, Missing, Row, compare, median_of, percentile_of
from benchmarks.paced_producer import produce_request, send
from benchmarks.rounds import Rounds
from benchmarks.sources import STREAMGROUPS
from benchmarks.workload import SteadyLoad, create
from integration_tests.declared_flights import connections
from integration_tests.instances import RealInstance
from integration_tests.programs import running_command
from integration_tests.spark_events import logged_queries
from streamgroups_kafka.admin.connection import AdminSession
from streamgroups_kafka.client.config import ClientConfig
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

DRIVERS, ALONE = "four drivers", "alone"
_NAMES = ("copy1", "copy2", "copy3", "copy4")
_PARTITIONS = 4
_MAIN = "from streamgroups_cli import main; main()"
_MIB = 2**20
_SETTINGS = {"spark.master": f"local[{TASKS}]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": str(TASKS)}
#: The batches of the warm-up, which compile code.
_WARM_UPS = 3
#: Each run starts five processes, or two.
_ROUNDS = Rounds(2, warm_up=0, budget_s=240, slow_s=240)
_SMALL_PER_S = 1_000
_WAIT_S = 300


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of four processors: its speed, and the memory of its processes at its end."""

    records_per_s: float
    memory_mib: float


def workers(bench: Bench) -> Iterator[Row]:
    """Speed and memory of four processors, and the triggers of a small processor beside a large one."""
    os.environ["STREAMGROUPS_CONFIG"] = str(connections(bench.directory, bench.bootstrap, "unused"))
    os.environ["STREAMGROUPS_PROCESSORS"] = str(bench.directory / "processors")
    contestants: dict[str, Callable[[], _Run]] = {
        STREAMGROUPS: partial(_copied, bench, _in_one_worker),
        DRIVERS: partial(_copied, bench, _in_four_drivers),
    }
    found = bench.race("four processors in one worker", contestants, _ROUNDS)

    def cells(figure: Callable[[_Run], float]) -> Mapping[str, Cell]:
        return {n: it if isinstance(it, Missing) else median_of([figure(run) for run in it]) for n, it in found.items()}

    name = "four processors in one worker"
    yield from compare(name, RECORDS_PER_S, cells(lambda run: run.records_per_s), own=STREAMGROUPS)
    yield from compare(f"{name}, memory", MB, cells(lambda run: run.memory_mib), own=STREAMGROUPS)
    bench.report_step("a small processor beside a large one")
    alone, beside = _small_triggers(bench)
    small = {STREAMGROUPS: percentile_of([beside], 99), ALONE: percentile_of([alone], 99)}
    yield from compare("trigger of a small processor beside a large one, p99", MS, small, own=STREAMGROUPS)


def _document(name: str, source: str, output: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": {"connection": "prod", "subscribe": source, "startingOffsets": "earliest"},
        "steps": [{"sql": "SELECT key, value FROM input"}],
        "sink": {"connection": "prod", "topic": output},
    }


def _topic(bench: Bench, name: str) -> str:
    topic = f"bench.workers.{name}.{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, topic, _PARTITIONS)
    return topic


#: Starts the processes of processors, and yields the name of their instance and the ids of their first processes.
_Start = Callable[[Bench, Path, Sequence[dict[str, Any]]], AbstractContextManager[tuple[str, list[int]]]]


def _copied(bench: Bench, start: _Start) -> _Run:
    source = _topic(bench, "source")
    documents = [_document(name, source, _topic(bench, name)) for name in _NAMES]
    directory = bench.directory / uuid.uuid4().hex
    directory.mkdir()
    warm_up, backlog = bench.scale.others // 10, bench.scale.others
    with start(bench, directory, documents) as (instance, pids):
        groups = [f"{instance}.{name}" for name in _NAMES]
        written = 0
        for _ in range(_WARM_UPS):
            written += _write(bench, source, warm_up)
            _wait_for(bench, source, groups, written)
        began_s = time.monotonic()
        more = _write(bench, source, backlog)
        _wait_for(bench, source, groups, written + more)
        took_s = time.monotonic() - began_s
        return _Run(more * len(groups) / took_s, sum(map(_memory_bytes, pids)) / _MIB)


@contextmanager
def _instance(
    bench: Bench, directory: Path, documents: Sequence[dict[str, Any]], more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[RealInstance]:
    """An instance with definitions and a manager, which starts one worker.

    Args:
        bench: the benchmark.
        directory: the directory of logs.
        documents: the definitions.
        more: more settings of Spark.
    """
    settings = {name: value for name, value in _SETTINGS.items() if name != "spark.master"} | dict(more)
    with closing(RealInstance(bench.bootstrap, directory)) as instance:
        for document in documents:
            instance.define(document["name"], **document)
        confs = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in settings.items())
        command = f"{{python}} {{program}} {{arguments}} {confs}"
        with instance.manager("--slots", "4", "--max-workers", "1", "--worker-command", command):
            yield instance


@contextmanager
def _in_one_worker(
    bench: Bench, directory: Path, documents: Sequence[dict[str, Any]]
) -> Iterator[tuple[str, list[int]]]:
    with _instance(bench, directory, documents) as instance:
        instance.start(*(it["name"] for it in documents))
        yield instance.name, [instance.worker(documents[0]["name"]).pid]


@contextmanager
def _in_four_drivers(
    _bench: Bench, directory: Path, documents: Sequence[dict[str, Any]]
) -> Iterator[tuple[str, list[int]]]:
    instance = f"bench-{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        drivers = []
        for document in documents:
            file = directory / f"{document['name']}.yaml"
            file.write_text(json.dumps(document))
            arguments = ["processors", "run", str(file), "--instance", instance]
            confs = [it for name, value in _SETTINGS.items() for it in ("--conf", f"{name}={value}")]
            command = [sys.executable, "-c", _MAIN, *arguments, *confs]
            drivers.append(stack.enter_context(running_command(command, file.with_suffix(".log"), os.environ)))
        yield instance, [it.pid for it in drivers]


def _write(bench: Bench, topic: str, records: int) -> int:
    """Writes about this number of records in a few requests. Returns the number."""
    each = min(records // _PARTITIONS, 5_000)
    request, count = produce_request(topic, _PARTITIONS, each), max(1, records // (each * _PARTITIONS))
    session = AdminSession(ClientConfig.from_options({"bootstrap.servers": bench.bootstrap}), timeout_s=20)
    with closing(session):
        for _ in range(count):
            session.run("The records cannot be written", send, session, request)
    return count * each * _PARTITIONS


def _wait_for(bench: Bench, topic: str, groups: Sequence[str], records: int) -> None:
    """Waits until each group has committed this number of records."""

    def is_copied(group: str) -> bool:
        return sum(committed_offsets(bench.bootstrap, group, topic).values()) >= records

    wait_until(lambda: all(map(is_copied, groups)), "all records are copied", _WAIT_S)


def _memory_bytes(pid: int) -> int:
    """The memory of a process and its descendants."""
    first = psutil.Process(pid)
    total = 0
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


def _small_triggers(bench: Bench) -> tuple[list[float], list[float]]:
    """The durations of the triggers of a small processor alone, and while a large one reads a backlog, in milliseconds."""
    warm_up, counted = bench.scale.batches, 4 * bench.scale.batches
    directory = bench.directory / uuid.uuid4().hex
    events = directory / "events"
    events.mkdir(parents=True)
    log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false"}
    documents = [_document(name, _topic(bench, f"{name}.source"), _topic(bench, name)) for name in ("small", "large")]
    small, large = (it["source"]["subscribe"] for it in documents)
    backlog = _write(bench, large, 4 * bench.scale.bulk)
    with (
        _instance(bench, directory, documents, log) as instance,
        SteadyLoad(bench.bootstrap, small, partitions=_PARTITIONS, per_s=_SMALL_PER_S),
    ):

        def triggers(name: str) -> list[tuple[float, int]]:
            found = logged_queries(events).get(f"{instance.name}.{name}")
            return [] if found is None else found.triggers

        instance.start("small")
        wait_until(lambda: len(triggers("small")) >= warm_up + counted, "the small one runs", _WAIT_S, interval_s=1)
        alone = [float(took_ms) for _, took_ms in triggers("small")[warm_up:]]
        instance.start("large")
        _wait_for(bench, large, [f"{instance.name}.large"], backlog)
        wait_until(lambda: triggers("large"), "its triggers are in the event log", _WAIT_S)
        began_s, last_s, last_ms = triggers("large")[0][0], *triggers("large")[-1]
        until_s = last_s + last_ms / 1_000
        # Also the trigger that was running when it began.
        return alone, [float(ms) for at_s, ms in triggers("small") if began_s - ms / 1_000 < at_s < until_s]
