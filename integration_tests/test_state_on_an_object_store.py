"""S10: with state on an object store, an executor does not read again what it has written or read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from component_tests.object_store import ObjectStore
from integration_tests.test_state_follows_its_partition import PARTITIONS, Records, Runs, current, read_rows
from streamgroups_testkit.queries import shared_options


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


@pytest.fixture
def records(bootstrap: str, topic: str) -> Records:
    return Records(bootstrap, topic)


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(PARTITIONS, retention_ms="-1")


@pytest.fixture
def runs(spark: SparkSession, bootstrap: str, group: str, topic: str, tmp_path: Path, store: ObjectStore) -> Runs:
    location = {"stateLocation": store.location("state"), "maxOffsetsPerTrigger": "200"}
    return Runs(spark, tmp_path, shared_options(bootstrap, group, topic, "consumer") | location)


def states(counts: dict[str, int]) -> Counter[str]:
    return Counter({name: n for name, n in counts.items() if name.endswith(".state")})


def test_S10_a_task_reads_the_state_of_its_executor_without_a_request(
    runs: Runs, records: Records, store: ObjectStore
) -> None:
    records.write(300)
    runs.run("first")
    written = states(store.sizes)
    assert len(written) >= 6, "these are several batches"
    assert not states(store.reads)
    records.write(300)
    records.end()
    runs.run("second")
    # The driver and the tasks of the next run read a file by two requests each.
    first = Counter({name: n for name, n in states(store.reads).items() if name in written})
    assert set(first.values()) <= {2, 4}
    assert first == states(store.reads), "the second run has read its own states"
    assert current(read_rows(runs.output)) == records.results()


def test_S10_with_encrypted_local_disks_there_are_no_copies_and_no_direct_records(
    spark: SparkSession, runs: Runs, records: Records, store: ObjectStore
) -> None:
    records.write(100)
    allowed = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"
    spark.conf.set(allowed, "false")
    spark.conf.set("spark.io.encryption.enabled", "true")
    try:
        query = runs.start("first", trigger={"availableNow": True})
        assert query.awaitTermination(120)
    finally:
        spark.conf.unset("spark.io.encryption.enabled")
        spark.conf.unset(allowed)
    assert states(store.reads)
    read = [json.loads(it.sources[0].latestOffset)["directRecords"] for it in query.recentProgress]
    assert set(read) == {0}
