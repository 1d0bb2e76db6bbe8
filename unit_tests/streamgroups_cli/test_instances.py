"""The commands of instances, with a topic in memory: definitions, requests, states, and mistakes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import yaml

from streamgroups.errors import BrokerUnreachable, NotAuthorized, StateUnreachable
from streamgroups.fakes.instance_log import FakeInstanceLog
from streamgroups.instances.entries import (
    Desired,
    Entry,
    Manager,
    Observation,
    Observed,
    Placement,
    Progress,
    Removed,
    Replica,
    Worker,
)
from streamgroups.instances.instance_state import InstanceState
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.processors.processor import Processor, Sql
from streamgroups_admin.reports.exporter import Polls
from streamgroups_cli import instance_log, metrics
from streamgroups_cli.instances import launching
from streamgroups_cli.output import Output
from streamgroups_cli.processors import sampling, stopping
from streamgroups_spark.processors import previewing
from unit_tests.cli_runner import CommandLine, Result
from unit_tests.cli_states import NOW_MS, P0, P1, States

PLACED = Placement(Replica("late", 0), "w1", 2, 1)


class Instance:
    """The commands of one instance, and its topic."""

    def __init__(self, cli: CommandLine, directory: Path) -> None:
        self.cli, self.directory = cli, directory
        self.log = FakeInstanceLog()

    def __call__(self, *arguments: str) -> Result:
        return self.cli(*arguments, "-b", "broker:9092")

    def declare(self, name: str, sql: str = "SELECT 1", more: str = "") -> None:
        (self.directory / f"{name}.yaml").write_text(
            f"name: {name}\nsource: {{connection: prod, subscribe: flights}}\n"
            f"steps:\n  - sql: {sql}\n{more}sink: {{connection: prod, topic: {name}-out}}\n"
        )

    def apply(self, *options: str) -> Result:
        return self("processors", "apply", "-i", "board", "-f", str(self.directory), *options)

    def write(self, *entries: Entry) -> None:
        self.log.writer().write(entries)

    def run_late(self) -> None:
        """Writes the entries of a manager and of a worker for a processor that was started."""
        now_ms = self.cli.clock()
        self.write(
            Manager(3, 1, now_ms, 0, 6_000, 1, "host", 7),
            Worker("w1", 2, 0, 1, now_ms, 6_000, "host", 8, is_managed=True),
            PLACED,
            Observation(PLACED, Observed.RUNNING, now_ms, progress=Progress(4, 200, 30)),
        )

    def state(self) -> InstanceState:
        reader = self.log.reader()
        reader.read_to_end(1)
        return reader.state


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Instance:
    cli = CommandLine(monkeypatch, capsys)
    config = tmp_path / "config.toml"
    config.write_text('[connections.prod]\ntype = "kafka"\nbootstrap-servers = "broker:9092"\n')
    config.chmod(0o600)
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(config))
    found = Instance(cli, tmp_path)
    monkeypatch.setattr(instance_log, "instance_log", lambda _cluster, name: found.log)
    return found


def document(result: Result) -> Any:
    assert result.code == 0, result.err
    return json.loads(result.out)


def test_apply_prints_the_difference_and_changes_nothing(instance: Instance) -> None:
    instance.declare("late")
    result = instance.apply()
    assert result.code == 0
    assert "late       added" in result.out
    assert "Nothing was changed" in result.err
    assert not instance.log.records


def test_apply_defines_and_restarts_only_what_has_changed(instance: Instance) -> None:
    instance.declare("late")
    instance.declare("early")
    result = instance.apply("--execute")
    assert "streamgroups processors start early late" in result.err
    assert set(instance.state().definitions) == {"early", "late"}
    assert "There is nothing to do." in instance.apply("--execute").err
    assert instance("processors", "start", "-i", "board", "late", "early", "--wait", "0s").code == 0
    instance.declare("late", "SELECT 2")
    found = document(instance.apply("--execute", "-o", "json"))["processors"]
    assert [(it["processor"], it["change"], it["running"]) for it in found] == [
        ("early", "unchanged", True),
        ("late", "changed", True),
    ]
    assert found[1]["changes"] == [{"path": "steps[0].sql", "before": '"SELECT 1"', "after": '"SELECT 2"'}]
    assert {name: it.request for name, it in instance.state().desired.items()} == {"late": 2, "early": 1}


def test_P2_an_interrupted_apply_is_continued(instance: Instance) -> None:
    instance.declare("late")
    instance.apply("--execute")
    instance("processors", "start", "-i", "board", "late", "--wait", "0s")
    instance.run_late()
    seen = Observation(PLACED, Observed.RUNNING, 0, instance.state().definitions["late"].revision)
    instance.write(seen)
    assert "There is nothing to do." in instance.apply("--execute").err
    instance.declare("late", "SELECT 2")
    instance.apply("--execute")
    # Only the definition is stored, and not the request to restart.
    instance.write(Desired("late", True, 1))
    (found,) = document(instance.apply("-o", "json"))["processors"]
    assert (found["change"], found["outdated"], instance.state().desired["late"].request) == ("unchanged", True, 1)
    assert "restarts; its query has an earlier definition" in instance.apply("--execute").out
    assert instance.state().desired["late"].request == 2
    assert "There is nothing to do." in instance.apply("--execute").err


def test_apply_shows_the_recipe_for_changed_windows(instance: Instance) -> None:
    windows = "  - windows: {on: timestamp, window: {tumbling: %s}, aggregate: {n: count(*)}}\n"
    instance.declare("late", more=windows % "1 hour")
    assert instance.apply("--execute").code == 0
    instance.declare("late", more=windows % "2 hours")
    result = instance.apply()
    assert "Step 'windows' has state, and its definition changes" in result.err


def test_apply_drops_only_stopped_processors_and_only_on_request(instance: Instance) -> None:
    instance.declare("late")
    instance.apply("--execute")
    instance("processors", "start", "-i", "board", "late", "--wait", "0s")
    (instance.directory / "late.yaml").unlink()
    instance.declare("early")
    assert "it stays; --prune drops it" in instance.apply().out
    rejected = instance.apply("--prune", "--execute")
    assert (rejected.code, "streamgroups processors stop late" in rejected.err) == (3, True)
    assert "early" not in instance.state().definitions
    instance("processors", "stop", "-i", "board", "late", "--wait", "0s")
    assert instance.apply("--prune", "--execute").code == 0
    assert set(instance.state().definitions) == {"early"}


def test_apply_reports_the_mistakes_of_all_files(instance: Instance) -> None:
    (instance.directory / "late.yaml").write_text("name: late\nsource: {connection: prod, subscrib: x}\n")
    result = instance.apply("--execute")
    assert result.code == 2
    assert "late.yaml:2" in result.err
    assert not instance.log.records
    (instance.directory / "late.yaml").unlink()
    assert "contains no YAML file" in instance.apply().err


def test_apply_names_a_directory_that_cannot_be_read(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", deny)
    result = instance.apply()
    assert (result.code, f"Directory '{instance.directory}' cannot be read: Permission denied." in result.err) == (
        2,
        True,
    )


def test_metrics_export_the_processors_of_an_instance(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.declare("late")
    instance.apply("--execute")
    instance("processors", "start", "-i", "board", "late", "--wait", "0s")
    instance.run_late()
    states = []

    def refresh_once(repeated: Sequence[tuple[float, MethodType]]) -> None:
        ((_, refresh),) = repeated
        polls = refresh.__self__
        assert isinstance(polls, Polls)
        states.append([(str(it.replica), it.state, it.progress) for it in polls.replicas])
        instance.write(Observation(PLACED, Observed.FAILED, 0, error="no such column"))
        assert polls.refresh() is None
        states.append([(str(it.replica), it.state, it.progress) for it in polls.replicas])

    monkeypatch.setattr(metrics, "_refresh_until_stopped", refresh_once)
    assert instance("metrics", "--instance", "board", "--listen", "127.0.0.1:0").code == 0
    assert states == [[("late/0", "running", Progress(4, 200, 30))], [("late/0", "failed", None)]]


def test_sample_computes_the_rows_of_the_definition_in_the_topic(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.declare("late", sql="SELECT 7")
    instance.apply("--execute")
    (instance.directory / "late.yaml").unlink()
    records, tp = len(instance.log.records), TopicPartition("flights", 0)
    shown: list[object] = []
    monkeypatch.setattr(sampling, "spark_session", lambda name, settings: nullcontext((name, settings)))
    monkeypatch.setattr(previewing, "next_ranges", lambda it, n, *, instance: [OffsetRange(tp, 3, 3 + n)])
    monkeypatch.setattr(sampling, "print_rows", lambda *given: shown.extend(given))
    result = instance("processors", "sample", "-i", "board", "late", "2", "--master", "local[1]", "-o", "json")
    assert (result.code, "group 'board.late': flights-0[3,5)." in result.err) == (0, True)
    declared, spark, ranges, name, output = shown
    assert isinstance(declared, Processor)
    assert (declared.name, declared.steps) == ("late", (Sql("SELECT 7"),))
    assert spark == ("board.late-sample", {"spark.master": "local[1]"})
    assert (ranges, name, output) == ([OffsetRange(tp, 3, 5)], "board", Output.json)
    assert len(instance.log.records) == records, "nothing is written into the topic"
    assert "does not define the processor 'early'" in instance("processors", "sample", "-i", "board", "early").err


def test_start_waits_and_reports_a_failure(instance: Instance) -> None:
    instance.declare("late")
    instance.apply("--execute")
    timed_out = instance("processors", "start", "-i", "board", "late", "--wait", "100ms")
    assert (timed_out.code, "within 0.1 s" in timed_out.err) == (1, True)
    instance.run_late()
    # It runs for this request.
    assert "There is nothing to do." in instance("processors", "start", "-i", "board", "late").err
    instance.write(Observation(PLACED, Observed.FAILED, 0, error_code="data_loss", error="Records are gone."))
    described = document(instance("processors", "describe", "-i", "board", "late", "-o", "json"))
    assert described["replicas"][0]["error_code"] == "data_loss"
    assert described["definition"]["source"] == {"connection": "prod", "subscribe": "flights"}
    assert instance("processors", "restart", "-i", "board", "late", "--wait", "0s").code == 0
    assert instance.state().desired["late"].request == 2


def test_a_completed_processor_starts_again(instance: Instance) -> None:
    """A scheduler starts bounded runs one after another."""
    cluster = instance.cli.cluster
    cluster.create_topic("flights", 1)
    cluster.produce(TopicPartition("flights", 0), 10)
    instance.declare("late", more="trigger: {availableNow: true}\n")
    assert instance.apply("--execute").code == 0
    start = ("processors", "start", "-i", "board", "late", "--wait", "0s")
    assert instance(*start).code == 0
    instance.run_late()
    instance.write(Observation(PLACED, Observed.COMPLETED, 0))
    assert "The request is written." in instance(*start).err
    assert instance.state().desired["late"].request == 2
    again = replace(PLACED, number=3, request=2)
    instance.write(again, Observation(again, Observed.COMPLETED, 0))
    assert instance(*start, "--from", "latest").code == 0
    assert instance.state().desired["late"].request == 3


def test_start_reports_a_run_that_has_completed_meanwhile(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("early", "late"):
        instance.declare(name)
    instance.apply("--execute")
    written = FakeInstanceLog.writer(instance.log)

    class Worker:
        """Observes both runs as soon as they are requested."""

        def write(self, entries: Sequence[Entry]) -> None:
            written.write(entries)
            early = replace(PLACED, replica=Replica("early", 0))
            written.write([early, Observation(early, Observed.COMPLETED, 0), PLACED])
            written.write([Observation(PLACED, Observed.RUNNING, 0)])

        def close(self) -> None:
            pass

    monkeypatch.setattr(instance.log, "writer", Worker)
    result = instance("processors", "start", "-i", "board", "early", "late", "--wait", "1s")
    assert (result.code, "early: completed\nlate: running" in result.err) == (0, True)


def test_completed_and_failed_processors_can_be_dropped(instance: Instance) -> None:
    for state in (Observed.COMPLETED, Observed.FAILED):
        instance.declare("late")
        instance.apply("--execute")
        instance("processors", "start", "-i", "board", "late", "--wait", "0s")
        request = instance.state().desired["late"].request
        placed = replace(PLACED, request=request)
        instance.write(Worker("w1", 2, 0, 1, 0, 6_000), placed, Observation(placed, state, 0))
        (instance.directory / "late.yaml").unlink()
        instance.declare("early")
        assert instance.apply("--prune", "--execute").code == 0
        assert set(instance.state().definitions) == {"early"}


@pytest.mark.parametrize(
    ("restart", "has_run", "code"),
    [("", True, 3), (", onRestart: checkpoint", True, 3), (", onRestart: group", True, 0), ("", False, 0)],
)
def test_F2_a_start_from_a_position_is_rejected_if_the_checkpoint_would_undo_it(
    instance: Instance, restart: str, has_run: bool, code: int
) -> None:
    cluster = instance.cli.cluster
    cluster.create_topic("flights", 1)
    cluster.produce(TopicPartition("flights", 0), 10)
    (instance.directory / "late.yaml").write_text(
        f"name: late\nsource: {{connection: prod, subscribe: flights, membership: exclusive{restart}}}\n"
        "checkpoint: /data/late\nsink: {connection: prod, topic: late-out}\n"
    )
    assert instance.apply("--execute").code == 0
    p0 = TopicPartition("flights", 0)
    if has_run:
        cluster.commit("board.late", {p0: 4})
    result = instance("processors", "start", "-i", "board", "late", "--from", "latest", "--wait", "0s")
    assert (result.code, "continues at the positions of its checkpoint /data/late" in result.err) == (code, code == 3)
    committed = cluster.committed("board.late", [p0])
    assert {tp: it.next_offset for tp, it in committed.items()} == {p0: 10 if code == 0 else 4}
    assert ("late" in instance.state().desired) == (code == 0)


@pytest.fixture
def two(instance: Instance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Instance:
    """Two processors, ``early`` and ``late``, whose groups have committed offsets."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = instance.cli.cluster
    cluster.create_topic("flights", 1)
    cluster.produce(P0, 10)
    for name, offset in (("early", 5), ("late", 6)):
        instance.declare(name)
        cluster.commit(f"board.{name}", {P0: offset})
    assert instance.apply("--execute").code == 0
    return instance


def _positions(instance: Instance) -> list[int]:
    return [instance.cli.cluster.all_committed(f"board.{name}")[P0].next_offset for name in ("early", "late")]


def test_O2_a_start_from_a_position_checks_all_processors_before_it_resets_one(two: Instance) -> None:
    (two.directory / "late.yaml").write_text(
        "name: late\nsource: {connection: prod, subscribe: flights, membership: exclusive, onRestart: checkpoint}\n"
        "checkpoint: /data/late\nsink: {connection: prod, topic: late-out}\n"
    )
    assert two.apply("--execute").code == 0
    result = two("processors", "start", "-i", "board", "early", "late", "--from", "earliest", "--wait", "0s")
    assert (result.code, "nothing was changed" in result.err) == (3, True)
    assert (_positions(two), two.state().desired) == ([5, 6], {})


@pytest.mark.parametrize("fails_at", ["late", "request"])
def test_O2_a_start_that_fails_after_a_reset_names_the_groups_that_were_reset(
    two: Instance, monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    def unreachable() -> Any:
        raise BrokerUnreachable("No broker responded.", remedy="Check the address.")

    if fails_at == "late":
        two.cli.admin.failures["board.late", P0] = NotAuthorized("Not you.", remedy="Grant it.")
    else:
        monkeypatch.setattr(two.log, "writer", unreachable)
    start = ("processors", "start", "-i", "board", "early", "late", "early", "--from", "earliest", "--wait", "0s")
    result = two(*start)
    assert (result.code, two.state().desired) == (4, {})
    assert result.err.count("1 partition moved") == (1 if fails_at == "late" else 2), "one name, one reset"
    if fails_at == "late":
        assert "Reset, and not started: group 'board.early'. Not you. Grant it. Then repeat" in result.err
        assert (_positions(two), "undo board.late" in result.err) == ([0, 6], False)
    else:
        assert "Reset, and not started: group 'board.early', 'board.late'. No broker responded." in result.err
        assert _positions(two) == [0, 0]
    two.cli.admin.failures.clear()
    assert two("groups", "undo", "board.early", "--execute").code == 0
    assert _positions(two)[0] == 5


def test_O2_the_first_failure_of_a_start_is_the_error_itself(two: Instance) -> None:
    two.cli.admin.failures["board.early", P0] = NotAuthorized("Not you.")
    result = two("processors", "start", "-i", "board", "early", "late", "--from", "earliest", "--wait", "0s")
    assert (result.code, _positions(two), result.err.endswith("Error: Not you.\n")) == (1, [5, 6], True)


def test_a_running_processor_is_neither_reset_nor_dropped(instance: Instance) -> None:
    instance.declare("late")
    instance.apply("--execute")
    instance("processors", "start", "-i", "board", "late", "--wait", "0s")
    instance.run_late()
    for arguments in (("start", "late", "--from", "earliest"), ("drop", "late", "--execute")):
        result = instance("processors", *arguments, "-i", "board")
        assert (result.code, "streamgroups processors stop late" in result.err) == (3, True)
    # It is stopped when its worker has observed it.
    instance("processors", "stop", "-i", "board", "late", "--wait", "0s")
    assert instance("processors", "drop", "-i", "board", "late", "--execute").code == 3
    instance.write(Removed("placement", PLACED.replica), Observation(PLACED, Observed.STOPPED, 0))
    assert instance("processors", "stop", "-i", "board", "late").code == 0
    assert instance("processors", "drop", "-i", "board", "late").code == 0
    assert "late" in instance.state().definitions
    assert instance("processors", "drop", "-i", "board", "late", "--execute").code == 0
    assert not instance.state().definitions
    assert not instance.state().observed


def test_start_resets_the_group_on_the_cluster_of_its_source(instance: Instance) -> None:
    """The topic of the instance is on another cluster than the topics of the processor."""
    config = instance.directory / "config.toml"
    config.write_text(config.read_text().replace("broker:9092", "flights:9092"))
    cluster = instance.cli.cluster
    for topic in ("flights", "flights-2013", "orders"):
        cluster.create_topic(topic, 1)
        cluster.produce(TopicPartition(topic, 0), 10)
    instance.declare("late")
    instance.apply("--execute")
    start = ("processors", "start", "-i", "board", "late", "--wait", "0s")
    assert instance(*start, "--from", "latest").code == 0
    assert instance.cli.config is not None
    assert dict(instance.cli.config.properties)["bootstrap.servers"] == "flights:9092"
    assert (
        cluster.committed("board.late", [TopicPartition("flights", 0)])[TopicPartition("flights", 0)].next_offset == 10
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("subscribePattern: ^flights", {"flights-0": 0, "flights-2013-0": 0}),
        ("read_repartitioned: {topic: flights, by: [carrier], columns: carrier string}", {"flights-0": 0}),
    ],
)
def test_start_resets_all_partitions_that_the_processor_reads(
    instance: Instance, source: str, expected: dict[str, int]
) -> None:
    """Its group has no committed offsets before its first run."""
    cluster = instance.cli.cluster
    partitions = [TopicPartition(topic, 0) for topic in ("flights", "flights-2013", "orders")]
    for tp in partitions:
        cluster.create_topic(tp.topic, 1)
        cluster.produce(tp, 10)
    instance.declare("late")
    file = instance.directory / "late.yaml"
    file.write_text(file.read_text().replace("subscribe: flights", source))
    assert instance.apply("--execute").code == 0
    assert instance("processors", "start", "-i", "board", "late", "--wait", "0s", "--from", "earliest").code == 0
    assert {str(tp): it.next_offset for tp, it in cluster.committed("board.late", partitions).items()} == expected


@pytest.mark.parametrize("accepts", [False, True])
def test_C4_start_from_accepts_added_partitions_as_its_source_does(instance: Instance, accepts: bool) -> None:
    cluster, location = instance.cli.cluster, instance.directory / "states"
    states = States(instance.cli, location, "board.late")
    cluster.produce(P0, 10, timestamp_ms=NOW_MS)
    states.commit(10, states.write(1, 10))
    instance.declare("late")
    file = instance.directory / "late.yaml"
    option = ", onAddedPartitions: continue" if accepts else ""
    source = f"subscribe: flights, stateLocation: '{location}'{option}"
    file.write_text(file.read_text().replace("subscribe: flights", source))
    assert instance.apply("--execute").code == 0
    result = instance("processors", "start", "-i", "board", "late", "--wait", "0s", "--from", "earliest")
    offsets = {tp: it.next_offset for tp, it in cluster.committed("board.late", [P0, P1]).items()}
    if accepts:
        assert (result.code, offsets) == (0, {P0: 0, P1: 0}), result.err
        return
    assert (result.code, offsets, instance.state().desired) == (3, {P0: 10}, {})
    assert "to the same target: streamgroups groups reset board.late --topic flights:0. The queries" in result.err
    assert "Then start the processor without --from." in result.err


def test_start_from_needs_a_topic(instance: Instance) -> None:
    instance.declare("late")
    file = instance.directory / "late.yaml"
    file.write_text(file.read_text().replace("subscribe: flights", "subscribePattern: ^fl"))
    assert instance.apply("--execute").code == 0
    result = instance("processors", "start", "-i", "board", "late", "--from", "earliest")
    assert "matches no topic; nothing was changed" in result.err
    assert not instance.state().desired


def test_start_from_a_date_without_separators_is_rejected(instance: Instance) -> None:
    instance.declare("late")
    assert instance.apply("--execute").code == 0
    result = instance("processors", "start", "-i", "board", "late", "--from", "20130101")
    assert "'--from' is '20130101', which seems to be a date without separators" in " ".join(result.err.split())
    assert not instance.state().desired


def test_a_repeated_processor_counts_once(two: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Sequence[Entry]] = []
    write = instance_log.OpenInstance.write
    monkeypatch.setattr(
        instance_log.OpenInstance, "write", lambda it, entries: (written.append(entries), write(it, entries))
    )
    for command in ("restart", "stop"):
        assert two("processors", command, "-i", "board", "late", "late", "--wait", "0s").code == 0
    result = two("processors", "drop", "-i", "board", "late", "late", "--execute")
    assert (result.code, result.err.count("Processor 'late'")) == (0, 1), result.err
    assert "1 processor dropped." in result.err
    assert [len(set(it)) == len(it) for it in written] == [True] * 3


def test_O2_processors_that_have_stopped_without_a_savepoint_are_reported(
    two: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[str] = []

    def save(_instance: object, _state: object, name: str, location: str) -> None:
        if name == "early":
            raise StateUnreachable(f"'{location}' does not answer.", remedy="Check it.")
        saved.append(name)

    monkeypatch.setattr(stopping, "_save", save)
    assert two("processors", "start", "-i", "board", "early", "late", "--wait", "0s").code == 0
    stop = ("processors", "stop", "-i", "board", "early", "late", "early", "--savepoint", "/s")
    result = two(*stop)
    assert (result.code, saved) == (4, ["late"])
    assert (
        "Stopped: early, late. Savepoints exist of: late. Without a savepoint: early. '/s' does not answer. Check it. "
        "Then repeat the command for: early." in result.err
    )
    assert two("processors", "stop", "-i", "board", "early", "--savepoint", "/s").code == 1


def test_a_name_of_another_instance_is_rejected(instance: Instance) -> None:
    for command in ("start", "stop", "restart", "describe", "drop"):
        result = instance("processors", command, "-i", "board", "unknown")
        assert result.code == 2
        assert "does not define the processor 'unknown'" in result.err


def test_the_instance_is_required(instance: Instance) -> None:
    result = instance("processors", "list")
    assert (result.code, "STREAMGROUPS_INSTANCE" in result.err) == (2, True)
    assert instance("instance", "run", "a.b").code == 2


def test_list_and_status(instance: Instance, tmp_path: Path) -> None:
    instance.declare("late")
    instance.apply("--execute")
    instance("processors", "start", "-i", "board", "late", "--wait", "0s")
    instance.run_late()
    instance.log.records.append((b"x", b"y"))
    result = instance("processors", "list", "-i", "board")
    assert "late/0     running  w1" in result.out
    assert "is not an entry" in result.err
    found = document(instance("instance", "status", "board", "-o", "json"))
    assert found["manager"] == "running"
    assert found["workers"][0] == {
        "worker": "w1",
        "state": "running",
        "slots": 2,
        "used": 1,
        "processors": ["late/0"],
        "host": "host",
        "pid": 8,
    }
    assert found["processors"][0]["lag"] == 30
    page = tmp_path / "board.html"
    assert instance("instance", "status", "board", "--html", str(page)).code == 0
    assert "free slot" in page.read_text()
    rejected = instance("instance", "status", "board", "--html", str(tmp_path / "none" / "board.html"))
    assert (rejected.code, rejected.out) == (2, "")
    assert "none/board.html cannot be written: No such file or directory." in rejected.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("worker run", "contains no {arguments}"), ("'{arguments}", "is not a command line"), (" ", "contains no")],
)
def test_a_wrong_command_of_workers_is_rejected_at_the_start(instance: Instance, text: str, expected: str) -> None:
    result = instance("instance", "run", "board", "--worker-command", text)
    assert (result.code, expected in result.err) == (2, True)


def test_a_process_that_ends_is_reported_once(tmp_path: Path) -> None:
    launcher = launching.ProcessLauncher("sh -c 'exit 3' {arguments}", [])
    launcher.start(Worker("w1", 1, 0, 0, 0, 6_000))
    found: dict[str, str] = {}
    while not found:
        found = dict(launcher.exited())
    assert found == {"w1": "its process has ended with exit code 3"}
    assert not launcher.exited()
    with pytest.raises(Exception, match="could not be started"):
        launching.ProcessLauncher(f"{tmp_path}/missing {{arguments}}", []).start(Worker("w1", 1, 0, 0, 0, 6_000))


def test_status_is_repeated_until_ctrl_c(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.run_late()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    result = instance("instance", "status", "board", "--watch")
    assert (result.code, result.out.count("Instance 'board': manager")) == (0, 2)
    waits.clear()
    documents = list(yaml.safe_load_all(instance("instance", "status", "board", "--watch", "-o", "yaml").out))
    assert [it["instance"] for it in documents] == ["board", "board"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["instance", "run", "board", "--start-timeout", "soon"], "--start-timeout"),
        (["worker", "run", "-i", "board", "--worker-id", "w9"], "w9"),
        (
            ["worker", "run", "-i", "board", "--worker-id", "w9", "--slots", "2"],
            "--slots of 'streamgroups instance run'",
        ),
        (
            ["worker", "run", "-i", "board", "--worker-id", "w9", "--lease", "6s"],
            "--lease has no effect with --worker-id",
        ),
        (["processors", "start", "-i", "board", "late", "--savepoint", "id"], "Write LOCATION/ID"),
        (["processors", "start", "-i", "board", "late", "late", "--savepoint", "/s/id"], "one by one"),
        (["processors", "stop", "-i", "board", "late", "--savepoint", "/missing", "--wait", "5s"], "board.late"),
    ],
)
def test_a_wrong_value_of_an_option_is_rejected(instance: Instance, arguments: list[str], expected: str) -> None:
    instance.declare("late")
    instance.apply("--execute")
    result = instance(*arguments)
    assert result.code in (1, 2, 3)
    assert expected in result.err
