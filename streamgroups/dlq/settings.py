"""``sg.DeadLetters``: where the dead letters of a query are written, and how many of them are acceptable.

Created by users, as the argument ``dead_letters`` of ``sg.exactly_once``. Source: SEMANTICS P4, X9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamgroups.dlq.limits import LetterLimits


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
