"""Writes the dead letters of a batch: in the transaction of its output, or before it.

Called by ``sinks.kafka`` and ``sinks.ledger_writer`` on the driver, when all tasks have finished. It completes the letters and
checks their limits. Then it writes them: as Kafka records, or as rows of a table. ``sinks.exactly_once`` creates that table
before the query starts. Source: SEMANTICS P4, X9; :data:`streamgroups.dlq.letter.LETTER`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamgroups.connections.redaction import redacted
from streamgroups.dlq.bad_record_search import Failed, isolate
from streamgroups.dlq.completion import BatchOfLetters, as_row, complete
from streamgroups.dlq.letter import LETTER, DeadLetter
from streamgroups.dlq.letter_chunks import in_chunks
from streamgroups.dlq.limits import LetterLimits, check_limits, count_letters, keeps_letters
from streamgroups.dlq.record_headers import ID_HEADER, to_headers
from streamgroups.dlq.reduction import RejectedLetters, fitting, reductions
from streamgroups.errors import RecordRejected
from streamgroups.printable import printable
from streamgroups_spark.sinks.batch_info import BatchInfo
from streamgroups_spark.sinks.letters.good_rows import TaskLetters, arrow_fields, failures_in

if TYPE_CHECKING:
    from streamgroups_kafka.transactions.task_output import RejectedRecord
    from streamgroups_kafka.transactions.transaction_requests import OpenTransaction
    from streamgroups_spark.sinks.sink_options import SinkOptions


from streamgroups.errors import InvalidOption

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


def letters_of(output: LetterOutput, tasks: Sequence[TaskLetters], n_rows: int, batch: BatchInfo) -> list[DeadLetter]:
    """Returns the dead letters of a batch.

    Args:
        output: their output.
        tasks: the dead letters of each task that has some.
        n_rows: the number of rows of the output.
        batch: the batch.

    Raises:
        TooManyDeadLetters: if a limit is exceeded.
    """
    if not tasks:
        return []
    facts = BatchOfLetters(
        tasks[0].query,
        batch.time_ms,
        batch.first_group or output.group_ids[0],
        {r.topic_partition.topic: group_id for group_id, ranges in batch.reads.items() for r in ranges},
        # As Spark has logged them: a replay has the same ids.
        {
            tp.topic: it.topic_id
            for of_group in batch.identities.values()
            for tp, it in of_group.items()
            if it.topic_id is not None
        },
        batch.reads,
        batch.query_id or "",
    )
    letters = list(complete(failures_in(tasks), facts, lambda text: redacted(text, ())))
    n_read = sum(len(r) for r in batch.ranges)
    check_limits(output.limits, count_letters(letters), max(n_read, n_rows + len(letters)), batch.batch_id)
    return letters


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def as_records(letters: Iterable[DeadLetter], max_bytes: int) -> pa.RecordBatch:
    """Returns dead letters with the columns of the Kafka sink.

    Args:
        letters: the letters: one chunk of :func:`streamgroups.dlq.letter_chunks.in_chunks`.
        max_bytes: the maximum size of a record batch. A letter that does not fit is reduced: see
            :func:`streamgroups.dlq.reduction.fitting`.
    """
    fit = [fitting(it, max_bytes - _OVERHEAD_BYTES) for it in letters]
    return pa.record_batch(
        {
            "key": pa.array([it.key for it in fit], pa.binary()),
            "value": pa.array([it.value for it in fit], pa.binary()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in to_headers(it)] for it in fit],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([it.failed_at_ms for it in fit], pa.timestamp("ms", "UTC")),
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
        RecordRejected: if the broker rejects a letter without all fields that it can do without.
        StreamGroupsError: see :func:`streamgroups_kafka.transactions.task_output.write_records`.
    """
    if not letters:
        return
    # Each batch has new processes on the driver, and these modules import kafka-python.
    from streamgroups_kafka.transactions.task_output import OutputSettings, write_records

    max_bytes = dead.batches.max_message_bytes
    # The limit of the topic can be lower than that of the sink.
    rejected = RejectedLetters(fitting(it, max_bytes - _OVERHEAD_BYTES) for it in letters)

    def reject(record: RejectedRecord) -> None:
        headers = record.row.column("headers")[0].as_py()
        (letter_id,) = (it["value"].decode() for it in headers if it["key"] == ID_HEADER)
        rejected.reject(letter_id, redacted(record.error.what, ()), _unwritable(letter_id, record))

    reduced: Iterator[list[DeadLetter]] = iter(())

    def corrected() -> pa.RecordBatch | None:
        nonlocal reduced
        chunk = next(reduced, None)
        if chunk is None:
            reduced = in_chunks(rejected.take())
            chunk = next(reduced, None)
        return None if chunk is None else as_records(chunk, max_bytes)

    settings = OutputSettings(dead.topic, dead.batches)
    records = (as_records(chunk, max_bytes) for chunk in in_chunks(letters))
    write_records(records, client, settings, transaction, task=0, reject=reject, corrected=corrected)


def _unwritable(letter_id: str, record: RejectedRecord) -> RecordRejected:
    return RecordRejected(
        f"Topic '{record.topic}' of the dead letters rejects the dead letter {printable(letter_id)}, also without its content: "
        f"{record.error.what}",
        remedy=record.error.remedy,
    )


# ---- tables ----------------------------------------------------------------------------------------------------------


def letter_schema() -> pa.Schema:
    """Returns the columns of a table of dead letters."""
    return pa.schema(arrow_fields(LETTER))


def as_rows(letters: Iterable[DeadLetter]) -> pa.RecordBatch:
    """Returns dead letters, one chunk of :func:`streamgroups.dlq.letter_chunks.in_chunks`, as rows of a table."""
    rows = [as_row(_storable(it)) for it in letters]
    columns = []
    for field in letter_schema():
        values = [row[field.name] for row in rows]
        if pa.types.is_timestamp(field.type):
            columns.append(pa.array(values, pa.timestamp("ms", "UTC")).cast(field.type))
        else:
            columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=letter_schema())


def _storable(letter: DeadLetter) -> DeadLetter:
    """A letter whose headers are a JSON document of PostgreSQL: it contains no NUL."""
    if not any("\0" in name for name, _ in letter.headers):
        return letter
    names = [name for name, _ in letter.headers if "\0" in name]
    headers = tuple((name.replace("\0", r"\x00"), value) for name, value in letter.headers)
    details = {**letter.details, "escaped_headers": ", ".join(map(printable, names))}
    return replace(letter, headers=headers, details=details)


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
        yield list(_written(lambda some, number: sink.write(stage, map(as_rows, in_chunks(some)), number), letters))
    finally:
        sink.discard(stage)


def _written(write: Callable[[Sequence[DeadLetter], int], Any], letters: Sequence[DeadLetter]) -> Iterator[Any]:
    """Stages all letters. One that the sink rejects is staged without the rejected field."""
    # Each call stages under a number of its own, so nothing of a rejected call becomes output.
    numbers = count()
    for outcome in isolate(
        len(letters),
        lambda first, end: write(letters[first:end], next(numbers)),
        isolate_on=(RecordRejected,),
    ):
        yield (
            _reduced(write, letters[outcome.at], outcome.error, numbers)
            if isinstance(outcome, Failed)
            else outcome.result
        )


def _reduced(
    write: Callable[[Sequence[DeadLetter], int], Any], letter: DeadLetter, error: Exception, numbers: Iterator[int]
) -> Any:
    why = redacted(getattr(error, "what", ""), ())
    for reduced in reductions(letter, why):
        try:
            return write([reduced], next(numbers))
        except RecordRejected:
            continue
    raise error


def check_letter_mode(sink: Any) -> None:
    """Checks the mode of the table of dead letters.

    Args:
        sink: the sink of the user.

    Raises:
        InvalidOption: if a letter can replace or delete others (SEMANTICS X9).
    """
    mode, key, marker = getattr(sink, "mode", "append"), getattr(sink, "key", ()), getattr(sink, "delete_marker", None)
    if not keeps_letters(mode, key, marker):
        given = f"mode='{mode}'" + (f", key={key}" if key else "") + (f", delete_marker='{marker}'" if marker else "")
        raise InvalidOption(
            f"The sink of dead letters has {given}: a letter would replace or delete others.",
            remedy="Use mode='append', or mode='upsert' with a key that contains 'id', such as key=('id',). It is unique for each letter.",
        )


def letter_table(sink: Any) -> Any:
    """Returns the sink of a table of dead letters. :func:`create_letter_table` creates the table.

    A row of PostgreSQL replaces one with the same id. So letters that are written again after a reset replace their
    rows.

    Args:
        sink: the sink of the user.
    """
    if hasattr(sink, "conninfo") and sink.mode == "append":
        return replace(sink, mode="upsert", key=("id",))
    return sink


def create_letter_table(sink: Any) -> None:
    """Creates the table of dead letters if it does not exist, before the query starts.

    Args:
        sink: the sink of :func:`letter_table`.

    Raises:
        StreamGroupsError: if the table does not fit, or is not accessible.
    """
    sink.discard(sink.begin(letter_schema(), uuid.uuid4().hex))


def check_isolation(sink: Any, dead: Any) -> None:
    """Checks the setting ``isolate_violations`` of the sink of the output, before anything is created.

    The transaction of the output finds the rows. So their dead letters can only be written in it.

    Args:
        sink: the sink of the output.
        dead: the sink of dead letters; ``None`` without.

    Raises:
        InvalidOption: if the dead letters are not in the database of the sink.
    """
    if not getattr(sink, "isolate_violations", False) or (dead is not None and has_same_database(dead, sink)):
        return
    where = "'dead_letters' is not set" if dead is None else "'dead_letters' is another system or another database"
    raise InvalidOption(
        f"'isolate_violations' of table {sink.table} is set, but {where}. Only the transaction of the output finds such rows.",
        remedy="Pass dead_letters=sg.PostgresSink(...) with the same connection, or remove isolate_violations.",
    )


def has_same_database(dead: Any, sink: Any) -> bool:
    """Returns whether a transaction of the sink can write dead letters: both are tables of one PostgreSQL database.

    Args:
        dead: the sink of dead letters.
        sink: the sink of the output.
    """
    conninfo, connection = getattr(dead, "conninfo", None), getattr(dead, "connection", None)
    if conninfo is None or conninfo != getattr(sink, "conninfo", None):
        return False
    return bool(connection == getattr(sink, "connection", None))
