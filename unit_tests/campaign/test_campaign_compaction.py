"""Compacted records of a campaign: only those that were removed after the position may be missing from the output."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Callable

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
    """The position is 1, and the offsets from 3 arrive while the members are frozen. The offsets 0, 2 and 4 are removed."""
    found = Compactions("", "in", [], lambda: {0: 1}, lambda: {0: 3}, PLACES)
    monkeypatch.setattr(found, "_missing", lambda: {(0, 0), (0, 2), (0, 4)})
    policies: list[str] = []
    monkeypatch.setattr(found, "_set_policy", policies.append)
    monkeypatch.setattr(compaction, "wait_until", _without_pauses)
    monkeypatch.setattr(compaction, "_APPLIED_S", 0.0)
    found.compact()
    assert policies == ["compact", "delete"]
    return found


def _without_pauses(condition: Callable[[], object], what: str, *_: float) -> None:
    assert any(condition() for _ in range(5)), what


def _judged(compactions: Compactions, arrived: str) -> tuple[Verdict, list[OffsetRange]]:
    lost = [it for it in PLACES if it not in arrived]
    return compactions.judge(Verdict(Counter(), 6, lost=lost), [(0, it) for it in arrived])


def test_the_examples() -> None:
    assert doctest.testmod(compaction)[0] == 0


def test_a_removed_record_can_be_missing(compactions: Compactions) -> None:
    verdict, ranges = _judged(compactions, "0135")
    assert (verdict.holds, ranges) == (True, [OffsetRange(P0, 2, 3), OffsetRange(P0, 4, 5)])


def test_a_query_can_have_read_a_record_before_it_was_removed(compactions: Compactions) -> None:
    verdict, ranges = _judged(compactions, "01235")
    assert (verdict.holds, ranges) == (True, [OffsetRange(P0, 4, 5)])


def test_a_removed_record_before_the_position_cannot_be_missing(compactions: Compactions) -> None:
    assert _judged(compactions, "135")[0].lost == ["0"]


def test_a_record_of_the_topic_cannot_be_missing(compactions: Compactions) -> None:
    assert _judged(compactions, "015")[0].lost == ["3"]


def test_a_record_that_no_query_can_have_read_cannot_be_there(compactions: Compactions) -> None:
    assert _judged(compactions, "01345")[0].different == ["(0, 4) is in the output and was never read"]


def test_without_a_compaction_each_record_is_there() -> None:
    without = Compactions("", "in", [], dict, dict, PLACES)
    assert _judged(without, "01345")[0].lost == ["2"]


def test_gaps_of_one_kind_only() -> None:
    with pytest.raises(ValueError, match="compaction and retention need a campaign each"):
        options_of({"retention", "compaction"})
