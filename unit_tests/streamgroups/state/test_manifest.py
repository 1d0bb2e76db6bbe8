"""S10, S11: names and manifests of state files survive storage, and damaged ones are rejected."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState, Segment, decode, encode
from streamgroups.state.state_time import GroupWindows, StateTime

FILES = st.builds(
    StateFileName,
    st.integers(0, 9_999_999_999_999),
    st.text("0123456789abcdef", min_size=12, max_size=12),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.booleans(),
)
FILE = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
OTHER = StateFileName(1732334878000, "1f3a9c2b7d10", 16, 40)


def segments(file: StateFileName) -> st.SearchStrategy[tuple[Segment, ...]]:
    return st.lists(
        st.builds(
            Segment, st.one_of(st.just(file), FILES), st.integers(0, 50), st.integers(1, 10**9), st.integers(0, 10**12)
        ),
        max_size=4,
    ).map(tuple)


#: Those of Spark's timestamps.
EVENT_TIMES = st.none() | st.integers(-(2**63) // 1_000, 2**63 // 1_000)
GROUPS = st.none() | st.builds(GroupWindows, EVENT_TIMES, EVENT_TIMES)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    file = draw(FILES)
    cluster_id = draw(st.none() | st.text(max_size=22))
    states = draw(
        st.lists(
            st.builds(
                lambda tp, first, length, began, topic_id, parts, values, due_ms, time, after: PartitionState(
                    OffsetRange(tp, first, first + length),
                    began,
                    TopicIdentity(cluster_id, topic_id),
                    parts,
                    values,
                    due_ms,
                    time,
                    after,
                ),
                st.builds(TopicPartition, st.text(max_size=20), st.integers(0, 1000)),
                st.integers(0, 10**15),
                st.integers(0, 10**6),
                st.integers(0, 10**15),
                st.none() | st.text(max_size=22),
                st.dictionaries(st.text(max_size=15), segments(file), max_size=3),
                st.dictionaries(
                    st.text(max_size=9), st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9)
                ),
                st.none() | st.integers(-(10**12), 10**14),
                st.none() | st.builds(StateTime, EVENT_TIMES, EVENT_TIMES, st.booleans(), GROUPS),
                st.none() | FILES,
            ),
            max_size=3,
        )
    )
    return Manifest(
        file, draw(st.text(max_size=20)), draw(st.text(max_size=9)), draw(st.text(max_size=99)), tuple(states)
    )


@given(FILES)
def test_S10_a_name_is_read_as_it_was_written(file: StateFileName) -> None:
    assert StateFileName.parse(str(file)) == file


@pytest.mark.parametrize(
    "text",
    [
        "",
        "README.md",
        ".1732334879123-1f3a9c2b7d10-17-42.state",
        "1732334879123-1f3a9c2b7d10-17-42.state\n",
        "1732334879123-1F3A9C2B7D10-17-42.state",
        "1732334879123-1f3a9c2b7d10-17-42-Apart.state",
        "1732334879123-1f3a9c2b7d10-017-42.state",
        "1732334879123-1f3a9c2b7d10-17-99999999999999999999.state",
        "9999999999999999-1f3a9c2b7d10-17-42.state",
    ],
)
def test_S10_other_texts_are_not_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a state file"):
        StateFileName.parse(text)


@given(manifests())
def test_S10_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert decode(encode(manifest), manifest.file) == manifest


def example() -> Manifest:
    state = PartitionState(
        OffsetRange(TopicPartition("flights", 3), 10, 25),
        0,
        TopicIdentity("c1", "t1"),
        {"1732334820000": (Segment(OTHER, 0, 12, 840), Segment(FILE, 0, 7, 490))},
        {"newest_ms": 1732334870000},
    )
    return Manifest(FILE, "billing", "windows", "count(*)", (state,))


def test_S10_a_manifest_names_all_files_that_its_states_need() -> None:
    assert example().files == {FILE, OTHER}
    state = example().state_of(TopicPartition("flights", 3))
    assert state is not None
    assert state.next_offset == 25
    assert example().state_of(TopicPartition("flights", 4)) is None


def test_S11_the_states_of_a_file_belong_to_one_cluster() -> None:
    states = tuple(
        PartitionState(OffsetRange(TopicPartition("flights", p), 0, 1), 0, TopicIdentity(cluster))
        for p, cluster in enumerate(["c1", "c2"])
    )
    with pytest.raises(ValueError, match="one cluster"):
        encode(Manifest(FILE, "billing", "windows", "", states))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["version"], 2),
        (["version"], "1"),
        (["files"], {}),
        (["files"], ["../../etc/passwd"]),
        (["form"], None),
        (["states"], None),
        (["states", 0, "to"], 9),
        (["states", 0, "from"], -1),
        (["states", 0, "partition"], "3"),
        (["states", 0, "began"], 1.5),
        (["states", 0, "id"], 7),
        (["states", 0, "due_ms"], 2**62),
        (["states", 0, "time"], [5, 5, False]),
        (["states", 0, "time"], ["5", None, False, None]),
        (["states", 0, "time"], [5, 2**63, False, None]),
        (["states", 0, "time"], [5, 5, 1, None]),
        (["states", 0, "time"], [5, 5, False, [5]]),
        (["states", 0, "time"], [5, 5, False, [5, "9"]]),
        (["states", 0, "values", "newest_ms"], [1]),
        (["states", 0, "values", "newest_ms"], 2**63),
        (["states", 0, "parts"], []),
        (["states", 0, "parts", "1732334820000"], [[2, 0, 12, 840]]),
        (["states", 0, "parts", "1732334820000"], [[-1, 0, 12, 840]]),
        (["states", 0, "parts", "1732334820000"], [[0, 0, 12]]),
    ],
)
def test_S10_a_damaged_manifest_is_an_error(path: list[str | int], value: object) -> None:
    document = json.loads(encode(example()))
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    with pytest.raises(ValueError):  # noqa: PT011  The reasons differ.
        decode(json.dumps(document), FILE)


@pytest.mark.parametrize("field", ["operator", "form", "group", "cluster", "files", "states"])
def test_S10_an_incomplete_manifest_is_an_error(field: str) -> None:
    document = json.loads(encode(example()))
    del document[field]
    with pytest.raises(ValueError, match="its manifest is damaged"):
        decode(json.dumps(document), FILE)
