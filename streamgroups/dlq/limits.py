"""Where the dead letters of a query are written, and how many of them are acceptable.

``sg.DeadLetters`` is the argument ``dead_letters`` of ``sg.exactly_once``. Above its limits a query fails, because the cause is
an outage and not single records. The writers of ``streamgroups_spark.sinks`` check them on the driver, before anything of a
batch is committed. Source: SEMANTICS P4, X9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamgroups.dlq.letter import DeadLetter
from streamgroups.errors import InvalidOption, TooManyDeadLetters
from streamgroups.printable import printable

#: How many errors the error of a limit contains.
_SHOWN = 3
_MAX_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class LetterLimits:
    """The limits of the dead letters of one batch.

    Args:
        max_per_batch: the maximum number of dead letters; ``None`` for no limit.
        max_share: the maximum share of the records, 0 to 1; ``None`` for no limit.
        share_from_records: the share of a batch with fewer records is not limited.

    Raises:
        InvalidOption: if a limit is out of range.

    >>> LetterLimits(max_share=50)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Option 'max_share' is 50. It must be a number from 0 to 1, such as 0.5 for half of the records.
    """

    max_per_batch: int | None = None
    max_share: float | None = 0.5
    share_from_records: int = 100

    def __post_init__(self) -> None:
        if self.max_per_batch is not None and (type(self.max_per_batch) is not int or self.max_per_batch < 0):
            raise InvalidOption(
                f"Option 'max_per_batch' is {self.max_per_batch!r}.",
                remedy="It must be a whole number of at least 0, or None for no limit.",
            )
        if self.max_share is not None and not (type(self.max_share) in (int, float) and 0 <= self.max_share <= 1):
            raise InvalidOption(
                f"Option 'max_share' is {self.max_share!r}.",
                remedy="It must be a number from 0 to 1, such as 0.5 for half of the records.",
            )
        if type(self.share_from_records) is not int or self.share_from_records < 1:
            raise InvalidOption(
                f"Option 'share_from_records' is {self.share_from_records!r}.",
                remedy="It must be a whole number of at least 1.",
            )


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """The dead letters of a batch, or of one task of it.

    Args:
        by_step: their number for each step.
        first_errors: descriptions of the first ones.
    """

    by_step: Mapping[str, int] = field(default_factory=dict)
    first_errors: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The number of dead letters."""
        return sum(self.by_step.values())


def count_letters(letters: Sequence[DeadLetter]) -> LetterCounts:
    """Counts dead letters by their step."""
    return LetterCounts(Counter(it.step for it in letters), tuple(_described(it) for it in letters[:_SHOWN]))


def most_letters(limits: LetterLimits, n_records: int) -> int:
    """Returns the maximum number of dead letters of a batch. With more of them, :func:`check_limits` rejects it.

    Args:
        limits: the limits of the user.
        n_records: the number of records of the batch.

    >>> most_letters(LetterLimits(max_per_batch=30), 100), most_letters(LetterLimits(), 100), most_letters(LetterLimits(), 9)
    (30, 50, 9)
    """
    most = n_records
    if limits.max_per_batch is not None:
        most = min(most, limits.max_per_batch)
    if limits.max_share is not None and n_records >= limits.share_from_records:
        most = min(most, int(limits.max_share * n_records))
    return most


def check_limits(limits: LetterLimits, counts: LetterCounts, n_records: int, batch_id: int) -> None:
    """Rejects a batch with too many dead letters.

    Args:
        limits: the limits of the user.
        counts: the dead letters of the whole batch.
        n_records: the number of records that the batch has read, or of its rows if they are more.
        batch_id: Spark's number of the batch.

    Raises:
        TooManyDeadLetters: if a limit is exceeded. Nothing of the batch is committed.

    >>> check_limits(LetterLimits(max_per_batch=2), LetterCounts({"decode": 3}, ("no JSON",)), 1_000, 7)
    Traceback (most recent call last):
    streamgroups.errors.TooManyDeadLetters: Batch 7 has 3 dead letters of 1,000 records (decode: 3), and max_per_batch is 2. \
Nothing of it was written. First errors: no JSON. Correct the cause and restart the query: the batch runs again. \
If the records are wrong, raise the limits of sg.DeadLetters.
    """
    total = counts.total
    exceeded = []
    if limits.max_per_batch is not None and total > limits.max_per_batch:
        exceeded.append(f"max_per_batch is {limits.max_per_batch:,}")
    if limits.max_share is not None and n_records >= limits.share_from_records and total > limits.max_share * n_records:
        exceeded.append(f"max_share is {limits.max_share:g}")
    if not exceeded:
        return
    steps = ", ".join(f"{printable(step)}: {n:,}" for step, n in sorted(counts.by_step.items()))
    first = f" First errors: {'; '.join(counts.first_errors)}." if counts.first_errors else ""
    raise TooManyDeadLetters(
        f"Batch {batch_id} has {total:,} dead letters of {n_records:,} records ({steps}), and {' and '.join(exceeded)}. "
        f"Nothing of it was written.{first}",
        remedy="Correct the cause and restart the query: the batch runs again. If the records are wrong, raise the limits of "
        "sg.DeadLetters.",
    )


def keeps_letters(mode: str, key: Sequence[str], delete_marker: str | None) -> bool:
    """Returns whether a table with these settings keeps each dead letter. Otherwise a letter can replace or delete others.

    Args:
        mode: the mode of the sink.
        key: the columns of its key.
        delete_marker: the column that deletes rows; ``None`` without.

    A key that contains ``id`` is unique for each letter. The key of a partitioned table also contains its partition column.

    >>> keeps_letters("append", (), None), keeps_letters("upsert", ("id",), None), keeps_letters("upsert", ("topic",), None)
    (True, True, False)
    >>> keeps_letters("upsert", ("id", "failed_at"), None)
    True
    """
    return mode == "append" or (mode == "upsert" and "id" in tuple(key) and delete_marker is None)


def _described(letter: DeadLetter) -> str:
    origin = letter.origin
    place = "" if origin is None else f" at {origin.topic_partition}, offset {origin.offset}"
    text = printable(f"{letter.error_class}: {letter.error}")
    return f"{text[:_MAX_CHARACTERS]}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """The sink of dead letters, and their limits. Above a limit a query fails, and nothing of the batch is written.

    Args:
        sink: ``sg.KafkaSink`` with a topic, ``sg.PostgresSink`` or ``sg.DeltaSink``.
        max_per_batch: the maximum number of dead letters in a batch. ``None``: no limit.
        max_share: the maximum share of dead letters among the records of a batch, 0 to 1. ``None``: no limit.
        share_from_records: ``max_share`` has no effect on a batch with fewer records.

    Raises:
        InvalidOption: if a limit is out of range.

    >>> import streamgroups as sg
    >>> letters = sg.KafkaSink(bootstrap_servers="broker:9092", topic="flights.dead")
    >>> sg.DeadLetters(sink=letters, max_per_batch=1_000).max_share
    0.5
    """

    sink: Any
    max_per_batch: int | None = None
    max_share: float | None = 0.5
    share_from_records: int = 100

    def __post_init__(self) -> None:
        _ = self.limits

    @property
    def limits(self) -> LetterLimits:
        """The limits of one batch."""
        return LetterLimits(self.max_per_batch, self.max_share, self.share_from_records)
