"""S10: copies of state files replace requests to the storage, and are never the only ones."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from streamgroups.state.file_names import StateFileName
from streamgroups_operators import local_copies
from streamgroups_operators.file_format import pack, unpack
from streamgroups_operators.local_copies import CopiedFiles
from unit_tests.fake_state_files import FakeStateFiles


class CountedFiles(FakeStateFiles):
    """Counts its reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[StateFileName] = Counter()

    def read(self, file: StateFileName) -> memoryview:
        self.reads[file] += 1
        return super().read(file)


def name(number: int) -> StateFileName:
    return StateFileName(1732334000000 + number, "1f3a9c2b7d10", number, number)


def content(n: int, rows: int = 1) -> memoryview:
    values = pa.array(os.urandom(8) for _ in range(rows))
    return pack(f'{{"n": {n}}}', pa.schema([("n", pa.binary())]), [pa.record_batch({"n": values})])


def texts(files: CopiedFiles, *numbers: int) -> list[str]:
    return [unpack(files.read(name(n)))[0] for n in numbers]


def copies(root: Path) -> list[str]:
    return sorted(it.name for it in root.rglob("*") if it.is_file())


def test_S10_a_file_is_read_once_or_not_at_all(tmp_path: Path) -> None:
    stored = CountedFiles()
    stored.write(name(1), content(1))
    CopiedFiles(stored, tmp_path, "run", "windows").write(name(2), content(2))
    for _ in range(3):
        assert texts(CopiedFiles(stored, tmp_path, "run", "windows"), 1, 2) == ['{"n": 1}', '{"n": 2}']
    assert stored.reads == {name(1): 1}
    assert stored.contents.keys() == {name(1), name(2)}


def test_S10_runs_and_operators_share_no_copies(tmp_path: Path) -> None:
    """All operators of a task write files of the same name, and a restored savepoint can have it too."""
    found = []
    for n, names in enumerate([("run", "windows"), ("run", "peaks"), ("later", "windows")]):
        stored = CountedFiles()
        stored.write(name(1), content(n))
        found += texts(CopiedFiles(stored, tmp_path, *names), 1)
    assert found == ['{"n": 0}', '{"n": 1}', '{"n": 2}']


@pytest.mark.parametrize("damage", [b"", b"streamgroups", None])
def test_S10_a_damaged_copy_is_read_from_the_storage(tmp_path: Path, damage: bytes | None) -> None:
    stored = CountedFiles()
    files = CopiedFiles(stored, tmp_path, "run", "windows")
    files.write(name(1), content(1))
    [copy] = tmp_path.rglob("*.state")
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]) if damage is None else damage)
    assert texts(files, 1, 1) == ['{"n": 1}'] * 2
    assert stored.reads == {name(1): 1}
    assert copy.read_bytes() == whole


def test_S10_a_file_that_is_lost_in_the_storage_is_missing_without_a_copy(tmp_path: Path) -> None:
    files = CopiedFiles(CountedFiles(), tmp_path, "run", "windows")
    with pytest.raises(FileNotFoundError):
        files.read(name(1))
    assert not copies(tmp_path)


def test_S10_without_space_for_copies_the_storage_is_read(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file in place of the directory", encoding="utf-8")
    stored = CountedFiles()
    files = CopiedFiles(stored, tmp_path, "run", "windows")
    files.write(name(1), content(1))
    assert texts(files, 1, 1) == ['{"n": 1}'] * 2
    assert stored.reads == {name(1): 2}


def test_S10_the_least_recently_used_copies_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of earlier runs. Each file counts as 64 KB."""
    monkeypatch.setattr(local_copies, "_written_bytes", Counter())
    stored, n_files = CountedFiles(), 32
    old = CopiedFiles(stored, tmp_path, "old", "windows", max_bytes=n_files * 65_536)
    files = CopiedFiles(stored, tmp_path, "run", "windows", max_bytes=n_files * 65_536)
    old.write(name(0), content(0))
    for n in range(1, 200):
        files.write(name(n), content(n))
        os.utime(tmp_path / "run" / "windows" / f"{name(n)}", (n, n))
        texts(files, 1)
        # Every file was used at its own time, the first one last.
        os.utime(tmp_path / "run" / "windows" / f"{name(1)}", (n + 0.5, n + 0.5))
        os.utime(next(iter(tmp_path.rglob(f"{name(0)}")), tmp_path), (0, 0))
    left = copies(tmp_path)
    assert len(left) <= n_files * 9 // 8
    assert f"{name(1)}" in left
    assert f"{name(0)}" not in left
    assert stored.reads == Counter()
    assert texts(files, 2) == ['{"n": 2}'], "a deleted copy is read again"
    assert stored.reads == {name(2): 1}


def test_S10_a_copy_that_is_read_counts_as_used(tmp_path: Path) -> None:
    stored = CountedFiles()
    files = CopiedFiles(stored, tmp_path, "run", "windows")
    files.write(name(1), content(1))
    [copy] = tmp_path.rglob("*.state")
    os.utime(copy, (1, 1))
    assert texts(files, 1) == ['{"n": 1}']
    assert (copy.stat().st_mtime > 1, stored.reads) == (True, Counter())


def test_S10_each_new_process_deletes_copies_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark can end a Python worker before it has written much, such as after each task."""
    for n in range(40):
        monkeypatch.setattr(local_copies, "_written_bytes", Counter())
        CopiedFiles(CountedFiles(), tmp_path, "run", "windows", max_bytes=8 * 65_536).write(name(n), content(n))
    assert len(copies(tmp_path)) <= 8


def test_S10_an_error_of_the_deletion_is_no_missing_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process can delete the directory at the same time."""

    def gone(_self: Path, _pattern: str) -> None:
        raise FileNotFoundError("a directory is gone")

    monkeypatch.setattr(local_copies, "_written_bytes", Counter())
    monkeypatch.setattr(Path, "rglob", gone)
    stored = CountedFiles()
    stored.write(name(1), content(1))
    assert texts(CopiedFiles(stored, tmp_path, "run", "windows"), 1) == ['{"n": 1}']


def test_S10_a_file_that_is_large_for_the_limit_has_no_copy(tmp_path: Path) -> None:
    stored = CountedFiles()
    files = CopiedFiles(stored, tmp_path, "run", "windows", max_bytes=80_000)
    files.write(name(1), content(1, rows=4_000))
    assert not copies(tmp_path)
    assert texts(files, 1) == ['{"n": 1}']


def test_S10_only_the_owner_can_read_copies(tmp_path: Path) -> None:
    CopiedFiles(CountedFiles(), tmp_path / "states", "run", "windows").write(name(1), content(1))
    directory = tmp_path / "states" / "run" / "windows"
    [copy] = directory.iterdir()
    assert {it.stat().st_mode & 0o777 for it in (directory, *directory.parents[:2])} == {0o700}
    assert copy.stat().st_mode & 0o777 == 0o600
