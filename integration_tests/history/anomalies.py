"""The anomalies that the checker finds, and its result: a verdict for each invariant. Used by all checks.

The names of anomalies are those of Jepsen's checker of Kafka, where it has one: ``lost-write``, ``duplicate``, ``G1a`` (aborted read),
``nonmonotonic-poll``, ``nonmonotonic-send``, ``poll-skip``, ``unseen``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from streamgroups.partitions import TopicPartition


class Name(Enum):
    """The name of an anomaly."""

    LOST_WRITE = "lost write"
    DUPLICATE = "duplicate"
    ABORTED_READ = "aborted read"
    AHEAD_OF_OUTPUT = "position ahead of output"
    NON_MONOTONIC_POSITION = "non-monotonic position"
    NON_MONOTONIC_WRITE = "non-monotonic write"
    SPLIT_OWNERSHIP = "split ownership"
    SKIPPED_READ = "skipped read"
    UNSEEN = "unseen record"
    WATERMARK_AHEAD = "watermark ahead of data"
    STALE_STATE = "stale state"
    SHOWN_SECRET = "shown secret"


#: The invariants: what each of them states. ``S10`` is the number of ``docs/semantics.rst``.
INVARIANTS: Mapping[str, str] = {
    "I1": "no acknowledged record below the position is lost",
    "I2": "each record is once in the output or in the dead letters",
    "I3": "no committed position is ahead of the output",
    "I4": "positions only advance, except by a reset",
    "I5": "the output of a partition has the order of its input",
    "I6": "no member commits partitions of another owner",
    "I7": "each record below the position was read, or is in a recorded gap",
    "I8": "the group reads all records after the last fault",
    "I9": "no watermark is ahead of the records that were read",
    "I10": "no secret is in a log, an error, a metric or a plan",
    "S10": "each batch continues with the state of its position",
}


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation of an invariant.

    Args:
        name: its name.
        invariant: the invariant, such as ``I1``.
        count: the number of records, rows or events.
        detail: the first of them, as text.
    """

    name: Name
    invariant: str
    count: int
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.name.value}: {self.count} ({self.detail})"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision of the checker about one invariant.

    Args:
        verdict: ``holds``, ``violated`` or ``undecided``.
        count: the number of records, rows or events that violate it.
        reason: why it is undecided.
    """

    verdict: str
    count: int = 0
    reason: str = ""

    def to_text(self) -> str:
        """The decision as text.

        >>> Decision("undecided", reason="the output has no order").to_text(), Decision("violated", 3).to_text()
        ('undecided: the output has no order', 'violated: 3')
        """
        more = self.reason or (str(self.count) if self.verdict == "violated" else "")
        return f"{self.verdict}: {more}" if more else self.verdict


@dataclass(frozen=True, slots=True)
class Report:
    """The result of the checker.

    Args:
        anomalies: the anomalies, at most one of each name, invariant and partition.
        undecided: the invariants that the history does not decide.
        n_events: the number of events.
    """

    anomalies: Sequence[Anomaly]
    undecided: Mapping[str, str]
    n_events: int

    @property
    def holds(self) -> bool:
        """Whether no anomaly was found."""
        return not self.anomalies

    @property
    def counts(self) -> dict[str, int]:
        """How many records, rows or events have each anomaly, by its name."""
        found: dict[str, int] = {}
        for it in self.anomalies:
            found[it.name.value] = found.get(it.name.value, 0) + it.count
        return found

    @property
    def decisions(self) -> dict[str, Decision]:
        """The decision about each invariant."""
        return {name: self._decision(name) for name in INVARIANTS}

    def _decision(self, invariant: str) -> Decision:
        count = sum(it.count for it in self.anomalies if it.invariant == invariant)
        verdict = self.verdict(invariant)
        return Decision(verdict, count, self.undecided[invariant] if verdict == "undecided" else "")

    def verdict(self, invariant: str) -> str:
        """``violated``, ``undecided`` or ``holds``."""
        if any(it.invariant == invariant for it in self.anomalies):
            return "violated"
        return "undecided" if invariant in self.undecided else "holds"

    def __str__(self) -> str:
        lines = [f"{self.n_events:,} events", ""]
        for invariant, text in INVARIANTS.items():
            verdict = self.verdict(invariant)
            reason = f" ({self.undecided[invariant]})" if verdict == "undecided" else ""
            lines.append(f"{invariant:<4} {verdict:<10} {text}{reason}")
        lines += ["", *map(str, self.anomalies)] if self.anomalies else ["", "no anomaly"]
        return "\n".join(lines)


def merged(name: Name, invariant: str, topic_partition: TopicPartition, offsets: Iterable[int]) -> list[Anomaly]:
    """One anomaly for all offsets of a partition; none without offsets.

    >>> merged(Name.DUPLICATE, "I2", TopicPartition("t", 0), [7, 3])
    [Anomaly(name=<Name.DUPLICATE: 'duplicate'>, invariant='I2', count=2, detail='t-0 from offset 3 to 7')]
    """
    found = sorted(offsets)
    if not found:
        return []
    place = f"at offset {found[0]}" if len(found) == 1 else f"from offset {found[0]} to {found[-1]}"
    return [Anomaly(name, invariant, len(found), f"{topic_partition} {place}")]
