"""F3, G8, X4: a query that sleeps at a write of a position, longer than each timeout, changes no position when it wakes up,
and a reset is applied once. ``integration_tests.campaign --kind zombies`` runs all points.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.campaign.controls import is_noticed
from integration_tests.campaign.plan import Plan
from integration_tests.campaign.running import campaign
from integration_tests.campaign.targets import target
from integration_tests.history.anomalies import Name

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]


@pytest.mark.parametrize(
    ("sink", "point", "protocol"),
    [
        ("kafka", "before-reset-commit", "consumer"),
        ("postgres", "ledger-move-read", "classic"),
        ("delta", "commit-read", "consumer"),
    ],
)
def test_the_output_has_one_run_for_each_reset(
    bootstrap: str, tmp_path: Path, sink: str, point: str, protocol: str
) -> None:
    turns = [(point, "zombie-reset")]
    with target(sink, bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(
            Plan(
                bootstrap, tmp_path, sink, to, read_back, turns=turns, protocol=protocol, timeout_s=800, kind="zombies"
            )
        )
    assert verdict.holds, verdict
    assert verdict.resets == 1


def test_without_the_epoch_of_a_reset_the_campaign_notices(bootstrap: str, tmp_path: Path) -> None:
    turns = [("before-ledger-move", "zombie-reset")]
    with target("delta", bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(
            Plan(
                *(bootstrap, tmp_path, "delta", to, read_back),
                turns=turns,
                timeout_s=800,
                kind="zombies",
                sabotaged="epoch",
            )
        )
    assert verdict.repeated
    assert is_noticed("epoch", verdict.anomalies), verdict
    assert verdict.report is not None
    assert Name.DUPLICATE in {it.name for it in verdict.report.anomalies}
