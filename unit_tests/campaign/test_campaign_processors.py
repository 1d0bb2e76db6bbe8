"""The faults of a campaign of processors, its verdict, and its result file."""

from __future__ import annotations

import doctest
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.campaign import processor_histories
from integration_tests.campaign import processor_turns as campaign_processor_turns
from integration_tests.campaign.processor_faults import Recovery
from integration_tests.campaign.processor_results import ProcessorResult, parse, tables
from integration_tests.campaign.processor_turns import FAULTS, SABOTAGES, FaultTurn, fault_turns, revealing_turns
from integration_tests.campaign.processors import Verdict
from integration_tests.campaign.windows import Differences
from integration_tests.history.anomalies import Anomaly, Name, Report
from integration_tests.spark_events import logged_queries
from unit_tests.campaign.test_sabotages import SABOTAGES as DISABLED

RECOVERIES = [
    Recovery(FaultTurn("freeze", "", 0, 0), 12.34, 20.0),
    Recovery(FaultTurn("freeze", "before-commit", 0, 0), 9.0, 31.0),
    Recovery(FaultTurn("manager", "", 0, 0), 1.0, 1.0),
]
RESULT = ProcessorResult.of(
    RECOVERIES,
    day="2013-01-01",
    commit="0123abcde",
    versions={"python": "3.12.1"},
    seed=7,
    sabotaged="",
    records=1_200,
    rows=30,
    anomalies={},
    cold_start_s=5.5,
    session_timeout_s=6,
    took_s=99,
)


def test_the_order_is_that_of_the_seed() -> None:
    assert doctest.testmod(campaign_processor_turns) == (0, 3)
    assert fault_turns(30, 3) != fault_turns(30, 4)
    assert Counter(it.fault for it in fault_turns(24, 5)) == dict.fromkeys(FAULTS, 3)
    # A kill of the manager or of a source has no point.
    assert not {it.fault for it in fault_turns(100, 6) if it.point} & {"manager", "source"}


@pytest.mark.parametrize("sabotaged", SABOTAGES)
def test_a_disabled_safeguard_is_noticed_by_a_frozen_worker(sabotaged: str) -> None:
    assert sabotaged in DISABLED._SABOTAGES
    assert {it.fault for it in revealing_turns(sabotaged, 3)} == {"freeze"}


def test_anomalies_have_names() -> None:
    none = Differences([], [], [])
    verdict = Verdict(10, 5, RECOVERIES, [], [], [], none)
    assert verdict.holds
    assert "no anomaly" in str(verdict)
    wrong = replace(verdict, repeated=["7"], windows=replace(none, different=["0-1 at 5, revision 0"]), outdated=["w1"])
    assert wrong.anomalies == {"copies twice": 1, "rows different": 1, "outdated workers run": 1}
    assert not wrong.holds
    assert "0-1 at 5, revision 0" in str(wrong)
    by_history = Report([Anomaly(Name.LOST_WRITE, "I1", 2, "in-0 from offset 3 to 4")], {}, 9)
    lost = replace(verdict, reports={"copy": by_history, "counts": Report([], {}, 9)})
    assert (lost.anomalies, lost.invariants["I1"], lost.holds) == ({"lost write": 2}, "violated: 2", False)


def test_the_examples_run() -> None:
    assert doctest.testmod(processor_histories) == (0, 4)


def test_results_are_read_back_and_printed() -> None:
    assert parse(RESULT.to_line()) == RESULT
    assert RESULT.committed_s == {"freeze": 12.3, "manager": 1.0}
    sabotaged = replace(RESULT, sabotaged="fences", anomalies={"copies twice": 1_000})
    campaigns, faults = tables([sabotaged, RESULT]).split("\n\n")
    assert campaigns.splitlines()[3].split() == ["7", "3", "1,200", "30", "0", "17", "s", "2013-01-01", "0123abcde"]
    assert "fences" in campaigns.splitlines()[4]
    assert "1,000 copies twice" in campaigns.splitlines()[4]
    freeze = next(line for line in faults.splitlines() if "freeze" in line)
    assert freeze.split() == ["``freeze``", "2", "12", "s", "31", "s"]
    assert "hang" not in faults, "a fault that was not injected has no times"


def test_batches_of_queries_are_read_from_an_event_log(tmp_path: Path) -> None:
    prefix = "org.apache.spark.sql.streaming.StreamingQueryListener$"
    events = [
        {"Event": f"{prefix}QueryStartedEvent", "runId": "a", "name": "late"},
        *(
            {"Event": f"{prefix}QueryProgressEvent", "progress": {"name": "late", "batchId": it, "runId": "a"}}
            for it in (0, 1, 1, 3)
        ),
        {"Event": f"{prefix}QueryTerminatedEvent", "runId": "a", "exception": "gone"},
        {"Event": "SparkListenerJobStart"},
    ]
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "events_1").write_text("\n".join([*map(json.dumps, events), '{"Event":"org']))
    found = logged_queries(tmp_path)["late"]
    assert (found.runs, found.batches, found.errors) == ({"a"}, [0, 1, 3], ["gone"])
