"""S10: files on HDFS are visible as a whole; without a client of HDFS an error names the remedy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from streamgroups.errors import MissingExtra
from streamgroups_operators import hdfs
from streamgroups_operators.hdfs import write_and_rename
from streamgroups_operators.locations import files_below
from streamgroups_spark.bridge.unstarted_checkpoint import clear_unstarted


@pytest.fixture
def without_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "_by_hadoop", lambda _: None)
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    hdfs._native.cache_clear()


@pytest.mark.usefixtures("without_clients")
def test_without_a_client_of_hdfs_the_error_names_its_extra() -> None:
    for use in (lambda: files_below("hdfs://namenode/state", "billing"), lambda: clear_unstarted("hdfs:///checkpoint")):
        with pytest.raises(MissingExtra, match=r"libhdfs\.so.*pip install '\.\[hdfs\]'.*ARROW_LIBHDFS_DIR"):
            use()


def test_a_location_on_hdfs_has_the_directory_that_hadoop_has(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(hdfs, "_by_hadoop", opened.append)
    monkeypatch.setattr(hdfs, "_native", lambda name_node, _: name_node)
    for uri in ("hdfs://namenode:8020/a b%20/#1?", "hdfs:///a b%20/#1?"):
        assert hdfs.open_hdfs(uri) == (uri.partition("/a")[0], "/a b%20/#1?")
    assert opened[0] == "hdfs://namenode:8020/a%20b%2520/%231%3F", "Arrow decodes it"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_interrupted_write_leaves_the_file_before_it(tmp_path: Path, is_there: bool) -> None:
    """A file is never visible in part: a search for states reads each file that it lists."""
    files, path = fs.LocalFileSystem(), str(tmp_path / "one.state")
    if is_there:
        write_and_rename(files, path, [b"one"])

    def parts() -> Iterator[bytes]:
        yield b"t"
        assert {it.name for it in tmp_path.iterdir()} == {".one.state"} | ({"one.state"} if is_there else set())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_rename(files, path, parts())
    assert {it.name: it.read_bytes() for it in tmp_path.iterdir()} == ({"one.state": b"one"} if is_there else {})
    write_and_rename(files, path, [b"t", memoryview(b"wo")])
    assert {it.name: it.read_bytes() for it in tmp_path.iterdir()} == {"one.state": b"two"}
