"""Passes the plan of a task, watermarks and records from its reader to its operator, and from there to the next operator.

The reader of a source (``source.readers``) and an operator in the same stage (``state.stage``) run in two Python
processes of one host, for the same attempt of a task. The reader writes the plan into a file with the id of the attempt
before its first row, and the operator takes the file. So it is the plan of the ranges that were really read, also after
a retry, a ``coalesce`` or a second evaluation of a batch. The reader adds the watermarks of an Arrow batch before it
returns the batch. So the operator has them before the records after them, also if a filter removes all records. An
operator whose output another one processes writes the plan, and the watermarks of its output, before its output. If the
operator receives its records directly (``bridge.direct``), the reader writes each Arrow batch into a file, before it
returns rows to Spark, and marks their end. Spark does not read far ahead of the operator, so few of these files exist at
the same time. The names of files also contain the id of the application: a process can start another application, whose
attempts have the same ids, and a killed task leaves its files (``bridge.task_files``). So the location of states, which can
have a login, is not readable in a file. Source: SEMANTICS W13, W15; Spark's ``TaskContext.taskAttemptId``.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyspark import TaskContext

from streamgroups.errors import StreamGroupsError
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.partitions import TopicPartition
from streamgroups.state.task_plan import TaskPlan, decode, encode
from streamgroups_spark.bridge.rpc import again
from streamgroups_spark.bridge.task_files import lock, plan_file, records_file, sweep

#: How often the files of killed tasks are removed: by the first task of each process, and once per this number of attempts.
_SWEEP_EVERY = 1_000
_has_swept = threading.Event()
#: The first byte of a line with a plan. Lines with watermarks are JSON arrays.
_PLAN = b"{"
#: The line after all records and watermarks.
_END = b"."
#: In the place of the name of an operator.
_READER = ""


def attempt_id() -> int:
    """The id of the attempt of the task that this process runs.

    Raises:
        StreamGroupsError: outside of a task.
    """
    context = TaskContext.get()
    if context is None:
        raise StreamGroupsError(
            "An operator with state runs outside of a Spark task.", remedy="Use it in a streaming query only."
        )
    return int(context.taskAttemptId())


def write_plan(session: str, application: str, plan: TaskPlan, upstream: str = _READER) -> None:
    """Adds a plan for the operator of this attempt. After a ``coalesce`` a task has several plans.

    Args:
        session: the session of the source.
        application: the id of the Spark application.
        plan: the plan.
        upstream: the operator that has processed the records; by default the reader.
    """
    attempt = attempt_id()
    masked = replace(plan, location=_masked(session, plan.location))
    _append(session, application, attempt, upstream, [encode(masked)])
    if not _has_swept.is_set() or attempt % _SWEEP_EVERY == 0:
        _has_swept.set()
        # A task does not depend on it.
        with suppress(OSError, StreamGroupsError):
            sweep(session)


def write_watermarks(
    session: str, application: str, watermarks: Iterable[ProducerWatermarks], upstream: str = _READER
) -> None:
    """Adds watermarks for the operator of this attempt, after its plan.

    Args:
        session: the session of the source.
        application: the id of the Spark application.
        watermarks: the watermarks, in the order of their offsets in each partition.
        upstream: the operator that has processed the records; by default the reader.
    """
    lines = [
        json.dumps([it.topic_partition.topic, it.topic_partition.partition, it.offsets, it.times_ms])
        for it in watermarks
    ]
    _append(session, application, attempt_id(), upstream, lines)


class RecordsToOperator:
    """Passes records to the operator of this attempt. Used by one thread. Close it.

    Args:
        session: the session of the source.
        application: the id of the Spark application.
    """

    def __init__(self, session: str, application: str) -> None:
        self._plan = _opened(session, application, attempt_id(), _READER)
        lock(self._plan)
        self._path = Path(self._plan.name)
        self._given = 0

    def write_records(self, records: pa.RecordBatch) -> None:
        """Adds records, after their watermarks. Has no effect if the operator has ended."""
        if self._operator_has_ended():
            return
        path = records_file(self._path, self._given)
        unfinished = path.with_suffix(".new")
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_stream(file, records.schema) as writer:
            writer.write_batch(records)
        unfinished.rename(path)
        self._given += 1
        if self._operator_has_ended():
            # It may not have removed this file.
            path.unlink(missing_ok=True)

    def end(self) -> None:
        """Marks the end of all records and watermarks."""
        self._plan.write(_END + b"\n")

    def close(self) -> None:
        """Unlocks the records. Idempotent."""
        self._plan.close()

    def _operator_has_ended(self) -> bool:
        # The operator removes the plan when it ends, also by an error.
        return os.fstat(self._plan.fileno()).st_nlink == 0


class Handoff:
    """The plans, watermarks and records that the reader of an attempt, or an operator, has written. Used by one thread.

    Args:
        session: the session of the source.
        application: the id of the Spark application.
        attempt: the id of the attempt.
        upstream: the operator that writes them; by default the reader.
    """

    def __init__(self, session: str, application: str, attempt: int, upstream: str = _READER) -> None:
        self._session, self._path = session, plan_file(session, application, attempt, upstream)
        self._file: BinaryIO | None = None
        #: The start of a line whose end the reader is still writing.
        self._rest = b""
        self._plans: list[TaskPlan] = []
        self._watermarks: list[ProducerWatermarks] = []
        self._has_ended = False
        #: The number of batches of records that were taken.
        self._taken = 0

    @property
    def has_ended(self) -> bool:
        """Whether the reader has passed all records directly. Those and their watermarks can still be taken."""
        self._read()
        return self._has_ended

    def take_plans(self) -> list[TaskPlan]:
        """Returns the plans since the last call. Empty if the task has read no ranges."""
        self._read()
        taken, self._plans = self._plans, []
        return taken

    def take_watermarks(self) -> list[ProducerWatermarks]:
        """Returns the watermarks since the last call."""
        self._read()
        taken, self._watermarks = self._watermarks, []
        return taken

    def take_records(self) -> Iterator[pa.RecordBatch]:
        """Yields the records since the last call. Their watermarks can be taken before each batch is processed."""
        while True:
            path = records_file(self._path, self._taken)
            try:
                mapped = pa.memory_map(str(path))
            except FileNotFoundError:
                return
            # The mapping stays valid.
            path.unlink()
            self._taken += 1
            with pa.ipc.open_stream(mapped) as batches:
                yield from batches

    def close(self) -> None:
        """Removes the files. Idempotent."""
        # In this order: a reader that still writes removes its records when the plan no longer exists.
        self._path.unlink(missing_ok=True)
        while (rest := records_file(self._path, self._taken)).exists():
            rest.unlink(missing_ok=True)
            self._taken += 1
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> None:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return
            lock(self._file)
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            if line.startswith(_PLAN):
                plan = decode(line.decode())
                self._plans.append(replace(plan, location=_unmasked(self._session, plan.location)))
            elif line == _END:
                self._has_ended = True
            else:
                topic, partition, offsets, times_ms = json.loads(line)
                place = TopicPartition(topic, partition)
                self._watermarks.append(ProducerWatermarks(place, tuple(offsets), tuple(times_ms)))


def _masked(session: str, location: str) -> str:
    """The location, which can contain a login, in a form that only a process of the session can read."""
    nonce, text = secrets.token_hex(16), location.encode("utf-8", "surrogatepass")
    return nonce + _mask(session, nonce, text).hex()


def _unmasked(session: str, masked: str) -> str:
    nonce, text = masked[:32], bytes.fromhex(masked[32:])
    return _mask(session, nonce, text).decode("utf-8", "surrogatepass")


def _mask(session: str, nonce: str, text: bytes) -> bytes:
    # The path of the file has only the start of the session's id.
    pad = hashlib.shake_256(f"{session} {nonce}".encode()).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, pad, strict=True))


@again
def _opened(session: str, application: str, attempt: int, upstream: str) -> FileIO:
    return plan_file(session, application, attempt, upstream).open("ab", buffering=0)


def _append(session: str, application: str, attempt: int, upstream: str, lines: Iterable[str]) -> None:
    with _opened(session, application, attempt, upstream) as file:
        file.write("".join(line + "\n" for line in lines).encode())
