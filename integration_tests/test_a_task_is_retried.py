"""X2: a task fails after its write and Spark retries it: the Kafka sink rejects the retry, PostgreSQL and Delta tables
accept it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable

from integration_tests.test_kafka_sink_is_exactly_once import values
from integration_tests.tiers import LONG
from streamgroups_testkit.producing import produce

N = 100


@LONG
@pytest.mark.parametrize("target", ["postgres", "delta"])
def test_each_sink_and_the_second_attempt(
    bootstrap: str, new_topic: Callable[..., str], group: str, postgres: str, tmp_path: Path, target: str
) -> None:
    topic, board, delta = new_topic(2), new_topic(2), str(tmp_path / "board")
    produce(bootstrap, topic, N, partitions=2)
    config = {
        "bootstrap": bootstrap,
        "topic": topic,
        "group": group,
        "board": board,
        "postgres": postgres,
        "delta": delta,
        "ledger": target,
        "directory": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "integration_tests.retried_tasks", json.dumps(config)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("results "))
    result = json.loads(line.removeprefix("results "))
    assert "but the transaction contains the output of its first attempt" in result.pop("kafka")
    assert result == {"kafka, restarted": "", target: ""}
    assert {path.name for path in tmp_path.glob("*-has-failed")} == {f"{s}-has-failed" for s in ("kafka", target)}
    assert values(bootstrap, board) == Counter(map(str, range(N)))
    assert sorted(numbers(target, postgres, delta)) == list(range(N))


def numbers(target: str, postgres: str, delta: str) -> list[int]:
    """The rows of the table."""
    if target == "delta":
        found: list[int] = DeltaTable(delta).to_pyarrow_table().column("number").to_pylist()
        return found
    with psycopg.connect(postgres) as db:
        return [n for (n,) in db.execute("SELECT number FROM board").fetchall()]
