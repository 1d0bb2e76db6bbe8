"""W2, W3: people see what holds back the watermark."""

from __future__ import annotations

from streamgroups.event_time.explanation import TimeExplanation, explain, stream_explanation
from streamgroups.event_time.imported_watermark import ImportStatus
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import PartitionTime, SourceTime, observe
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import At
from unit_tests.streamgroups.event_time.tables import P0, P1, P2

IDLE = TimeSettings(Generation(), partition_idle_timeout_ms=2_000)


def test_each_partition_has_an_explanation() -> None:
    times = {
        P0: PartitionTime(900, At(900), idle_since_ms=None, seen_ms=5_000),
        P1: PartitionTime(300, At(300), idle_since_ms=4_000, seen_ms=5_000),
        P2: PartitionTime(idle_since_ms=1_000, seen_ms=5_000),
    }
    state = observe(SourceTime(partitions=times), {}, IDLE, 5_000)
    lines = explain(state, IDLE)
    assert [it.holds_back for it in lines] == [False, True, False]
    assert [(it.event_time_ms, it.state) for it in lines] == [
        (900, "ahead"),
        (300, "holds back the watermark; no available records for 1 s"),
        (None, "idle for 4 s: does not hold back the watermark"),
    ]
    stream = stream_explanation("board", "alice", state, IDLE)
    assert (stream.watermark_ms, stream.partitions) == (300, tuple(lines))
    text = str(TimeExplanation((stream, stream)))
    assert text.splitlines()[0] == "Group 'board', member 'alice': the watermark is 1970-01-01T00:00:00.300Z."
    assert len(text.splitlines()) == 11


def test_a_notebook_displays_a_table_with_escaped_names() -> None:
    state = SourceTime(At(300), {P0: PartitionTime(900, At(900))})
    stream = stream_explanation("<board>", "al\x1bice", state, IDLE)
    shown = TimeExplanation((stream,))._repr_html_()
    assert "Group '&lt;board&gt;', member 'al\\x1bice': the watermark is 1970-01-01T00:00:00.300Z." in shown
    assert shown.count("<tr>") == 2
    assert "\x1b" not in str(stream)


def test_a_partition_without_a_watermark_holds_time_back_until_it_is_idle() -> None:
    (line,) = explain(SourceTime(partitions={P0: PartitionTime()}), IDLE)
    assert line.state == "holds back the watermark: no event time yet"


def test_imported_time_is_nobodys_fault() -> None:
    (line,) = explain(SourceTime(partitions={P0: PartitionTime()}), TimeSettings(import_from="trades"))
    assert (line.state, line.holds_back) == ("emits no watermark: event time is imported", False)


def test_W10_an_imported_watermark_has_a_line() -> None:
    status = ImportStatus("trades", At(300), 41_000, ("trades",))
    state = SourceTime(At(300), {P0: PartitionTime()})
    stream = stream_explanation("prices", "alice", state, TimeSettings(import_from="trades"), status)
    assert str(stream).splitlines()[:2] == [
        "Group 'prices', member 'alice': the watermark is 1970-01-01T00:00:00.300Z.",
        "Watermark of group 'trades', which is imported: 1970-01-01T00:00:00.300Z, unchanged for 41 s; no members: trades.",
    ]
