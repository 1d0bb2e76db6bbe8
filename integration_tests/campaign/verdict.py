"""The verdict of a campaign by its output, and that of the checker of histories. Used by ``integration_tests.campaign``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from integration_tests.campaign.computed import COMPUTED, compare_rows, places_apart
from integration_tests.campaign.controls import GIVEN_UP, STUCK, WRONG_FORK, WRONG_SAVEPOINT
from integration_tests.campaign.foreign_transactions import foreign_values
from integration_tests.campaign.resets import RequestedResets, is_letter, order_of, wrong_letters
from integration_tests.campaign.savepoints import SavepointResults
from integration_tests.campaign.turns import CURSORS, LETTER_KINDS, WINDOWS_KINDS, Turn
from integration_tests.campaign.windows import Reset, compare
from integration_tests.history.anomalies import Decision, Report


@dataclass
class Verdict:
    """The result of a campaign.

    Args:
        kills: how often each fault was injected at each point.
        records: the number of records that were produced.
        lost: the records that did not arrive.
        repeated: the records that arrived more than once.
        disordered: partitions whose records did not arrive in order.
        different: of windows: the rows with another result. ``lost`` and ``repeated`` are then rows too. Of others: values of no
            acknowledged record, and differences from the recorded gaps.
        errors: the errors of a state.
        resets: the number of requested resets to known positions.
        unapplied: those that begin no run of the output, by partition.
        savepoints: the savepoints and their forks.
        n_given_up: how often a program has ended by itself, if no fault of the campaign explains it: ``sg.supervise`` restarts a query
            that fails, and ends it only after a permanent error or ten failed runs.
        stuck: what did not happen in time: a point that no process has reached, or records that the group has not read.
        report: the result of the checker of histories, which shares no code with the other parts. ``None``: not checked.
        history: the history, as a file.
    """

    kills: Counter[Turn]
    records: int
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    resets: int = 0
    unapplied: list[str] = field(default_factory=list)
    savepoints: SavepointResults = field(default_factory=SavepointResults)
    n_given_up: int = 0
    stuck: list[str] = field(default_factory=list)
    report: Report | None = None
    history: Path | None = None

    @property
    def holds(self) -> bool:
        found = (self.lost, self.repeated, self.disordered, self.different, self.errors, self.unapplied)
        is_correct = not any(
            (*found, self.stuck, self.n_given_up, self.savepoints.differences, self.savepoints.problems)
        )
        return is_correct and (self.report is None or self.report.holds)

    @property
    def anomalies(self) -> dict[str, int]:
        """How many records, rows or events have each anomaly, by the checker of histories; savepoints and forks with a wrong
        content; and steps that did not end in time.
        """
        found = {} if self.report is None else dict(self.report.counts)
        found |= {WRONG_SAVEPOINT: len(self.savepoints.problems), WRONG_FORK: len(self.savepoints.differences)}
        found |= {STUCK: len(self.stuck), GIVEN_UP: self.n_given_up}
        return {name: n for name, n in found.items() if n}

    @property
    def victims(self) -> dict[str, int]:
        """How often each fault was injected."""
        return dict(Counter(victim for _, victim in self.kills.elements()))

    @property
    def points(self) -> dict[str, int]:
        """How often a fault was injected at each point."""
        return dict(Counter(point for point, _ in self.kills.elements()))

    @property
    def invariants(self) -> dict[str, Decision]:
        """The decision of the checker of histories about each invariant."""
        return {} if self.report is None else self.report.decisions

    @property
    def is_out_of_reach(self) -> bool:
        """Whether nothing is wrong but that a fault was not injected: no process has reached its point."""
        return self.anomalies.keys() == {STUCK} and any(" passes " in it for it in self.stuck)

    def __str__(self) -> str:
        return (
            f"{self.kills.total()} kills {self.victims} {self.points}, {self.records} records, "
            f"{len(self.lost)} lost{_from_to(self.lost)}, {len(self.repeated)} twice{_from_to(self.repeated)}, "
            f"{len(self.different)} different{_from_to(self.different)}, "
            f"partitions out of order: {self.disordered or 'none'}, errors of states: {self.errors or 'none'}, "
            f"{self.resets} resets, not applied: {self.unapplied or 'none'}, "
            f"anomalies: {self.anomalies or 'none'}{''.join(f'; stuck: {it}' for it in self.stuck)}"
        )


def _from_to(values: Sequence[str]) -> str:
    """The first and last of the affected records or rows, for the search in the logs."""
    return f" (between {values[0]} and {values[-1]})" if values else ""


def judged(
    kind: str,
    kills: Counter[Turn],
    n_records: int,
    arrived: Sequence[tuple[int, str]],
    resets: Sequence[Reset],
    letters: Sequence[str] = (),
    n_right: int = 0,
) -> Verdict:
    """The verdict of all kinds but ``zombies``, by the number of records.

    Args:
        kind: the kind.
        kills: how often each fault was injected at each point.
        n_records: the number of records.
        arrived: (partition, value) of the output.
        resets: the applied resets.
        letters: the values of the dead letters.
        n_right: the number of records of the right topic of a join.
    """
    if kind == CURSORS:
        # The checker of histories decides by the recorded messages.
        return Verdict(kills, n_records)
    if kind in COMPUTED:
        rows = compare_rows(COMPUTED[kind].expected(n_records, n_right), [value for _, value in arrived])
        different = rows.different + (places_apart(arrived) if kind == "repartition" else [])
        return Verdict(kills, n_records + n_right, rows.lost, rows.repeated, different=different)
    if kind in WINDOWS_KINDS:
        found = compare((value for _, value in arrived), n_records, resets)
        return Verdict(kills, n_records, found.missing, found.repeated, different=found.different)
    of_letters = {str(i) for i in range(n_records) if kind in LETTER_KINDS and is_letter(i)}
    expected = {str(i) for i in range(n_records)} - of_letters
    foreign = foreign_values(value for _, value in arrived)
    arrived = [(partition, value) for partition, value in arrived if value.isdigit()]
    values = Counter(value for _, value in arrived)
    in_order: dict[int, list[int]] = {}
    for partition, value in arrived:
        in_order.setdefault(partition, []).append(int(value))
    return Verdict(
        kills,
        n_records,
        lost=sorted((expected - values.keys()) | (of_letters - {*letters}), key=int),
        repeated=sorted(
            (value for n_times in (values, Counter(letters)) for value, n in n_times.items() if n > 1), key=int
        ),
        # Spark processes grouped records in no defined order.
        disordered=sorted(p for p, numbers in in_order.items() if kind != "stateful" and numbers != sorted(numbers)),
        # A record is in the output or a dead letter, and never both.
        different=[*foreign, *sorted(of_letters & values.keys(), key=int), *sorted({*letters} - of_letters, key=int)],
    )


def judged_by_order(
    kills: Counter[Turn],
    n_records: int,
    arrived: Sequence[tuple[int, str]],
    letters: Sequence[str],
    requested: RequestedResets,
) -> Verdict:
    """The verdict of ``zombies``, by the order of the output."""
    found = order_of(arrived, n_records, requested.done, letters=True)
    lost, repeated = wrong_letters(found, letters, n_records)
    return Verdict(
        kills,
        n_records,
        lost=found.lost + lost,
        repeated=found.repeated + repeated,
        resets=requested.n_requests,
        unapplied=found.unapplied,
    )


def without_the_rest(verdict: Verdict, stuck: list[str]) -> Verdict:
    """The verdict of a campaign that did not settle. Records that were not read are not lost: the checker of histories decides by
    the positions.

    Args:
        verdict: the verdict by the whole output.
        stuck: what did not happen in time.
    """
    return replace(verdict, lost=[], unapplied=[], stuck=stuck)
