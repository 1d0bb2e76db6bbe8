"""Directories for files of this user only: no other user can write to them or to a new parent, with any umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamgroups.private_directories import make_private
from streamgroups_admin.groups.undo_files import write_new
from streamgroups_broker._cache import kafka_jars
from streamgroups_broker._data_dir import DataDir
from streamgroups_cli.connections_file import changed_connections
from streamgroups_cli.cursors import paths
from streamgroups_kafka.membership.history_file import HistoryFile
from streamgroups_spark.processors.run_directories import run_checkpoint
from streamgroups_spark.workers.shared_states import announce


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that exists, with directories that do not exist yet in all variables."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "new" / name))
    monkeypatch.setenv("STREAMGROUPS_CONFIG", str(tmp_path / "new" / "config" / "config.toml"))
    monkeypatch.delenv("STREAMGROUPS_PROCESSORS", raising=False)
    before = os.umask(request.param)
    try:
        yield tmp_path
    finally:
        os.umask(before)


def _modes(root: Path) -> dict[str, int]:
    return {str(it.relative_to(root)): stat.S_IMODE(it.stat().st_mode) for it in root.rglob("*") if it.is_dir()}


def _write_undo(root: Path) -> None:
    write_new(root / "new" / "offsets" / "undo.json", "{}")


def _change_connections(root: Path) -> None:
    with changed_connections():
        pass


def _run(root: Path) -> None:
    with run_checkpoint("board.late"):
        pass


def _write_history(root: Path) -> None:
    HistoryFile(str(root / "new" / "history"), group_id="g", member="m")


def _fill_cache(root: Path) -> None:
    kafka_jars(
        "4.9.9",
        lambda directory, _: (directory / "a.jar").touch(),
        lambda jars: jars.bootstrap_checkpoint.touch(),
    )


def _start_broker(root: Path) -> None:
    data = DataDir(root / "new" / "data")
    features = root / "features"
    features.touch()
    data.format_node(1, "AAAAAAAAAAAAAAAAAAAAAQ", features)
    data.close()


@pytest.mark.parametrize(
    "create",
    [
        lambda root: paths.signing_key(None),
        lambda root: (paths.instances(), paths.signing_key(None)),
        lambda root: announce("host"),
        _write_undo,
        _change_connections,
        _run,
        _write_history,
        _fill_cache,
        _start_broker,
    ],
)
def test_new_directories_are_those_of_their_owner(create: Callable[[Path], object], root: Path) -> None:
    create(root)
    modes = _modes(root)
    assert modes
    assert set(modes.values()) == {0o700}, modes


def test_a_directory_that_exists_keeps_its_mode(root: Path) -> None:
    shared = root / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    for _ in range(2):
        make_private(shared / "a" / "b")
    assert _modes(root) == {"shared": 0o770, "shared/a": 0o700, "shared/a/b": 0o700}
    make_private(shared)
    (root / "link").symlink_to(shared)
    make_private(root / "link" / "c")
    assert stat.S_IMODE((shared / "c").stat().st_mode) == 0o700
    assert stat.S_IMODE(shared.stat().st_mode) == 0o770


def test_what_is_not_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "file", tmp_path / "link", tmp_path / "file" / "below"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            make_private(path)
