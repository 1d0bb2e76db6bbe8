"""S9, S10: an operator with state runs in the task that reads, with the plan that its reader has left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamgroups.errors import InvalidOption, StateMismatch
from streamgroups.event_time.aggregates import parse_aggregate
from streamgroups.event_time.producer_watermarks import ProducerWatermarks
from streamgroups.event_time.windows import Hopping, Windowing
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query.operator_states import StateReport
from streamgroups.state.joined_topics import JoinedTopics
from streamgroups.state.origins import Named, New
from streamgroups.state.task_plan import RangePlan, TaskPlan
from streamgroups_operators.window_operator import WindowOperator
from streamgroups_spark.bridge import handoff
from streamgroups_spark.bridge.handoff import Handoff
from streamgroups_spark.bridge.rpc import SessionServer, request_user, task_directory_of
from streamgroups_spark.bridge.stage_name import StageName
from streamgroups_spark.bridge.task_reports import StateReports
from streamgroups_spark.messages.query import QueryFacts, StateReportsRequest
from streamgroups_spark.session import new_session
from streamgroups_spark.source.source_options import parse
from streamgroups_spark.source.stage_states import check_stages
from streamgroups_spark.state import stage
from streamgroups_spark.state.stage import StateStage

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
APPLICATION = "local-1732334879123"
SCHEMA = pa.schema([("k0", pa.string()), ("late", pa.int64()), ("p0", pa.int64())])
OUTPUT = pa.schema(
    [
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("k0", pa.string()),
        ("r0", pa.int64()),
        ("pane", pa.string()),
        ("revision", pa.int32()),
    ]
)
COUNT = WindowOperator("windows", Windowing(Hopping(10, 10)), 0, 1, (parse_aggregate("n", "count(*)"),), SCHEMA, OUTPUT)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return new_session()


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (handoff, stage):
        monkeypatch.setattr(module, "attempt_id", lambda: 42)
    return 42


class Reported:
    """In the place of the channel: an accumulator needs a Spark application."""

    def __init__(self) -> None:
        self.reports: list[StateReport] = []

    def send(self, reports: Iterator[StateReport]) -> None:
        self.reports += reports


def plan(tmp_path: Path, *ranges: OffsetRange) -> TaskPlan:
    plans = tuple(RangePlan(r, New(), r.next_offset, TopicIdentity()) for r in ranges)
    return TaskPlan(str(tmp_path / "state"), "billing", 1732334879123, "1f3a9c2b7d10", 3, plans)


def records(partition: int, first: int, *times: int) -> pa.RecordBatch:
    count = len(times)
    return pa.record_batch(
        {
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "time": pa.array(times, pa.int64()),
            "k0": pa.array(["a"] * count),
        }
    )


def run(session: str, batches: Iterable[pa.RecordBatch]) -> tuple[list[dict[str, Any]], list[StateReport]]:
    channel = Reported()
    output = StateStage(COUNT, session, APPLICATION, channel)(batches)  # type: ignore[arg-type]
    return [row for batch in output for row in batch.to_pylist()], channel.reports


def taken(session: str, attempt: int) -> list[TaskPlan]:
    with closing(Handoff(session, APPLICATION, attempt)) as received:
        return received.take_plans()


def test_S10_the_states_of_all_ranges_are_written_and_reported(tmp_path: Path, session: str, attempt: int) -> None:
    # After a coalesce, two readers have left their plans.
    handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P0, 5, 8)))
    handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P1, 0, 9)))
    rows, reports = run(session, [records(0, 5, 1, 2, 15)])
    assert [(row["start"], row["k0"], row["r0"], row["pane"], row["revision"]) for row in rows] == [
        (0, "a", 2, "on time", 0)
    ]
    assert [str(report.range) for report in reports] == ["flights-0[5,8)", "flights-1[0,9)"]
    [file] = (tmp_path / "state" / "billing" / "windows").iterdir()
    assert {str(report.file) for report in reports} == {file.name}
    assert [(report.size.rows, report.size.files) for report in reports] == [(1, 1), (0, 0)]
    assert all(report.work == reports[0].work for report in reports)
    assert (reports[0].work.written_rows, reports[0].work.written_bytes) == (1, file.stat().st_size)
    assert reports[0].work.direct_records == 0, "Spark has passed the records"
    assert taken(session, attempt) == [], "a plan is taken once"


def test_S10_tasks_that_spark_has_coalesced_write_a_file_each(tmp_path: Path, session: str, attempt: int) -> None:
    """``foreachBatch`` with ``batch.coalesce(1)``: one attempt runs several readers with their operators."""
    files = []
    for task, r in enumerate((OffsetRange(P0, 5, 8), OffsetRange(P1, 0, 3))):
        handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, r), task=task))
        _, [report] = run(session, [records(r.topic_partition.partition, r.next_offset, 1, 2, 3)])
        files.append(str(report.file))
    assert sorted(files) == sorted(it.name for it in (tmp_path / "state" / "billing" / "windows").iterdir())
    assert len(set(files)) == 2


def test_W13_an_operator_passes_its_plan_and_its_watermark_to_the_next_one(
    tmp_path: Path, session: str, attempt: int
) -> None:
    place = [pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
    first = replace(COUNT, name="tens", output=pa.schema([*OUTPUT, *place]), is_chained=True)
    second = replace(COUNT, name="thirties", windowing=Windowing(Hopping(30, 30)), delay_ms=None, behind="tens")
    ranges = [OffsetRange(P0, 5, 9), OffsetRange(P1, 0, 0)]
    handoff.write_plan(session, APPLICATION, replace(plan(tmp_path, *ranges), operators=("tens", "thirties")))
    channel = Reported()
    own = StateStage(first, session, APPLICATION, channel)  # type: ignore[arg-type]
    other = StateStage(second, session, APPLICATION, channel, upstream="tens")  # type: ignore[arg-type]
    results = (_results(it) for it in own([records(0, 5, 1, 12, 29, 35)]))
    rows = [row for batch in other(results) for row in batch.to_pylist()]
    assert [(row["start"], row["end"], row["r0"], row["pane"]) for row in rows] == [(0, 30, 3, "on time")]
    assert [(str(it.range), it.number, it.operators) for it in channel.reports] == [
        (str(r), number, 2) for number in (0, 1) for r in ranges
    ]
    assert len({it.file for it in channel.reports}) == 1
    assert {it.name for it in (tmp_path / "state" / "billing").iterdir()} == {"tens", "thirties"}
    assert list(task_directory_of(session).iterdir()) == []


def _results(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({it: batch[it] for it in ("partition", "offset", "k0")} | {"time": batch["start"]})


def test_a_login_of_the_location_is_not_readable_in_a_file(tmp_path: Path, session: str, attempt: int) -> None:
    """A killed task leaves its files for days. The name of an operator is a part of theirs."""
    secret = replace(plan(tmp_path, OffsetRange(P0, 5, 8)), location="s3://key:hunter2@bücket/state")
    behind = "语" * 80
    for upstream in ("", behind):
        handoff.write_plan(session, APPLICATION, secret, upstream)
    for file in task_directory_of(session).glob("task-*"):
        assert not any(word in file.read_text() for word in ("hunter2", b"hunter2".hex(), "bucket"))
    assert taken(session, attempt) == [secret]
    with closing(Handoff(session, APPLICATION, attempt, behind)) as received:
        assert received.take_plans() == [secret]
    assert list(task_directory_of(session).glob("task-*")) == []


def watermarks(partition: int, *at: tuple[int, int]) -> ProducerWatermarks:
    """Offsets and times of watermarks."""
    offsets, times_ms = zip(*at, strict=True)
    return ProducerWatermarks(TopicPartition("flights", partition), offsets, times_ms)


def test_W15_a_watermark_that_the_reader_has_given_comes_before_the_records_after_it(
    tmp_path: Path, session: str, attempt: int
) -> None:
    handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P0, 5, 20), OffsetRange(P1, 0, 9)))

    def batches() -> Iterator[pa.RecordBatch]:
        handoff.write_watermarks(session, APPLICATION, [watermarks(0, (6, 4), (8, 10)), watermarks(1, (0, 3))])
        yield records(0, 5, 1)
        yield records(0, 9, 2)
        # The last batch of the reader contains markers only.
        handoff.write_watermarks(session, APPLICATION, [watermarks(0, (15, 30)), watermarks(1, (8, 10))])

    rows, reports = run(session, batches())
    assert [(row["start"], row["r0"], row["pane"]) for row in rows] == [(0, 1, "on time"), (0, None, "dead letter")]
    assert len(reports) == 2


def test_W15_a_task_of_markers_closes_windows(tmp_path: Path, session: str, attempt: int) -> None:
    first = plan(tmp_path, OffsetRange(P0, 5, 8))
    handoff.write_plan(session, APPLICATION, first)
    _, [report] = run(session, [records(0, 5, 1)])
    named = RangePlan(OffsetRange(P0, 8, 9), Named(report.file, 8), 8, TopicIdentity())
    handoff.write_plan(session, APPLICATION, replace(first, batch=4, ranges=(named,)))
    handoff.write_watermarks(session, APPLICATION, [watermarks(0, (8, 10))])
    rows, [report] = run(session, [])
    assert [(row["start"], row["r0"], row["pane"]) for row in rows] == [(0, 1, "on time")]
    assert report.size.rows == 0


def test_W15_the_rest_of_a_line_is_read_when_it_is_complete(tmp_path: Path, session: str, attempt: int) -> None:
    handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P0, 5, 8)))
    handoff.write_watermarks(session, APPLICATION, [watermarks(0, (5, 10))])
    [file] = task_directory_of(session).glob("task-*")
    whole = file.read_bytes()
    with closing(Handoff(session, APPLICATION, attempt)) as received:
        file.write_bytes(whole[:-7])
        assert len(received.take_plans()) == 1
        assert received.take_watermarks() == []
        with file.open("ab") as rest:
            rest.write(whole[-7:])
        assert received.take_watermarks() == [watermarks(0, (5, 10))]
        assert received.take_watermarks() == []
    assert not file.exists()


def test_S10_records_of_several_topics_need_their_topic(tmp_path: Path, session: str, attempt: int) -> None:
    ranges = OffsetRange(P0, 5, 8), OffsetRange(TopicPartition("orders", 0), 0, 9)
    handoff.write_plan(session, APPLICATION, plan(tmp_path, *ranges))
    with pytest.raises(InvalidOption, match="has no column 'topic'"):
        run(session, [records(0, 5, 1)])


def test_S10_records_outside_of_the_ranges_of_a_task_are_an_error(tmp_path: Path, session: str, attempt: int) -> None:
    for foreign in (records(1, 5, 1), records(0, 4, 1), records(0, 7, 1, 2)):
        handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P0, 5, 8)))
        with pytest.raises(StateMismatch, match=r"a record is not in the ranges of its task \(flights-0\[5,8\)\)"):
            run(session, [foreign])


def test_S10_a_task_without_ranges_writes_nothing(tmp_path: Path, session: str, attempt: int) -> None:
    assert run(session, []) == ([], [])
    assert not (tmp_path / "state").exists()


def test_S10_records_that_another_task_has_read_are_an_error(session: str, attempt: int) -> None:
    with pytest.raises(InvalidOption, match="moves records between tasks"):
        run(session, [records(0, 5, 1)])


def test_S10_a_killed_task_leaves_a_file_that_is_removed_later(
    tmp_path: Path, session: str, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    [left] = task_directory_of(session).glob("task-*")
    os.utime(left, (0, 0))
    monkeypatch.setattr(handoff, "attempt_id", lambda: 1_000)
    handoff.write_plan(session, APPLICATION, plan(tmp_path))
    assert [file.name for file in task_directory_of(session).glob("task-*")] == [f"task-{APPLICATION}-1000"]


def test_S10_a_plan_of_another_application_is_not_taken(tmp_path: Path, session: str, attempt: int) -> None:
    handoff.write_plan(session, "local-1", plan(tmp_path, OffsetRange(P0, 0, 5)))
    assert run(session, []) == ([], [])


def test_S10_requests_between_processes_leave_the_plans_of_tasks(tmp_path: Path, session: str, attempt: int) -> None:
    handoff.write_plan(session, APPLICATION, plan(tmp_path, OffsetRange(P0, 5, 8)))
    request_user(session, StateReportsRequest("1f3a9c2b7d10", 3))
    SessionServer(session, "0123", lambda _: None).close()
    assert len(taken(session, attempt)) == 1


def test_S10_reports_of_earlier_batches_are_forgotten() -> None:
    reports = StateReports()
    first = StateReport(OffsetRange(P0, 0, 1), plan(Path("/")).file(1))
    later = StateReport(OffsetRange(P0, 1, 2), TaskPlan("", "", 0, "1f3a9c2b7d10", 4, ()).file(2))
    reports.keep([first, later])
    assert reports.take("1f3a9c2b7d10", 4) == [later]
    assert reports.take("1f3a9c2b7d10", 4) == [later], "a sink and its source both request them"
    assert reports.take("1f3a9c2b7d10", 3) == []


@pytest.mark.parametrize(
    ("options", "stages", "text"),
    [
        (
            {},
            {("windows",), ("delays",)},
            "several operators with state over one stream, in different branches: delays, windows",
        ),
        ({}, {("minutes:chained",), ("minutes:chained", "peaks")}, "in different branches: minutes, peaks"),
        ({}, {("windows:kind=windows+id=1",), ("windows:kind=windows+id=2",)}, "in different branches: windows"),
        ({}, {("paid:orders:payments:1",), ("paid:orders:payments:2",)}, "in different branches: paid"),
        ({"minPartitions": "9"}, {("windows",)}, "Option 'minPartitions' splits partitions"),
        ({"maxRecordsPerPartition": "9"}, {("windows",)}, "Option 'maxRecordsPerPartition' splits partitions"),
    ],
)
def test_S10_what_a_state_cannot_follow_is_rejected(
    options: dict[str, str], stages: set[tuple[str, ...]], text: str
) -> None:
    required = {"group.id": "board", "subscribe": "flights", "kafka.bootstrap.servers": "broker:9092"}
    source = parse({**required, **options}, streaming=True)
    with pytest.raises(InvalidOption, match=text):
        check_stages(source, QueryFacts("/checkpoints/board", frozenset(), stages=frozenset(stages)))
    with pytest.raises(InvalidOption, match="Set 'stateLocation'"):
        check_stages(parse(required, streaming=True), QueryFacts(None, frozenset(), stages=frozenset({("windows",)})))
    located = parse(required | {"stateLocation": "/state"}, streaming=True)
    windows = QueryFacts(None, frozenset(), stages=frozenset({("windows",)}))
    assert check_stages(located, windows) == ((StageName("windows"),), "/state")


@pytest.mark.parametrize(
    ("options", "is_safe"),
    [
        ({}, False),
        ({"kafka.group.remote.assignor": "range"}, False),
        ({"kafka.group.protocol": "consumer"}, False),
        ({"kafka.group.protocol": "consumer", "kafka.group.remote.assignor": "uniform"}, False),
        ({"kafka.group.protocol": "consumer", "kafka.group.remote.assignor": "range"}, True),
        ({"membership": "exclusive"}, True),
    ],
)
def test_W18_a_join_needs_both_partitions_of_a_pair(options: dict[str, str], is_safe: bool) -> None:
    required = {"group.id": "board", "subscribe": "orders,payments", "kafka.bootstrap.servers": "broker:9092"}
    name = StageName("paid", JoinedTopics("orders", "payments"))
    facts = QueryFacts("/checkpoints/board", frozenset(), stages=frozenset({(str(name),)}))
    source = parse({**required, **options}, streaming=True)
    if is_safe:
        assert check_stages(source, facts)[0] == (name,)
    else:
        with pytest.raises(InvalidOption, match=r"kafka.group.remote.assignor=range .*membership=exclusive"):
            check_stages(source, facts)


@pytest.mark.parametrize(
    "name",
    [
        StageName("windows"),
        StageName("windows", flushes=True),
        StageName("windows", has_group_time=True),
        StageName("windows", flushes=True, has_group_time=True),
        StageName("windows", has_group_time=True, is_chained=True),
        StageName("windows", is_chained=True, has_idle_timeout=True),
        StageName("paid", JoinedTopics("group", "flushes")),
    ],
)
def test_W17_the_plan_of_a_query_names_an_operator_that_flushes(name: StageName) -> None:
    assert StageName.parse(str(name)) == name
