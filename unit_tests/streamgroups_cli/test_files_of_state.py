"""Files that undo a change show the positions of groups: to their owner only."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_admin.groups.undo_files import write_new


def test_others_cannot_read_them(tmp_path: Path) -> None:
    path = write_new(tmp_path / "deep" / "undo.json", "{}")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "{}"
    with pytest.raises(InvalidOption, match="cannot be written"):
        write_new(path, "x")
