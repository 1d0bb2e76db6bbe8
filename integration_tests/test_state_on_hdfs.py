"""S10, S2: state files and checkpoints on HDFS keep the contract of a local directory: a file is visible as a whole.

HDFS is Hadoop's mini cluster, and its client is Hadoop's library or hdfs-native. Source: docs/deploy.rst, "YARN".
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from pyarrow import fs

from integration_tests.tiers import LONG
from integration_tests.yarn_cluster import hdfs_cluster
from streamgroups.errors import StateUnreachable
from streamgroups.state.file_names import StateFileName
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles
from streamgroups_operators.locations import StateDirectory, directories_at, files_below, open_location
from streamgroups_spark.bridge.checkpoint_log import CommitLog
from streamgroups_spark.bridge.unstarted_checkpoint import clear_unstarted

pytestmark = [LONG, pytest.mark.timeout(400)]
FIRST, SECOND = (StateFileName(1732334000000 + n, "1f3a9c2b7d10", n, n) for n in (1, 2))
END = '{"version": 2, "n": 1, "ranges": {"flights": {"0": [0, 5]}}, "resting": {}}'


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as uri:
        yield uri


@pytest.fixture
def location(hdfs: str) -> str:
    return f"{hdfs}/{uuid.uuid4().hex}"


def put(location: str, name: str, content: str) -> None:
    files, path = open_location(location)
    with files.open_output_stream(f"{path}/{name}") as out:
        out.write(content.encode())


def names_in(location: str) -> set[str]:
    files, path = open_location(location)
    found = files.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    return {it.base_name for it in found if it.type == fs.FileType.File}


def test_S10_files_are_written_listed_read_and_deleted(location: str) -> None:
    files = files_below(location, "a/b", "windows")
    assert files.list() == {}
    files.write(FIRST, memoryview(b"one"))
    files.write(SECOND, memoryview(b"three"))
    files.write(SECOND, memoryview(b"again"))
    again = files_below(location, "a/b", "windows")
    assert again.read(SECOND).tobytes() == b"again"
    assert again.list() == {FIRST: 3, SECOND: 5}
    assert directories_at(location, "a/b") == ["windows"]
    assert directories_at(location, "other") == []
    survey = again.survey()
    assert survey.files.keys() == again.list().keys()
    assert all(it.age_ms is not None and it.age_ms < 3_600_000 for it in survey.files.values())
    assert not again.survey().unfinished, "the file that shows the time of the storage is deleted"
    again.delete([FIRST, FIRST])
    assert again.list() == {SECOND: 5}
    with pytest.raises(FileNotFoundError):
        again.read(FIRST)


def test_S10_a_large_file_is_read_as_it_was_written(location: str) -> None:
    content = bytes(range(256)) * 50_000
    files = files_below(location, "billing", "windows")
    files.write_parts(FIRST, (content[i : i + 1_000_000] for i in range(0, len(content), 1_000_000)))
    assert files.read(FIRST) == content
    assert b"".join(files.parts(FIRST)) == content
    files_of, path = open_location(location)
    with files_of.open_input_file(f"{path}/billing/windows/{FIRST}") as stored:
        stored.seek(stored.size() - 256)
        assert bytes(stored.read()) == bytes(range(256))


@pytest.mark.parametrize("is_there", [True, False])
def test_S10_a_file_is_visible_as_a_whole_or_not_at_all(location: str, is_there: bool) -> None:
    files = files_below(location, "billing", "windows")
    if is_there:
        files.write(FIRST, memoryview(b"one"))
    before = {FIRST: 3} if is_there else {}

    def parts() -> Iterator[bytes]:
        yield b"t"
        assert files.list() == before
        assert set(files.survey().unfinished) == {FIRST}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_parts(FIRST, parts())
    assert files.list() == before
    assert names_in(location) == ({str(FIRST)} if is_there else set())


def test_S10_an_unfinished_file_is_found_and_deleted(location: str) -> None:
    """A killed process leaves it, and the lease of its writer."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_write_and_die, args=(location,))
    process.start()
    process.join(60)
    files = files_below(location, "billing", "windows")
    assert files.list() == {}
    assert set(files.survey().unfinished) == {FIRST}
    files.delete_unfinished([FIRST])
    files.write(FIRST, memoryview(b"two"))
    assert names_in(location) == {str(FIRST)}


def _write_and_die(location: str) -> None:
    def parts() -> Iterator[bytes]:
        yield b"t"
        os.kill(os.getpid(), signal.SIGKILL)

    files_below(location, "billing", "windows").write_parts(FIRST, parts())


def test_S10_writers_at_once_disturb_no_file(location: str) -> None:
    """Each also writes the file with the name of the directory, which is too long for a path."""
    names = ("x" * 300, "windows")
    made = [StateFileName(1732334000000, f"{n:012x}", n, n) for n in range(4)]
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(location, names, str(it))) for it in made]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert files_below(location, *names).list() == dict.fromkeys(made, 3)
    assert directories_at(location) == ["x" * 300]


def _write(location: str, names: tuple[str, ...], file: str) -> None:
    files_below(location, *names).write(StateFileName.parse(file), memoryview(b"one"))


def test_S2_a_checkpoint_is_read_copied_and_repaired(location: str) -> None:
    left_over = "offsets/.0.7f8e0b0e-5a3f-4c55-9d7c-0c9a9a3a6b1d.tmp"
    put(location, "metadata", '{"id":"5f2c"}')
    put(location, left_over, "v1\n")
    [removed] = clear_unstarted(location)
    assert removed.endswith(left_over)
    assert clear_unstarted(location) == ()
    put(location, "offsets/0", "v1\n{}\n" + END)
    log = CommitLog(location)
    end = log.ends(0)["0"]
    assert not log.has_finished(end)
    put(location, "commits/0", "v1\n{}")
    assert log.has_finished(end)
    assert log.query_id() == "5f2c"
    source, target = CheckpointFiles(location), CheckpointFiles(f"{location}-copy")
    for path in source.below():
        target.copy(path, source)
    assert {path: it.size for path, it in target.below().items()} == {
        path: it.size for path, it in source.below().items()
    }
    target.clear()
    assert not target.below()


def test_S10_the_name_of_a_location_is_a_text(location: str) -> None:
    """Hadoop does not decode it."""
    names = {"a b", "a%20b", "a#b"}
    for name in names:
        files_below(f"{location}/{name}", "billing", "windows").write(FIRST, memoryview(name.encode()))
    files, path = open_location(location)
    assert {it.base_name for it in files.get_file_info(fs.FileSelector(path))} == names
    for name in names:
        assert files_below(f"{location}/{name}", "billing", "windows").read(FIRST).tobytes() == name.encode()


def test_a_place_that_cannot_be_written_is_an_error(location: str) -> None:
    put(location, "file", "x")
    files: StateDirectory = files_below(f"{location}/file", "billing", "windows")
    with pytest.raises(StateUnreachable, match="cannot be used"):
        files.write(FIRST, memoryview(b"one"))
