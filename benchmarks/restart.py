"""The recovery time of a failed query under supervision: from the failure to the end of the next batch.

A family of ``benchmarks.command``. The query reads a steady stream; its third batch fails. ``sg.supervise`` restarts
it, or ``sg.supervision.retry_batches`` runs the batch again in the same run. Both work with our source and with Spark's own.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from benchmarks.bench import Bench
from benchmarks.figures import Row, S
from benchmarks.sources import EMPTY, SPARK_20, STREAMGROUPS, empty_frame, stream_frame, stream_rows
from benchmarks.workload import SteadyLoad, create

_PARTITIONS, _PER_S = 4, 1_000
#: Of the empty source: about the records of a batch, and more batches than a run has.
_ROWS, _BATCHES = 100, 100_000
_FAILS_AT = 3
#: The ways to recover, and whether they need no restart.
_WAYS = {
    "a batch fails: until the next one is done, supervised": False,
    "a batch fails: until it is done, with sg.supervision.retry_batches": True,
}


class _FailsOnce:
    """The function of ``foreachBatch``."""

    def __init__(self) -> None:
        self._batches = 0
        self.failed_s: float | None = None
        self.back_s: float | None = None
        self.is_back = threading.Event()

    def __call__(self, rows: DataFrame, _batch_id: int) -> None:
        if not rows.count():
            return
        self._batches += 1
        if self._batches == _FAILS_AT:
            self.failed_s = time.monotonic()
            raise RuntimeError("fails once")
        if self.failed_s is not None and self.back_s is None:
            self.back_s = time.monotonic()
            self.is_back.set()


def restarts(bench: Bench) -> Iterator[Row]:
    """One row for each way."""
    for what, retries in _WAYS.items():
        runs = {name: partial(_restart_s, bench, name, retries=retries) for name in (STREAMGROUPS, SPARK_20, EMPTY)}
        yield from stream_rows(bench, what, S, runs, bench.scale.handover_rounds)


def _restart_s(bench: Bench, name: str, *, retries: bool) -> float:
    topic = f"restart-{uuid.uuid4().hex[:8]}"
    create(bench.bootstrap, topic, _PARTITIONS)
    batch, checkpoint = _FailsOnce(), str(bench.directory / uuid.uuid4().hex)
    write = sg.supervision.retry_batches(batch) if retries else batch
    frame = empty_frame(bench, _ROWS, _BATCHES) if name == EMPTY else stream_frame(bench, name, topic)
    running: list[StreamingQuery] = []

    def start() -> StreamingQuery:
        running.append(frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start())
        return running[-1]

    def stop_when_back() -> None:
        batch.is_back.wait(120)
        running[-1].stop()

    stopper = threading.Thread(target=stop_when_back)
    stopper.start()
    with SteadyLoad(bench.bootstrap, topic, partitions=_PARTITIONS, per_s=_PER_S):
        sg.supervise(start)
    stopper.join(30)
    assert batch.failed_s is not None
    assert batch.back_s is not None
    return batch.back_s - batch.failed_s
