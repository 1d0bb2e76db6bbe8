"""P2: the processors of an instance have each record once while its processes are killed and frozen.

``integration_tests.campaign.processors`` runs all faults.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.campaign.processor_turns import FaultTurn, fault_turns, revealing_turns
from integration_tests.campaign.processors import Verdict, campaign, faulty_instance
from integration_tests.tiers import LONG

pytestmark = [LONG, pytest.mark.timeout(3_600)]


def _run(bootstrap: str, postgres: str, directory: Path, turns: list[FaultTurn], sabotaged: str = "") -> Verdict:
    with faulty_instance(bootstrap, directory, postgres, sabotaged) as instance:
        return campaign(instance, postgres, turns)


def test_P2_each_record_arrives_once_with_every_fault(bootstrap: str, postgres: str, tmp_path: Path) -> None:
    verdict = _run(bootstrap, postgres, tmp_path, fault_turns(8, seed=7))
    assert verdict.holds, verdict
    assert len(verdict.recoveries) == 8
    assert verdict.rows > 0


def test_a_worker_that_ignores_its_placement_is_noticed(bootstrap: str, postgres: str, tmp_path: Path) -> None:
    verdict = _run(bootstrap, postgres, tmp_path, revealing_turns("placement", 1), "placement")
    assert "outdated workers run" in verdict.anomalies, verdict


def test_without_any_fence_the_campaign_notices_records_that_arrive_twice(
    bootstrap: str, postgres: str, tmp_path: Path
) -> None:
    verdict = _run(bootstrap, postgres, tmp_path, revealing_turns("fences", 2), "fences")
    assert verdict.anomalies.keys() & {"copies twice", "rows twice"}, verdict
