"""X2, X3: two members of a group write exactly once while they are killed, or while responses to them are lost.
``integration_tests.campaign`` runs all points and sinks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.campaign.controls import is_noticed
from integration_tests.campaign.plan import Plan
from integration_tests.campaign.running import campaign
from integration_tests.campaign.targets import target
from integration_tests.campaign.turns import Turn
from integration_tests.history.anomalies import Name
from integration_tests.tiers import LONG

pytestmark = pytest.mark.timeout(600)


@LONG
@pytest.mark.parametrize(
    ("sink", "turns", "protocol"),
    [
        ("kafka", [("before-commit", "query")], "classic"),
        ("kafka", [("inside-transaction", "worker")], "consumer"),
        ("kafka", [("before-commit", "response:EndTxn"), ("inside-transaction", "duplicate:Produce")], "consumer"),
        ("postgres", [("inside-transaction", "executor"), ("after-commit", "worker")], "consumer"),
        ("kafka", [("after-add-offsets", "freeze-worker"), ("at-random", "clock")], "consumer"),
    ],
)
def test_nothing_is_lost_and_nothing_is_there_twice(
    bootstrap: str, tmp_path: Path, sink: str, turns: list[Turn], protocol: str
) -> None:
    with target(sink, bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(
            Plan(bootstrap, tmp_path, sink, to, read_back, turns=turns, protocol=protocol, timeout_s=400)
        )
    assert verdict.holds, verdict
    assert verdict.kills.total() == len(turns)


@LONG
def test_a_silence_while_the_sink_commits_takes_nothing_back(bootstrap: str, tmp_path: Path) -> None:
    """S3: after a time without polls a member checks its membership with a commit, which does not repeat the sink's
    latest positions.
    """
    turns = [("after-commit", "silence"), ("mid-read", "query")]
    with target("kafka", bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(Plan(bootstrap, tmp_path, "kafka", to, read_back, turns=turns, n_members=1, timeout_s=300))
    assert verdict.holds, verdict
    assert "was unresponsive for" in (tmp_path / "ann.log").read_text(errors="replace")


@LONG
def test_without_transactions_the_campaign_notices(bootstrap: str, tmp_path: Path) -> None:
    turns = [("inside-transaction", "worker")]
    with target("kafka", bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(
            Plan(bootstrap, tmp_path, "kafka", to, read_back, turns=turns, timeout_s=300, sabotaged="ledger")
        )
    assert verdict.repeated
    assert not verdict.lost
    assert is_noticed("ledger", verdict.anomalies), verdict
    assert verdict.report is not None
    assert Name.DUPLICATE in {it.name for it in verdict.report.anomalies}
