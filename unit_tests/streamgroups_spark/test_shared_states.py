"""P2: workers of several hosts share the directories of states, or a processor with state is rejected at its start."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.instances.entries import (
    Definition,
    Desired,
    Entry,
    Observation,
    Observed,
    Placement,
    Replica,
    Worker,
    canonical,
)
from streamgroups.instances.instance_state import InstanceState, apply
from streamgroups.processors.processor import FunctionCall, Processor, Source
from streamgroups_spark.workers.shared_states import announce, check_shared

GROUP = "board.late"


@pytest.fixture(autouse=True)
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The local directory of the worker that runs the test."""
    monkeypatch.setenv("STREAMGROUPS_PROCESSORS", str(tmp_path / "local"))
    return tmp_path / "local"


def late(location: str | None = None) -> Processor:
    options = {"subscribe": "flights"} | ({} if location is None else {"stateLocation": location})
    dedup = FunctionCall("dedup", {"key": ["key"]})
    return Processor("late", Source("prod", options), steps=(dedup,))


def state(*entries: Entry) -> InstanceState:
    """Two workers on two hosts, and the entries."""
    found = InstanceState()
    leases = (Worker(f"w{i}", 4, 0, 3, 0, 6_000, host=host) for i, host in ((1, "a"), (2, "b")))
    definition = Definition("late", canonical({"name": "late", "replicas": 2}), 2)
    for entry in (*leases, definition, Desired("late", True, 1), *entries):
        found = apply(found, entry)
    return found


def running_on_w2() -> tuple[Entry, ...]:
    placement = Placement(Replica("late", 1), "w2", 5, 1)
    return placement, Observation(placement, Observed.RUNNING, 0)


def test_a_local_directory_of_several_hosts_is_rejected() -> None:
    announce("a")
    with pytest.raises(
        InvalidOption, match=r"'late' is '.*local'\. On host 'a' it has no file of the worker on host 'b'"
    ):
        check_shared(late(), GROUP, "a", state())


def test_a_shared_directory_is_accepted() -> None:
    announce("a")
    announce("b")
    check_shared(late(), GROUP, "a", state())


def test_a_worker_that_has_not_started_is_no_evidence() -> None:
    announce("a")
    check_shared(late(), GROUP, "a", apply(state(), Worker("w2", 4, 0, 0, 0, 6_000, host="b")))


def test_a_location_of_a_host_is_rejected_when_another_host_uses_its_own(tmp_path: Path) -> None:
    location = (tmp_path / "states").as_uri()
    with pytest.raises(InvalidOption, match=r"'stateLocation' of processor 'late'.* Set 'stateLocation'"):
        check_shared(late(location), GROUP, "a", state(*running_on_w2()))


def test_a_location_that_both_hosts_see_is_accepted(tmp_path: Path) -> None:
    location = str(tmp_path / "states")
    check_shared(late(location), GROUP, "b", state())
    check_shared(late(location), GROUP, "a", state(*running_on_w2()))


def test_a_location_of_another_processor_is_no_evidence(tmp_path: Path) -> None:
    location = str(tmp_path / "states")
    check_shared(late(location), "board.other", "b", state())
    with pytest.raises(InvalidOption):
        check_shared(late(location), GROUP, "a", state(*running_on_w2()))


def test_a_processor_without_state_and_an_object_store_need_no_file(tmp_path: Path) -> None:
    stateless = Processor("late", Source("prod", {"subscribe": "flights"}))
    check_shared(stateless, GROUP, "a", state(*running_on_w2()))
    check_shared(late("s3://bucket/states?region=eu-north-1"), GROUP, "a", state(*running_on_w2()))
    assert not list(tmp_path.rglob(".*"))
