"""S9, X2: a shared query whose executors have a directory of temporary files of their own.

PySpark puts ``spark.executorEnv.*`` into the environment of all its Python processes, also into that of the source and the sink
on the driver. The process that calls ``sg.register`` does not have them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from streamgroups_testkit.producing import produce
from streamgroups_testkit.queries import shared_options
from streamgroups_testkit.reading import committed_offsets, read_committed

PROGRAM = """
import json, sys, tempfile
from pathlib import Path
import streamgroups as sg
from streamgroups_testkit.spark_sessions import session_builder

config = json.loads(sys.argv[1])
spark = session_builder("another-tmpdir").config("spark.executorEnv.TMPDIR", config["tmpdir"]).getOrCreate()
assert tempfile.gettempdir() != config["tmpdir"]
sg.register(spark)
records = spark.readStream.format("streamgroups").options(**config["options"]).load()
sink = sg.KafkaSink(bootstrap_servers=config["options"]["kafka.bootstrap.servers"], topic=config["to"])
writer = sg.exactly_once(records.select("key", "value"), sink=sink, checkpoint=config["checkpoint"])
writer.trigger(availableNow=True).start().awaitTermination()
assert list(Path(config["tmpdir"]).glob("streamgroups-[0-9]*")) == [], "the sockets are in the directory of the driver"
"""


def test_S9_a_shared_query_runs_exactly_once(
    bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> None:
    topic, to = new_topic(2), new_topic(2)
    produce(bootstrap, topic, 10, partitions=2)
    (tmp_path / "scratch").mkdir()
    config = {
        "tmpdir": str(tmp_path / "scratch"),
        "options": shared_options(bootstrap, group, topic),
        "to": to,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(config)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len(read_committed(bootstrap, to)) == 10
    assert committed_offsets(bootstrap, group, topic) == {0: 5, 1: 5}
