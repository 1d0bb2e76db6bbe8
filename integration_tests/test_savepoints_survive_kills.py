"""C3: savepoints that are created while queries, brokers and the commands themselves are killed continue in forks.

These are short campaigns. ``python -m integration_tests.campaign --kind savepoints`` runs long ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.campaign.controls import is_noticed
from integration_tests.campaign.plan import Plan
from integration_tests.campaign.running import campaign
from integration_tests.campaign.targets import target
from integration_tests.campaign.turns import Turn, revealing_turns
from integration_tests.campaign.verdict import Verdict
from integration_tests.tiers import LONG
from streamgroups_broker import EmbeddedKafka
from streamgroups_testkit.broker import BROKER_PROPERTIES

pytestmark = [LONG, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[EmbeddedKafka]:
    """A cluster whose nodes are killed."""
    with EmbeddedKafka(3, properties=BROKER_PROPERTIES) as kafka:
        yield kafka


def run(kafka: EmbeddedKafka, directory: Path, turns: list[Turn], protocol: str, sink: str, sabotaged: str) -> Verdict:
    """Runs a campaign with a few savepoints."""
    bootstrap = kafka.bootstrap_servers
    with target(sink, bootstrap, directory) as (to, read_back):
        return campaign(
            Plan(
                bootstrap,
                directory,
                sink,
                to,
                read_back,
                turns=turns,
                timeout_s=600,
                protocol=protocol,
                sabotaged=sabotaged,
                kind="savepoints",
                kafka=kafka,
                n_savepoints=4,
            )
        )


@pytest.mark.parametrize(
    ("sink", "protocol", "turns"),
    [
        ("kafka", "classic", [("before-commit", "broker"), ("after-state-file", "query")]),
        ("postgres", "consumer", [("inside-transaction", "worker"), ("after-commit", "broker")]),
    ],
)
def test_C3_forks_continue_as_undisturbed_queries(
    nodes: EmbeddedKafka, tmp_path: Path, sink: str, protocol: str, turns: list[Turn]
) -> None:
    verdict = run(nodes, tmp_path, turns, protocol, sink, "")
    assert verdict.holds, f"{verdict}\n{verdict.savepoints.to_text(verdict.victims)}"
    assert verdict.savepoints.forks == verdict.savepoints.count("complete") >= 4
    assert verdict.kills.total() == len(turns)


@pytest.mark.parametrize(
    ("sabotaged", "error"), [("savepoint-file", "StateMissing"), ("savepoint-offset", "StateMismatch")]
)
def test_the_campaign_notices_a_wrong_savepoint(
    nodes: EmbeddedKafka, tmp_path: Path, sabotaged: str, error: str
) -> None:
    turns = revealing_turns("kafka", sabotaged, 1)
    verdict = run(nodes, tmp_path, turns, "classic", "kafka", sabotaged)
    assert not verdict.lost
    assert not verdict.different
    assert is_noticed(sabotaged, verdict.anomalies), verdict
    assert all(f"the fork has failed: {error}: " in it for it in verdict.savepoints.differences)
