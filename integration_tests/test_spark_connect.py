"""S13: batch reads, exclusive streams and the Kafka sink with Spark Connect; the rest names the classic session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, read_committed

pytest.importorskip("grpc", reason="Spark Connect needs grpcio: pip install '.[connect]'")


@pytest.mark.long
def test_S13_spark_connect_reads_and_writes_and_rejects_the_rest_by_name(
    bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, output = new_topic(2), new_topic(1)
    produce(bootstrap, topic, 10, partitions=2)
    program = Path(__file__).with_name("connect_query.py")
    arguments = [bootstrap, topic, output, group, str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    result = json.loads(ran.stdout.splitlines()[-1])
    assert result["batch"] == 10
    assert (
        f"The stream of group '{group}' is shared, and a shared stream needs a classic Spark session"
        in result["shared"]
    )
    for called in ("exactly_once", "windows"):
        assert result[called].startswith("InvalidOption: "), result[called]
        assert "needs a classic Spark session; this one uses Spark Connect" in result[called]
    # Two runs with one checkpoint: each record once, and its offset is committed with it.
    assert len(read_committed(bootstrap, output)) == 10
    assert sum(committed_offsets(bootstrap, group, topic).values()) == 10
