"""Faults of the cluster: which records a gap excuses, which values are foreign, and which command an operator runs."""

from __future__ import annotations

import doctest
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.campaign import (
    cluster_faults,
    deletions,
    expiry,
    foreign_transactions,
    renaming,
    settings,
    unclean_elections,
)
from integration_tests.campaign.cluster import cluster_of
from integration_tests.campaign.cluster_faults import options_of
from integration_tests.campaign.deletions import Deletion, chosen, with_gaps
from integration_tests.campaign.expiry import remedies
from integration_tests.campaign.recreation import DeletedTopic, Recreations
from integration_tests.campaign.settings import has_fault, parser, settings_of, turns_of
from integration_tests.campaign.storms import Storms
from integration_tests.campaign.turns import CLUSTER_VICTIMS
from integration_tests.campaign.unclean_elections import Truncation, UncleanElections
from integration_tests.campaign.verdict import Verdict, judged
from integration_tests.history.checker import check
from integration_tests.history.events import Acknowledged, Gap, HighWater, Position, Read, Workload, Written
from streamgroups.checkpoints.restart_after_expiry import output_unknown
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups_broker import EmbeddedKafka

P0 = TopicPartition("in", 0)
#: Partition 0 has the records 0, 4, 8 and so on.
PLACES = {str(4 * n): (P0, n) for n in range(10)}
DELETED = [Deletion(0, committed=2, earliest=6)]


def _verdict(*offsets: int) -> tuple[Verdict, list[tuple[int, str]]]:
    arrived = [(0, str(4 * n)) for n in offsets]
    lost = [value for value, (_, n) in PLACES.items() if n not in offsets]
    return Verdict(Counter(), 10, lost=lost), arrived


def test_a_recorded_gap_excuses_its_records_only() -> None:
    verdict, arrived = _verdict(0, 1, 6, 7, 8, 9)
    assert with_gaps(verdict, arrived, PLACES, [OffsetRange(P0, 2, 6)], DELETED).holds
    found = with_gaps(verdict, arrived, PLACES, [OffsetRange(P0, 3, 6)], DELETED)
    assert found.lost == ["8"]


def test_a_record_of_a_gap_must_not_be_in_the_output() -> None:
    verdict, arrived = _verdict(0, 1, 2, 6, 7, 8, 9)
    found = with_gaps(verdict, arrived, PLACES, [OffsetRange(P0, 2, 6)], DELETED)
    assert found.different == ["8 is in the output and in a gap"]


def test_a_gap_must_not_pass_the_deleted_records() -> None:
    verdict, arrived = _verdict(0, 1, 7, 8, 9)
    found = with_gaps(verdict, arrived, PLACES, [OffsetRange(P0, 2, 7)], DELETED)
    assert found.different == ["in-0[2,7) was not deleted"]
    unexpected = with_gaps(verdict, arrived, PLACES, [OffsetRange(P0, 2, 7)], [])
    assert unexpected.different
    assert unexpected.lost


def test_a_deletion_without_a_gap_proves_nothing() -> None:
    verdict, arrived = _verdict(*range(10))
    with pytest.raises(AssertionError, match="no record is in a gap"):
        with_gaps(verdict, arrived, PLACES, [], DELETED)


def test_only_positions_that_a_deletion_passes_are_chosen() -> None:
    committed, ends = {0: 10, 1: 10, 3: 88}, dict.fromkeys(range(4), 90)
    assert chosen(committed, ends, 0) == {0: 85}
    assert chosen(committed, ends, 1) == {1: 85}


def test_an_aborted_record_in_the_output_is_a_difference() -> None:
    verdict = judged("stateless", Counter(), 2, [(0, "0"), (1, "1"), (1, "aborted-1-5")], [])
    assert verdict.different == ["aborted-1-5"]
    assert not verdict.holds


def test_the_commands_of_the_error_are_found() -> None:
    error = output_unknown([OffsetRange(P0, 10, 20), OffsetRange(TopicPartition("in", 1), 0, 4)], "g")
    found = remedies(f"Traceback\n{error}\n")
    assert found is not None
    assert found[0] == "printf '%s\\n' 'in,0,20' 'in,1,4' > positions.csv"
    assert found[1] == "printf '%s\\n' 'in,0,10' 'in,1,0' > positions.csv"
    assert remedies("another error") is None


class VisitorWithoutPartitions:
    """A visitor of a group without partitions for it."""

    n_assigned = 0
    errors: tuple[int, ...] = ()

    def join(self) -> None: ...

    def leave(self) -> None: ...


def test_a_storm_without_rebalances_fails() -> None:
    storms = Storms(lambda *_: VisitorWithoutPartitions(), lambda: True)  # type: ignore[arg-type, return-value]
    with pytest.raises(AssertionError, match="no storm"):
        storms.storm(0)


def test_faults_of_the_cluster_must_be_named() -> None:
    named = settings_of(parser(None).parse_args(["kafka", "--kills", "14", "--faults", *CLUSTER_VICTIMS]))
    usual = settings_of(parser(None).parse_args(["kafka", "--kills", "500"]))
    assert {victim for _, victim in turns_of(named, "kafka", "classic")} == {*CLUSTER_VICTIMS}
    assert not {victim for _, victim in turns_of(usual, "kafka", "classic")} & {*CLUSTER_VICTIMS}
    assert has_fault(named, "expiry")
    assert not has_fault(usual, "expiry")


def test_a_fault_sets_its_options() -> None:
    assert options_of({"hanging"}) == {"kafka.isolation.level": "read_committed"}
    assert options_of({"query", "worker"}) == {}


@pytest.mark.parametrize(
    "module", [cluster_faults, deletions, expiry, foreign_transactions, renaming, settings, unclean_elections]
)
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)


def test_the_old_topic_has_another_name_in_the_history() -> None:
    recreations = Recreations("", "g", "in", dict, dict, lambda: True)
    read = Read(5, "ann", "g", 1, (OffsetRange(P0, 0, 9),))
    assert recreations.convert(read) is read
    old = TopicPartition("in.1", 0)
    recreations.deleted.append(DeletedTopic(8, 10, {old: 9}))
    assert recreations.convert(read) == replace(read, ranges=(OffsetRange(old, 0, 9),))
    assert recreations.convert(Position(7, "observer", "g", {P0: 9})) == Position(7, "observer", "g", {old: 9})
    assert recreations.convert(Position(9, "observer", "g", {P0: 0})) is None
    after = recreations.convert(Position(11, "observer", "g", {P0: 3}))
    assert after == Position(11, "observer", "g", {old: 9, P0: 3})
    assert recreations.convert(Acknowledged(9, "producer", P0, (3,), (0,))) == Acknowledged(
        9, "producer", old, (3,), (0,)
    )
    assert recreations.convert(replace(read, time_ms=10)) == replace(read, time_ms=10)
    assert recreations.convert(HighWater(11, "observer", {P0: 9})) is None


def test_the_logs_before_and_after_an_election_have_other_names_in_the_history() -> None:
    elections = UncleanElections(EmbeddedKafka(), "g", "in", (), dict, dict, lambda: True)
    old, p1 = TopicPartition("in.1", 0), TopicPartition("in", 1)
    read, acknowledged = Read(25, "ann", "g", 1, (OffsetRange(P0, 4, 9), OffsetRange(p1, 0, 3))), Acknowledged
    assert elections.convert(read) == read
    elections.done[P0] = [Truncation(10, 30, old, position=9, end_offset=4)]
    assert elections.convert(read) == replace(read, ranges=(OffsetRange(old, 4, 9), OffsetRange(p1, 0, 3)))
    assert elections.convert(replace(read, time_ms=30)) == replace(read, time_ms=30)
    assert elections.convert(acknowledged(9, "producer", P0, (8,), (0,))) == acknowledged(
        9, "producer", old, (8,), (0,)
    )
    # A record of the new log, at an offset that was read before.
    new = acknowledged(11, "producer", P0, (8,), (0,))
    assert elections.convert(new) == new
    assert elections.convert(Position(9, "observer", "g", {P0: 9, p1: 3})) == Position(
        9, "observer", "g", {old: 9, p1: 3}
    )
    assert elections.convert(Position(29, "observer", "g", {P0: 9})) is None
    after = Position(60_000, "observer", "g", {P0: 5, p1: 3})
    assert elections.convert(after) == replace(after, offsets={old: 9, P0: 5, p1: 3})


def test_an_election_needs_three_brokers(tmp_path: Path) -> None:
    given = parser(None).parse_args(["kafka", "--turns", "after-commit=unclean-election"])
    with pytest.raises(ValueError, match="needs --nodes 3"), cluster_of(settings_of(given), tmp_path):
        pass


def test_retention_and_a_recreated_topic_need_a_campaign_each() -> None:
    with pytest.raises(ValueError, match="a campaign each"):
        options_of({"retention", "topic-recreated"})


def _history(*gaps: Gap) -> list[tuple[str, str]]:
    """The anomalies of a history in which records 0 and 1 and from 6 on were read and written."""
    recorded = ("acknowledged", "position", "read", "commit", "written")
    numbers = tuple(range(10))
    events = [
        Workload(0, "injector", "g", "in", True, True, None, 9_000, recorded),
        Acknowledged(1, "producer", P0, numbers, (0,) * 10),
        Read(2, "ann", "g", 0, (OffsetRange(P0, 0, 2),)),
        *gaps,
        Read(4, "ann", "g", 1, (OffsetRange(P0, 6, 10),)),
        Position(5, "observer", "g", {P0: 10}),
        Written(6, "reader", "output", P0, (0, 1, 6, 7, 8, 9)),
    ]
    return sorted((it.invariant, it.name.value) for it in check(events).anomalies)


def test_only_a_recorded_gap_excuses_a_record_that_no_batch_has_read() -> None:
    assert _history(Gap(3, "ann", "g", (OffsetRange(P0, 2, 6),))) == []
    assert _history() == [("I1", "lost write"), ("I7", "skipped read")]
    assert _history(Gap(3, "ann", "g", (OffsetRange(P0, 2, 5),))) == [("I1", "lost write"), ("I7", "skipped read")]
    assert _history(Gap(3, "ann", "another", (OffsetRange(P0, 2, 6),))) == [
        ("I1", "lost write"),
        ("I7", "skipped read"),
    ]
