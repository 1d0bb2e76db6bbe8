"""The outputs of a campaign as events: records by their places, and rows of windows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration_tests.campaign.computed import ComputedRow
from integration_tests.campaign.history import CampaignHistory
from integration_tests.history.events import (
    Acknowledged,
    Event,
    ExpectedRow,
    HighWater,
    Position,
    UnknownWritten,
    Written,
    WrittenRow,
)
from integration_tests.history.files import read_files
from integration_tests.history.observer import DeltaHighWater, Observer
from integration_tests.history.outputs_read import (
    Inputs,
    expected_computed,
    expected_rows,
    written,
    written_rows,
)
from streamgroups.partitions import TopicPartition
from streamgroups_testkit.waits import wait_until
from unit_tests.campaign.test_campaign_windows import COUNT, ROWS

P1 = TopicPartition("t", 1)


def _message(offset: int, value: bytes, partition: int = 1) -> Any:
    content = {"topic": "t", "partition": partition, "offset": offset, "value": value, "timestamp": (1, 70)}
    return SimpleNamespace(**{name: lambda it=it: it for name, it in content.items()})


def test_acknowledged_records_have_one_event_for_each_partition() -> None:
    found: list[Event] = []
    inputs = Inputs(lambda *events: found.extend(events))
    for offset in range(3):
        inputs.acknowledged(_message(offset, f"{offset}....".encode()))
    inputs.acknowledged(_message(9, b"x", partition=0))
    assert not found
    inputs.flush()
    inputs.flush()
    assert [(it.topic_partition.partition, it.offsets) for it in found if isinstance(it, Acknowledged)] == [
        (0, (9,)),
        (1, (0, 1, 2)),
    ]
    assert inputs.places["2"] == (P1, 2)


def test_a_record_of_the_output_is_that_of_its_value() -> None:
    places = {str(i): (P1, i) for i in range(2_000)}
    found = list(written("output", [*map(str, range(1_500)), "absent"], places))
    assert [len(it.offsets) for it in found if isinstance(it, Written)] == [1_000, 500]
    assert [it.value for it in found if isinstance(it, UnknownWritten)] == ["absent"]


def test_rows_of_windows_are_those_of_the_plain_program() -> None:
    expected = [it for it in expected_rows("t", COUNT) if isinstance(it, ExpectedRow)]
    rows = [it for it in written_rows(ROWS) if isinstance(it, WrittenRow)]
    assert {(it.row, it.result) for it in expected} == {(it.row, it.result) for it in rows}
    assert 0 < sum(it.is_last for it in expected) < len(expected)


def test_a_campaign_without_an_anomaly_has_one_file(tmp_path: Path) -> None:
    history = CampaignHistory(tmp_path, "g", "t", "kafka", "stateless", 60)
    for offset in range(3):
        history.inputs.acknowledged(_message(offset, str(offset).encode()))
    history.inputs.flush()
    history.injected("mid-read", "query", "ann")
    history.healed("mid-read", "query")
    history.reset("requested", 5, {1: 2})
    history.reset("applied", 6, {1: 2})
    observer = Observer(history.record, "g", "t", lambda: {P1: 3}, lambda: {1: 3})
    observer.finish()
    report = history.finish([(1, "0"), (1, "1"), (1, "2")], [], 3, [])
    assert report.counts == {"skipped read": 3}, "no member has recorded a batch"
    events = read_files([history.file])
    assert report.n_events == len(events)
    assert "I9   undecided" in str(report)
    wrong = CampaignHistory(tmp_path / "other", "g", "t", "delta", "windows", 60)
    assert wrong.finish([], [], 4, ["StateMissing: t-1"]).counts == {"stale state": 1}


def test_an_observer_records_positions_before_outputs() -> None:
    found: list[Event] = []
    observer = Observer(lambda *events: found.extend(events), "g", "t", lambda: {P1: 3}, lambda: None)
    observer.observe()
    assert [type(it) for it in found] == [Position], "the output cannot be read now"
    Observer(lambda *events: found.extend(events), "g", "t", lambda: {P1: 3}, lambda: {1: 2}).observe()
    assert [type(it) for it in found] == [Position, Position, HighWater]


def test_the_failure_of_an_observer_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integration_tests.history.observer._INTERVAL_S", 0.001)
    calls: list[int] = []

    def positions() -> dict[TopicPartition, int]:
        calls.append(1)
        raise KeyError("gone")

    observer = Observer(lambda *_: None, "g", "t", positions, None)
    with pytest.raises(AssertionError, match="the observer has failed"), observer:
        wait_until(lambda: calls, "the observer has begun", 10)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "_delta_log").mkdir()
    return tmp_path


def _commit(table: Path, version: int, offsets: list[int]) -> None:
    name = f"part {version}.parquet"
    pq.write_table(pa.table({"partition": [n % 2 for n in offsets], "offset": offsets}), table / name)
    actions = [{"commitInfo": {}}, {"add": {"path": name.replace(" ", "%20")}}]
    (table / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def test_the_output_of_a_table_is_read_by_its_log(table: Path) -> None:
    read = DeltaHighWater(table)
    assert read() == {}
    _commit(table, 0, [0, 1, 2, 3])
    assert read() == {0: 3, 1: 4}
    _commit(table, 1, [4])
    assert read() == {0: 5, 1: 4}


def test_rows_of_records_that_were_not_produced_can_be_in_the_output_and_need_not() -> None:
    """A campaign that does not settle has no records that close windows."""
    rows = [ComputedRow(0, "row 0", "n 1"), ComputedRow(900, "row 900", "n 2")]
    places = {"0": (TopicPartition("t", 0), 0)}
    found = list(expected_computed(rows, places))
    assert [(it.row, it.is_last) for it in found if isinstance(it, ExpectedRow)] == [
        ("row 0", True),
        ("row 900", False),
    ]
