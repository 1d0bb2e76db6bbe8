"""Files that undo a change show the positions of groups: to their owner only, and as a whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption
from streamgroups_admin.groups.stored_files import state_directory, write_new
from streamgroups_cli.cursors.paths import signing_key
from unit_tests.no_home import remove_home


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False])
def test_others_cannot_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", _no_links)
    path = write_new(tmp_path / "deep" / "undo.json", "{}")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "{}"
    with pytest.raises(InvalidOption, match="cannot be written: File exists"):
        write_new(path, "x")
    assert path.read_text() == "{}"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InvalidOption, match="No space left on device"):
        write_new(tmp_path / "undo.json", "{}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, sync, seen = tmp_path / "undo.json", os.fsync, list[bool]()

    def check(number: int) -> None:
        seen.append(path.exists())
        sync(number)

    monkeypatch.setattr(os, "fsync", check)
    write_new(path, "{}")
    assert seen == [False, True], "the file, and then its directory"


def test_a_user_without_a_home_directory_sets_a_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files would be in a directory ``~`` of the current directory."""
    remove_home(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for create in (state_directory, lambda: signing_key(None)):
        with pytest.raises(InvalidOption, match=r"no home directory\. Set XDG_STATE_HOME or HOME\."):
            create()
    assert list(tmp_path.iterdir()) == []
