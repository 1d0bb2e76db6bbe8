"""The version of a PySpark that pip did not install."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamgroups_spark.ops.probe import pyspark_without_pip

VERSION = '__version__: str = "4.2.7"\n'


@pytest.fixture
def no_other_pyspark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another PySpark is not imported yet, as in a new process."""
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    yield
    monkeypatch.undo()


@pytest.mark.usefixtures("no_other_pyspark")
def test_pyspark_of_a_directory_and_of_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "python" / "pyspark"
    package.mkdir(parents=True)
    files = {"__init__.py": "", "version.py": VERSION}
    with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as archive:
        for name, text in files.items():
            (package / name).write_text(text)
            archive.writestr(f"pyspark/{name}", text)
    for place in (tmp_path / "python", tmp_path / "pyspark.zip"):
        with monkeypatch.context() as patched:
            patched.syspath_prepend(place)
            assert pyspark_without_pip() == "4.2.7"


@pytest.mark.usefixtures("no_other_pyspark")
def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert pyspark_without_pip() is None
