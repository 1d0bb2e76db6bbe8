"""The command of campaigns: the command that repeats one, and fewer faults of a failed one."""

from __future__ import annotations

import doctest
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integration_tests.campaign import __main__ as command
from integration_tests.campaign import settings as campaign_settings
from integration_tests.campaign import shrinking as campaign_shrinking
from integration_tests.campaign import targets as campaign_targets
from integration_tests.campaign.settings import Settings, parser, replay_command, settings_of, turns_of
from integration_tests.campaign.shrinking import shrunk
from integration_tests.campaign.turns import KINDS, Turn
from integration_tests.campaign.verdict import Verdict
from integration_tests.history.anomalies import Anomaly, Name, Report
from streamgroups_broker import EmbeddedKafka


def _settings(*options: str) -> Settings:
    return settings_of(parser(None).parse_args(["kafka", *options]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_printed_command_repeats_the_turns(kind: str, protocol: str) -> None:
    options = ["--kind", kind, "--kills", "9", "--seed", "77", "--members", "3", "--resets", "4", "--savepoints", "2"]
    settings = _settings(*options, "--faults", "worker", "query")
    program, *printed = shlex.split(replay_command(settings, "delta", protocol))[2:]
    assert program == "integration_tests.campaign"
    again = parser(None).parse_args(printed)
    assert (again.sinks, again.protocols) == (["delta"], [protocol])
    assert turns_of(settings_of(again), "delta", protocol) == turns_of(settings, "delta", protocol)
    assert (again.members, again.resets) == (3, 4)


def test_a_safeguard_stays_disabled() -> None:
    settings = _settings("--sabotaged", "fence", "--kills", "2", "--per-second", "100", "--nodes", "3")
    command = replay_command(settings, "kafka", "classic")
    assert command == (
        "python -m integration_tests.campaign kafka --protocols classic --kind stateless --seed 1 --kills 2 "
        "--sabotaged fence --nodes 3 --per-second 100"
    )


def test_explicit_turns_replace_those_of_the_seed() -> None:
    settings = _settings("--turns", "after-commit=query", "mid-read=worker")
    assert turns_of(settings, "kafka", "classic") == [("after-commit", "query"), ("mid-read", "worker")]
    command = replay_command(settings, "kafka", "classic")
    assert command.endswith("--seed 1 --turns after-commit=query mid-read=worker")
    with pytest.raises(SystemExit):
        _settings("--turns", "after-commit")


class FakeRunner:
    """Fails if a list contains all necessary items, and counts its runs."""

    def __init__(self, necessary: set[int]) -> None:
        self.necessary, self.runs = necessary, 0

    def __call__(self, items: Sequence[int]) -> bool:
        self.runs += 1
        return self.necessary <= set(items)


@given(st.integers(1, 30), st.sets(st.integers(0, 29), min_size=1, max_size=4))
def test_only_the_necessary_faults_stay(n: int, necessary: set[int]) -> None:
    necessary = {it % n for it in necessary}
    assert shrunk(range(n), FakeRunner(necessary), max_runs=10_000) == sorted(necessary)


@given(st.integers(0, 12))
def test_the_number_of_runs_is_limited(max_runs: int) -> None:
    runner = FakeRunner({3, 11})
    found = shrunk(range(16), runner, max_runs=max_runs)
    assert runner.runs <= max_runs
    assert {3, 11} <= set(found)


def test_a_failure_that_does_not_occur_again_keeps_its_faults() -> None:
    assert shrunk([1, 2, 3], lambda _: False, max_runs=100) == [1, 2, 3]


@pytest.mark.parametrize("module", [campaign_settings, campaign_shrinking, campaign_targets])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)


def _stored(monkeypatch: pytest.MonkeyPatch, *verdicts: Verdict) -> list[list[Turn]]:
    """Replaces the run of a campaign. Returns the turns of all runs."""
    runs: list[list[Turn]] = []

    def run(
        kafka: object, settings: object, sink: str, protocol: str, turns: Sequence[Turn], *, secured: object
    ) -> Verdict:
        runs.append(list(turns))
        return verdicts[min(len(runs), len(verdicts)) - 1]

    monkeypatch.setattr(command, "_run", run)
    return runs


KAFKA = cast(EmbeddedKafka, None)
DUPLICATE = Report([Anomaly(Name.DUPLICATE, "I2", 3, "t-0")], {}, 9)


@pytest.mark.parametrize(
    ("sabotaged", "report", "holds"),
    [
        ("", None, True),
        ("", DUPLICATE, False),
        ("ledger", DUPLICATE, True),
        ("ledger", None, False),
        ("order", DUPLICATE, False),
    ],
)
def test_a_disabled_safeguard_must_be_noticed(
    monkeypatch: pytest.MonkeyPatch, sabotaged: str, report: Report | None, holds: bool
) -> None:
    _stored(monkeypatch, Verdict(Counter(), 9, report=report))
    options = ["--sabotaged", sabotaged] if sabotaged else []
    assert command.one(KAFKA, _settings("--kills", "2", *options), "kafka", "classic") is holds


@pytest.mark.parametrize(
    ("first", "then", "n_runs"),
    [
        ("all is read", "all is read", 2),
        # A point that is out of reach without the faults before it is no failure.
        ("all is read", "a member passes mid-read", 3),
        ("a member passes mid-read", "a member passes mid-read", 2),
    ],
)
def test_a_stuck_campaign_is_shrunk(monkeypatch: pytest.MonkeyPatch, first: str, then: str, n_runs: int) -> None:
    runs = _stored(monkeypatch, *(Verdict(Counter(), 9, stuck=[f"not within 600 s: {it}"]) for it in (first, then)))
    settings = _settings("--turns", "after-commit=query", "mid-read=worker", "--shrink", "--shrink-runs", "3")
    assert not command.one(KAFKA, settings, "kafka", "classic")
    assert len(runs) == n_runs
    assert runs[0] == [("after-commit", "query"), ("mid-read", "worker")]
