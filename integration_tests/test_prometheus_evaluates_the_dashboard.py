"""O3: a real Prometheus accepts the alert rules, and finds series for each query of the Grafana dashboard.

It scrapes ``streamgroups metrics`` and ``sg.reports.MetricsListener`` while queries run. The test needs ``prometheus`` and
``promtool`` on ``PATH`` (Debian's package ``prometheus``), and is skipped without them.
``unit_tests/streamgroups_cli/test_promql_names.py`` checks names and labels without Prometheus.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import streamgroups as sg
from integration_tests.dead_letters import checked
from integration_tests.tiers import LONG
from streamgroups.retry import comes_true
from streamgroups_cli.metrics import alert_rules_yaml, dashboard_json
from streamgroups_testkit.producing import produce
from streamgroups_testkit.spark_sessions import ROCKSDB, STATE_STORE
from streamgroups_testkit.waits import wait_until
from unit_tests.requirements import without

pytestmark = LONG
if not (shutil.which("prometheus") and shutil.which("promtool")):
    without("prometheus", "prometheus and promtool are not installed")
#: The metrics and selectors whose queries find no series here, with the reason.
EMPTY = {
    "streamgroups_group_open_records": "no transaction is open",
    "streamgroups_partition_open_records": "no transaction is open",
    "streamgroups_partition_lag_exact": "all lags are exact",
    "streamgroups_partition_gaps_total": "no records were lost",
    "streamgroups_partition_gap_lost_offsets_total": "no records were lost",
    "streamgroups_partition_ignored_watermarks_total": "producers emit no watermarks",
    "streamgroups_partition_ahead_seconds": "no partition waits by maxDrift",
    "streamgroups_processor_replicas": "no instance is polled",
    "streamgroups_processor_lag_records": "no instance is polled",
    "streamgroups_processor_processed_rows_per_second": "no instance is polled",
    "streamgroups_processor_watermark_timestamp_seconds": "no instance is polled",
    "streamgroups_processor_batch_duration_seconds": "no instance is polled",
    'processor!=""': "no query is a processor",
}


@pytest.fixture
def queries(
    spark: SparkSession, bootstrap: str, new_topic: Callable[..., str], group: str, tmp_path: Path
) -> Iterator[str]:
    """Runs queries that have all metrics, and one that fails. Returns the address of their metrics."""
    metrics = sg.reports.MetricsListener(port=0, registry=CollectorRegistry())
    spark.streams.addListener(metrics)
    spark.conf.set(STATE_STORE, ROCKSDB)
    started: list[StreamingQuery] = []

    def read(name: str, topic: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": bootstrap, "group.id": f"{group}-{name}", "subscribe": topic}
        given |= {"startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "50"}
        return spark.readStream.format("streamgroups").options(**given | options).load()

    def start(name: str, writer: Any) -> None:
        writer = writer.queryName(name).trigger(processingTime="500 milliseconds")
        started.append(writer.option("checkpointLocation", str(tmp_path / name)).start())

    flights, output, letters = new_topic(2), new_topic(2), new_topic(1)
    produce(bootstrap, flights, 2_000, partitions=2)
    by_group = sg.windows(
        read("windows", flights, maxDrift="1h").withWatermark("timestamp", "1 second"),
        on="timestamp",
        by=["key"],
        window=sg.shapes.tumbling("5 seconds"),
        aggregate={"flights": "count(*)"},
        time="group",
    )
    start("windows", by_group.writeStream.format("noop"))
    timed = sg.with_event_time(read("timed", flights, membership="exclusive"), "timestamp", watermark_delay="1 second")
    start("timed", timed.groupBy(F.window("timestamp", "5 seconds")).count().writeStream.format("noop"))
    once = sg.dedup(read("once", flights), id="key", horizon="10 minutes")
    bad = checked(once.withColumn("value", F.expr("IF(offset % 100 = 0, encode('!', 'utf-8'), value)")))
    sink, dead = (sg.KafkaSink(bootstrap_servers=bootstrap, topic=topic) for topic in (output, letters))
    to = sg.exactly_once(
        bad.select("value", "dead_letter"), sink=sink, checkpoint=str(tmp_path / "once"), dead_letters=dead
    )
    start("once", to)

    def fail(_batch: DataFrame, _number: int) -> None:
        raise RuntimeError("no such gate")

    start("failing", read("failing", flights, membership="exclusive").writeStream.foreachBatch(fail))
    try:
        with pytest.raises(StreamingQueryException):
            started[-1].awaitTermination(60)
        running = started[:-1]
        wait_until(lambda: all(len(query.recentProgress) > 1 for query in running), "two batches of each query")
        assert metrics.address is not None
        yield metrics.address
    finally:
        for query in started:
            query.stop()
        spark.conf.unset(STATE_STORE)
        spark.streams.removeListener(metrics)
        metrics.close()


@pytest.fixture
def exporter(bootstrap: str) -> Iterator[str]:
    """Runs ``streamgroups metrics``. Returns the address of its metrics."""
    address = f"127.0.0.1:{_free_port()}"
    command = [sys.executable, "-c", "from streamgroups_cli import main; main()", "metrics", "-b", bootstrap]
    with _running([*command, "--listen", address, "--interval", "1s", "--window", "6s"]):
        wait_until(lambda: _is_up(address, "/metrics"), "the exporter is up")
        yield address


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        """The field ``data`` of a response of its HTTP API. A query that it rejects fails the test."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            document = json.load(response)
        assert document["status"] == "success", document
        return document["data"]

    def series(self, expr: str) -> list[Any]:
        """The result of a query."""
        result: list[Any] = self.get("query", query=expr)["result"]
        return result


@pytest.fixture
def prometheus(tmp_path: Path, queries: str, exporter: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes both and evaluates the alert rules."""
    rules, config = tmp_path / "rules.yml", tmp_path / "prometheus.yml"
    rules.write_text(alert_rules_yaml())
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [address]}]}
        for name, address in (("groups", exporter), ("queries", queries))
    ]
    settings = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(yaml.safe_dump({"global": settings, "rule_files": [str(rules)], "scrape_configs": jobs}))
    for check in (["rules", "--lint-fatal", str(rules)], ["config", str(config)]):
        subprocess.run(["promtool", "check", *check], check=True, capture_output=True, text=True)
    address = f"127.0.0.1:{_free_port()}"
    data = f"--storage.tsdb.path={tmp_path / 'data'}"
    with _running(["prometheus", f"--config.file={config}", data, f"--web.listen-address={address}"]):
        wait_until(lambda: _is_up(address, "/-/ready"), "Prometheus is up")
        found = Prometheus(address)
        wait_until(lambda: len(found.series("up == 1")) == 2, "both targets are up")
        yield found


def dashboard_queries() -> list[tuple[str, str]]:
    """The title of the panel and the query, for each query of the dashboard, with all groups and queries selected."""
    panels = json.loads(dashboard_json())["panels"]
    found = [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]
    variables = ("$group", "$query", "$processor")
    for variable in variables:
        found = [(title, expr.replace(variable, ".*")) for title, expr in found]
    return found


def test_O3_each_query_has_series_and_each_rule_is_evaluated(prometheus: Prometheus) -> None:
    expected = [(title, expr) for title, expr in dashboard_queries() if not any(name in expr for name in EMPTY)]
    assert len(expected) > 40
    missing: list[tuple[str, str]] = expected

    def all_have_series() -> bool:
        nonlocal missing
        missing = [(title, expr) for title, expr in missing if not prometheus.series(expr)]
        return not missing

    comes_true(all_have_series, 60, every_s=1)
    assert missing == [], "all of these have series"
    empty = [expr for _, expr in dashboard_queries() if not prometheus.series(expr)]
    assert {name for name in EMPTY if any(name in expr for expr in empty)} == EMPTY.keys()

    groups = prometheus.get("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert rules.keys() == {r["alert"] for g in yaml.safe_load(alert_rules_yaml())["groups"] for r in g["rules"]}
    assert [(name, rule["lastError"]) for name, rule in rules.items() if rule["health"] != "ok"] == []
    firing = {alert["labels"]["alertname"]: alert for alert in prometheus.get("alerts")["alerts"]}
    assert firing["StreamgroupsQueryFailed"]["state"] == "firing"
    failed = firing["StreamgroupsQueryFailed"]["annotations"]["summary"]
    assert failed == "Query failing has failed with FOREACH_BATCH_USER_FUNCTION_ERROR."
    assert firing["StreamgroupsDeadLetters"]["state"] == "firing"
    # The group of the failed query has lag and no owner. The alert waits for five minutes.
    assert firing["StreamgroupsGroupStopped"]["state"] == "pending"


@contextmanager
def _running(command: list[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "it still runs"
    finally:
        process.terminate()
        process.wait(30)


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _is_up(address: str, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
