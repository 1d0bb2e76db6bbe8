"""The start of a program: from its process to its first row, beside the same program with Spark's own source,
and with an empty source in Python, which is the limit of a source in Python.

A family of ``benchmarks.command``. Each program is a new process with a session of its own. A steady load writes to the topic. Two
processes that compute all the time make the machine busy. The second member of a group joins the first one. Its peer is
a limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.bench import TASKS, Bench, environment
from benchmarks.figures import Cell, Figure, Missing, Row, S, compare, median_of
from benchmarks.rounds import Rounds
from benchmarks.sources import EMPTY, SPARK, STREAMGROUPS
from benchmarks.starting_program import EMPTY_FORMAT
from benchmarks.workload import SteadyLoad, create
from integration_tests.programs import running_command
from integration_tests.spark_kafka import spark_kafka_jars
from streamgroups_testkit.waits import wait_until

LIMIT = "limit"
_SECOND_LIMIT_S = 5.0
_PARTITIONS, _PER_S = 8, 1_000
_WAIT_S = 180
#: Each start is a new process, so nothing is warm except the files of the operating system.
_ROUNDS = Rounds(2, warm_up=0, budget_s=240, slow_s=180)
_BUSY = "while True: pass"


def starts(bench: Bench) -> Iterator[Row]:
    """The first member on an idle and on a busy machine, and the second member."""
    topic = f"starts-{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, topic, _PARTITIONS)
    with SteadyLoad(bench.bootstrap, topic, partitions=_PARTITIONS, per_s=_PER_S):
        for busy in (0, TASKS):
            what = "start of a program, until its first row" + (f", beside {busy} busy processes" if busy else "")
            runs: dict[str, Callable[[], float]] = {
                name: partial(_first_row_s, bench, topic, source, busy)
                for name, source in ((STREAMGROUPS, "streamgroups"), (SPARK, "kafka"), (EMPTY, EMPTY_FORMAT))
            }
            found = bench.race(what, runs, _ROUNDS)
            cells: dict[str, Cell] = {n: it if isinstance(it, Missing) else median_of(it) for n, it in found.items()}
            yield from compare(what, S, cells, own=STREAMGROUPS, limits=(EMPTY,))
        what = "start of a second member, from its first trigger to its first row"
        second = bench.race(what, {STREAMGROUPS: partial(_second_member_s, bench, topic)}, _ROUNDS)[STREAMGROUPS]
        own: Cell = second if isinstance(second, Missing) else median_of(second)
        limit = Figure(_SECOND_LIMIT_S, _SECOND_LIMIT_S, _SECOND_LIMIT_S, 1)
        yield from compare(what, S, {STREAMGROUPS: own, LIMIT: limit}, own=STREAMGROUPS)


def _first_row_s(bench: Bench, topic: str, source: str, busy: int) -> float:
    with ExitStack() as stack:
        for _ in range(busy):
            stack.enter_context(
                running_command([sys.executable, "-c", _BUSY], bench.directory / "busy.log", os.environ)
            )
        began_s = time.time()
        lines = stack.enter_context(_program(bench, topic, source, uuid.uuid4().hex))
        return _event_s(lines, "rows") - began_s


def _second_member_s(bench: Bench, topic: str) -> float:
    group = uuid.uuid4().hex
    with _program(bench, topic, "streamgroups", group) as first:
        _event_s(first, "rows")
        with _program(bench, topic, "streamgroups", group) as second:
            return _event_s(second, "rows") - _event_s(second, "trigger")


@contextmanager
def _program(bench: Bench, topic: str, source: str, group: str) -> Iterator[Path]:
    """A query; the file has its events."""
    output = bench.directory / f"start-{uuid.uuid4().hex}.log"
    options = {"kafka.bootstrap.servers": bench.bootstrap, "subscribe": topic}
    if source == "streamgroups":
        options["group.id"] = group
    elif source == EMPTY_FORMAT:
        options = {"rows": "100", "tasks": str(TASKS), "batches": "100000"}
    jars = {"spark.jars": spark_kafka_jars().option} if source == "kafka" else {}
    config = {
        "format": source,
        "options": options,
        "checkpoint": str(bench.directory / uuid.uuid4().hex),
        "spark": {"spark.master": f"local[{TASKS}]", "spark.ui.enabled": "false", **jars},
    }
    command = [sys.executable, "-m", "benchmarks.starting_program", json.dumps(config)]
    with output.open("wb") as file:
        environ = {**os.environ, **environment()}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.DEVNULL, env=environ)
        try:
            yield output
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def _event_s(output: Path, what: str) -> float:
    """Waits for an event of a program. Returns its time."""

    def events() -> dict[str, float]:
        lines = output.read_text().splitlines(keepends=True)
        found = [json.loads(it) for it in lines if it.startswith('{"at_s"') and it.endswith("\n")]
        return {it["what"]: it["at_s"] for it in found}

    wait_until(lambda: what in events(), f"the program reports '{what}'", _WAIT_S)
    return events()[what]
