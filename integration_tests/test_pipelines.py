"""S13: a declarative pipeline of Spark with the files of ``docs/pipelines.rst``: two runs, a killed one, and a full refresh.

``python -m pyspark.pipelines.cli`` runs the pipelines: the program of ``spark-pipelines``, without the two JVMs that start it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyspark
import pytest
from confluent_kafka.admin import AdminClient
from pyarrow import parquet

from integration_tests.command_line import streamgroups
from integration_tests.programs import running_command
from integration_tests.tiers import LONG
from streamgroups.spark_features import spark_features
from streamgroups_testkit.producing import produce
from streamgroups_testkit.reading import committed_offsets, read_committed, wait_until_group_is_empty
from streamgroups_testkit.spark_sessions import jvm_options, shared_spark_home
from streamgroups_testkit.waits import wait_until
from unit_tests.documents import ROOT, blocks

pytest.importorskip("grpc", reason="pipelines need grpcio: pip install 'pyspark[pipelines]'")
pytestmark = pytest.mark.skipif(
    not spark_features(pyspark.__version__).replaces_sources, reason="automatic registration needs Spark 4.2"
)

PAGE = ROOT / "docs" / "pipelines.rst"
PARTITIONS = 2
#: The groups of the page.
TABLE, SINK = "board-table", "board-delays"


class Pipeline:
    """The project of the page in a directory, with topics and groups of its own.

    Args:
        directory: the directory.
        bootstrap: the broker.
        topic: the topic that it reads.
        output: the topic of its sink.
        group: the start of the names of its groups.
    """

    def __init__(self, directory: Path, bootstrap: str, topic: str, output: str, group: str) -> None:
        self.bootstrap, self.topic, self.output = bootstrap, topic, output
        self.table_group, self.sink_group = f"{group}-table", f"{group}-delays"
        self._directory, self._log = directory, directory / "log"
        self._project = directory / "flight-board"
        self._definitions = self._project / "transformations" / "board.py"
        self.connections = directory / "config.toml"
        self.warehouse = directory / "warehouse"
        changes = (
            ("file:///data", directory.as_uri()),
            ('"flights"', f'"{topic}"'),
            ('"topic": "delays"', f'"topic": "{output}"'),
            (TABLE, self.table_group),
            (SINK, self.sink_group),
        )
        for block in blocks(PAGE, "yaml", "python"):
            code = block.code
            for old, new in changes:
                code = code.replace(old, new)
            file = self._project / block.caption
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")
        (directory / "conf").mkdir()
        self.defaults = directory / "conf" / "spark-defaults.conf"
        self.defaults.write_text(
            f"spark.driver.extraJavaOptions {jvm_options()}\nspark.ui.enabled false\n"
            f"spark.sql.warehouse.dir {self.warehouse}\nspark.sql.streaming.pollingDelay 50ms\n"
            # The catalog of the page: a Hive metastore in the working directory, which is the directory of the test.
            "spark.sql.catalogImplementation hive\n"
        )
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(shared_spark_home()),
            "SPARK_CONF_DIR": str(directory / "conf"),
            "SPARK_REMOTE": "local[2]",
            "STREAMGROUPS_CONFIG": str(self.connections),
        }
        self.connections.write_text(f'[connections.prod]\ntype = "kafka"\nbootstrap-servers = "{bootstrap}"\n')

    def define(self, code: str) -> None:
        """Replaces the definitions of the page."""
        self._definitions.write_text(code, encoding="utf-8")

    def limit_batches(self, records: int) -> None:
        """Divides a run into batches."""
        limit = f'.option("maxOffsetsPerTrigger", "{records}")\n        .load()'
        self.define(self._definitions.read_text(encoding="utf-8").replace(".load()", limit))

    def command(self, *arguments: str) -> list[str]:
        specification = self._project / "spark-pipeline.yml"
        return [sys.executable, "-m", "pyspark.pipelines.cli", *arguments, "--spec", str(specification)]

    def run(self, *arguments: str) -> str:
        """Runs a command to its end. Returns its output, also of one that fails."""
        ran = subprocess.run(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            env=self._environment,
            cwd=self._directory,
            check=False,
        )
        return ran.stdout if ran.returncode else f"{ran.stdout}\nended well"

    def run_well(self, *arguments: str) -> None:
        """Runs a command, which must end well."""
        output = self.run(*arguments)
        assert "ended well" in output, output[-10_000:]

    def run_and_kill(self, has_begun: Callable[[], bool]) -> None:
        """Starts a run, and kills all its processes as soon as a condition is true."""
        with running_command(self.command("run"), self._log, self._environment, self._directory) as program:

            def begun() -> bool:
                program.check()
                return has_begun()

            wait_until(begun, "the run has written batches", timeout_s=600, interval_s=0.5)
            program.kill()

    def in_table(self) -> Counter[str]:
        """The flights in the files of the table that its log names, with their numbers."""
        table = self.warehouse / "board"
        log = [file for file in (table / "_spark_metadata").glob("*") if not file.name.startswith(".")]
        # A compacted file of the log repeats the entries before it.
        entries = [json.loads(line) for file in log for line in file.read_text().splitlines() if line.startswith("{")]
        files = {unquote(urlsplit(entry["path"]).path) for entry in entries if entry["action"] == "add"}
        return Counter(flight for file in files for flight in parquet.read_table(file)["flight"].to_pylist())

    def in_topic(self) -> Counter[str]:
        """The keys of the committed records of the sink, with their numbers."""
        return Counter(str(record.key or b"", "utf-8") for record in read_committed(self.bootstrap, self.output))

    def offsets(self, group: str) -> int:
        """The sum of the committed offsets of a group."""
        return sum(committed_offsets(self.bootstrap, group, self.topic).values())


@pytest.fixture
def pipeline(bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path, bootstrap, new_topic(PARTITIONS), new_topic(1), group)


def once(count: int) -> Counter[str]:
    """Each record once."""
    return Counter(str(i) for i in range(count))


@LONG
@pytest.mark.timeout(1_200)
def test_S13_runs_of_a_pipeline_write_each_record_once(pipeline: Pipeline, admin: AdminClient) -> None:
    produce(pipeline.bootstrap, pipeline.topic, 200, partitions=PARTITIONS)
    pipeline.run_well("dry-run")
    flows = {pipeline.table_group, pipeline.sink_group}
    # A group with a committed offset is in the list without a member too.
    assert not flows & {it.group_id for it in admin.list_consumer_groups().result(30).valid}

    pipeline.run_well("run")
    assert pipeline.in_topic() == pipeline.in_table() == once(200)
    assert pipeline.offsets(pipeline.sink_group) == 200

    produce(pipeline.bootstrap, pipeline.topic, 400, partitions=PARTITIONS, first=200)
    pipeline.limit_batches(50)
    pipeline.run_and_kill(lambda: max(map(pipeline.offsets, flows)) >= 300)
    assert min(map(pipeline.offsets, flows)) < 600
    produce(pipeline.bootstrap, pipeline.topic, 50, partitions=PARTITIONS, first=600)
    pipeline.run_well("run")
    assert pipeline.in_topic() == once(650)
    assert pipeline.in_table() == once(650)


@LONG
@pytest.mark.timeout(1_200)
def test_a_full_refresh_needs_a_reset_of_the_group(
    pipeline: Pipeline, admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(pipeline.connections))
    produce(pipeline.bootstrap, pipeline.topic, 100, partitions=PARTITIONS)
    pipeline.run_well("run")
    assert pipeline.in_table() == pipeline.in_topic() == once(100)
    pipeline.run_well("run", "--full-refresh", "board")
    assert not pipeline.in_table()
    wait_until_group_is_empty(admin, pipeline.table_group)
    (commands,) = (block.code for block in blocks(PAGE, "console") if "groups reset" in block.code)
    for command in commands.splitlines():
        words = shlex.split(command.removeprefix("$ "), comments=True)
        if words[:1] == ["streamgroups"]:
            names = {TABLE: pipeline.table_group, "flights": pipeline.topic}
            ran = streamgroups(*[names.get(word, word) for word in words[1:]])
            assert ran.returncode == 0, ran.stderr
        elif words:
            pipeline.run_well(*words[1:])
    assert pipeline.in_table() == pipeline.in_topic() == once(100)


#: The body of a flow, and the start of its error, which contains a remedy.
REJECTED = {
    "shared": (
        'flights("GROUP-shared", membership="shared").select("key")',
        "The stream of group 'GROUP-shared' is shared, and a shared stream needs the registration of this library",
    ),
    "drift": ('flights("GROUP-drift", maxDrift="1h").select("key")', "Option 'maxDrift' needs the registration"),
    "server": (
        'flights("GROUP-server", **{"kafka.bootstrap.servers": "other:9092"}).select("key")',
        "Option 'kafka.bootstrap.servers'",
    ),
    "exactly_once": (
        'sg.exactly_once(flights("GROUP-sink"), sink=sg.KafkaSink(connection="prod", topic="t"), checkpoint="/c")',
        "sg.exactly_once needs a classic Spark session",
    ),
    "windows": (
        'sg.windows(flights("GROUP-windows").withWatermark("timestamp", "1 second"), on="timestamp", by=["key"], '
        'window=sg.shapes.tumbling("1 minute"), aggregate={"n": "count(*)"})',
        "sg.windows needs the columns of its DataFrame",
    ),
    "decode": (
        'sg.decode(flights("GROUP-decode"), sg.schemas.Json("delay int"))',
        "sg.decode needs the columns of its DataFrame",
    ),
}
_FLOWS = """
import streamgroups as sg
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

def flights(group, **more):
    given = {"connection": "prod", "subscribe": "TOPIC", "group.id": group, "membership": "exclusive", **more}
    return SparkSession.active().readStream.format("streamgroups").options(**given).load()
"""
_FLOW = """
try:
    @dp.table
    def NAME():
        return CODE
except Exception as e:
    print("NAME:", e)
"""


@LONG
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("names", [("shared", "drift"), ("server", "exactly_once", "windows", "decode")])
def test_S13_parts_without_support_are_rejected_in_a_pipeline(
    pipeline: Pipeline, group: str, admin: AdminClient, names: tuple[str, ...]
) -> None:
    """When a flow starts, and when it is defined."""
    flows = [_FLOW.replace("NAME", name).replace("CODE", REJECTED[name][0]) for name in names]
    pipeline.define("\n".join([_FLOWS, *flows]).replace("TOPIC", pipeline.topic).replace("GROUP", group))
    with pipeline.defaults.open("a") as defaults:
        defaults.write("spark.sql.pipelines.maxFlowRetryAttempts 0\n")
    output = pipeline.run("run")
    assert "ended well" not in output, output[-10_000:]
    for name in names:
        assert REJECTED[name][1].replace("GROUP", group) in " ".join(output.split()), output[-15_000:]
    groups = {it.group_id for it in admin.list_consumer_groups().result(30).valid}
    assert not {name for name in groups if name.startswith(group)}


@LONG
@pytest.mark.timeout(600)
@pytest.mark.parametrize("at_once", [1, 2])
def test_S13_two_flows_of_one_group_are_rejected(pipeline: Pipeline, group: str, at_once: int) -> None:
    """One after the other, and at once: the second one never starts behind the records of the first one."""
    produce(pipeline.bootstrap, pipeline.topic, 200, partitions=PARTITIONS)
    flows = [
        _FLOW.replace("NAME", name).replace("CODE", f'flights("{group}", startingOffsets="earliest").select("key")')
        for name in ("one", "two")
    ]
    pipeline.define("\n".join([_FLOWS, *flows]).replace("TOPIC", pipeline.topic))
    with pipeline.defaults.open("a") as defaults:
        defaults.write(f"spark.sql.pipelines.execution.maxConcurrentFlows {at_once}\n")
    output = " ".join(pipeline.run("run").split())
    assert "ended well" not in output, output[-10_000:]
    assert f"for group '{group}', one from offset 0 or before, and a new one from offset 100" in output
    assert "each flow of a declarative pipeline needs its own group" in output
