"""The offsets in checkpoints: written offsets are read, and anything else is rejected with an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.checkpoints.offset import VERSION, BatchOffset, decode, encode
from streamgroups.errors import OffsetFormat
from streamgroups.partitions import OffsetRange, TopicPartition
from unit_tests.streamgroups.strategies import OFFSETS, TOPIC_PARTITIONS, range_lists

GOLDEN = Path(__file__).parent.parent / "golden"
#: The content of the golden files of each version.
MEANT = {
    2: {
        "before the first batch": BatchOffset(0),
        "a batch": BatchOffset(
            7,
            (
                OffsetRange(TopicPartition("flights", 0), 10, 25),
                OffsetRange(TopicPartition("flights", 11), 0, 9_007_199_254_740_993),
                OffsetRange(TopicPartition("flüge", 2), 5, 6),
            ),
            {TopicPartition("flights", 3): 40, TopicPartition("orders", 0): 0},
            cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
            topic_ids={"flights": "59qrCPyIS22TMTuASmyo8Q", "flüge": "Zm9vYmFyYmF6cXV4Zm9vYg"},
        ),
        "brokers without topic ids": BatchOffset(
            8, (), {TopicPartition("flights", 3): 40}, cluster_id="MkU3OEVBNTcwNTJENDM2Qg"
        ),
        "for a group": BatchOffset(8, group_id="board"),
        "after warming up": BatchOffset(0, warm_ups=1, group_id="board"),
    },
}


def test_the_version_is_written_and_read_to_the_letter() -> None:
    written = json.loads((GOLDEN / f"offset_v{VERSION}.json").read_text())
    assert {name: decode(offset) for name, offset in written.items()} == MEANT[VERSION]
    # Order counts: Spark compares offsets as text.
    assert {name: json.dumps(encode(offset)) for name, offset in MEANT[VERSION].items()} == {
        name: json.dumps(offset) for name, offset in written.items()
    }


@given(
    st.builds(
        BatchOffset,
        st.integers(0, 10**9),
        range_lists(),
        st.dictionaries(TOPIC_PARTITIONS, OFFSETS),
        cluster_id=st.none() | st.text(),
        topic_ids=st.dictionaries(st.text(), st.text()),
    )
)
def test_what_is_written_is_read_back(offset: BatchOffset) -> None:
    assert decode(json.loads(json.dumps(encode(offset)))) == offset


@pytest.mark.parametrize(
    "foreign",
    [
        {"flights": {"0": 23, "1": -2}},
        {"version": True, "n": 1, "ranges": {}, "resting": {}},
        {"version": 0, "n": 1, "ranges": {}, "resting": {}},
        [1, 2],
        None,
        7,
    ],
    ids=["a negative offset", "a boolean", "zero", "a list", "nothing", "a number"],
)
def test_the_offset_of_another_source_is_rejected(foreign: Any) -> None:
    with pytest.raises(OffsetFormat) as rejection:
        decode(foreign)
    assert str(rejection.value) == (
        f"The checkpoint contains an offset that streamgroups did not write: {foreign}. "
        "Set another checkpointLocation for this query. The group stores the positions."
    )


@pytest.mark.parametrize(("version", "age"), [(VERSION + 1, "a newer"), (VERSION - 1, "an older")])
def test_what_another_version_wrote_is_rejected(version: int, age: str) -> None:
    with pytest.raises(OffsetFormat) as rejection:
        decode({"version": version, "whatever": []})
    assert str(rejection.value) == (
        f"The checkpoint was written by {age} streamgroups (offset version {version}, supported version {VERSION}). "
        "Install the version that wrote it, or set a new checkpointLocation. The group stores the positions."
    )


@pytest.mark.parametrize(
    "damage",
    [
        {"n": None},
        {"group": 7},
        {"n": -1},
        {"ranges": None},
        {"ranges": {"t": {"0": [5]}}},
        {"ranges": {"t": {"0": [5, 3]}}},
        {"ranges": {"t": {"zero": [3, 5]}}},
        {"ranges": []},
        {"resting": {"t": 5}},
        {"resting": {"t": {"0": -2}}},
        {"cluster": 7},
        {"topics": {"t": 7}},
        {"topics": ["t"]},
    ],
    ids=str,
)
def test_a_damaged_offset_is_rejected_with_a_remedy(damage: dict[str, Any]) -> None:
    with pytest.raises(OffsetFormat, match=r"damaged offset.*Restore the checkpoint"):
        decode({"version": VERSION, "n": 1, "ranges": {}, "resting": {}, **damage})


def test_an_error_does_not_print_a_whole_checkpoint() -> None:
    with pytest.raises(OffsetFormat) as rejection:
        decode({"flights": {str(p): 0 for p in range(10_000)}})
    assert len(str(rejection.value)) < 500


def test_positions_after_a_batch_are_its_ends_and_what_rested() -> None:
    assert MEANT[VERSION]["a batch"].next_offsets == {
        TopicPartition("flights", 0): 25,
        TopicPartition("flights", 11): 9_007_199_254_740_993,
        TopicPartition("flüge", 2): 6,
        TopicPartition("flights", 3): 40,
        TopicPartition("orders", 0): 0,
    }
