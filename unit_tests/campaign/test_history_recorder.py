"""The wrappers that record commits and states in the processes of a query."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integration_tests.history import recorder
from integration_tests.history.events import AssignmentBegun, Commit, Event, StateLoaded, StateWritten
from integration_tests.history.files import read_files
from streamgroups.errors import FencedBatch, SinkUnreachable, StreamGroupsError
from streamgroups.fakes import FakeLedger
from streamgroups.ledgers.batch_commit import commit_batch
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.ports import Committed
from streamgroups.state.origins import Earlier, Fingerprinted, Named, Unnamed
from streamgroups.state.state_time import StateTime

P0 = TopicPartition("t", 0)


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv(recorder.DIRECTORY, str(tmp_path))
    monkeypatch.setenv(recorder.MEMBER, "ann")
    yield tmp_path
    recorder._writer.cache_clear()


def _events(directory: Path) -> list[Event]:
    [path] = directory.glob("ann-*.jsonl")
    return read_files([path])


def _phases(directory: Path) -> list[str]:
    return [it.phase for it in _events(directory) if isinstance(it, Commit)]


TRANSACTION = SimpleNamespace(producer=SimpleNamespace(producer_id=5, epoch=2))
METADATA = SimpleNamespace(group_id="g", generation=4)


@pytest.mark.parametrize(
    ("error", "phase"),
    [
        (None, "accepted"),
        (FencedBatch("gone", remedy="none"), "rejected"),
        (SinkUnreachable("lost", remedy="none"), "unknown"),
        (KeyboardInterrupt(), "unknown"),
    ],
)
def test_a_transaction_has_a_begin_and_an_end(directory: Path, error: BaseException | None, phase: str) -> None:
    def commit(_: Any, __: Any) -> str:
        if error is not None:
            raise error
        return "done"

    recorder.transaction_offsets(lambda *_: None)(None, TRANSACTION, {P0: Committed(9)}, METADATA)
    end = recorder.transaction_end(commit)
    if error is None:
        assert end(None, TRANSACTION) == "done"
    else:
        with pytest.raises(type(error)):
            end(None, TRANSACTION)
    assert _phases(directory) == ["begun", phase]
    [begun, ended] = _events(directory)
    assert isinstance(begun, Commit)
    assert isinstance(ended, Commit)
    assert (begun.process, begun.group, begun.generation, begun.offsets) == ("ann", "g", 4, {P0: 9})
    assert ended.offsets == begun.offsets


def test_a_transaction_without_offsets_is_not_recorded(directory: Path) -> None:
    other = SimpleNamespace(producer=SimpleNamespace(producer_id=6, epoch=0))
    recorder.transaction_offsets(lambda *_: None)(None, other, {}, METADATA)
    recorder.transaction_end(lambda *_: None)(None, other)
    assert not list(directory.iterdir())


def test_a_ledger_accepts_a_batch_once(directory: Path) -> None:
    ledger = FakeLedger("g")
    with ledger.transaction() as transaction:
        transaction.advance({P0: 0})
    recorded = recorder.ledger_commit(commit_batch)
    for _ in range(2):
        recorded(ledger, {"g": [OffsetRange(P0, 0, 9)]}, "nine")
    with pytest.raises(StreamGroupsError):
        recorded(ledger, {"g": [OffsetRange(P0, 9, 20)]}, "ten", epochs={"g": {P0: 7}})
    assert _phases(directory) == ["begun", "accepted", "begun", "unchanged", "begun", "rejected"]
    assert [it.generation for it in _events(directory) if isinstance(it, Commit)] == [None, None, None, None, 7, 7]


@pytest.mark.parametrize(
    ("origin", "named"),
    [
        (Named("f", 5), 5),  # type: ignore[arg-type]
        (Earlier("f", 3), 3),  # type: ignore[arg-type]
        (Fingerprinted(1), 9),
        (Unnamed(), None),
    ],
)
def test_the_state_that_a_position_names_is_recorded(directory: Path, origin: object, named: int | None) -> None:
    position = SimpleNamespace(topic_partition=P0, next_offset=9, origin=origin)
    choice = SimpleNamespace(state=SimpleNamespace(next_offset=4))
    assert recorder.state_found(lambda *_: choice)(None, position) is choice
    [event] = _events(directory)
    assert isinstance(event, StateLoaded)
    assert (event.next_offset, event.named_offset, event.loaded_offset) == (9, named, 4)


@pytest.mark.parametrize(
    ("time", "watermark_ms"), [(None, None), (StateTime(70), 70), (StateTime(70, is_idle=True), None)]
)
def test_the_watermark_of_records_is_recorded(
    directory: Path, time: StateTime | None, watermark_ms: int | None
) -> None:
    new = SimpleNamespace(state=SimpleNamespace(topic_partition=P0, next_offset=4, time=time))
    assert recorder.states_written(lambda *_: "manifest")(None, "file", [new]) == "manifest"
    [event] = _events(directory)
    assert isinstance(event, StateWritten)
    assert event.watermark_ms == watermark_ms


def test_nothing_is_recorded_without_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(recorder.DIRECTORY, raising=False)
    recorder.record(StateWritten, P0, 1, None)


def test_the_generation_of_an_assignment_is_recorded_before_its_partitions(directory: Path) -> None:
    state = SimpleNamespace(group_metadata=METADATA)
    seen: list[Event] = []
    assign = recorder.assignment(lambda self, positions: seen.extend(_events(directory)))
    assign(state, {P0: 5})
    (event,) = seen
    assert isinstance(event, AssignmentBegun)
    assert (event.group, event.generation) == ("g", 4)
    assign(SimpleNamespace(group_metadata=None), {})
    assert len(_events(directory)) == 1
