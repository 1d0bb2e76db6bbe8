"""Compacted records of a campaign: only those that the topic does not have any more may be missing from the output."""

from __future__ import annotations

import doctest
from collections import Counter

import pytest

from integration_tests.campaign import compaction
from integration_tests.campaign.cluster_faults import options_of
from integration_tests.campaign.compaction import Compactions
from integration_tests.campaign.verdict import Verdict
from streamgroups.partitions import OffsetRange, TopicPartition

P0 = TopicPartition("in", 0)
PLACES = {str(n): (P0, n) for n in range(6)}


@pytest.fixture
def compactions(monkeypatch: pytest.MonkeyPatch) -> Compactions:
    """The topic does not have the offsets 0 and 2 any more. The position is 1."""
    found = Compactions("", "g", "in", [], lambda: {0: 1}, PLACES)
    monkeypatch.setattr(found, "_removed", lambda: {(0, 0), (0, 2)})
    return found


def _judged(compactions: Compactions, arrived: str) -> tuple[Verdict, list[OffsetRange]]:
    lost = [it for it in PLACES if it not in arrived]
    return compactions.judge(Verdict(Counter(), 6, lost=lost), [(0, it) for it in arrived])


def test_the_examples() -> None:
    assert doctest.testmod(compaction)[0] == 0


def test_a_removed_record_can_be_missing(compactions: Compactions) -> None:
    assert compactions._available() == {(0, 2)}
    compactions.compact()
    assert compactions.n_removed == 1
    verdict, ranges = _judged(compactions, "01345")
    assert (verdict.lost, ranges) == ([], [OffsetRange(P0, 2, 3)])


def test_a_record_of_the_topic_cannot_be_missing(compactions: Compactions) -> None:
    compactions.compact()
    verdict, ranges = _judged(compactions, "0145")
    assert (verdict.lost, len(ranges)) == (["3"], 1)


def test_a_compaction_without_effect_is_no_fault(compactions: Compactions) -> None:
    compactions.compact()
    with pytest.raises(AssertionError, match="all records that compactions have removed"):
        _judged(compactions, "012345")


def test_without_a_compaction_each_record_is_there(compactions: Compactions) -> None:
    assert _judged(compactions, "01345")[0].lost == ["2"]


def test_gaps_of_one_kind_only() -> None:
    with pytest.raises(ValueError, match="compaction and retention need a campaign each"):
        options_of({"retention", "compaction"})
