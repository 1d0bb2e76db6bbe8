"""X7: a side effect that runs again receives the same records: after a kill, in another query of the group, and in batches
with other boundaries.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from integration_tests.programs import running
from integration_tests.stable_query import FILTERED, start
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets
from streamgroups_testkit.waits import wait_until

N, MORE = 40, 10


def results(directory: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((directory / kind).glob("*.json"))]


def members(admin: AdminClient, group: str) -> int:
    """The number of members of a group, as the broker reports it."""
    return len(admin.describe_consumer_groups([group])[group].result().members)


@LONG
def test_X7_a_killed_batch_is_repeated_with_its_records_by_two_queries(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
) -> None:
    topic = new_topic(2)
    produce(bootstrap, topic, N, partitions=2)
    options = shared_options(bootstrap, group, topic)
    common = {"directory": str(tmp_path), "hangs": False}
    ann = {**common, "name": "ann", "checkpoint": f"{tmp_path}/ann", "options": options}
    # The batches of this query end within the pinned ranges.
    bob = {**ann, "name": "bob", "checkpoint": f"{tmp_path}/bob", "options": options | {"maxOffsetsPerTrigger": "7"}}
    queries = []
    ends = dict.fromkeys(range(2), (N + MORE) // 2)
    try:
        with running("stable_query", {**ann, "hangs": True}, tmp_path / "process.log") as program:

            def hangs() -> bool:
                program.check()
                return (tmp_path / "hangs").exists()

            # The query hangs between its first effect and the commit. At the end of the block it is killed.
            wait_until(hangs, "the effect has run")
            (before,), (first,) = results(tmp_path, "computed"), results(tmp_path, "effect")
            queries.append(start(spark, bob))
            wait_until(lambda: members(admin, group) == 2, "the second query has joined")
        # It joins before the session of the killed member ends, so each of both has one partition.
        queries.append(start(spark, {**ann, "name": "ann again"}))
        produce(bootstrap, topic, MORE, partitions=2, first=N)
        wait_until(
            lambda: committed_offsets(bootstrap, group, topic) == ends or not all(q.isActive for q in queries),
            "all records are committed",
        )
        assert [query.exception() for query in queries] == [None, None]
    finally:
        for query in queries:
            query.stop()
    _replays_are_equal(before, results(tmp_path, "computed"))
    _effects_are_equal(first, results(tmp_path, "effect"))


def _replays_are_equal(before: dict[str, Any], computed: list[dict[str, Any]]) -> None:
    """Offsets and time of a replayed batch are those of its first run. The result of a nondeterministic function is not."""
    replays = [it for it in computed if it["name"] == "ann again" and it["batch_id"] == 0]
    (again,) = replays
    moved = {row["partition"] for row in before["rows"]} - {row["partition"] for row in again["rows"]}
    assert len(moved) == 1, "the replay is smaller: a partition has moved to the other query"
    kept = [row for row in before["rows"] if row["partition"] not in moved]
    constant = ("partition", "offset", "value", "batch_time")
    assert [[row[name] for name in constant] for row in again["rows"]] == [
        [row[name] for name in constant] for row in kept
    ]
    assert not {row["chance"] for row in again["rows"]} & {row["chance"] for row in kept}


def _effects_are_equal(first: dict[str, Any], effects: list[dict[str, Any]]) -> None:
    """All effects of a record have received the same content and the same key."""
    found: dict[tuple[int, int], set[tuple[Any, ...]]] = defaultdict(set)
    names: dict[tuple[int, int], set[str]] = defaultdict(set)
    for effect in effects:
        for row in effect["rows"]:
            record = row["partition"], row["offset"]
            names[record].add(effect["name"])
            found[record].add((row["value"], row["batch_time"], row["chance"], row["idempotency_key"]))
    expected = {(p, o) for p in range(2) for o in range((N + MORE) // 2) if o % FILTERED}
    assert found.keys() == expected
    assert {record: seen for record, seen in found.items() if len(seen) > 1} == {}
    assert len({key for seen in found.values() for *_, key in seen}) == len(expected)
    repeated = {(row["partition"], row["offset"]) for row in first["rows"]}
    assert all(len(names[record]) == 2 for record in repeated), "another query has repeated each effect"
    assert {name for record in repeated for name in names[record]} == {"ann", "ann again", "bob"}
    # A pin that extends beyond the end of a batch is used for several batches.
    assert sum(it["repeated"] > 0 for it in effects if it["name"] == "bob") > 1
