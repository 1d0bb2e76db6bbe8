"""W10: a watermark that a query imports from a group of another application."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups.event_time.imported_watermark import (
    STANDSTILL_MS,
    ImportState,
    ImportStatus,
    StoredWatermark,
    check_stored,
    imported,
    standstill,
)
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, latest

RUNNING = StoredWatermark(At(5_000), has_members=True, has_offsets=True, generates=True)
STOPPED = StoredWatermark(At(5_000), has_offsets=True, generates=True)
FOLLOWS = StoredWatermark(has_members=True, has_offsets=True, imports=frozenset({"prices"}))
WATERMARKS: st.SearchStrategy[Watermark] = st.one_of(st.just(NOT_YET), st.builds(At, st.integers(0, 50)))


@pytest.mark.parametrize("generates", [True, False])
@pytest.mark.parametrize(
    "groups",
    [
        {"trades": RUNNING},
        {"trades": STOPPED},
        {"trades": StoredWatermark()},
        {"trades": StoredWatermark(has_members=True)},
        {"trades": FOLLOWS, "rates": RUNNING},
        {"trades": FOLLOWS, "rates": StoredWatermark()},
    ],
)
def test_W10_a_group_with_event_time_or_one_that_starts_later_is_accepted(
    groups: dict[str, StoredWatermark], generates: bool
) -> None:
    check_stored("prices", "trades", groups, generates=generates)


@pytest.mark.parametrize("name", ["trades", "rates"])
def test_W10_a_group_without_event_time_is_rejected(name: str) -> None:
    groups = {"trades": RUNNING, name: StoredWatermark(has_members=True, has_offsets=True, lacks_time=True)}
    with pytest.raises(InvalidOption) as rejected:
        check_stored("prices", "trades", groups, generates=True)
    assert f"imports the watermark of group '{name}', which has committed batches without event time" in str(
        rejected.value
    )
    assert "sg.with_event_time" in rejected.value.remedy


def test_W10_groups_that_only_import_from_each_other_have_no_watermark() -> None:
    with pytest.raises(InvalidOption, match="it imports event time along prices <- trades <- rates, and no"):
        check_stored("prices", "trades", {"trades": FOLLOWS, "rates": FOLLOWS}, generates=False)
    check_stored("prices", "trades", {"trades": FOLLOWS, "rates": FOLLOWS}, generates=True)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), WATERMARKS, min_size=1), max_size=8))
def test_W10_the_watermark_is_the_latest_of_the_last_read(reads: list[dict[str, Watermark]]) -> None:
    state = ImportState(0)
    changes = [0]
    for number, found in enumerate(reads, 1):
        before = state.watermark
        state = imported(state, {name: StoredWatermark(it) for name, it in found.items()}, number)
        assert state.watermark == latest(*found.values())
        if state.watermark != before:
            changes.append(number)
        assert state.changed_ms == changes[-1]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (STOPPED, "group trades has no members. If its query has stopped, start it."),
        (StoredWatermark(), "group trades has neither members nor committed offsets. Start its query, or correct"),
        (StoredWatermark(has_members=True), "a partition of this group has no event time yet."),
        (RUNNING, None),
    ],
)
def test_W10_a_watermark_that_does_not_advance_is_reported_once(group: StoredWatermark, expected: str | None) -> None:
    state = ImportState(1_000, group.watermark, {"trades": group})
    assert standstill(state, "prices", "trades", 1_000 + STANDSTILL_MS - 1) is None
    text = standstill(state, "prices", "trades", 1_000 + STANDSTILL_MS)
    if expected is None:
        assert text is None, "an idle group is no error"
        return
    assert text is not None
    assert text.startswith("The watermark that group 'prices' imports from group 'trades' has been ")
    assert expected in text
    reported = ImportState(1_000, group.watermark, {"trades": group}, is_reported=True)
    assert standstill(reported, "prices", "trades", 10 * STANDSTILL_MS) is None
    again = imported(reported, {"trades": StoredWatermark(At(6_000))}, 20 * STANDSTILL_MS)
    assert not again.is_reported


def test_W10_a_stopped_group_on_the_way_is_named() -> None:
    groups = {"trades": FOLLOWS, "rates": STOPPED}
    text = standstill(ImportState(0, At(5_000), groups), "prices", "trades", STANDSTILL_MS)
    assert text is not None
    assert "group rates has no members" in text


def test_the_status_is_a_sentence() -> None:
    status = ImportStatus("trades", NOT_YET, 999)
    assert str(status) == "Watermark of group 'trades', which is imported: none yet, unchanged for 0 s."
