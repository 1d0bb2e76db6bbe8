"""F5: a query whose driver was killed after the commit of its output is restarted when its group has no offsets any more."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from integration_tests.command_line import streamgroups
from integration_tests.test_kafka_sink_is_exactly_once import Query, forget_last_commit_of, run, values
from integration_tests.tiers import LONG
from streamgroups_spark.internals.spark_api import FEATURES
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, wait_until_group_is_empty

N = 40


@LONG
@pytest.mark.skipif(not FEATURES.passes_start, reason="needs the trigger availableNow of Spark 4.2")
@pytest.mark.parametrize("most", [pytest.param("1000", id="first batch"), pytest.param("15", id="third batch")])
def test_F5_a_batch_that_may_be_written_is_not_written_again(
    spark: SparkSession,
    bootstrap: str,
    admin: AdminClient,
    new_topic: Callable[..., str],
    group: str,
    tmp_path: Path,
    most: str,
) -> None:
    topic, board = new_topic(2), new_topic(1)
    produce(bootstrap, topic, N, partitions=2)
    query = Query(spark, bootstrap, topic, group, tmp_path / "checkpoint")
    rows = query.source(maxOffsetsPerTrigger=most).select("key", "value")
    run(query.exactly_once(rows, board))
    forget_last_commit_of(Path(query.checkpoint))
    wait_until_group_is_empty(admin, group)
    admin.delete_consumer_groups([group])[group].result(30)
    produce(bootstrap, topic, 10, partitions=2, first=N)
    remedy = ""
    for _ in range(2):
        with pytest.raises(
            StreamingQueryException, match="only these offsets show whether its output is written"
        ) as raised:
            run(query.exactly_once(rows, board))
        remedy = str(raised.value)
        assert committed_offsets(bootstrap, group, topic) == {}
        wait_until_group_is_empty(admin, group)
    assert values(bootstrap, board) == Counter(map(str, range(N)))
    # The output is there: the first of both commands.
    after = re.findall(r"printf .*? > positions\.csv", remedy)[0]
    subprocess.run(after, shell=True, check=True, cwd=tmp_path)
    file = str(tmp_path / "positions.csv")
    done = streamgroups("groups", "import", file, "--group", group, "--execute", "-b", bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    run(query.exactly_once(rows, board))
    assert values(bootstrap, board) == Counter(map(str, range(N + 10)))
