"""The definition of a join, as it is sent to the workers.

Created by ``streamgroups_spark.joins.join`` and run by ``joins.join_states``. Source: SEMANTICS W18, S10.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from streamgroups.errors import InvalidOption
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups_operators.operator import key_columns, watermark_form

_MIN_SLICE_US = 1_000_000


class How(Enum):
    """Which records a join emits without a match: the option ``how`` of ``sg.join``."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"

    @property
    def emits_unmatched(self) -> tuple[bool, bool]:
        """Whether left and right records without a match are emitted.

        >>> How.LEFT.emits_unmatched, How.FULL.emits_unmatched
        ((True, False), (True, True))
        """
        return self in (How.LEFT, How.FULL), self in (How.RIGHT, How.FULL)


def parse_how(text: str) -> How:
    """Parses the option ``how``.

    Raises:
        InvalidOption: if it is no kind of join.

    >>> parse_how("left")
    <How.LEFT: 'left'>
    """
    try:
        return How(text)
    except ValueError:
        known = ", ".join(f"'{it.value}'" for it in How)
        raise InvalidOption(f"Option 'how' is '{text}'.", remedy=f"It must be one of {known}.") from None


@dataclass(frozen=True, slots=True)
class JoinOperator:
    """Everything that determines the result of a join. Pickled into Python workers.

    The records have the columns ``topic``, ``partition``, ``offset``, ``time`` (microseconds since the epoch), the keys
    ``k0``, ``k1`` and so on, and ``record``. The output has the keys, ``left``, ``right``, and for a late record
    ``time`` and the ``watermark`` that it has missed.

    Args:
        name: the name of the operator in its query.
        topics: the topics.
        how: which records are emitted without a match.
        within_us: the greatest distance of the event times of two matching records, in microseconds.
        delay_us: records advance the watermark of their partition to its newest event time minus this delay. ``None``: only
            the producer advances it.
        keys: the types of the key columns, at least one.
        record: the type of the other columns.
        behind: the operator whose results are the records; ``None`` for records of the source. Only this operator advances
            the watermark.
    """

    name: str
    topics: JoinedTopics
    how: How
    within_us: int
    delay_us: int | None
    keys: tuple[pa.DataType, ...]
    record: pa.DataType
    behind: str | None = None

    @property
    def form(self) -> str:
        """See :attr:`streamgroups_operators.operator.StatefulOperator.form`."""
        types = ", ".join(map(str, self.keys))
        generated = watermark_form(None if self.delay_us is None else f"{self.delay_us} us", self.behind)
        return (
            f"{self.how.value} join of {self.topics.left} and {self.topics.right} by ({types}) within {self.within_us} us, "
            f"{generated}, of {self.record}"
        )

    @property
    def key_names(self) -> list[str]:
        """The key columns."""
        return key_columns(len(self.keys))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the state. ``matched``: whether the record had a match in its own batch.

        A match of a later batch is a row with the offset only, in a part of its own.
        """
        keys = [pa.field(name, of) for name, of in zip(self.key_names, self.keys, strict=True)]
        own = [pa.field("offset", pa.int64()), pa.field("time", pa.int64()), pa.field("matched", pa.bool_())]
        return pa.schema([*own, *keys, pa.field("record", self.record)])

    @property
    def output(self) -> pa.Schema:
        """See :attr:`streamgroups_operators.operator.StatefulOperator.output`."""
        keys = [pa.field(name, of) for name, of in zip(self.key_names, self.keys, strict=True)]
        sides = [pa.field("left", self.record), pa.field("right", self.record)]
        return pa.schema([*keys, *sides, pa.field("time", pa.int64()), pa.field("watermark", pa.int64())])

    @property
    def slice_us(self) -> int:
        """The length of a part of a state in event time.

        A batch reads the parts in reach of its records only, and a part is dropped without a read.
        """
        return max(_MIN_SLICE_US, (self.within_us + (self.delay_us or 0)) // 4)
