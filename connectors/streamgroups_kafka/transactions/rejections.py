"""Record batches that a broker rejects because of their records.

Created by ``writer``, used by ``task_output``. The broker appends nothing of such a batch, so the transaction and the sequence
numbers continue as if it had not been sent. Since version 8 a response to a Produce request names the records. Source:
KIP-467 (``record_errors``), Kafka's ``LogValidator``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.errors import StreamGroupsError
from streamgroups.partitions import TopicPartition
from streamgroups_kafka.client.error_codes import Code
from streamgroups_kafka.write.encoder import EncodedBatch

_SIZES = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE})
#: The errors of a response that concern records of the batch, not the whole request.
ABOUT_RECORDS = _SIZES | {Code.INVALID_RECORD, Code.INVALID_TIMESTAMP}


@dataclass(frozen=True, slots=True)
class RejectedBatch:
    """A rejected record batch.

    Args:
        topic_partition: its partition.
        batch: the batch.
        reasons: the texts of the broker by the numbers of the rejected records in the batch. Empty if the broker names
            none.
        error: the error for the whole batch.
        is_too_large: whether the broker rejects its size.
    """

    topic_partition: TopicPartition
    batch: EncodedBatch
    reasons: Mapping[int, str]
    error: StreamGroupsError
    is_too_large: bool

    @property
    def rejected(self) -> tuple[int, ...]:
        """The numbers of the rejected records in the batch. Empty if they are unknown."""
        if not self.reasons and self.batch.n_records == 1:
            return (0,)
        return tuple(sorted(self.reasons))


def rejected_batch(tp: TopicPartition, batch: EncodedBatch, response: Any, error: StreamGroupsError) -> RejectedBatch:
    """Returns the rejected batch of the response of a partition.

    Args:
        tp: the partition.
        batch: the batch that was sent.
        response: the response of the partition, with a code of :data:`ABOUT_RECORDS`.
        error: the error for the code.
    """
    reasons = {
        it.batch_index: it.batch_index_error_message or response.error_message or ""
        for it in response.record_errors
        if 0 <= it.batch_index < batch.n_records
    }
    return RejectedBatch(tp, batch, reasons, error, response.error_code in _SIZES)
