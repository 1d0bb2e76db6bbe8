"""``sg.reports.MetricsListener`` receives recorded events of real queries, and Prometheus reads the metrics."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

import streamgroups as sg
from streamgroups.coordination.reset_protocol import gaps_group_of
from streamgroups.errors import InvalidOption
from streamgroups.fakes import FakeAdmin, FakeClock, FakeCluster
from streamgroups.groups.gaps import Cause, Gap, Gaps
from streamgroups.monitoring.member_reports import BatchFlight, QueryStates, UnreadableWatermarks, WaitingPartitions
from streamgroups.monitoring.monitor import Monitor
from streamgroups.monitoring.query_progress import read_time_ms
from streamgroups.partitions import TopicPartition
from streamgroups.state.figures import BatchFigures, StateSize, TaskFigures
from streamgroups_cli.metrics import dashboard_json
from streamgroups_spark.bridge.rpc import SessionServer
from streamgroups_spark.bridge.task_reports import OutputCounter, UnreadableCounts
from streamgroups_spark.messages.batch import Figures, FiguresRequest, OutputWritten
from streamgroups_spark.ops import metrics_listener
from streamgroups_spark.ops.cluster_poller import Connection
from streamgroups_spark.ops.processor_names import PROCESSORS
from streamgroups_spark.session import SESSION
from unit_tests.streamgroups.test_query_progress import EVENTS

#: The three batches of test_O3_a_query_that_reads.
METADATA_STORE = [e["progress"] for e in EVENTS if e["kind"] == "progress" and e["progress"]["name"] == "flight-board"][
    :3
]
LAST, TOOK_MS = METADATA_STORE[-1], [progress["batchDuration"] for progress in METADATA_STORE]

Samples: TypeAlias = dict[tuple[str, tuple[str, ...]], float]


class ListenerWithEvents:
    """A listener, its events, and the metrics that Prometheus reads."""

    def __init__(self, **arguments: Any) -> None:
        self.registry = CollectorRegistry()
        self.listener = sg.reports.MetricsListener(registry=self.registry, **arguments)

    def send(self, event: dict[str, Any]) -> None:
        listener = self.listener
        calls: dict[str, Callable[[], None]] = {
            "started": lambda: listener.onQueryStarted(QueryStartedEvent.fromJson(event)),
            "progress": lambda: listener.onQueryProgress(QueryProgressEvent.fromJson(event)),
            "idle": lambda: listener.onQueryIdle(QueryIdleEvent.fromJson(event)),
            "terminated": lambda: listener.onQueryTerminated(QueryTerminatedEvent.fromJson(event)),
        }
        calls[event["kind"]]()

    def send_events(self, name: str | None, count: int) -> None:
        """Sends the first events of a recorded query."""
        (query_id,) = {e["id"] for e in EVENTS if e["kind"] == "started" and e["name"] == name}
        own = [e for e in EVENTS if query_id == (e["progress"]["id"] if e["kind"] == "progress" else e["id"])]
        for event in own[:count]:
            self.send(event)

    def poll_once(self, cluster: FakePolls) -> None:
        """Waits for the first poll of the cluster, and prevents further ones."""
        assert cluster.connecting.wait(30)
        assert self.listener._polls is not None
        self.listener._polls.stop()

    def scrape(self) -> Samples:
        """Values by name and labels. Ids are left out, and so are empty labels of processors, as by Prometheus."""
        return {
            (
                s.name.removeprefix("streamgroups_"),
                tuple(v for k, v in sorted(s.labels.items()) if k != "query_id" and (v or k != "processor")),
            ): s.value
            for family in text_string_to_metric_families(generate_latest(self.registry).decode())
            for s in family.samples
        }


def of_partition(samples: Samples, partition: str) -> dict[str, float]:
    return {
        name: v for (name, labels), v in samples.items() if name.startswith("partition_") and labels[1] == partition
    }


def test_O3_a_query_that_reads() -> None:
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 4)
    samples = reported.scrape()
    expected = {"committed_offset": 10, "processed_offset": 15, "end_offset": 20, "lag_records": 5, "lag_exact": 0}
    assert of_partition(samples, "0") == {f"partition_{name}": value for name, value in expected.items()}
    assert samples["group_lag_records", ("board", "flight-board")] == 10
    assert samples["query_input_rows_total", ("flight-board",)] == 30
    assert samples["query_batches_total", ("flight-board",)] == 3
    assert samples["query_batch_duration_seconds", ("flight-board",)] == 2.393
    assert samples["query_phase_duration_seconds", ("addBatch", "flight-board")] == 1.28
    assert samples["query_trigger_timestamp_seconds", ("flight-board",)] == 1_795_280_726.414
    assert samples["query_input_rows_per_second", ("flight-board",)] == pytest.approx(LAST["inputRowsPerSecond"])
    assert samples["query_processed_rows_per_second", ("flight-board",)] == pytest.approx(
        LAST["processedRowsPerSecond"]
    )
    assert samples["query_batch_seconds_total", ("flight-board",)] == pytest.approx(sum(TOOK_MS) / 1000)
    assert samples["query_event_errors_total", ()] == 0


def test_O3_a_query_with_state_and_event_time() -> None:
    reported = ListenerWithEvents()
    reported.send_events("windows", 3)
    samples = reported.scrape()
    second = [e["progress"] for e in EVENTS if e["kind"] == "progress" and e["progress"]["name"] == "windows"][1]
    (state,) = second["stateOperators"]
    assert samples["query_state_rows", ("windows",)] == state["numRowsTotal"] > 0
    assert samples["query_state_memory_bytes", ("windows",)] == state["memoryUsedBytes"] > 0
    time_s = read_time_ms(second["eventTime"]["watermark"]) / 1000
    assert samples["query_watermark_timestamp_seconds", ("windows",)] == time_s > 0


def test_O3_a_query_that_has_read_everything() -> None:
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 6)
    expected = {"committed_offset": 20, "processed_offset": 20, "end_offset": 20, "lag_records": 0, "lag_seconds": 0}
    expected["lag_exact"] = 1
    assert of_partition(reported.scrape(), "1") == {f"partition_{name}": value for name, value in expected.items()}


def test_a_query_without_a_name_goes_by_its_id_and_sources_of_others_are_left_out() -> None:
    reported = ListenerWithEvents()
    reported.send_events(None, 2)
    samples = reported.scrape()
    ((name,),) = [labels for metric, labels in samples if metric == "query_batch_id"]
    assert re.fullmatch(r"[0-9a-f-]{36}", name)
    assert {labels for metric, labels in samples if metric == "group_lag_records"} == {("g1", name), ("g2", name)}
    assert samples["query_input_rows_total", (name,)] == 15


def test_the_series_of_a_query_vanish_when_it_ends_and_its_failure_stays() -> None:
    reported = ListenerWithEvents()
    for event in EVENTS:
        reported.send(event)
    samples = reported.scrape()
    assert not [name for name, _ in samples if name.startswith(("partition_", "group_"))]
    queries = {(name, *labels) for name, labels in samples if name.startswith("query_")}
    assert queries == {
        ("query_event_errors_total",),
        ("query_failures_total", "unknown_topic", "bad"),
        ("query_failures_total", "FOREACH_BATCH_USER_FUNCTION_ERROR", "zero"),
        ("query_failures_total", "USER_RAISED_EXCEPTION", "boom"),
    }


def test_P2_all_series_of_a_processor_have_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    for query in ("flight-board", "bad"):
        monkeypatch.setitem(PROCESSORS, query, "board.late")
    reported = ListenerWithEvents()
    for query in ("flight-board", "windows", "bad"):
        reported.send_events(query, 4)
    with reporting(Figures(BatchFlight("board", member_of(reported), 5_000, 240_000, None), STATES)):
        families = list(text_string_to_metric_families(generate_latest(reported.registry).decode()))
    found = [sample.labels for family in families for sample in family.samples if "query" in sample.labels]
    labels = {(it["query"], it["processor"]) for it in found}
    assert labels == {("flight-board", "board.late"), ("windows", ""), ("bad", "board.late")}
    with_group = {(it["query"], it["processor"]) for it in found if "group" in it}
    assert with_group == {("flight-board", "board.late"), ("windows", "")}


def test_an_event_that_is_not_understood_is_counted_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 2)
    broken = json.loads(json.dumps(next(e for e in EVENTS if e["kind"] == "progress")))
    broken["progress"]["timestamp"] = "yesterday"
    reported.send(broken)
    samples = reported.scrape()
    assert (samples["query_event_errors_total", ()], samples["query_batches_total", ("flight-board",)]) == (1, 1)
    assert "could not be parsed" in caplog.text


# ---- polls of the cluster --------------------------------------------------------------------------------------------


class FakePolls:
    """A cluster in memory in the place of a real one; a test waits until it was polled."""

    def __init__(self) -> None:
        clock = FakeClock(1_795_280_730_000)
        self.cluster = FakeCluster(clock)
        self.cluster.create_topic("flights", 2)
        for partition in (0, 1):
            self.cluster.produce(TopicPartition("flights", partition), 30, timestamp_ms=clock() - 60_000)
        self.cluster.commit("board", {TopicPartition("flights", 0): 12, TopicPartition("flights", 1): 20})
        admin = FakeAdmin(self.cluster)
        gaps = Gaps().plus(Gap(1, 3, Cause.EXPIRED, 1_000))
        self.cluster.commit(gaps_group_of("board"), {TopicPartition("flights", p): 0 for p in (0, 1)}, gaps.encode())
        self._monitor = Monitor(admin, admin, clock, window_ms=60_000, gaps=True)
        self.connecting = threading.Event()
        self.closed = 0
        self.requested: list[frozenset[str]] = []

    def connect(self) -> Connection:
        def poll(group_ids: Any) -> Any:
            self.requested.append(frozenset(group_ids))
            return self._monitor.poll(group_ids)

        def close() -> None:
            self.closed += 1

        return Connection(poll, lambda: 3, close)


@pytest.fixture
def fake_cluster(monkeypatch: pytest.MonkeyPatch) -> FakePolls:
    fake = FakePolls()

    def connect() -> Connection:
        fake.connecting.set()
        return fake.connect()

    monkeypatch.setattr(metrics_listener, "connector", lambda _config, *, window_ms: connect)
    return fake


def test_O3_figures_of_the_cluster_win(fake_cluster: FakePolls) -> None:
    reported = ListenerWithEvents(bootstrap_servers="nowhere:9092", interval_s=3600)
    reported.send_events("flight-board", 4)
    reported.poll_once(fake_cluster)
    samples = reported.scrape()
    figures = of_partition(samples, "0")
    assert {k: v for k, v in figures.items() if k.endswith("_offset")} == {
        "partition_committed_offset": 12,
        "partition_processed_offset": 15,
        "partition_beginning_offset": 0,
        "partition_end_offset": 30,
    }
    assert (figures["partition_lag_records"], figures["partition_lag_seconds"]) == (18, 60)
    assert samples["group_state", ("board", "flight-board", "Empty")] == 1
    assert samples["group_members", ("board", "flight-board")] == 0
    assert (samples["up", ()], samples["requests_total", ()]) == (1, 3)
    assert (fake_cluster.requested, fake_cluster.closed) == ([frozenset({"board"})], 1)


def test_O4_the_gaps_of_a_query_are_counters(fake_cluster: FakePolls) -> None:
    reported = ListenerWithEvents(bootstrap_servers="nowhere:9092", interval_s=3600)
    reported.send_events("flight-board", 4)
    reported.poll_once(fake_cluster)
    gaps = [(name, labels, n) for (name, labels), n in reported.scrape().items() if name.startswith("partition_gap")]
    assert sorted((name, n) for name, _, n in gaps) == [
        *[("partition_gap_lost_offsets_total", 2)] * 2,
        *[("partition_gaps_total", 1)] * 2,
    ]
    assert all({"board", "expired", "flight-board"} <= set(labels) for _, labels, _ in gaps)


def test_an_unreachable_cluster_leaves_the_figures_of_spark(fake_cluster: FakePolls) -> None:
    fake_cluster.cluster.reachable = False
    reported = ListenerWithEvents(bootstrap_servers="nowhere:9092", interval_s=3600)
    reported.send_events("flight-board", 4)
    reported.poll_once(fake_cluster)
    samples = reported.scrape()
    assert (samples["up", ()], samples["poll_failures_total", ()]) == (0, 1)
    assert of_partition(samples, "0")["partition_end_offset"] == 20
    assert not [name for name, _ in samples if name == "group_members"]


def test_without_a_cluster_nothing_is_requested() -> None:
    before = threading.active_count()
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 4)
    assert threading.active_count() == before
    assert not [name for name, _ in reported.scrape() if name in ("up", "requests_total")]


def member_of(reported: ListenerWithEvents) -> str:
    """The member of the only query."""
    (member,) = {m for q in reported.listener._recorded.now()[0].watched(0) for g in q.groups for m in g.members}
    return member


def reporting(it: Figures) -> closing[SessionServer]:
    """A source of this session that answers so."""
    return closing(SessionServer(SESSION, f"{id(it):x}", lambda q: it if isinstance(q, FiguresRequest) else None))


def test_a_batch_that_hangs_is_detected_without_an_event_of_spark() -> None:
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 4)
    member = member_of(reported)
    with (
        reporting(Figures(BatchFlight("board", member, 151_000, 240_000, None))),
        reporting(Figures(BatchFlight("board", "new", None, 240_000, 60_000))),
    ):
        samples = reported.scrape()
    assert {labels: v for (name, labels), v in samples.items() if name == "query_batch_in_flight_seconds"} == {
        ("board", member, "flight-board"): 151,
        ("board", "new", ""): 0,
    }
    assert {v for (name, _), v in samples.items() if name == "query_handover_timeout_seconds"} == {240}
    assert {labels: v for (name, labels), v in samples.items() if name == "query_lease_timeout_seconds"} == {
        ("board", "new", ""): 60
    }
    assert not [name for name, _ in reported.scrape() if name == "query_batch_in_flight_seconds"]


#: The states of a query that has read two partitions in two tasks.
STATES = QueryStates(
    "board",
    "carol",
    BatchFigures(
        {TopicPartition("flights", 0): StateSize(30, 1_200, 4), TopicPartition("flights", 1): StateSize(5, 200, 1)},
        TaskFigures(5, 9_000, 0.25, 12, 3_000, 0.5, 700),
    ),
)


def test_S10_the_states_of_a_query_have_metrics_per_partition_and_per_batch() -> None:
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 4)
    member = member_of(reported)
    known, new = replace(STATES, member=member), replace(STATES, group_id="new", member="new")
    with reporting(Figures(states=known)), reporting(Figures(states=new)):
        samples = reported.scrape()
    of_states = {(name, labels): value for (name, labels), value in samples.items() if "_state_" in name}
    for name, first, second in (("rows", 30, 5), ("bytes", 1_200, 200), ("files", 4, 1)):
        assert of_states[f"partition_state_{name}", ("board", "0", "flight-board", "flights")] == first
        assert of_states[f"partition_state_{name}", ("board", "1", "flight-board", "flights")] == second
        assert of_states[f"partition_state_{name}", ("new", "0", "", "flights")] == first
    assert {
        name: value for (name, labels), value in of_states.items() if labels == ("board", member, "flight-board")
    } == {
        "query_state_load_seconds": 0.25,
        "query_state_write_seconds": 0.5,
        "query_state_read_files": 5,
        "query_state_read_bytes": 9_000,
        "query_state_written_rows": 12,
        "query_state_written_bytes": 3_000,
        "query_state_direct_records": 700,
    }
    assert not [name for name, _ in reported.scrape() if name.startswith("partition_state_")]


def test_W16_partitions_that_wait_have_metrics() -> None:
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 4)
    ahead_ms = {TopicPartition("flights", 0): 90_500, TopicPartition("flights", 1): None}
    known, new = WaitingPartitions("board", member_of(reported), ahead_ms), WaitingPartitions("new", "m", {})
    with reporting(Figures(waiting=known)), reporting(Figures(waiting=new)):
        samples = reported.scrape()
    assert {labels: v for (name, labels), v in samples.items() if name == "query_waiting_partitions"} == {
        ("board", member_of(reported), "flight-board"): 2,
        ("new", "m", ""): 0,
    }
    assert {labels: v for (name, labels), v in samples.items() if name == "partition_ahead_seconds"} == {
        ("board", "0", "flight-board", "flights"): 90.5
    }


def test_W15_ignored_watermarks_are_counted_until_the_query_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_listener, "UNREADABLE", counts := UnreadableCounts())
    reported = ListenerWithEvents()
    reported.send_events("flight-board", 4)
    p0 = TopicPartition("flights", 0)
    counts.keep([UnreadableWatermarks("board", member_of(reported), p0, 2), UnreadableWatermarks("old", "m", p0, 9)])
    counts.keep([UnreadableWatermarks("board", member_of(reported), p0, 1)])
    samples = reported.scrape()
    assert {labels: v for (name, labels), v in samples.items() if name == "partition_ignored_watermarks_total"} == {
        ("board", "0", "flight-board", "flights"): 3
    }


def test_the_dashboard_shows_all_exported_metrics_and_no_others(
    fake_cluster: FakePolls, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = ListenerWithEvents(bootstrap_servers="nowhere:9092", interval_s=3600)
    reported.send_events("flight-board", 4)
    reported.send_events("windows", 3)
    reported.send_events("bad", 2)
    reported.poll_once(fake_cluster)
    p0 = TopicPartition("flights", 0)
    monkeypatch.setattr(metrics_listener, "UNREADABLE", counts := UnreadableCounts())
    counts.keep([UnreadableWatermarks("board", member_of(reported), p0, 2)])
    monkeypatch.setattr(metrics_listener, "OUTPUT", output := OutputCounter())
    (query_id,) = {q.query_id for q in reported.listener._recorded.now()[0].watched(0) if q.name == "flight-board"}
    output.add(OutputWritten(query_id, {"decode": 2}, {"rows": 7}))
    flight, waiting = (
        BatchFlight("board", "carol", 5_000, 240_000, 3_600_000),
        WaitingPartitions("board", "carol", {p0: 5}),
    )
    with reporting(Figures(flight, STATES, waiting)):
        names = {f"streamgroups_{name}" for name, _ in reported.scrape()}
    shown = set()
    for panel in json.loads(dashboard_json())["panels"]:
        for target in panel["targets"]:
            shown |= set(re.findall(r"\bstreamgroups_\w+", target["expr"]))
    of_exporter = {name for name in shown if name.startswith("streamgroups_processor_")}
    assert shown - of_exporter == names
    page = (Path(__file__).parents[2] / "docs" / "metrics.rst").read_text(encoding="utf-8")
    assert [name for name in sorted(names) if name not in page and f"``_{name.split('_', 2)[2]}``" not in page] == []


# ---- serving, and being wrong ----------------------------------------------------------------------------------------


def test_it_answers_at_a_port_until_it_is_closed() -> None:
    with sg.reports.MetricsListener(port=0) as listener:
        assert listener.address is not None
        with urllib.request.urlopen(f"http://{listener.address}/metrics", timeout=10) as answer:
            assert b"streamgroups_query_event_errors_total 0.0" in answer.read()
        with pytest.raises(InvalidOption, match=r"cannot be served at 127\.0\.0\.1:\d+: .*in use"):
            sg.reports.MetricsListener(port=int(listener.address.rpartition(":")[2]), bootstrap_servers="nowhere:9092")
    with pytest.raises(OSError, match=r"refused"):
        urllib.request.urlopen(f"http://{listener.address}/metrics", timeout=10)
    listener.close()


def test_by_default_it_is_in_the_default_registry_once() -> None:
    with sg.reports.MetricsListener() as listener:
        assert listener.address is None
        assert b"streamgroups_query_event_errors_total" in generate_latest(REGISTRY)
        with pytest.raises(InvalidOption, match="already contains these metrics"):
            sg.reports.MetricsListener()
    assert b"streamgroups_query_event_errors_total" not in generate_latest(REGISTRY)


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_s": 0},
        {"window_s": -1},
        {"settings": {"security.protocol": "SSL"}},
        {"bootstrap_servers": "localhost:9092", "settings": {"no.such.setting": "1"}},
        {"port": 99_999},
    ],
)
def test_wrong_arguments_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        ListenerWithEvents(**wrong)


def test_secrets_do_not_print(fake_cluster: FakePolls, caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "carol",
        "sasl.password": "hunter2",
    }

    def fail() -> Connection:
        raise ZeroDivisionError("password=hunter2")

    fake_cluster.connect = fail  # type: ignore[method-assign]
    reported = ListenerWithEvents(bootstrap_servers="nowhere:9092", settings=settings, interval_s=3600)
    reported.send_events("flight-board", 2)
    reported.poll_once(fake_cluster)
    assert "ZeroDivisionError" in caplog.text
    assert "hunter2" not in caplog.text + repr(reported.listener) + repr(vars(reported.listener))


def test_spark_connect_is_rejected_with_a_message() -> None:
    """A Connect session is detected when a listener is added to it."""
    with pytest.raises(InvalidOption, match="Spark Connect"):
        ListenerWithEvents().listener._set_spark_session(object())
