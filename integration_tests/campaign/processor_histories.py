"""The histories of the two processors of a campaign: one for each, since each has a group and an output of its own. Used by
``campaign.processors``.

The members write the history of the product (option ``historyDir``), and the processes of the workers append their commits and states to
common files. These processes have no names of members, so I6 is not decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from confluent_kafka import Message

from integration_tests.campaign.history import CampaignHistory
from integration_tests.campaign.processor_faults import FaultyInstance
from integration_tests.campaign.processor_turns import FaultTurn
from integration_tests.campaign.targets import patiently
from integration_tests.history.anomalies import INVARIANTS, Decision, Report
from integration_tests.history.observer import Observer
from streamgroups.partitions import TopicPartition
from streamgroups_testkit.reading import committed_offsets

#: The sink and the kind of each processor.
_KINDS = {"copy": ("kafka", "stateless"), "counts": ("postgres", "windows")}


class ProcessorHistories:
    """Records what both processors do.

    Args:
        instance: their instance.
        max_lag_s: the longest permitted time from the last fault until they have read all records, in seconds.
    """

    def __init__(self, instance: FaultyInstance, max_lag_s: float) -> None:
        self._instance = instance
        self._of = {
            name: CampaignHistory(
                instance.history_of(name),
                instance.group(name),
                instance.source,
                sink,
                kind,
                max_lag_s,
                of_processes=instance.history,
                has_owners=False,
            )
            for name, (sink, kind) in _KINDS.items()
        }
        self._observers: dict[str, Observer] = {}

    def acknowledged(self, message: Message) -> None:
        """Records an acknowledged record of the source."""
        for it in self._of.values():
            it.inputs.acknowledged(message)

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observes the positions and the copies for the duration of the block."""
        with ExitStack() as stack:
            for name, history in self._of.items():
                positions = partial(self._positions, name)
                observer = history.observer(self._instance.bootstrap, self._instance.output, positions)
                self._observers[name] = stack.enter_context(observer)
            yield

    def _positions(self, name: str) -> Mapping[TopicPartition, int]:
        instance = self._instance
        found = patiently(partial(committed_offsets, instance.bootstrap, instance.group(name), instance.source))
        return {TopicPartition(instance.source, p): n for p, n in found.items()}

    def injected(self, turn: FaultTurn) -> None:
        """Records the begin of a fault."""
        for it in self._of.values():
            it.injected(turn.point, turn.fault, "worker")

    def healed(self, turn: FaultTurn) -> None:
        """Records the end of a fault."""
        for it in self._of.values():
            it.healed(turn.point, turn.fault)

    def finish(
        self, copies: Sequence[tuple[int, str]], rows: Sequence[str], count: int, errors: Sequence[str]
    ) -> dict[str, Report]:
        """Checks the histories. Called after the processors have ended.

        Args:
            copies: the partition and the value of each copy.
            rows: the rows of the table as JSON.
            count: the number of records, without those that close windows.
            errors: the errors of states.
        """
        for observer in self._observers.values():
            observer.finish()
        return {
            "copy": self._of["copy"].finish(copies, [], count, []),
            "counts": self._of["counts"].finish([(0, it) for it in rows], [], count, errors),
        }


def decisions(reports: Mapping[str, Report]) -> dict[str, Decision]:
    """The decision about each invariant for both processors. One that holds for a processor, and is undecided for the other, holds.

    >>> from integration_tests.history.anomalies import Anomaly, Name
    >>> wrong = Report([Anomaly(Name.LOST_WRITE, "I1", 2, "t-0")], {"I6": "no owners", "I9": "no states"}, 1)
    >>> found = decisions({"copy": wrong, "counts": Report([], {"I6": "no owners"}, 1)})
    >>> found["I1"].to_text(), found["I9"].to_text(), found["I6"].to_text()
    ('violated: 2', 'holds', 'undecided: no owners')
    """
    found = {}
    for name in INVARIANTS:
        of_both = [it.decisions[name] for it in reports.values()]
        violated = [it for it in of_both if it.verdict == "violated"]
        held = [it for it in of_both if it.verdict == "holds"]
        undecided = of_both or [Decision("undecided", reason="no history")]
        found[name] = Decision("violated", sum(it.count for it in violated)) if violated else (held or undecided)[0]
    return found
