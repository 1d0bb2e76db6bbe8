"""Negative controls: each disabled protection has a control and the name of its anomaly, and the exit codes are those of the findings."""

from __future__ import annotations

import doctest
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.campaign import controls, invariants_table
from integration_tests.campaign import record as campaign_record
from integration_tests.campaign.controls import (
    CONTROLS,
    EXPECTED,
    STUCK,
    WRONG_FORK,
    WRONG_SAVEPOINT,
    is_noticed,
    verdict_of,
)
from integration_tests.campaign.processor_turns import SABOTAGES as PROCESSOR_SABOTAGES
from integration_tests.campaign.record import Recorded, page
from integration_tests.campaign.results import EXAMPLE, Result, parse
from integration_tests.campaign.savepoints import SavepointResults
from integration_tests.campaign.settings import parser, settings_of, turns_of
from integration_tests.campaign.turns import (
    CONTROL_SABOTAGES,
    CONTROL_TURNS,
    SABOTAGES,
    SAVEPOINT_SABOTAGES,
    STATE_SABOTAGES,
)
from integration_tests.campaign.verdict import Verdict, without_the_rest
from integration_tests.history.anomalies import INVARIANTS, Anomaly, Name, Report
from unit_tests.campaign.test_sabotages import SABOTAGES as REPLACEMENTS

_OF_QUERIES = (*SABOTAGES, *STATE_SABOTAGES, *SAVEPOINT_SABOTAGES, *CONTROL_SABOTAGES)
#: The names that the campaigns themselves give.
_OF_CAMPAIGNS = {WRONG_FORK, WRONG_SAVEPOINT, "outdated workers run", "copies twice"}


def test_each_disabled_protection_has_a_control_and_an_anomaly() -> None:
    assert EXPECTED.keys() == {*_OF_QUERIES, *PROCESSOR_SABOTAGES} == {it.sabotaged for it in CONTROLS}
    assert len(CONTROLS) == len(EXPECTED)
    assert {*EXPECTED.values()} <= {it.value for it in Name} | _OF_CAMPAIGNS
    assert EXPECTED.keys() == REPLACEMENTS._SABOTAGES.keys()


def test_each_anomaly_of_histories_but_the_position_has_a_control() -> None:
    """A position ahead of its output is also a lost write: the control ``output`` leaves both."""
    assert {it.value for it in Name} - {*EXPECTED.values()} == {"non-monotonic position", "position ahead of output"}


@pytest.mark.parametrize("control", [it for it in CONTROLS if it.sink], ids=lambda it: it.sabotaged)
def test_the_command_of_a_control_is_one_of_the_campaign(control: controls.Control) -> None:
    given = parser(None).parse_args(control.command(7)[2:])
    settings = settings_of(given)
    assert (settings.sabotaged, settings.kind, given.sinks) == (control.sabotaged, control.kind, [control.sink])
    turns = turns_of(settings, control.sink, "classic")
    assert len(turns) == control.kills
    if control.sabotaged in CONTROL_SABOTAGES:
        assert set(turns) == {CONTROL_TURNS[control.sabotaged]}


def test_a_control_is_noticed_by_the_name_of_its_anomaly_only() -> None:
    assert is_noticed("ledger", {"duplicate": 1, "lost write": 3})
    assert not is_noticed("ledger", {"lost write": 3})
    assert not is_noticed("ledger", {})
    assert verdict_of("ledger", {}) == "not noticed: without ledger 'duplicate' is expected, and there is nothing"


def test_the_table_names_a_control_that_is_not_noticed(tmp_path: Path) -> None:
    log = tmp_path / "order.log"
    log.write_text(f"1: after-commit\n{verdict_of('order', {'duplicate': 1_000})}\n")
    row = controls._row(controls.Control("order"), 1, 61, log)
    assert (row["noticed"], row["expected"], row["anomalies"]) == ("**no**", "non-monotonic write", "duplicate 1,000")
    log.write_text("Traceback\n")
    assert controls._row(controls.Control("order"), 1, 61, log)["anomalies"] == f"see {log}"


def _verdict(**more: object) -> Verdict:
    return Verdict(Counter({("mid-read", "query"): 1}), 9, **more)  # type: ignore[arg-type]


def test_a_campaign_that_does_not_settle_is_a_violation_with_a_name() -> None:
    stuck = without_the_rest(_verdict(lost=["7"], repeated=["3"]), ["not within 600 s: all is read"])
    assert not stuck.holds
    assert stuck.anomalies == {STUCK: 1}
    assert (stuck.lost, stuck.repeated) == ([], ["3"])
    line = replace(EXAMPLE, twice=0, anomalies=stuck.anomalies, stuck=tuple(stuck.stuck)).to_line()
    assert Recorded.of(json.loads(line)).violations == 1
    assert parse(line).stuck == ("not within 600 s: all is read",)


def test_a_point_out_of_reach_is_distinguished_from_other_failures() -> None:
    unreached = _verdict(stuck=["not within 600 s: a member passes mid-read; see /tmp/c"])
    assert unreached.is_out_of_reach
    assert not _verdict(stuck=["not within 600 s: all is read; see /tmp/c"]).is_out_of_reach
    duplicate = Report([Anomaly(Name.DUPLICATE, "I2", 3, "t-0")], {}, 9)
    assert not replace(unreached, report=duplicate).is_out_of_reach
    assert not _verdict().is_out_of_reach


def test_savepoints_and_forks_have_names() -> None:
    wrong = SavepointResults(problems=["s1 is not complete"], differences=["s2: the fork has failed", "s3: a row"])
    assert _verdict(savepoints=wrong).anomalies == {WRONG_SAVEPOINT: 1, WRONG_FORK: 2}
    # Older results have the counts without the names. New ones are not counted twice.
    old = _line(replace(EXAMPLE, twice=0, problems=1, fork_differences=2))
    assert (Recorded.of(old).violations, Recorded.of(old).anomalies) == (3, {WRONG_SAVEPOINT: 1, WRONG_FORK: 2})
    new = old | {"anomalies": {WRONG_SAVEPOINT: 1, WRONG_FORK: 2}}
    assert Recorded.of(new).violations == 3


def test_a_result_has_the_decision_about_each_invariant() -> None:
    report = Report([Anomaly(Name.DUPLICATE, "I2", 3, "t-0")], {"I5": "the output has no order"}, 9)
    decisions = {name: it.to_text() for name, it in _verdict(report=report).invariants.items()}
    assert decisions.keys() == INVARIANTS.keys()
    assert (decisions["I1"], decisions["I2"], decisions["I5"]) == (
        "holds",
        "violated: 3",
        "undecided: the output has no order",
    )
    assert parse(replace(EXAMPLE, invariants=decisions).to_line()).invariants == decisions


def test_the_record_shows_each_invariant_and_each_control() -> None:
    complete = replace(EXAMPLE, twice=0, invariants={**dict.fromkeys(INVARIANTS, "holds"), "I5": "undecided: no order"})
    controlled = replace(EXAMPLE, sabotaged="fence", anomalies={"duplicate": 5})
    noticed = replace(controlled, sabotaged="ledger")
    campaigns = [Recorded.of(_line(it)) for it in (complete, replace(EXAMPLE, twice=0), controlled, noticed)]
    text = page(campaigns)
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("``")}
    assert "2 / 0  2 / 0" in text
    assert "1 of 2 have found the anomaly" in text
    assert "**no**" in rows["``fence``"]
    assert "yes" in rows["``ledger``"]
    worker = next(line.split("  ") for line in text.splitlines() if line.startswith("``worker``") and "/" in line)
    cells = [it.strip() for it in worker if it.strip()]
    assert (cells[1], cells[5], cells[-1]) == ("2 / 0", "0 / 2", "2")


def test_the_recorded_controls_of_the_repository_have_an_expected_anomaly() -> None:
    lines = map(json.loads, campaign_record.LINES.read_text().splitlines())
    found = [Recorded.of(it) for it in lines if it["sabotaged"]]
    assert found
    assert {it.sabotaged for it in found} <= EXPECTED.keys()


@pytest.mark.parametrize("module", [controls, invariants_table])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)


def _line(result: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(result.to_line())
    return found
