"""X2, X3: two members of a group write exactly once, while they are killed; all points and sinks: ``integration_tests.campaign``."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration_tests.campaign import campaign, target


@pytest.mark.parametrize(
    ("sink", "points", "protocol"),
    [
        ("kafka", ("inside-transaction", "before-commit", "after-commit"), "classic"),
        ("postgres", ("after-commit",), "consumer"),
    ],
)
def test_nothing_is_lost_and_nothing_is_there_twice(
    bootstrap: str, tmp_path: Path, sink: str, points: tuple[str, ...], protocol: str
) -> None:
    with target(sink, bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(
            bootstrap,
            tmp_path,
            sink,
            to,
            read_back,
            kills=len(points),
            points=points,
            protocol=protocol,
            timeout_s=400,
        )
    assert verdict.holds, verdict
    assert verdict.kills.total() == len(points)


def test_without_transactions_the_campaign_notices(bootstrap: str, tmp_path: Path) -> None:
    points = ("inside-transaction",)
    with target("kafka", bootstrap, tmp_path) as (to, read_back):
        verdict = campaign(
            bootstrap, tmp_path, "kafka", to, read_back, kills=1, points=points, timeout_s=300, sabotaged=True
        )
    assert verdict.repeated
    assert not verdict.lost
