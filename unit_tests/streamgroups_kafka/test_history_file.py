"""A history is its owner's, and does not fill the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.groups.history import Kind, MemberEvent
from streamgroups_kafka.membership import history_file as history
from streamgroups_kafka.membership.history_file import HistoryFile, read_history


def test_others_cannot_read_it(tmp_path: Path) -> None:
    HistoryFile(str(tmp_path), group_id="g", member="m")(MemberEvent(Kind.JOINING))
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [event.kind for event in read_history(tmp_path)] == [Kind.JOINING]


def test_it_ends_at_its_limit_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(history, "MAX_BYTES", 1_000)
    record = HistoryFile(str(tmp_path), group_id="g", member="m")
    for _ in range(100):
        record(MemberEvent(Kind.JOINING))
    (path,) = tmp_path.iterdir()
    assert 0 < path.stat().st_size <= 1_000
    assert read_history(tmp_path)
    assert caplog.messages == ["m: the history in historyDir stops here, at 1000 bytes"]
