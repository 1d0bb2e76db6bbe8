"""P4, X9, W7: a topic with all kinds of hostile records: each record has its right result or exactly one dead letter.

``make test-long`` also runs ``python -m integration_tests.hostile_topic`` with a million records and with kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration_tests.hostile_query import writer
from integration_tests.hostile_records import KINDS
from integration_tests.hostile_topic import SHAPES, SINKS, HostileTopic, config_of, judged, run_with_kills, write_topic
from integration_tests.tiers import LONG

#: One of a hundred is hostile, and each kind occurs.
N = 100 * len(KINDS)
#: It has the most steps.
_QUICK = {("postgres", "windows")}


@pytest.fixture(scope="module")
def hostile_topic(bootstrap: str, schema_registry: str) -> HostileTopic:
    return write_topic(bootstrap, schema_registry, N, seed=7)


@pytest.mark.parametrize(
    ("sink", "shape"),
    [pytest.param(sink, shape, marks=[] if (sink, shape) in _QUICK else LONG) for sink in SINKS for shape in SHAPES],
)
def test_P4_X9_W7_each_record_has_its_result_or_one_letter(
    spark: SparkSession, hostile_topic: HostileTopic, postgres: str, tmp_path: Path, sink: str, shape: str
) -> None:
    config = config_of(hostile_topic, sink, shape, tmp_path, postgres=postgres, per_batch=N // 2)
    query = writer(spark, config).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(200)
    finally:
        query.stop()
    found, _ = judged(hostile_topic, config)
    assert not found, "\n".join(found)


@LONG
def test_P4_X9_W7_a_killed_query_writes_each_once(hostile_topic: HostileTopic, postgres: str, tmp_path: Path) -> None:
    config = config_of(hostile_topic, "delta", "windows", tmp_path, postgres=postgres, per_batch=N // 10)
    run_with_kills(hostile_topic, config, 1, tmp_path / "log", 120)
    found, _ = judged(hostile_topic, config)
    assert not found, "\n".join(found)
