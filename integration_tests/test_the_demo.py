"""``make demo`` with a thirtieth of the flights: two queries share a topic, one is killed, a third replaces it, and all
checks pass.
"""

from __future__ import annotations

import io
import json
import time
from collections import defaultdict
from pathlib import Path

import pytest
from rich.console import Console

from demo import report, scenario
from demo.check import check, read_output
from demo.flights import Delays, all_flights
from demo.processes import Folders
from streamgroups.groups.history import Kind
from streamgroups_reports.ownership import MarkKind


def test_S1_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = all_flights()[::30]
    monkeypatch.setattr(scenario, "all_flights", lambda: flights)
    monkeypatch.setattr(scenario, "_LOADING_S", 2.0)
    monkeypatch.setattr(scenario, "_MAX_OFFSETS", 300)
    monkeypatch.setattr(scenario, "_BATCHES_BEFORE_KILL", 2)
    monkeypatch.setattr(scenario, "_SECONDS_BEFORE_KILL", 0.5)
    folders = Folders(tmp_path)
    for folder in (folders.output, folders.history, folders.logs):
        folder.mkdir(parents=True)
    console = Console(file=io.StringIO(), width=120)
    outcome = scenario.run(console, folders, "consumer", time.monotonic())

    expected: defaultdict[str, Delays] = defaultdict(Delays)
    for flight in flights:
        one = json.loads(flight.json)
        expected[flight.carrier] = expected[flight.carrier].add(one["dep_delay"], one["arr_delay"])
    arrived = read_output(folders.output)
    findings = check(arrived, outcome.events, outcome.ends, outcome.committed, killed=outcome.killed, expected=expected)
    assert [finding.text for finding in findings if not finding.good] == []
    assert {mark.text for mark in outcome.marks if mark.kind is MarkKind.KILL} == {"kill -9 bob"}
    owners = {e.member for e in outcome.events if e.kind is Kind.ASSIGNED and e.offsets}
    assert owners == {"alice", "bob", "carol"}
    assert "kill -9 bob" in report.html(outcome, findings, arrived, {})
