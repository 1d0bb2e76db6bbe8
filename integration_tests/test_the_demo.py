"""``make demo`` with a sixtieth of the flights: two queries share a topic and its windows, one is killed, a third
replaces it, and all checks pass.
"""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from demo import report, scenario
from demo.check import check
from demo.flights import all_flights, delays_by_pandas
from demo.processes import Folders
from integration_tests.tiers import LONG
from streamgroups.groups.history import Kind
from streamgroups_admin.reports.ownership import MarkKind
from streamgroups_testkit.spark_sessions import jvm_options


@LONG
def test_S10_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flights = all_flights(60)
    monkeypatch.setattr(scenario, "all_flights", lambda: flights)
    monkeypatch.setattr(scenario, "_LOADING_S", 2.0)
    monkeypatch.setattr(scenario, "_MAX_OFFSETS", 600)
    monkeypatch.setattr(scenario, "_BATCHES_BEFORE_KILL", 2)
    monkeypatch.setattr(scenario, "_SECONDS_BEFORE_KILL", 0.5)
    # The processes of the queries have the plain session of an example, with the JVM of the other tests.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", jvm_options())
    folders = Folders(tmp_path)
    for folder in (folders.history, folders.logs):
        folder.mkdir(parents=True)
    console = Console(file=io.StringIO(), width=120)
    outcome = scenario.run(console, folders, "consumer", time.monotonic())

    findings = check(
        outcome.output,
        outcome.events,
        outcome.ends,
        outcome.committed,
        killed=outcome.killed,
        expected=delays_by_pandas(60),
    )
    assert [finding.text for finding in findings if not finding.good] == []
    assert {mark.text for mark in outcome.marks if mark.kind is MarkKind.KILL} == {"kill -9 bob"}
    owners = {e.member for e in outcome.events if e.kind is Kind.ASSIGNED and e.offsets}
    assert owners == set(outcome.output.by_member) == {"alice", "bob", "carol"}
    page = report.html(outcome, findings, {})
    assert "kill -9 bob" in page
    assert "its state followed" in page
