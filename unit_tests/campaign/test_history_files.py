"""Files of histories: what processes write is read back, and every other line is rejected with its file and number."""

from __future__ import annotations

import doctest
import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given

from integration_tests.history import events as event_classes
from integration_tests.history import lines
from integration_tests.history.__main__ import main
from integration_tests.history.events import (
    Acknowledged,
    Commit,
    Event,
    Position,
    ProcessEnded,
    ProcessStarted,
    StateWritten,
    UnknownWritten,
    Workload,
)
from integration_tests.history.files import HistoryWriter, InvalidHistory, read_files
from integration_tests.history.lines import parse, to_line
from integration_tests.history.members import converted
from streamgroups.groups.history import Event as MemberEvent
from streamgroups.groups.history import Kind
from streamgroups.partitions import OffsetRange, TopicPartition
from unit_tests.campaign.history_model import GROUP, histories

P0 = TopicPartition("t", 0)
WORKLOAD = Workload(0, "injector", GROUP, "t", True, True, None, 5_000, ("acknowledged", "position"))
COMPLETE = [
    WORKLOAD,
    ProcessStarted(1, "ann", 17),
    Acknowledged(2, "producer", P0, (0, 1), (5, 6)),
    ProcessEnded(3, "ann", 17, "killed"),
    Position(4, "observer", GROUP, {P0: 2}),
]


@given(histories())
def test_each_event_is_read_back(events: list[Event]) -> None:
    assert [parse(to_line(it)) for it in events] == events


@pytest.mark.parametrize("module", [lines, event_classes])
def test_the_examples_run(module: object) -> None:
    failed, n = doctest.testmod(module)  # type: ignore[arg-type]
    assert (failed, n > 0) == (0, True)


_POSITION = '"event":"position","time_ms":17,"process":"observer"'
_WRITTEN = '"event":"written","time_ms":1,"process":"reader","topic_partition":["t",0]'
_ACKNOWLEDGED = '"event":"acknowledged","time_ms":1,"process":"producer","topic_partition":["t",0]'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "{",
        "[" * 100_000,
        '{"event":7}',
        '{"event":"unheard"}',
        "{" + _POSITION + "}",
        "{" + _POSITION + ',"group":"g"}',
        "{" + _POSITION + ',"group":"g","offsets":{},"more":1}',
        "{" + _POSITION + ',"group":"g","offsets":[]}',
        "{" + _POSITION + ',"group":"g","offsets":{"t":{"x":5}}}',
        "{" + _POSITION + ',"group":"g","offsets":{"t":{"0":-5}}}',
        "{" + _POSITION + ',"group":"g","offsets":{"t":{"0":Infinity}}}',
        "{" + _POSITION + ',"group":"g","offsets":{"t":{"0":99999999999999999999}}}',
        "{" + _POSITION + ',"group":"\\ud800","offsets":{}}',
        '{"event":"position","time_ms":1.5,"process":"o","group":"g","offsets":{}}',
        '{"event":"position","time_ms":true,"process":"o","group":"g","offsets":{}}',
        "{" + _WRITTEN + ',"sink":"elsewhere","offsets":[1]}',
        "{" + _WRITTEN + ',"sink":"output","offsets":[-1]}',
        "{" + _WRITTEN + ',"sink":"output","offsets":"1"}',
        "{" + _ACKNOWLEDGED + ',"offsets":[1,2],"times_ms":[1]}',
        '{"event":"written","time_ms":1,"process":"r","topic_partition":["t"],"sink":"output","offsets":[]}',
        '{"event":"gap","time_ms":1,"process":"ann","group":"g","ranges":[["t",0,9,5]]}',
        '{"event":"gap","time_ms":1,"process":"ann","group":"g","ranges":[["t",0,9]]}',
        '{"event":"commit","time_ms":1,"process":"a","group":"g","generation":1,"offsets":{},"phase":"perhaps"}',
        to_line(WORKLOAD).replace('"acknowledged"', '"everything"'),
    ],
)
def test_a_hostile_line_is_rejected_with_its_file_and_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{to_line(WORKLOAD)}\n{line}\n")
    with pytest.raises(InvalidHistory, match=rf"^{path}:2: "):
        read_files([path])


def test_bytes_that_are_no_text_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "h").write_bytes(b"\xff\n")
    with pytest.raises(InvalidHistory, match=":1: "):
        read_files([tmp_path / "h"])


def test_a_line_that_a_kill_has_truncated_is_ignored_at_the_end_only(tmp_path: Path) -> None:
    path, half = tmp_path / "ann-1.jsonl", to_line(WORKLOAD)[:30]
    path.write_text(f"{to_line(WORKLOAD)}\n{half}")
    assert read_files([path]) == [WORKLOAD]
    path.write_text(f"{half}\n{to_line(WORKLOAD)}\n")
    with pytest.raises(InvalidHistory):
        read_files([path])


def _append(path: Path, process: int) -> None:
    record = HistoryWriter(path)
    for i in range(200):
        value = str(i).ljust(200 * process, ".")
        record(*[UnknownWritten(i, f"p{process}", "output", value)] * 3)
    record.close()


def test_processes_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "history.jsonl"
    spawn = multiprocessing.get_context("fork")
    processes = [spawn.Process(target=_append, args=(path, n)) for n in range(1, 5)]
    for it in processes:
        it.start()
    for it in processes:
        it.join()
    found = read_files([path])
    assert [it.time_ms for it in found] == sorted(it.time_ms for it in found)
    assert len(found) == 4 * 200 * 3


def test_a_full_disk_is_an_error() -> None:
    record = HistoryWriter(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"):
        record(WORKLOAD)


def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = HistoryWriter(tmp_path / "a")
    record(*COMPLETE)
    assert main(["check", str(tmp_path / "a")]) == 0
    shown = capsys.readouterr().out
    assert "I8   holds      the group reads all records after the last fault\n" in shown
    assert (
        "I10  undecided  no secret is in a log, an error, a metric or a plan (not recorded: logs_searched)\n" in shown
    )
    assert shown.endswith("no anomaly\n")
    HistoryWriter(tmp_path / "b")(Position(5, "observer", GROUP, {P0: 1}))
    assert main(["check", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "I4 non-monotonic position: 1 (t-0 at offset 1)" in capsys.readouterr().out


def test_the_command_names_an_invalid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h").write_text("{}\n")
    assert main(["check", str(tmp_path / "h")]) == 2
    assert main(["check", str(tmp_path / "absent")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{tmp_path}/h:1: ")
    assert "absent" in second


def test_the_history_of_members_is_converted() -> None:
    ranges = (OffsetRange(P0, 5, 9),)
    found = [
        MemberEvent(1, GROUP, "ann", "r", Kind.JOINING),
        MemberEvent(2, GROUP, "ann", "r", Kind.ASSIGNED, {P0: 5}),
        MemberEvent(3, GROUP, "ann", "r", Kind.PLANNED, ranges=ranges, batch=2),
        MemberEvent(4, GROUP, "ann", "r", Kind.MOVED, {P0: 9}, ranges),
        MemberEvent(5, GROUP, "ann", "r", Kind.GAP, {P0: 9}, ranges),
        MemberEvent(6, GROUP, "ann", "r", Kind.LOST, {P0: 9}),
    ]
    names = [json.loads(to_line(it))["event"] for it in converted(found)]
    assert names == ["assigned", "read", "moved", "gap", "revoked"]


def test_a_state_without_a_watermark_is_read_back() -> None:
    for it in (StateWritten(1, "ann", P0, 5, None), Commit(1, "ann", GROUP, None, {}, "unknown")):
        assert parse(to_line(it)) == it
