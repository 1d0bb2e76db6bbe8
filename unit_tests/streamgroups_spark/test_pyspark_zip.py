"""``streamgroups precompile``: processes of Spark import PySpark from its zip file without compiling it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamgroups_cli.command_line import app
from streamgroups_spark.ops.pyspark_zip import add_bytecode, has_bytecode, pyspark_zip

MODULES = {"pyspark/__init__.py": "VALUE = 7\n", "pyspark/sql/__init__.py": "", "pyspark/sql/marks.txt": "text"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark home with a small ``pyspark.zip``."""
    file = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    file.parent.mkdir(parents=True)
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in MODULES.items():
            archive.writestr(name, text)
    file.chmod(0o644)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    return tmp_path / "spark"


def precompile(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["precompile", *arguments], env={"COLUMNS": "500"})


def origin(file: Path) -> list[str]:
    """What another Python imports from the file: the kind of its loaded code, and a value of it."""
    script = "import pyspark, pyspark.sql; print(pyspark.__spec__.loader.get_filename('pyspark')); print(pyspark.VALUE)"
    command = [sys.executable, "-v", "-S", "-c", script]
    result = subprocess.run(command, env={"PYTHONPATH": str(file)}, capture_output=True, text=True, check=True)
    return result.stdout.split()


def test_a_module_is_imported_from_its_bytecode(home: Path) -> None:
    file = pyspark_zip()
    assert file == home / "python" / "lib" / "pyspark.zip"
    assert origin(file) == [f"{file}/pyspark/__init__.py", "7"]
    assert not has_bytecode(file)
    assert add_bytecode(file) == 2
    assert has_bytecode(file)
    assert origin(file) == [f"{file}/pyspark/__init__.pyc", "7"]
    assert file.stat().st_mode & 0o777 == 0o644
    assert os.listdir(file.parent) == ["pyspark.zip"]
    with zipfile.ZipFile(file) as archive:
        assert set(archive.namelist()) >= set(MODULES)


def test_bytecode_of_another_python_is_replaced(home: Path) -> None:
    file = home / "python" / "lib" / "pyspark.zip"
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("pyspark/__init__.pyc", b"another")
    assert not has_bytecode(file)
    assert origin(file)[1] == "7"
    add_bytecode(file)
    assert has_bytecode(file)
    assert origin(file) == [f"{file}/pyspark/__init__.pyc", "7"]


def test_the_command_adds_bytecode_once(home: Path) -> None:
    first, second = precompile(), precompile("--spark-home", str(home))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "Added the bytecode of 2 modules to " in first.stderr
    assert "contains the bytecode of this Python" in second.stderr


def test_a_directory_without_the_file_is_rejected(tmp_path: Path) -> None:
    result = precompile("--spark-home", str(tmp_path))
    assert result.exit_code != 0
    assert "contains no file python/lib/pyspark.zip" in str(result.exception)


def test_a_damaged_file_stays(home: Path) -> None:
    file = home / "python" / "lib" / "pyspark.zip"
    file.write_bytes(b"PK, but no zip file")
    result = precompile()
    assert result.exit_code != 0
    assert f"cannot be added to {file}" in str(result.exception)
    assert file.read_bytes() == b"PK, but no zip file"
    assert os.listdir(file.parent) == ["pyspark.zip"]
