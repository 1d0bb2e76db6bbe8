"""S10: state files in a directory, and in memory, keep the same contract; secrets of a location are not shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streamgroups.errors import InvalidOption, StateUnreachable
from streamgroups.fakes.state_files import FakeStateFiles
from streamgroups.state.names import StateFileName
from streamgroups.state.state_files import StateFiles
from streamgroups_state.locations import operator_files, operators_at, shown

FIRST, SECOND = (StateFileName(1732334000000 + n, "1f3a9c2b7d10", n, n) for n in (1, 2))


@pytest.fixture(params=["memory", "directory", "uri"])
def new_files(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StateFiles]:
    memory = FakeStateFiles()
    location = tmp_path.as_uri() if request.param == "uri" else str(tmp_path)
    return (lambda: memory) if request.param == "memory" else lambda: operator_files(location, "a/b c", "windows")


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
    files = operator_files(str(tmp_path), "billing", "windows")
    files.write(FIRST, memoryview(b"one"))
    directory = tmp_path / "billing" / "windows"
    (directory / f".{SECOND}").write_bytes(b"unfinished")
    (directory / "README").write_text("by hand")
    (directory / "folder").mkdir()
    assert files.list() == {FIRST: 3}
    assert operators_at(str(tmp_path), "billing") == ["windows"]
    assert operators_at(str(tmp_path), "orders") == []


def test_S10_groups_and_operators_have_directories_of_their_own(tmp_path: Path) -> None:
    operator_files(str(tmp_path), "../x", "a/b").write(FIRST, memoryview(b"one"))
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.state")] == [f"..%2Fx/a%2Fb/{FIRST}"]
    assert operators_at(str(tmp_path), "../x") == ["a/b"]


def test_an_unsupported_location_is_rejected_without_its_secrets() -> None:
    with pytest.raises(InvalidOption, match="'ftp://host/state' is not supported"):
        operator_files("ftp://user:hunter2@host/state", "billing", "windows")


def test_a_location_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = operator_files(str(tmp_path / "file"), "billing", "windows")
    with pytest.raises(StateUnreachable, match="cannot be used: Not a directory"):
        files.write(FIRST, memoryview(b"one"))


def test_a_location_is_shown_without_credentials_and_parameters() -> None:
    assert shown("s3://key:hunter2@bucket/a/b?endpoint_override=localhost%3A9000") == "s3://bucket/a/b"
    assert shown("/data/state") == "/data/state"
