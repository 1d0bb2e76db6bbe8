"""The record of campaigns counts faults and violations, and adds no line twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.campaign import record as campaign_record
from integration_tests.campaign.record import Recorded, add, page
from integration_tests.campaign.results import EXAMPLE, Result
from integration_tests.campaign.turns import KINDS


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(campaign_record, "LINES", tmp_path / "campaigns.jsonl")
    monkeypatch.setattr(campaign_record, "TABLES", tmp_path / "campaign-table.rst")
    return tmp_path


def test_a_line_is_added_once(record: Path) -> None:
    add([EXAMPLE.to_line()])
    add([EXAMPLE.to_line(), replace(EXAMPLE, seed=8, twice=0).to_line(), ""])
    assert len((record / "campaigns.jsonl").read_text().splitlines()) == 2
    text = (record / "campaign-table.rst").read_text()
    assert "6 faults in 2 campaigns with all protections, 2,400 records, 1 violations." in text
    assert "7, 8" in text


def test_each_promise_and_workload_has_its_figures() -> None:
    workloads = {it for of in campaign_record._PROMISES.values() for it in of}
    assert workloads == {*KINDS, "processors"} == campaign_record._WORKLOADS.keys()
    guarantees = campaign_record.DOCS.joinpath("guarantees.rst").read_text()
    for promise in campaign_record._PROMISES:
        assert f"   * - {promise}\n" in guarantees
    chained = replace(EXAMPLE, kind="chained", twice=0)
    text = page([Recorded.of(_line(it)) for it in (replace(EXAMPLE, twice=0), chained)])
    rows = {it.split("  ")[0]: it.split()[-5:] for it in text.splitlines()}
    assert rows["A group shares a topic; no record is lost; a partition has one owner"] == ["2", "2", "6", "2,400", "0"]
    assert rows["State follows its partition"] == ["1", "1", "3", "1,200", "0"]


def test_a_control_is_no_violation_of_the_product() -> None:
    control = replace(EXAMPLE, sabotaged="fence", anomalies={"duplicate": 5})
    campaigns = [Recorded.of(_line(it)) for it in (replace(EXAMPLE, twice=0), control)]
    text = page(campaigns)
    assert "3 faults in 1 campaigns with all protections, 1,200 records, 0 violations." in text
    assert "``fence``" in text
    assert "duplicate 5" in text


def test_letters_of_zombies_can_be_there_twice() -> None:
    zombies = replace(EXAMPLE, kind="zombies", twice=24)
    assert Recorded.of(_line(zombies)).violations == 0
    assert Recorded.of(_line(replace(zombies, anomalies={"duplicate": 3}))).violations == 3


def _line(result: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(result.to_line())
    return found
