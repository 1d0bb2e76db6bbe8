"""Where an attempt of a task cuts its first batch of a partition, so that two attempts cannot mix their batches.

Used by ``transactions.task_output`` and both encoders. Two attempts of one task in one transaction have the same producer id
and sequence numbers from 0. The broker compares the first and the last sequence number of a batch, not its content: it
acknowledges an equal one as a duplicate. The shuffle can deliver its blocks to the attempts in different orders. With
equal cuts, batches of both would alternate in the log, and both attempts would succeed.

So an attempt cuts its first batch of a partition at a random count. The broker rejects the first batch of the other
attempt with OUT_OF_ORDER_SEQUENCE_NUMBER, and that attempt writes nothing more. The only batch of an attempt needs no
cut: it has all records of the task for the partition, so the batch of either attempt is complete. The cuts of two
attempts are equal with a probability of one in the number of records that fit into the first batch. Source: the
broker's ``ProducerAppendInfo`` and ``ProducerStateEntry`` (KIP-98).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: A partition with fewer records waits for more of them before its first batch, if the task has further records.
MIN_RECORDS = 1_000
_NUMBERS = 1 << 31


@dataclass(frozen=True, slots=True)
class FirstCut:
    """The rule for the first batch of each partition that has no sequence number yet.

    Args:
        number: a random number of the attempt, 0 to 2147483647.
        is_last: whether the task has no further records. Then the only batch of a partition is not cut.
    """

    number: int
    is_last: bool

    def limit(self, n_records: int, *, is_only: bool) -> int:
        """The number of records of a first batch.

        Args:
            n_records: the number of records that fit into the batch.
            is_only: whether these are all records of the partition so far.

        >>> [FirstCut(1_234, is_last=True).limit(1_000, is_only=only) for only in (False, True)]
        [235, 1000]
        """
        return n_records if is_only and self.is_last else 1 + self.number % n_records


def random_number() -> int:
    """Returns a number of an attempt. A function of the user cannot seed it, unlike ``random``."""
    return secrets.randbelow(_NUMBERS)


def waiting(counts: Mapping[int, int], begun: Collection[int]) -> frozenset[int]:
    """Partitions whose records wait for more of them: few records permit few different cuts.

    Args:
        counts: the number of records of each partition.
        begun: the partitions to which the attempt has written.

    >>> waiting({0: 5, 1: 5, 2: 5_000}, begun={1})
    frozenset({0})
    """
    return frozenset(p for p, count in counts.items() if count < MIN_RECORDS and p not in begun)
