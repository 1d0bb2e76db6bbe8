"""Writes the dead letters of a batch: in the transaction of its output, or before it.

Called by ``sinks.kafka`` and ``sinks.ledger`` on the driver, when all tasks have finished. It completes the letters and
checks their limits. Then it writes them: as Kafka records, or as rows of a table. Source: SEMANTICS P4, X9.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamgroups.dlq.completion import BatchOfLetters, as_row, complete
from streamgroups.dlq.letter import LETTER, DeadLetter
from streamgroups.dlq.limits import LetterLimits, check_limits, count_letters
from streamgroups.dlq.record_headers import to_headers
from streamgroups_kafka.client.jaas import redacted
from streamgroups_spark.sinks.batch_info import BatchInfo, time_ms_of
from streamgroups_spark.sinks.letter_types import arrow_fields
from streamgroups_spark.sinks.splitting import TaskLetters, failures_in

if TYPE_CHECKING:
    from streamgroups_kafka.transactions.session import OpenTransaction
    from streamgroups_spark.sinks.options import SinkOptions

#: The size of the parts of a record batch beside key, value and headers.
_OVERHEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class LetterOutput:
    """The output of the dead letters of a query. Pickled with its writer.

    Args:
        sink: the sink, with the options of a Kafka sink in their parsed form.
        limits: the limits of one batch.
        group_ids: the groups of the query, sorted.
        with_output: whether letters are in the transaction of the output.
    """

    sink: Any
    limits: LetterLimits
    group_ids: tuple[str, ...]
    with_output: bool


def letters_of(
    output: LetterOutput, tasks: Sequence[TaskLetters], n_rows: int, batch: BatchInfo, checkpoint: str
) -> list[DeadLetter]:
    """Returns the dead letters of a batch.

    Args:
        output: their output.
        tasks: the dead letters of each task that has some.
        n_rows: the number of rows of the output.
        batch: the batch.
        checkpoint: the checkpoint of the query.

    Raises:
        TooManyDeadLetters: if a limit is exceeded.
        SinkUnreachable: if the checkpoint cannot be read.
    """
    if not tasks:
        return []
    facts = BatchOfLetters(
        tasks[0].query,
        time_ms_of(checkpoint, batch.batch_id),
        output.group_ids[0],
        {r.topic_partition.topic: group_id for group_id, ranges in batch.reads.items() for r in ranges},
    )
    letters = list(complete(failures_in(tasks), facts, lambda text: redacted(text, ())))
    n_read = sum(len(r) for r in batch.ranges)
    check_limits(output.limits, count_letters(letters), max(n_read, n_rows + len(letters)), batch.batch_id)
    return letters


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def as_records(letters: Iterable[DeadLetter], max_bytes: int) -> pa.RecordBatch:
    """Returns dead letters with the columns of the Kafka sink.

    Args:
        letters: the letters.
        max_bytes: the maximum size of a record batch. A letter that does not fit has no value, and its details contain
            the size of the value.
    """
    fitting = [_fitting(it, max_bytes - _OVERHEAD_BYTES) for it in letters]
    return pa.record_batch(
        {
            "key": pa.array([it.key for it in fitting], pa.binary()),
            "value": pa.array([it.value for it in fitting], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in to_headers(it)] for it in fitting],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([it.failed_at_ms for it in fitting], pa.timestamp("ms", "UTC")),
        }
    )


def write_to_topic(letters: Sequence[DeadLetter], client: Any, dead: SinkOptions, transaction: OpenTransaction) -> None:
    """Writes dead letters to their topic, in a transaction.

    Args:
        letters: the letters.
        client: the client configuration of the writer of the transaction.
        dead: the options of the sink of dead letters.
        transaction: the transaction.

    Raises:
        StreamGroupsError: see :func:`streamgroups_kafka.transactions.output.write_records`.
    """
    if letters:
        # Each batch has new processes on the driver, and these modules import kafka-python.
        from streamgroups_kafka.transactions.output import OutputSettings, write_records

        records = as_records(letters, dead.batches.max_message_bytes)
        write_records(iter([records]), client, OutputSettings(dead.topic, dead.batches), transaction, task=0)


def _fitting(letter: DeadLetter, most_bytes: int) -> DeadLetter:
    headers = sum(len(name) + len(value or b"") + 8 for name, value in to_headers(letter))
    if headers + len(letter.key or b"") + len(letter.value or b"") <= most_bytes:
        return letter
    missing = {"value_bytes": str(len(letter.value or b""))}
    return replace(letter, value=None, details={**letter.details, **missing})


# ---- tables ----------------------------------------------------------------------------------------------------------


def letter_schema() -> pa.Schema:
    """Returns the columns of a table of dead letters."""
    return pa.schema(arrow_fields(LETTER))


def as_rows(letters: Iterable[DeadLetter]) -> pa.RecordBatch:
    """Returns dead letters as rows of a table."""
    rows = [as_row(it) for it in letters]
    columns = []
    for field in letter_schema():
        values = [row[field.name] for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.timestamp("ms", "UTC")).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=letter_schema())


@contextmanager
def staged(sink: Any, letters: Sequence[DeadLetter]) -> Iterator[list[Any]]:
    """Stages dead letters in the sink of a table, and discards the stage at the end.

    Args:
        sink: the sink.
        letters: the letters. Without letters nothing is staged.
    """
    if not letters:
        yield []
        return
    stage = sink.begin(letter_schema(), uuid.uuid4().hex)
    try:
        yield [sink.write(stage, iter([as_rows(letters)]), 0)]
    finally:
        sink.discard(stage)
