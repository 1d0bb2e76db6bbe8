"""The faults of a campaign, their order, and its result file."""

from __future__ import annotations

import doctest
from collections import Counter
from dataclasses import replace

import pytest

from integration_tests import campaign_results
from integration_tests.campaign import (
    LEDGER_POINTS,
    POINTS,
    STATEFUL_VICTIMS,
    VICTIMS,
    all_turns,
)
from integration_tests.campaign_results import EXAMPLE, tables


@pytest.mark.parametrize(("sink", "points"), [("kafka", POINTS), ("delta", LEDGER_POINTS)])
def test_every_victim_is_killed_at_every_point_before_any_is_killed_again(sink: str, points: tuple[str, ...]) -> None:
    n_round = len(points) * len(VICTIMS) + 1
    turns = all_turns(sink, 2 * n_round)
    every = Counter((point, victim) for point in points for victim in VICTIMS) + Counter([("after-commit", "answer")])
    assert Counter(turns[:n_round]) == Counter(turns[n_round:]) == every


@pytest.mark.parametrize("victims", [VICTIMS, STATEFUL_VICTIMS])
def test_a_short_campaign_has_as_many_victims_as_it_can(victims: tuple[str, ...]) -> None:
    for n in range(1, len(victims) + 1):
        assert len({victim for _, victim in all_turns("kafka", n, victims)}) == n


def test_the_order_is_the_seed_s() -> None:
    assert all_turns("kafka", 50, seed=3) == all_turns("kafka", 50, seed=3) != all_turns("kafka", 50, seed=4)


def test_what_is_written_down_is_read_back_and_printed() -> None:
    assert doctest.testmod(campaign_results, optionflags=doctest.NORMALIZE_WHITESPACE) == (0, 2)


def test_results_are_ordered_and_those_of_sabotaged_code_have_a_table_of_their_own() -> None:
    kafka = replace(EXAMPLE, sink="kafka", protocol="consumer", disordered=2)
    with_state = replace(EXAMPLE, sink="kafka", stateful=True)
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
