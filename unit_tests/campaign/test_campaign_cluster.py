"""The cluster of a campaign: each write needs two of three brokers, and the record shows it."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace

from integration_tests.campaign import cluster
from integration_tests.campaign.cluster import Durability, min_insync_of, problems_of, properties_of
from integration_tests.campaign.record import Recorded, page
from integration_tests.campaign.results import EXAMPLE, Result, parse
from streamgroups_broker._properties import default_properties


def test_each_write_needs_two_of_three_brokers() -> None:
    merged = default_properties(3) | properties_of(3)
    copies = [
        merged[it]
        for it in (
            "default.replication.factor",
            "offsets.topic.replication.factor",
            "transaction.state.log.replication.factor",
        )
    ]
    assert copies == ["3", "3", "3"]
    assert (merged["min.insync.replicas"], merged["transaction.state.log.min.isr"]) == ("2", "2")


def test_a_topic_with_another_replication_is_a_problem() -> None:
    right = {"in": Durability(3, 2), "__consumer_offsets": Durability(3, 2)}
    assert problems_of(right, 3) == []
    assert len(problems_of(right | {"out": Durability(1, 2)}, 3)) == 1
    assert len(problems_of(right, 1)) == 2


def test_the_record_shows_how_many_brokers_a_write_needs() -> None:
    one, three = EXAMPLE, replace(EXAMPLE, nodes=3, min_insync=min_insync_of(3))
    rows = page([Recorded.of(_line(it)) for it in (one, three)])
    assert "3, min ISR 2" in rows
    assert Recorded.of(_line(one)).min_insync == 1


def test_lines_of_the_record_without_the_field_stay_readable() -> None:
    line = _line(EXAMPLE)
    del line["min_insync"]
    assert parse(json.dumps(line)) == EXAMPLE
    assert Recorded.of(line).min_insync == 1


def test_the_examples_run() -> None:
    failed, n = doctest.testmod(cluster)
    assert (failed, n > 0) == (0, True)


def _line(result: Result) -> dict[str, object]:
    found: dict[str, object] = json.loads(result.to_line())
    return found
