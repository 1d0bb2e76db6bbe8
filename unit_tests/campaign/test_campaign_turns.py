"""The faults of a campaign, their order, and its result file."""

from __future__ import annotations

import doctest
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from integration_tests.campaign import results as campaign_results
from integration_tests.campaign.faults import CampaignMember
from integration_tests.campaign.plan import unexplained_ends
from integration_tests.campaign.results import EXAMPLE, tables
from integration_tests.campaign.turns import (
    KINDS,
    LEDGER_POINTS,
    POINTS,
    SINK_VICTIMS,
    STATE_POINTS,
    VICTIMS_OF,
    all_turns,
)
from integration_tests.campaign.verdict import Verdict


@pytest.mark.parametrize(
    ("sink", "kind", "points"),
    [
        ("kafka", "stateless", POINTS),
        ("delta", "stateless", LEDGER_POINTS),
        ("postgres", "windows", LEDGER_POINTS + STATE_POINTS),
    ],
)
def test_every_victim_is_killed_at_every_point_before_any_is_killed_again(
    sink: str, kind: str, points: tuple[str, ...]
) -> None:
    victims = VICTIMS_OF[kind]
    n_round = len(points) * len(victims)
    # The API keys of faults of the network have an order of their own.
    turns = [(point, fault.partition(":")[0]) for point, fault in all_turns(sink, 2 * n_round, victims, kind=kind)]
    every = Counter((point, victim) for point in points for victim in victims)
    assert Counter(turns[:n_round]) == Counter(turns[n_round:]) == every


def test_a_lost_response_of_a_ledger_is_interleaved_at_its_only_point() -> None:
    victims = (*VICTIMS_OF["stateless"], *SINK_VICTIMS["postgres"])
    turns = all_turns("postgres", 3 * len(victims), victims)
    rounds = [turns[i : i + len(victims)] for i in range(0, len(turns), len(victims))]
    assert [of_round.count(("after-commit", "answer")) for of_round in rounds] == [1, 1, 1]
    assert "answer" not in SINK_VICTIMS["kafka"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_campaign_has_as_many_victims_as_it_can(kind: str) -> None:
    victims = VICTIMS_OF[kind]
    for n in range(1, len(victims) + 1):
        turns = all_turns("kafka", n, victims, kind=kind)
        assert len({victim.partition(":")[0] for _, victim in turns}) == n


def test_an_error_of_a_state_ends_a_campaign() -> None:
    assert Verdict(Counter(), 7).holds
    assert not Verdict(Counter(), 7, errors=["StateMissing: gone"]).holds
    assert Verdict(Counter(), 7, n_given_up=1).anomalies == {"program ended": 1}
    assert not Verdict(Counter(), 7, n_given_up=1).holds
    assert not Verdict(Counter(), 7, different=["0-1 at 5, revision 0"]).holds


def test_checkpoints_are_deleted_replaced_and_restored_in_turn(tmp_path: Path) -> None:
    member = CampaignMember(tmp_path, "ann", {"options": {}})
    first, second = tmp_path / "checkpoint-ann", tmp_path / "checkpoint-ann+"
    first.mkdir()
    (first / "metadata").write_text("old")
    member.lose_checkpoint()
    assert not first.exists()
    member.lose_checkpoint()
    second.mkdir()
    member.lose_checkpoint()
    assert (second / "metadata").read_text() == "old"
    member.lose_checkpoint()
    assert not second.exists()
    member.lose_checkpoint()
    member.lose_checkpoint()
    assert (tmp_path / "checkpoint-ann++" / "metadata").read_text() == "old"


def test_errors_of_states_are_found_in_the_log(tmp_path: Path) -> None:
    member = CampaignMember(tmp_path, "ann", {"options": {}})
    assert member.state_errors() == []
    (tmp_path / "ann.log").write_text("x\nstreamgroups.errors.StateMissing: flights-0: gone\nStateUnreachable: later\n")
    assert member.state_errors() == ["StateMissing: flights-0"]


def test_the_order_is_the_seed_s() -> None:
    assert all_turns("kafka", 50, seed=3) == all_turns("kafka", 50, seed=3) != all_turns("kafka", 50, seed=4)


def test_what_is_written_down_is_read_back_and_printed() -> None:
    assert doctest.testmod(campaign_results, optionflags=doctest.NORMALIZE_WHITESPACE) == (0, 2)


def test_results_are_ordered_and_those_of_sabotaged_code_have_a_table_of_their_own() -> None:
    kafka = replace(EXAMPLE, sink="kafka", protocol="consumer", disordered=2)
    with_state = replace(EXAMPLE, sink="kafka", kind="stateful")
    whole, without = tables([replace(EXAMPLE, sabotaged="fence"), with_state, kafka, EXAMPLE]).split("\n\n")
    assert [line.split("  ")[0] for line in whole.splitlines()[3:-1]] == ["Delta", "Kafka", "Kafka, with state"]
    assert "  2  " in whole.splitlines()[4]
    assert "  none  " not in whole.splitlines()[5], "a query with state has no order"
    assert without.splitlines()[1].split() == [
        "sink",
        "protocol",
        "without",
        "kills",
        "records",
        "lost",
        "twice",
        "out",
        "of",
        "order",
        "seed",
        "day",
        "commit",
    ]
    assert without.splitlines()[3].split()[:4] == ["Delta", "classic", "fence", "3"]


def test_windows_have_tables_with_differences() -> None:
    windows = replace(EXAMPLE, kind="windows", different=4)
    sabotaged = replace(windows, sabotaged="state-file", errors=1)
    records, whole, without = tables([sabotaged, windows, EXAMPLE]).split("\n\n")
    assert "out of order" in records
    columns = ["sink", "protocol", "kills", "records", "missing", "different", "twice", "seed", "day", "commit"]
    assert whole.splitlines()[1].split() == columns
    assert whole.splitlines()[3].split()[4:7] == ["0", "4", "1"]
    assert without.splitlines()[1].split() == [*columns[:2], "without", *columns[2:7], "errors", *columns[7:]]


def test_savepoints_have_a_table_of_forks() -> None:
    kills = {"create before-record": 2, "restore after-commit": 1}
    made = replace(
        EXAMPLE, kind="savepoints", savepoints=4, cuts=3, incomplete=2, forks=4, fork_rows=1_000, command_kills=kills
    )
    sabotaged = replace(made, sabotaged="savepoint-file", fork_differences=4)
    records, whole, without = tables([sabotaged, made, EXAMPLE]).split("\n\n")
    assert "forks" not in records
    assert whole.splitlines()[3].split()[2:10] == ["3", "1,200", "3", "4", "3", "2", "4", "1,000"]
    # The record that is twice is a difference too.
    assert whole.splitlines()[3].split()[10] == "1"
    assert without.splitlines()[3].split()[2:12] == [
        "savepoint-file",
        "3",
        "1,200",
        "3",
        "4",
        "3",
        "2",
        "4",
        "1,000",
        "5",
    ]


def test_controls_have_a_table_of_anomalies() -> None:
    fence = replace(EXAMPLE, sabotaged="fence", anomalies={"split ownership": 1, "duplicate": 2_000})
    *_, controls = tables([EXAMPLE, replace(EXAMPLE, anomalies={"duplicate": 1}), fence]).split("\n\n")
    assert controls.splitlines()[1].split() == [
        "without",
        "sink",
        "protocol",
        "kills",
        "anomalies",
        "seed",
        "day",
        "commit",
    ]
    [row] = controls.splitlines()[3:-1]
    assert row.split("  ")[0] == "``fence``"
    assert "duplicate 2,000, split ownership 1" in row


def test_zombies_have_tables_of_resets_and_points() -> None:
    delta = replace(EXAMPLE, kind="zombies", resets=2, points={"after-commit": 2, "before-entry": 1})
    kafka = replace(delta, sink="kafka", points={"after-commit": 1})
    records, zombies, points = tables([kafka, EXAMPLE, delta]).split("\n\n")
    assert "resets" not in records
    columns = ["sink", "protocol", "zombies", "records", "resets", "not", "applied", "lost", "twice"]
    assert zombies.splitlines()[1].split() == [*columns, "seed", "day", "commit"]
    assert zombies.splitlines()[3].split()[2:7] == ["3", "1,200", "2", "0", "0"]
    assert [line.split() for line in points.splitlines()[1:-1:2]] == [
        ["point", "Delta", "Kafka"],
        ["``after-commit``", "2", "1"],
    ]


@pytest.mark.parametrize(
    ("began", "n_ended", "unexplained"),
    [
        ([], 0, 0),
        ([], 1, 1),
        ([("query", 0), ("broker", 1)], 2, 2),
        ([("rotation", 0), ("query", 1), ("query", 2)], 3, 1),
        ([("query", 0), ("rotation", 0)], 2, 0),
        ([("disk-full", 1)], 1, 1),
    ],
)
def test_a_fault_explains_the_ends_of_programs_in_its_turn_and_the_next(
    began: list[tuple[str, int]], n_ended: int, unexplained: int
) -> None:
    assert unexplained_ends(began, n_ended) == unexplained
