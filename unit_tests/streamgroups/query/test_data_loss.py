"""S7, S11: what a query does when the records at its position are not there."""

from __future__ import annotations

import json
from collections.abc import Mapping

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from streamgroups.groups.gaps import MAX_BYTES, Cause, Gap, Gaps
from streamgroups.identity import UNKNOWN, TopicIdentity, fingerprint
from streamgroups.metadata_entries import write_entry
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.query.data_loss import (
    LossPolicies,
    OnDataLoss,
    StoredPosition,
    continue_at,
    data_loss,
    find_loss,
)

P0 = TopicPartition("flights", 0)
A, B = TopicIdentity("c1", "t1"), TopicIdentity("c1", "t2")
ELSEWHERE = TopicIdentity("c2", "t3")
IDS = st.none() | st.sampled_from(["one", "two", "three"])
IDENTITIES = st.builds(TopicIdentity, IDS, IDS)
OFFSETS = st.integers(0, 50)
BOUNDS = st.tuples(OFFSETS, OFFSETS).map(lambda pair: Bounds(*sorted(pair)))
CONTINUING = st.sampled_from([OnDataLoss.SKIP, OnDataLoss.EARLIEST])


@pytest.mark.parametrize(
    ("position", "now", "cause", "skip", "earliest"),
    [
        (StoredPosition(20, A), A, None, None, None),
        (StoredPosition(10, A), A, None, None, None),
        (StoredPosition(30, A), A, None, None, None),
        (StoredPosition(9, A), A, Cause.EXPIRED, 10, 10),
        (StoredPosition(31, A), A, Cause.TRUNCATED, 30, 10),
        (StoredPosition(20, A), B, Cause.RECREATED, 30, 10),
        (StoredPosition(9, A), B, Cause.RECREATED, 30, 10),
        (StoredPosition(31, A), B, Cause.RECREATED, 30, 10),
        (StoredPosition(None, A), B, Cause.RECREATED, 30, 10),
        (StoredPosition(20, A), ELSEWHERE, Cause.OTHER_CLUSTER, 30, 10),
        # Brokers without topic ids, and positions that other tools commit.
        (StoredPosition(20, A), TopicIdentity("c1"), None, None, None),
        (StoredPosition(20), B, None, None, None),
        (StoredPosition(31, A), TopicIdentity("c1"), Cause.TRUNCATED, 30, 10),
        (StoredPosition(20, TopicIdentity("c1")), ELSEWHERE, Cause.OTHER_CLUSTER, 30, 10),
        (StoredPosition(None), B, None, None, None),
    ],
)
def test_the_table(
    position: StoredPosition, now: TopicIdentity, cause: Cause | None, skip: int | None, earliest: int | None
) -> None:
    loss = find_loss(P0, position, now, Bounds(10, 30))
    assert (loss and loss.cause) == cause
    if loss is not None:
        assert [continue_at(loss, policy) for policy in (OnDataLoss.SKIP, OnDataLoss.EARLIEST)] == [skip, earliest]
        with pytest.raises(ValueError, match="to fail"):
            continue_at(loss, OnDataLoss.FAIL)


@given(st.builds(StoredPosition, st.none() | OFFSETS, IDENTITIES), IDENTITIES, BOUNDS, CONTINUING)
@example(StoredPosition(9, A), A, Bounds(10, 30), OnDataLoss.SKIP)
def test_a_position_without_a_loss_is_in_its_topic_and_a_loss_leads_into_it(
    position: StoredPosition, now: TopicIdentity, bounds: Bounds, policy: OnDataLoss
) -> None:
    loss = find_loss(P0, position, now, bounds)
    if loss is None:
        assert not position.identity.differs_from(now)
        assert position.next_offset is None or bounds.beginning_offset <= position.next_offset <= bounds.end_offset
        return
    reached = continue_at(loss, policy)
    assert find_loss(P0, StoredPosition(reached, now), now, bounds) is None, "one move is enough"
    if policy is OnDataLoss.EARLIEST:
        assert reached == bounds.beginning_offset
    elif loss.cause is Cause.EXPIRED:
        assert reached >= (position.next_offset or 0), "nothing is read twice"
    gap = loss.gap(policy, 17).gap
    assert (gap.from_offset, gap.to_offset, gap.time_ms) == (position.next_offset, reached, 17)


@given(IDENTITIES, IDENTITIES)
def test_only_ids_that_are_known_on_both_sides_are_compared(one: TopicIdentity, other: TopicIdentity) -> None:
    assert one.differs_from(other) == other.differs_from(one)
    assert not one.differs_from(UNKNOWN)
    assert not one.differs_from(one.completed_by(other))
    stored = TopicIdentity(*(id_ and fingerprint(id_) for id_ in (one.cluster_id, one.topic_id)))
    assert stored.differs_from(other) == one.differs_from(other), "a fingerprint compares like its id"
    assert stored.completed_by(one) == one


def test_a_partition_s_policy_goes_before_its_topic_s_and_that_before_the_rest() -> None:
    policies = LossPolicies(OnDataLoss.FAIL, {"flights": OnDataLoss.SKIP}, {P0: OnDataLoss.EARLIEST})
    partitions = (P0, TopicPartition("flights", 1), TopicPartition("orders", 0))
    assert [policies.of(tp).value for tp in partitions] == ["earliest", "skip", "fail"]


@given(OFFSETS, BOUNDS, st.none() | OFFSETS, CONTINUING)
def test_a_log_that_was_truncated_behind_the_position_is_read_from_there(
    next_offset: int, bounds: Bounds, epoch_end: int | None, policy: OnDataLoss
) -> None:
    loss = find_loss(P0, StoredPosition(next_offset, A), A, bounds, epoch_end)
    without = find_loss(P0, StoredPosition(next_offset, A), A, bounds)
    if epoch_end is None or next_offset <= epoch_end:
        assert loss == without
        return
    assert loss is not None
    assert loss.cause is (Cause.EXPIRED if next_offset < bounds.beginning_offset else Cause.TRUNCATED)
    reached = continue_at(loss, policy)
    assert bounds.beginning_offset <= reached <= bounds.end_offset
    if loss.cause is Cause.TRUNCATED:
        assert reached == bounds.beginning_offset or (policy is OnDataLoss.SKIP and reached <= epoch_end)
        assert f"truncated at offset {epoch_end}" in str(loss)
    assert find_loss(P0, StoredPosition(reached, A), A, bounds, max(reached, epoch_end)) is None, "one move is enough"


def test_an_error_names_group_partition_positions_both_ids_and_the_way_out() -> None:
    losses = [find_loss(P0, StoredPosition(20, A), ELSEWHERE, Bounds(0, 30))]
    losses.append(find_loss(TopicPartition("orders", 1), StoredPosition(20, A), B, Bounds(5, 30)))
    error = data_loss([loss for loss in losses if loss is not None], "billing")
    assert error.what == (
        "Group 'billing' cannot continue at its positions: flights-0 (position 20 of cluster id c1, current cluster id c2, "
        "available offsets [0, 30)): the bootstrap servers belong to another cluster; orders-1 (position 20 of topic id t1, "
        "current topic id t2, available offsets [5, 30)): the topic was deleted and recreated."
    )
    assert "onDataLoss=earliest" in error.remedy
    assert "streamgroups groups reset billing --topic flights --topic orders --to-earliest --execute" in error.remedy


GAPS = st.builds(
    Gap,
    st.none() | st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(Cause),
    OFFSETS,
    IDENTITIES,
    IDENTITIES,
)


class TestGaps:
    @given(st.lists(GAPS, max_size=60))
    def test_the_newest_that_fit_are_kept_and_the_others_counted(self, found: list[Gap]) -> None:
        gaps = Gaps()
        counted: list[Gap] = []
        for gap in found:
            counted += [gap] if gap not in gaps else []
            gaps = gaps.plus(gap)
        assert len(gaps.encode().encode()) <= MAX_BYTES
        assert (gaps.count, gaps.lost_offsets) == (len(counted), sum(gap.lost_offsets or 0 for gap in counted))
        assert list(gaps.newest) == counted[len(counted) - len(gaps.newest) :]
        assert Gaps.decode(gaps.encode()) == gaps

    def test_some_twenty_fit(self) -> None:
        ids = TopicIdentity("M" * 22, "t" * 22), TopicIdentity("M" * 22, "u" * 22)
        gaps = Gaps()
        for i in range(100):
            gaps = gaps.plus(Gap(10**12 + i, 0, Cause.RECREATED, 1_700_000_000_000 + i, *ids))
        assert (len(gaps.newest) >= 20, gaps.count, gaps.newest[-1].from_offset) == (True, 100, 10**12 + 99)

    def test_what_a_killed_run_records_again_counts_once(self) -> None:
        gaps = Gaps().plus(Gap(5, 9, Cause.EXPIRED, 1, A, A))
        assert gaps.plus(Gap(5, 9, Cause.EXPIRED, 2, A, A)) == gaps

    @pytest.mark.parametrize(
        "entry",
        [[1], [1, 2, "gone", 3, None, None], [1, -2, "expired", 3, None, None], [1, 2, "expired", 3, 4, None], 7, None],
    )
    def test_what_is_no_known_gap_is_stored_again_as_it_is(self, entry: object) -> None:
        gap = Gap(1, 2, Cause.EXPIRED, 3)
        written = write_entry(
            {"gaps": [entry, [1, 2, "expired", 3, None, None]], "dropped": {"moved": 4}, "dropped_offsets": 0}
        )
        gaps = Gaps.decode(written)
        assert (gaps.newest, gaps.unknown_count, gaps.count, gaps.not_kept) == ((gap,), 5, 6, 4)
        later = Gap(5, 6, Cause.EXPIRED, 7)
        again = json.loads(gaps.plus(later).encode())
        assert (again["gaps"][0], len(again["gaps"]), again["dropped"]) == (entry, 3, {"moved": 4})
        for i in range(100):
            gaps = gaps.plus(Gap(i, i + 1, Cause.EXPIRED, i, A, A))
        assert (gaps.unknown_count, gaps.count, len(gaps.encode()) <= MAX_BYTES) == (5, 106, True)

    @pytest.mark.parametrize(
        "changed",
        [
            {"gaps": {}},
            {"gaps": None},
            {"dropped": True},
            {"dropped": {"expired": -1}},
            {"dropped_offsets": -1},
            {"v": 2},
        ],
    )
    def test_G17_an_unreadable_entry_is_not_one_without_gaps(self, changed: Mapping[str, object]) -> None:
        text = json.dumps({**json.loads(Gaps().encode()), **changed})
        assert Gaps.parse(text) is None
        assert Gaps.parse(json.dumps({"v": 1})) is None
        assert Gaps.parse(Gaps().encode()) == Gaps.parse("") == Gaps()
