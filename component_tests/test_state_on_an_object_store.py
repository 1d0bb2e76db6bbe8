"""S10: state files on S3 keep the same contract as in a directory, without a rename."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from component_tests.object_store import BUCKET, ObjectStore
from streamgroups.state.file_names import StateFileName
from streamgroups_operators.locations import directories_at, files_below

#: The scheme as Spark resolves it, which Arrow does not support.
LOCATION = f"s3a://{BUCKET}/state"
FIRST, SECOND = (StateFileName(1732334000000 + n, "1f3a9c2b7d10", n, n) for n in (1, 2))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        for name, value in found.storage_options.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        yield found


def test_S10_files_are_written_listed_read_and_deleted(store: ObjectStore) -> None:
    files = files_below(LOCATION, "a/b", "windows")
    assert files.list() == {}
    files.write(FIRST, memoryview(b"one"))
    files.write(SECOND, memoryview(b"three"))
    again = files_below(LOCATION, "a/b", "windows")
    assert again.read(SECOND).tobytes() == b"three"
    assert again.list() == {FIRST: 3, SECOND: 5}
    assert directories_at(LOCATION, "a/b") == ["windows"]
    survey = again.survey()
    assert survey.files.keys() == again.list().keys()
    assert all(it.age_ms is not None and it.age_ms < 3_600_000 for it in survey.files.values())
    assert not again.survey().unfinished, "the file that shows the time of the storage is deleted"
    again.delete([FIRST])
    assert again.list() == {SECOND: 5}
    with pytest.raises(FileNotFoundError):
        again.read(FIRST)
