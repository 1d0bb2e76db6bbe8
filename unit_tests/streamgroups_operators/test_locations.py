"""S10: state files in a directory, and in memory, keep the same contract; secrets of a location are not shown."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from streamgroups.errors import InvalidOption, StateUnreachable
from streamgroups.path_names import is_hashed, name_of, path_part
from streamgroups.state.file_ages import Survey
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_files import StateFiles
from streamgroups_operators.locations import StateDirectory, directories_at, files_below, is_local, open_location, shown
from unit_tests.examples import examples
from unit_tests.fake_state_files import FakeStateFiles

FIRST, SECOND = (StateFileName(1732334000000 + n, "1f3a9c2b7d10", n, n) for n in (1, 2))


@pytest.fixture(params=["memory", "directory", "uri"])
def new_files(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StateFiles]:
    memory = FakeStateFiles()
    location = tmp_path.as_uri() if request.param == "uri" else str(tmp_path)
    return (lambda: memory) if request.param == "memory" else lambda: files_below(location, "a/b c", "windows")


def test_S10_a_file_is_read_as_it_was_written(new_files: Callable[[], StateFiles]) -> None:
    new_files().write(FIRST, memoryview(b"one"))
    new_files().write(SECOND, memoryview(b"three"))
    files = new_files()
    assert files.read(FIRST).tobytes() == b"one"
    assert files.list() == {FIRST: 3, SECOND: 5}


def test_S10_a_file_that_does_not_exist_is_an_error_and_can_be_deleted(new_files: Callable[[], StateFiles]) -> None:
    files = new_files()
    assert files.list() == {}
    with pytest.raises(FileNotFoundError):
        files.read(FIRST)
    files.write(FIRST, memoryview(b"one"))
    files.delete([FIRST, SECOND])
    assert files.list() == {}


def test_S10_other_files_of_the_directory_are_not_state_files(tmp_path: Path) -> None:
    files = files_below(str(tmp_path), "billing", "windows")
    files.write(FIRST, memoryview(b"one"))
    directory = tmp_path / "billing" / "windows"
    (directory / f".{SECOND}").write_bytes(b"unfinished")
    (directory / "README").write_text("by hand")
    (directory / "folder").mkdir()
    assert files.list() == {FIRST: 3}
    assert directories_at(str(tmp_path), "billing") == ["windows"]
    assert directories_at(str(tmp_path), "orders") == []


def test_S10_groups_and_operators_have_directories_of_their_own(tmp_path: Path) -> None:
    files_below(str(tmp_path), "../x", "a/b").write(FIRST, memoryview(b"one"))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.state")] == [f"..%2Fx/a%2Fb/{FIRST}"]
    assert directories_at(str(tmp_path), "../x") == ["a/b"]


def test_an_unsupported_location_is_rejected_without_its_secrets() -> None:
    with pytest.raises(InvalidOption, match="'ftp://host/state' is not supported"):
        files_below("ftp://user:hunter2@host/state", "billing", "windows")


def test_a_location_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = files_below(str(tmp_path / "file"), "billing", "windows")
    with pytest.raises(StateUnreachable, match="cannot be used: Not a directory"):
        files.write(FIRST, memoryview(b"one"))


def test_a_location_is_shown_without_credentials_and_parameters() -> None:
    assert shown("s3://key:hunter2@bucket/a/b?endpoint_override=localhost%3A9000") == "s3://bucket/a/b"
    assert shown("/data/state") == "/data/state"
    assert (
        shown("abfss://container@account.dfs.core.windows.net/x") == "abfss://container@account.dfs.core.windows.net/x"
    )
    assert shown("hdfs://namenode:8020/a@b") == "hdfs://namenode:8020/a@b"
    assert shown("s3:/key:hunt/er2@bucket/x") == "s3:///bucket/x"


@pytest.mark.parametrize(
    "secret", ["wJalr/K7MDENG/bPxRfiCYTAIL", "hunter2@TAIL", "hunter2]TAIL", "hunt[er2", "a:b/TAIL", "a b/TAIL"]
)
def test_S10_a_location_with_a_login_that_is_not_encoded_is_rejected_without_it(secret: str) -> None:
    location = f"s3a://AKIAIOSFODNN7EXAMPLE:{secret}@bucket/state"
    assert shown(location) == "s3a://bucket/state"
    for use in (files_below, directories_at):
        with pytest.raises((InvalidOption, StateUnreachable)) as rejected:
            use(location.replace("bucket", "[bucket"))
        text = "".join(traceback.format_exception(rejected.value))
        assert not [it for it in ("AKIA", "akia", "TAIL", "hunt", "wJalr") if it in text.partition("Error")[2]]
        assert "Percent-encode the special characters of a login" in rejected.value.remedy


@pytest.mark.parametrize(
    ("path", "opened"),
    [
        *(
            (it, it)
            for it in ("a%20b", "a b", "a+b", "a#b", "a?b", "50%", "a%2Fb", "ä/語", "a[0]:b@c", "date=2013-01-01")
        ),
        ("a//b/./c/../d/", "a/b/d"),
        ("a b%20?endpoint_override=localhost:9000", "a b%20"),
    ],
)
def test_a_location_has_the_directory_that_hadoop_has(path: str, opened: str) -> None:
    """Spark writes the checkpoint there. Another directory would be a checkpoint without a batch."""
    assert open_location(f"gs://anonymous@bucket/{path}")[1] == f"bucket/{opened}"
    s3 = f"s3a://key:secret@bucket/{path}{'&' if 'localhost' in path else '?'}region=eu-west-1"
    assert open_location(s3)[1] == f"bucket/{opened}"
    # What precedes an @ can be a password with a slash.
    assert shown(s3) == (f"s3a://{opened.rpartition('@')[2]}" if "@" in opened else f"s3a://bucket/{opened}")
    assert shown(s3.replace("key:secret@", "")) == f"s3a://bucket/{opened}"


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("file:states", "relative path after the scheme 'file:'. Begin the path with a slash, as in file:/PATH"),
        ("file:./states", "relative path after the scheme 'file:'"),
        ("file:", "relative path after the scheme 'file:'"),
        ("hdfs:states", "relative path after the scheme 'hdfs:'. Begin the path with a slash, as in hdfs://HOST/PATH"),
        ("s3:key:hunter2@bucket/states", "relative path after the scheme 's3:'"),
        ("file://data/states", "host after 'file://', but a file has none. Write file:/PATH"),
        ("file://", "host after 'file://'"),
    ],
)
def test_a_location_that_hadoop_rejects_is_rejected_without_its_secrets(location: str, why: str) -> None:
    """Otherwise its states would be in the root directory of each machine."""
    for use in (open_location, files_below, directories_at):
        with pytest.raises(InvalidOption) as rejected:
            use(location)
        assert f"The location has a {why}" in str(rejected.value)
        assert "hunter2" not in str(rejected.value)
    assert not is_local(location)


def test_a_local_location_has_the_path_that_hadoop_has() -> None:
    for location in ("/data/states", "file:/data/states", "file:///data/states"):
        assert open_location(location)[1] == "/data/states"
        assert is_local(location)


# ---- names -----------------------------------------------------------------------------------------------------------

_NAMES = (
    st.text(max_size=8) | st.sampled_from(["..", ".", "~", "%2E", "a/b", "\0"]) | st.text(min_size=80, max_size=249)
)


@given(st.lists(_NAMES, min_size=1, max_size=4, unique=True))
@settings(max_examples=examples(30), deadline=None)
def test_S10_each_name_has_a_directory_of_its_own_below_the_location(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as root:
        location = Path(root) / "state"
        names = [name for name in names if name]
        for number, name in enumerate(names):
            files_below(str(location), name, name).write(FIRST, memoryview(b"x" * (number + 1)))
        assert {path.name for path in Path(root).iterdir()} <= {"state"}
        assert directories_at(str(location)) == sorted(names)
        for number, name in enumerate(names):
            assert directories_at(str(location), name) == [name]
            assert files_below(str(location), name, name).list() == {FIRST: number + 1}


@given(st.lists(_NAMES, min_size=2, max_size=2, unique=True), st.sampled_from([100, 240]))
def test_parts_of_paths_are_short_and_differ(names: list[str], max_bytes: int) -> None:
    first, second = (path_part(name, max_bytes) for name in names)
    assert first != second
    assert first not in (".", "..")
    assert len(first) <= max_bytes
    assert not set(first) & {"/", "\0"}
    assert is_hashed(first) or name_of(first) == names[0]


# ---- durable and private files ---------------------------------------------------------------------------------------


def _modes(root: Path) -> set[str]:
    return {oct(stat.S_IMODE(path.stat().st_mode)) for path in root.rglob("*")}


@pytest.mark.parametrize(("of_location", "of_files"), [(0o755, {"0o700", "0o600"}), (0o770, {"0o770", "0o660"})])
def test_other_users_access_no_state_unless_the_location_is_shared(
    tmp_path: Path, of_location: int, of_files: set[str]
) -> None:
    location = tmp_path / "state"
    location.mkdir()
    location.chmod(of_location)
    files_below(str(location), "billing", "windows").write(FIRST, memoryview(b"one"))
    assert _modes(location) == of_files
    files_below(str(tmp_path / "new" / "state"), "billing", "windows").write(FIRST, memoryview(b"one"))
    assert _modes(tmp_path / "new") == {"0o700", "0o600"}


def test_S10_a_state_file_survives_a_crash_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not synced is lost: the content, the entry of the file, and those of new directories."""
    synced: list[str] = []
    renamed: list[int] = []
    fsync, replace = os.fsync, os.replace

    def entry(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        fsync(number)

    def rename(old: str, new: str) -> None:
        renamed.append(len(synced))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", entry)
    monkeypatch.setattr(os, "replace", rename)
    files = files_below(str(tmp_path / "state"), "billing", "windows")
    directory = tmp_path / "state" / "billing" / "windows"
    files.write(FIRST, memoryview(b"one"))
    [at] = renamed
    assert {str(tmp_path), str(tmp_path / "state"), str(tmp_path / "state" / "billing")} <= set(synced[:at])
    assert (synced[at - 1], synced[at:]) == (str(directory / f".{FIRST}"), [str(directory)])
    synced.clear()
    files.write(SECOND, memoryview(b"two"))
    assert synced == [str(directory / f".{SECOND}"), str(directory)], "directories are synced once"


@pytest.mark.parametrize("removed", ["state", "state/billing", "state/billing/windows"])
def test_S10_a_directory_that_was_restored_is_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """Its path is the same, and often its inode too."""
    directory, restored = tmp_path / "state" / "billing" / "windows", tmp_path / removed
    files = files_below(str(tmp_path / "state"), "billing", "windows")
    files.write(FIRST, memoryview(b"one"))
    # The clock of the file system has ticks of up to 10 ms.
    time.sleep(0.02)
    # A backup restores all times that a program can set.
    shutil.copytree(restored, tmp_path / "backup")
    shutil.rmtree(restored)
    shutil.copytree(tmp_path / "backup", restored)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    files.write(SECOND, memoryview(b"two"))
    assert str(restored.parent) in synced
    assert synced[-2:] == [str(directory / f".{SECOND}"), str(directory)]


def test_C3_files_of_one_operation_survive_a_crash_of_the_machine_after_one_sync_of_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    files, directory = files_below(str(tmp_path / "state"), "billing", "windows"), tmp_path / "state/billing/windows"
    files.sync()
    files.create()
    assert {str(directory.parent), str(tmp_path / "state"), str(tmp_path)} <= set(synced)
    synced.clear()
    for file in (FIRST, SECOND):
        files.write_parts(file, [b"one", b"two"])
    files.sync()
    assert synced == [*(str(directory / f".{it}") for it in (FIRST, SECOND)), str(directory)]
    assert bytes(files.read(SECOND)) == b"onetwo"


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk would fill further with each attempt."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = files_below(str(tmp_path), "billing", "windows")
    files.write(FIRST, memoryview(b"one"))
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateUnreachable, match="No space left on device"):
        files.write(SECOND, memoryview(b"two"))
    assert [path.name for path in (tmp_path / "billing" / "windows").iterdir()] == [str(FIRST)]


@pytest.mark.parametrize("is_there", [True, False])
def test_C3_an_interrupted_write_of_a_local_file_leaves_the_file_before_it(tmp_path: Path, is_there: bool) -> None:
    """A committed offset can name it."""

    def parts() -> Iterator[bytes]:
        yield b"t"
        raise KeyboardInterrupt

    files = files_below(str(tmp_path), "billing", "windows")
    if is_there:
        files.write(FIRST, memoryview(b"one"))
    with pytest.raises(KeyboardInterrupt):
        files.write_parts(FIRST, parts())
    found = [(path.name, path.read_bytes()) for path in (tmp_path / "billing" / "windows").iterdir()]
    assert found == ([(str(FIRST), b"one")] if is_there else [])


def test_C3_an_interrupted_upload_leaves_no_object() -> None:
    def parts() -> Iterator[bytes]:
        yield b"t"
        raise KeyboardInterrupt

    store = fs._MockFileSystem()
    store.create_dir("bucket/billing/windows")
    files = StateDirectory(store, "bucket", ("billing", "windows"), "s3://bucket")
    with pytest.raises(KeyboardInterrupt):
        files.write_parts(FIRST, parts())
    assert files.list() == {}


def test_S10_ages_are_those_of_the_storage(tmp_path: Path) -> None:
    """The name of the first file is of 2024, and its content was written two minutes ago."""
    files = files_below(str(tmp_path), "billing", "windows")
    assert files.survey() == Survey({}, {})
    files.write(FIRST, memoryview(b"one"))
    directory = tmp_path / "billing" / "windows"
    (directory / f".{SECOND}").write_bytes(b"unfinished")
    written_s = time.time() - 120
    for path in directory.iterdir():
        os.utime(path, (written_s, written_s))
    survey = files.survey()
    for found, file, size in ((survey.files, FIRST, 3), (survey.unfinished, SECOND, 10)):
        age_ms = found[file].age_ms
        assert (list(found), found[file].n_bytes) == ([file], size)
        assert age_ms is not None
        assert 110_000 < age_ms < 3_600_000
    files.delete_unfinished([SECOND, FIRST])
    assert [path.name for path in directory.iterdir()] == [str(FIRST)]


def test_S10_two_tasks_write_the_name_of_a_directory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found no name. The second one writes it while the first one does."""
    name, replace = "x" * 300, os.replace
    one, other = (files_below(str(tmp_path), name) for _ in range(2))

    def rename(old: str, new: str) -> None:
        monkeypatch.setattr(os, "replace", replace)
        other.write(SECOND, memoryview(b"two"))
        replace(old, new)

    monkeypatch.setattr(os, "replace", rename)
    one.write(FIRST, memoryview(b"one"))
    assert directories_at(str(tmp_path)) == [name]
    assert files_below(str(tmp_path), name).list() == {FIRST: 3, SECOND: 3}
