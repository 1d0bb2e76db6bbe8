"""The entries of the topic of an instance: their JSON forms, records of other writers, and the state they fold to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups.instances.entries import (
    MAX_NUMBER,
    Definition,
    Desired,
    Entry,
    Manager,
    Observation,
    Observed,
    Placement,
    Progress,
    Release,
    Removed,
    Replica,
    Worker,
    canonical,
    check_name,
    group_of,
    topic_of,
)
from streamgroups.instances.entry_json import key_of, read_entry, write_entry
from streamgroups.instances.instance_state import InstanceState, apply

_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)
_REPLICAS = st.builds(Replica, _NAMES, st.integers(0, 63))
_NUMBERS = st.integers(1, MAX_NUMBER)
_TIMES = st.integers(0, 10**13)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)
_PLACEMENTS = st.builds(Placement, _REPLICAS, _NAMES, _NUMBERS, _NUMBERS)


@st.composite
def _definitions(draw: st.DrawFn) -> Definition:
    name, replicas = draw(_NAMES), draw(st.integers(1, 64))
    document = {**draw(st.dictionaries(_TEXTS, _JSON, max_size=3)), "name": name, "replicas": replicas}
    return Definition(name, canonical(document), replicas)


_ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    _definitions(),
    st.builds(Desired, _NAMES, st.booleans(), _NUMBERS),
    _PLACEMENTS,
    st.builds(
        Observation,
        _PLACEMENTS,
        st.sampled_from(Observed),
        _TIMES,
        _TEXTS,
        st.none() | _TEXTS,
        st.none() | _TEXTS,
        st.none() | st.builds(Progress, _TIMES, _TIMES, st.none() | _TIMES, st.none() | _TIMES),
    ),
    st.builds(
        Worker, _NAMES, st.integers(1, 64), _TIMES, _TIMES, _TIMES, st.integers(1, 10**6), _TEXTS, _TIMES, st.booleans()
    ),
    st.builds(Release, _NAMES, _TEXTS),
    st.builds(Manager, _NUMBERS, _TIMES, _TIMES, _TIMES, st.integers(1, 10**6), st.integers(0, 99), _TEXTS, _TIMES),
    st.builds(Removed, st.sampled_from(["definition", "desired", "worker", "release"]), _NAMES),
    st.builds(Removed, st.sampled_from(["placement", "observed"]), _REPLICAS),
    st.just(Removed("manager", "")),
)


def test_an_error_with_half_of_a_surrogate_pair_is_written() -> None:
    """Otherwise the thread that renews the lease of the worker would end."""
    seen = Observation(Placement(Replica("late", 0), "w1", 1, 1), Observed.FAILED, 0, error="bad \udcff")
    assert read_entry(*write_entry(seen)) == replace(seen, error="bad ?")


@given(_ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert read_entry(*write_entry(entry)) == entry


@given(st.lists(_ENTRIES, max_size=20))
def test_compaction_does_not_change_the_state(entries: list[Entry]) -> None:
    """A log keeps at least the last record of each key, in its order."""
    whole, compacted = InstanceState(), InstanceState()
    for entry in entries:
        whole = apply(whole, entry)
    last = {key_of(entry): i for i, entry in enumerate(entries)}
    for i in sorted(last.values()):
        compacted = apply(compacted, entries[i])
    for field in ("definitions", "desired", "placements", "observed", "workers", "releases", "manager"):
        assert getattr(whole, field) == getattr(compacted, field)
    assert compacted.next_number <= whole.next_number


_DESIRED = {"v": 1, "running": True, "request": 3}
_PLACEMENT = {"v": 1, "worker": "w1", "number": 3, "request": 3}
_WORKER = json.loads(write_entry(Worker("w1", 4, 1, 1, 1, 6_000))[1] or b"")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"", b"{}"),
        (b"\xff", b"{}"),
        (b"desired", b"{}"),
        (b"desired/", b"{}"),
        (b"desired/late/0", b"{}"),
        (b"desired/../late", b"{}"),
        (b"desired/a.b", _DESIRED),
        (b"other/late", _DESIRED),
        (b"desired/late", b""),
        (b"desired/late", b"\xff"),
        (b"desired/late", b"[]"),
        (b"desired/late", b"[" * 100_000),
        (b"desired/late", {**_DESIRED, "v": 2}),
        (b"desired/late", {**_DESIRED, "v": True}),
        (b"desired/late", {"v": 1}),
        (b"desired/late", {**_DESIRED, "request": 0}),
        (b"desired/late", {**_DESIRED, "request": 2**63}),
        (b"desired/late", {**_DESIRED, "request": "3"}),
        (b"desired/late", {**_DESIRED, "running": "yes"}),
        (b"placement/late", _PLACEMENT),
        (b"placement/late/00", _PLACEMENT),
        (b"placement/late/-1", _PLACEMENT),
        (b"placement/late/64", _PLACEMENT),
        ("placement/late/\u0663".encode(), _PLACEMENT),
        (b"placement/late/0", {**_PLACEMENT, "worker": "../w1"}),
        (b"placement/late/0", {**_PLACEMENT, "worker": None}),
        (b"definition/late", {"v": 1, "document": {"name": "other"}}),
        (b"definition/late", {"v": 1, "document": {"name": "late", "replicas": 65}}),
        (b"definition/late", {"v": 1, "document": {"name": "late", "replicas": True}}),
        (b"definition/late", {"v": 1, "document": {"name": "late", "x": "y" * 500_000}}),
        (b"definition/late", b'{"v":1,"document":{"name":"late","x":"\\ud800"}}'),
        (b"worker/w1", {**_WORKER, "slots": 0}),
        (b"worker/w1", {**_WORKER, "lease_ms": 0}),
        (b"worker/w1", {**_WORKER, "host": "h" * 256}),
        (b"observed/late/0", {**_PLACEMENT, "state": "unknown", "since_ms": 1, "revision": ""}),
        (b"manager", None if False else {"v": 1, "next_number": -1}),
    ],
)
def test_a_record_that_is_no_entry_is_rejected(key: bytes | None, value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_entry(key, json.dumps(value).encode() if isinstance(value, dict) else value)


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60) | _JSON)
def test_any_record_is_an_entry_or_a_value_error(key: bytes | None, value: Any) -> None:
    try:
        entry = read_entry(key, value if isinstance(value, bytes | None) else json.dumps(value).encode())
    except ValueError:
        return
    apply(InstanceState(), entry)


@pytest.mark.parametrize("name", ["", ".", "a.b", "a/b", "-a", "a" * 101, "é", "a b", "a\n"])
def test_names_are_parts_of_groups_topics_and_keys(name: str) -> None:
    with pytest.raises(InvalidOption, match="Use letters"):
        check_name(name, "an instance")


def test_names_of_an_instance() -> None:
    assert check_name("board", "an instance") == "board"
    assert (topic_of("board"), group_of("board", "late")) == ("streamgroups.board", "board.late")
