"""The difference that ``streamgroups processors apply`` prints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.instances.definition_diff import Difference, Kind, differences
from streamgroups.instances.entries import Definition, Desired, canonical
from streamgroups.instances.instance_state import InstanceState

WINDOWS = {"windows": {"on": "dep", "window": {"tumbling": "1 hour"}}}


def compared(before: dict[str, Any] | None, after: dict[str, Any] | None, **state: Any) -> Difference:
    definitions = [
        {} if it is None else {"late": Definition("late", canonical({"name": "late", **it}))} for it in (before, after)
    ]
    (found,) = differences(InstanceState(definitions[0], **state), definitions[1])
    return found


def test_each_processor_has_one_kind() -> None:
    assert compared(None, {}).kind is Kind.ADDED
    assert compared({}, None).kind is Kind.MISSING
    assert compared({"a": 1}, {"a": 1}) == Difference("late", Kind.UNCHANGED, False)
    assert compared({"a": 1}, {"a": 2}).kind is Kind.CHANGED
    assert compared({"a": 1}, {"a": 2}, desired={"late": Desired("late", True, 1)}).is_running


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["a.b[1]: 2 -> 3"]),
        ({"a": [1]}, {"a": [1, {"c": "é"}]}, ['a[1]: added {"c": "é"}']),
        ({"a": 1, "b": None}, {"b": None}, ["a: removed 1"]),
        ({"a": 1}, {"a": True}, ["a: 1 -> true"]),
        ({"a": None}, {}, ["a: removed null"]),
        ({"a": []}, {"a": {}}, ["a: [] -> {}"]),
    ],
)
def test_changes_have_a_path(before: dict[str, Any], after: dict[str, Any], expected: list[str]) -> None:
    assert list(map(str, compared(before, after).changes)) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([WINDOWS], [{"windows": {"on": "arr"}}], "Step 'windows' has state, and its definition changes"),
        ([WINDOWS], [], "Step 'windows' has state, and is removed"),
        ([], [WINDOWS], "Step 'windows' has state, and is new"),
        ([{"dedup": {"name": "x"}}], [{"dedup": {"name": "x", "id": ["a"]}}], "Step 'dedup' with name 'x' has state"),
    ],
)
def test_a_changed_state_has_a_recipe(before: list[Any], after: list[Any], expected: str) -> None:
    (warning,) = compared({"steps": before}, {"steps": after}).warnings
    assert warning.startswith(expected)
    assert "onMissingState=empty" in warning or "onOtherProgram=continue" in warning


def test_other_steps_change_no_state() -> None:
    before = {"steps": [{"sql": "SELECT 1"}, WINDOWS]}
    assert not compared(before, {"steps": [{"sql": "SELECT 2"}, {"sql": "SELECT 3"}, WINDOWS]}).warnings
    assert not compared({"steps": "?"}, {"steps": [7, {"sql": 1}]}).warnings


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from("xyz"), _JSON), st.dictionaries(st.sampled_from("xyz"), _JSON))
def test_definitions_differ_if_and_only_if_they_have_changes(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = compared(before, after)
    assert bool(found.changes) == (canonical(before) != canonical(after))
    assert len({it.path for it in found.changes}) == len(found.changes)
