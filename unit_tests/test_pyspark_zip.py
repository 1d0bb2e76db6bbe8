"""``pyspark.zip`` of a Spark home: no command changes it, because running processes import from it; an image's build may."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from streamgroups_cli.command_line import app
from unit_tests.documents import ROOT

MODULES = {f"pyspark/{name}.py": f"VALUE = '{name}'\n" * 50 for name in ("__init__", "early", "late")}
#: A driver or a worker of Spark: Python reads the index of the file once, and opens the file for each module.
RUNNING = "import pyspark.early; print('running', flush=True); input(); import pyspark.late; print(pyspark.late.VALUE)"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "python" / "lib" / "pyspark.zip"
    file.parent.mkdir(parents=True)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in MODULES.items():
            archive.writestr(name, text)
    return file


def lines_of_commands() -> Iterator[list[str]]:
    """All commands, without options and arguments."""
    todo: list[tuple[list[str], Any]] = [([], typer.main.get_command(app))]
    while todo:
        words, command = todo.pop()
        if hasattr(command, "commands"):
            todo.extend(([*words, name], it) for name, it in command.commands.items())
        else:
            yield words


def test_a_running_process_imports_after_each_command(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(file.parents[2]))
    # No command connects to a cluster of the user.
    monkeypatch.setenv("STREAMGROUPS_CONFIG", "/nonexistent/config.toml")
    for name in ("STREAMGROUPS_BOOTSTRAP_SERVER", "STREAMGROUPS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    before = file.read_bytes()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-S", "-c", RUNNING], env={"PYTHONPATH": str(file)}, text=True, **pipes
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        for line in lines_of_commands():
            # These start Java: the doctor of a cluster, and the embedded broker.
            if line[0] not in ("doctor", "broker"):
                CliRunner().invoke(app, line)
            assert file.read_bytes() == before, line
        output, errors = process.communicate("\n", timeout=60)
    assert output == "late\n", errors


def test_the_build_of_the_image_adds_bytecode(file: Path) -> None:
    dockerfile = (ROOT / "docker" / "spark" / "Dockerfile").read_text(encoding="utf-8")
    (script,) = (it for it in dockerfile.split("\nRUN ") if it.startswith("cd /opt/spark/python/lib"))
    script = script.split("\n# ")[0].replace("\\\n", " ").replace("/opt/spark/python/lib", str(file.parent))
    script = script.replace("/opt/streamgroups/bin/python", sys.executable)
    assert "/opt" not in script.replace(sys.executable, "")
    subprocess.run(["sh", "-e", "-c", script], check=True, timeout=60)
    assert os.listdir(file.parent) == ["pyspark.zip"]
    program = "import pyspark.late; print(pyspark.late.__spec__.loader.get_filename('pyspark.late'))"
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], env={"PYTHONPATH": str(file)}, capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{file}/pyspark/late.pyc\n"
