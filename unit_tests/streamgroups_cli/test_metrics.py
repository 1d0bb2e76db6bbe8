"""``streamgroups metrics``: what is exported, that the dashboard shows nothing else, and what happens when the cluster is away."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MethodType

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streamgroups.coordination.reset_protocol import gaps_group_of, members_group_of
from streamgroups.errors import NotAuthorized, StreamGroupsError
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.groups.commit_metadata import CommitMark
from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.groups.lag import PartitionError
from streamgroups.groups.offset_audit import Facts, GroupAudit, Verdict, audit
from streamgroups.groups.offset_records import OffsetRecord
from streamgroups.groups.unused_groups import OFFSETS_TOPIC
from streamgroups.instances.entries import Progress, Replica
from streamgroups.instances.overview import ReplicaView
from streamgroups.monitoring.lag_states import LagState
from streamgroups.monitoring.monitor import Monitor
from streamgroups.partitions import TopicPartition
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.reports.exporter import AuditCollector, GroupCollector, Polls
from streamgroups_cli import metrics
from streamgroups_cli.connection import Connect
from streamgroups_cli.lasting_connection import LastingConnection
from streamgroups_cli.metrics import _audits, alert_rules_yaml, dashboard_json
from unit_tests.cli_runner import CommandLine

LEFT_OUT = ("group", "processor")
P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)


class Exporter:
    """A collector on a cluster in memory, and what Prometheus reads of it."""

    def __init__(self) -> None:
        self.clock = FakeClock(1_000_000)
        self.cluster = FakeCluster(self.clock)
        self.cluster.create_topic("flights", 2)
        for tp in (P0, P1):
            self.cluster.produce(tp, 10, timestamp_ms=940_000)
        self.cluster.commit("board", {P0: 4, P1: 1, TopicPartition("gone", 0): 1})
        self.cluster.delete_records(P1, 3)
        admin = FakeAdmin(self.cluster)
        gaps = Gaps().plus(Gap(1, 3, Cause.EXPIRED, 1_000)).plus(Gap(8, 0, Cause.RECREATED, 2_000))
        self.cluster.commit(gaps_group_of("board"), {P1: 0}, gaps.encode())
        monitor = Monitor(admin, admin, self.clock, window_ms=60_000, gaps=True)
        self.polls = Polls(monitor.poll, lambda: 7, lambda: self.clock() / 1000, lambda: self.replicas)
        self._registry = CollectorRegistry()
        self.replicas: list[ReplicaView] = []
        self._registry.register(GroupCollector(self.polls, "board"))

    def text(self) -> str:
        return generate_latest(self._registry).decode()

    def scrape(self) -> dict[tuple[str, str], float]:
        return {
            (s.name, " ".join(v for k, v in sorted(s.labels.items()) if k not in LEFT_OUT)): s.value
            for family in text_string_to_metric_families(self.text())
            for s in family.samples
        }


@pytest.fixture
def exporter() -> Exporter:
    return Exporter()


def of_partitions(samples: Mapping[tuple[str, str], float], name: str) -> dict[str, float]:
    return {labels: value for (n, labels), value in samples.items() if n == f"streamgroups_partition_{name}"}


def test_O3_what_is_exported(exporter: Exporter) -> None:
    assert exporter.polls.refresh() is None
    samples = exporter.scrape()
    assert of_partitions(samples, "lag_records") == {"0 flights": 6, "1 flights": 7}
    assert of_partitions(samples, "lag_seconds") == {"0 flights": 60, "1 flights": 60}
    assert of_partitions(samples, "committed_offset") == {"0 flights": 4, "1 flights": 1, "0 gone": 1}
    assert of_partitions(samples, "end_offset") == {"0 flights": 10, "1 flights": 10}
    assert of_partitions(samples, "lost_records") == {"0 flights": 0, "1 flights": 2, "0 gone": 0}
    assert of_partitions(samples, "lag_exact") == {"0 flights": 1, "1 flights": 1}
    assert of_partitions(samples, "open_records") == {"0 flights": 0, "1 flights": 0}
    assert samples["streamgroups_group_lag_records", ""] == 13
    assert samples["streamgroups_group_open_records", ""] == 0
    assert samples["streamgroups_group_lag_seconds", ""] == 60
    assert samples["streamgroups_group_members", ""] == 0
    assert samples["streamgroups_group_state", "Empty"] == 1
    assert samples["streamgroups_group_partitions", "unknown"] == 1
    assert samples["streamgroups_group_partitions", "stopped"] == 2, "no member"
    assert samples["streamgroups_requests_total", ""] == 7
    assert samples["streamgroups_last_successful_poll_timestamp_seconds", ""] == 1_000
    assert (samples["streamgroups_polls_total", ""], samples["streamgroups_poll_failures_total", ""]) == (1, 0)


def test_O3_a_partition_without_a_leader_makes_the_time_lag_unknown(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = FakeAdmin.bounds
    monkeypatch.setattr(FakeAdmin, "bounds", lambda admin, tps: {**bounds(admin, tps), P1: PartitionError.NO_LEADER})
    assert exporter.polls.refresh() is None
    samples = exporter.scrape()
    assert samples["streamgroups_group_lag_records", ""] == 6
    assert ("streamgroups_group_lag_seconds", "") not in samples
    assert of_partitions(samples, "lag_seconds") == {"0 flights": 60}, "alerts use it"


def test_O4_recorded_gaps_are_counters_by_cause(exporter: Exporter) -> None:
    exporter.polls.refresh()
    samples = exporter.scrape()
    assert of_partitions(samples, "gaps_total") == {"expired 1 flights": 1, "recreated 1 flights": 1}
    assert of_partitions(samples, "gap_lost_offsets_total") == {"expired 1 flights": 2}


def test_O4_a_gap_that_is_only_counted_keeps_its_cause(exporter: Exporter) -> None:
    gaps = Gaps()
    for i in range(200):
        gaps = gaps.plus(Gap(2 * i, 2 * i + 1, Cause.EXPIRED if i % 2 else Cause.TRUNCATED, i))
    assert gaps.not_kept > 50
    exporter.cluster.commit(gaps_group_of("board"), {P1: 0}, gaps.encode())
    exporter.polls.refresh()
    samples = exporter.scrape()
    assert of_partitions(samples, "gaps_total") == {"expired 1 flights": 100, "truncated 1 flights": 100}
    assert of_partitions(samples, "gap_lost_offsets_total") == {"expired 1 flights": 100}


def test_O4_gaps_of_named_groups_are_read_too(exporter: Exporter) -> None:
    admin = FakeAdmin(exporter.cluster)
    exporter.cluster.commit("whole", {P0: 4})
    watched = Monitor(admin, admin, exporter.clock, gaps=True).poll(["board", "whole"])
    assert [{tp: gaps.count for tp, gaps in group.gaps.items()} for group in watched] == [{P1: 2}, {}]
    (without,) = Monitor(admin, admin, exporter.clock).poll(["board"])
    assert without.gaps == {}


def test_P2_processors_have_a_state_and_the_figures_of_their_last_batches(exporter: Exporter) -> None:
    exporter.cluster.commit("board.late", {P0: 4})
    exporter.replicas = [
        ReplicaView(Replica("late", 0), "running", progress=Progress(7, 200, 30, 2_000, 1_500)),
        ReplicaView(Replica("late", 1), "running", progress=Progress(9, 100, None, 1_000, 500)),
        ReplicaView(Replica("failed", 0), "failed", "no such column"),
    ]
    exporter.polls.refresh()
    samples = {
        (s.name.removeprefix("streamgroups_"), s.labels["processor"], s.labels.get("state", "")): s.value
        for family in text_string_to_metric_families(exporter.text())
        for s in family.samples
        if s.labels.get("processor")
    }
    assert {key: value for key, value in samples.items() if value and key[0].startswith("processor_")} == {
        ("processor_replicas", "board.late", "running"): 2,
        ("processor_replicas", "board.failed", "failed"): 1,
        ("processor_lag_records", "board.late", ""): 30,
        ("processor_watermark_timestamp_seconds", "board.late", ""): 1,
        ("processor_processed_rows_per_second", "board.late", ""): 300,
        ("processor_batch_duration_seconds", "board.late", ""): 1.5,
    }
    # The group of a processor has the label, and other groups have it not.
    assert ("group_lag_records", "board.late", "") in samples
    assert 'streamgroups_group_lag_records{group="board",processor=""}' in exporter.text()
    exporter.cluster.reachable = False
    exporter.polls.refresh()
    assert "streamgroups_processor_lag_records{" not in exporter.text()


def test_O6_the_last_audit_is_exported(cli: CommandLine) -> None:
    """A group without members of this library is not audited unless it is named."""
    results: list[list[GroupAudit] | StreamGroupsError] = []
    processors: list[str] = []
    audits = AuditCollector(lambda: _or_raise(results.pop()), lambda: 7_000, lambda: processors)
    registry = CollectorRegistry()
    registry.register(audits)
    assert "streamgroups_group_audit_offsets{" not in generate_latest(registry).decode()
    mark = CommitMark(False, from_offset=0).encode()
    facts = Facts(P0, [OffsetRecord(P0, 9, mark, 1), OffsetRecord(P0, 12, "", 2)])
    results.append([GroupAudit("board", 0, (audit(facts),))])
    assert audits.refresh() is None
    text = generate_latest(registry).decode()
    assert 'streamgroups_group_audit_offsets{group="board",processor="",verdict="missing"} 3.0' in text
    assert 'streamgroups_group_audit_offsets{group="board",processor="",verdict="once"} 9.0' in text
    assert 'streamgroups_group_audit_complete{group="board",processor=""} 1.0' in text
    assert "streamgroups_last_audit_timestamp_seconds 7.0" in text
    results.append(StreamGroupsError("away"))
    assert audits.refresh() is not None
    # An audit without a result raises an IndexError here: an unexpected error.
    assert isinstance(audits.refresh(), StreamGroupsError)
    assert generate_latest(registry).decode() == text
    processors.append("board")
    assert (
        'streamgroups_group_audit_complete{group="board",processor="board"} 1.0' in generate_latest(registry).decode()
    )
    cli.cluster.create_topic("flights", 1)
    cli.cluster.create_topic(OFFSETS_TOPIC, 1)
    cli.cluster.commit("by-hand", {P0: 5})
    key = b"\0\1\0\7by-hand\0\7flights\0\0\0\0"
    value = b"\0\0" + (5).to_bytes(8, "big") + b"\0\0" + (900_000).to_bytes(8, "big")
    cli.cluster.produce(TopicPartition(OFFSETS_TOPIC, 0), key=key, value=value)
    with LastingConnection(Connect(bootstrap_server="broker:9092")) as connection:
        assert _audits(connection, None, 200_000)._audit() == []
        assert [it.counts[Verdict.UNKNOWN] for it in _audits(connection, ["by-hand"], 200_000)._audit()] == [0]


def _or_raise(result: list[GroupAudit] | StreamGroupsError) -> list[GroupAudit]:
    if isinstance(result, StreamGroupsError):
        raise result
    return result


def test_metrics_of_the_exporter_itself(exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    times_s = iter([10.0, 12.5, 20.0, 20.25])
    monkeypatch.setattr("streamgroups_admin.reports.exporter.time.monotonic", lambda: next(times_s))
    exporter.polls.refresh()
    assert exporter.scrape()["streamgroups_poll_duration_seconds", ""] == 2.5
    exporter.cluster.reachable = False
    exporter.polls.refresh()
    samples = exporter.scrape()
    assert samples["streamgroups_poll_duration_seconds", ""] == 0.25
    assert (samples["streamgroups_polls_total", ""], samples["streamgroups_poll_failures_total", ""]) == (2, 1)


def test_metadata_groups_are_not_exported(exporter: Exporter) -> None:
    exporter.cluster.commit(members_group_of("board"), {P0: 4}, "{}")
    exporter.polls.refresh()
    assert 'group="board"' in exporter.text()
    assert 'group="board.streamgroups"' not in exporter.text()


def test_O3_a_group_without_readers_is_counted_as_stopped(exporter: Exporter) -> None:
    for _ in range(3):
        exporter.polls.refresh()
        exporter.clock.advance(20_000)
    samples = exporter.scrape()
    states = {s: samples["streamgroups_group_partitions", s.value] for s in LagState}
    assert (states[LagState.STOPPED], states[LagState.OK], sum(states.values())) == (2, 0, 3)


def test_a_cluster_that_is_away_leaves_no_old_figures(exporter: Exporter) -> None:
    exporter.polls.refresh()
    exporter.cluster.reachable = False
    assert exporter.polls.refresh() is not None
    samples = exporter.scrape()
    assert (samples["streamgroups_up", ""], samples["streamgroups_poll_failures_total", ""]) == (0, 1)
    assert not [name for name, _ in samples if name.startswith(("streamgroups_group_", "streamgroups_partition_"))]
    exporter.cluster.reachable = True
    exporter.polls.refresh()
    assert exporter.scrape()["streamgroups_up", ""] == 1


def test_the_dashboard_shows_all_that_is_exported(exporter: Exporter) -> None:
    exporter.replicas = [ReplicaView(Replica("late", 0), "running", progress=Progress(7, 200, 30, 2_000, 1_500))]
    exporter.polls.refresh()
    exported = {name for name, _ in exporter.scrape()}
    dashboard = json.loads(dashboard_json())
    shown = set()
    for panel in dashboard["panels"]:
        assert panel["title"]
        assert panel["targets"]
        for target in panel["targets"]:
            shown |= set(re.findall(r"\bstreamgroups_\w+", target["expr"]))
    for variable in dashboard["templating"]["list"]:
        shown |= set(re.findall(r"\bstreamgroups_\w+", json.dumps(variable["query"])))
    # Its other metrics come from sg.reports.MetricsListener.
    assert exported <= shown


def test_the_dashboards_panels_do_not_overlap() -> None:
    panels = json.loads(dashboard_json())["panels"]
    places = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
        for p in panels
        for x in range(p["gridPos"]["w"])
        for y in range(p["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert max(x for x, _ in places) < 24
    assert len({p["id"] for p in panels}) == len(panels)


def test_the_dashboard_can_be_printed_without_a_cluster(cli: CommandLine) -> None:
    cli.cluster.reachable = False
    result = cli("metrics", "--dashboard")
    assert (result.code, json.loads(result.out)["uid"]) == (0, "streamgroups-groups")


def test_O3_a_repeated_group_has_one_series(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus rejects a scrape with two equal series."""
    cli.cluster.create_topic("flights", 1)
    cli.cluster.commit("board", {P0: 0})
    polled: list[list[str]] = []

    def polled_once(repeated: Sequence[tuple[float, MethodType]]) -> None:
        polls = repeated[0][1].__self__
        assert isinstance(polls, Polls)
        polled.append([it.snapshot.description.group_id for it in polls.groups])

    monkeypatch.setattr(metrics, "_refresh_until_stopped", polled_once)
    assert cli("metrics", "board", "board", "--listen", "127.0.0.1:0").code == 0
    assert polled == [["board"]]


def test_O3_the_poll_after_a_failure_has_a_new_connection(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates and addresses of the first connection can be the reason of a failure."""
    cli.cluster.create_topic("flights", 1)
    cli.cluster.commit("board", {P0: 0})
    polled: list[tuple[bool, list[str], int]] = []

    def poll_three_times(repeated: Sequence[tuple[float, MethodType]]) -> None:
        refresh = repeated[0][1]
        polls = refresh.__self__
        assert isinstance(polls, Polls)
        for is_reachable in (True, False, True):
            cli.cluster.reachable = is_reachable
            failed = refresh() is not None
            polled.append((failed, [it.snapshot.description.group_id for it in polls.groups], cli.connections))

    monkeypatch.setattr(metrics, "_refresh_until_stopped", poll_three_times)
    assert cli("metrics", "--listen", "127.0.0.1:0").code == 0
    assert polled == [(False, ["board"], 1), (True, [], 1), (False, ["board"], 2)]


def test_O3_an_error_that_no_connection_causes_keeps_the_connection(cli: CommandLine) -> None:
    def denied(_: Cluster) -> None:
        raise NotAuthorized("No.")

    with LastingConnection(Connect(bootstrap_server="broker:9092")) as connection:
        for _ in range(2):
            with pytest.raises(NotAuthorized):
                connection.use(denied)
        assert (cli.connections, connection.requests) == (1, 1)
        with pytest.raises(ZeroDivisionError):
            connection.use(lambda _: 1 // 0)
        assert connection.requests == 1
        connection.use(lambda _: None)
        assert (cli.connections, connection.requests) == (2, 2)


def test_O3_alert_rules_use_metrics_of_the_dashboard(exporter: Exporter) -> None:
    """The dashboard shows exactly the metrics of the exporter and of sg.reports.MetricsListener; other tests check that."""
    known = set(re.findall(r"\bstreamgroups_\w+", dashboard_json()))
    rules = {group["name"]: group["rules"] for group in yaml.safe_load(alert_rules_yaml())["groups"]}
    assert set(rules) == {"streamgroups-groups", "streamgroups-processors", "streamgroups-queries"}
    for name, of_group in rules.items():
        for rule in of_group:
            used = set(re.findall(r"\bstreamgroups_\w+", rule["expr"]))
            assert used, rule
            assert used <= known, rule
            of_queries = {it for it in used if it.startswith("streamgroups_query_")}
            assert of_queries == (used if name == "streamgroups-queries" else set()), rule
            of_processors = {it for it in used if it.startswith("streamgroups_processor_")}
            assert of_processors == (used if name == "streamgroups-processors" else set()), rule
    exporter.polls.refresh()
    used = set(re.findall(r"\bstreamgroups_\w+", str(rules["streamgroups-groups"])))
    assert used <= {name for name, _ in exporter.scrape()}


def test_O3_lag_states_of_alert_rules_exist() -> None:
    states = re.findall(r'lag_state="(\w+)"', alert_rules_yaml())
    assert states
    assert set(states) <= {s.value for s in LagState}


def test_each_alert_has_a_name_a_severity_and_a_text() -> None:
    rules = [rule for group in yaml.safe_load(alert_rules_yaml())["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning"}
    assert all(set(rule["annotations"]) == {"summary", "description"} for rule in rules)


def test_the_documentation_explains_each_alert() -> None:
    page = (Path(__file__).parents[2] / "docs" / "groups-cli.rst").read_text(encoding="utf-8")
    names = re.findall(r"alert: (\w+)", alert_rules_yaml())
    assert [name for name in names if f"``{name}``" not in page] == []


def test_alert_rules_can_be_printed_without_a_cluster(cli: CommandLine) -> None:
    cli.cluster.reachable = False
    assert cli("metrics", "--alert-rules").out == alert_rules_yaml()
    assert cli("metrics", "--alert-rules", "--dashboard").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["--listen", "nowhere"],
        ["--interval", "soon"],
        ["--listen", "127.0.0.1:99999"],
        ["--instance", "board.eu"],
        ["--audit-interval", "soon"],
        ["--audit-interval", "1h", "--audit-window", "soon"],
        ["--audit-window", "1h"],
        ["--interval", "0s"],
        ["--audit-interval", "99ms"],
    ],
)
def test_wrong_options(cli: CommandLine, arguments: list[str]) -> None:
    assert cli("metrics", *arguments).code == 2


@pytest.mark.parametrize("command", [("worker", "run", "-i", "board"), ("processors", "run", "late.yaml")])
def test_the_address_of_the_metrics_of_a_process_is_checked_first(
    cli: CommandLine, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[connections.prod]\ntype = "kafka"\nbootstrap-servers = "broker:9092"\n')
    config.chmod(0o600)
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(config))
    monkeypatch.chdir(tmp_path)
    Path("late.yaml").write_text("name: late\nsource: {connection: prod, subscribe: flights}\nsink: {format: noop}\n")
    result = cli(*command, "--metrics", "nowhere")
    assert (result.code, "--metrics is 'nowhere', which is not HOST:PORT." in result.err) == (2, True)


def test_a_cluster_that_never_responds_is_reported_at_once(cli: CommandLine) -> None:
    cli.cluster.reachable = False
    assert cli("metrics", "--listen", "127.0.0.1:0").code == 1


def test_a_signal_ends_the_exporter_between_refreshes() -> None:
    refreshed = []

    def refresh() -> None:
        refreshed.append(1)
        os.kill(os.getpid(), signal.SIGTERM)

    before = {it: signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGINT)}
    try:
        metrics._refresh_until_stopped([(0.01, refresh), (600.0, refresh)])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert refreshed == [1]
