"""P2: a worker does not start a processor with code that it imported before an upgrade."""

from __future__ import annotations

import json
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streamgroups.errors import FunctionChanged
from streamgroups.instances.entries import Definition, Placement, Replica
from streamgroups.instances.instance_state import InstanceState
from streamgroups.processors.processor import Processor, Source, UserFunction
from streamgroups_spark.workers import replica_run
from streamgroups_spark.workers.imported_code import ImportedCode

OLD, NEW = "def enrich(df):\n    return 1\n", "def enrich(df):\n    return 2\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that can be imported until the test ends."""
    monkeypatch.syspath_prepend(str(tmp_path))
    directory = tmp_path / "airline_functions"
    directory.mkdir()
    for file, text in {
        "__init__": "",
        "flights": "from airline_functions.rates import *\n" + OLD,
        "rates": "R = 1\n",
    }.items():
        (directory / f"{file}.py").write_text(text)
    yield directory
    for name in [it for it in sys.modules if it.partition(".")[0] in ("airline_functions", "airline_archive")]:
        del sys.modules[name]


def named(reference: str) -> Processor:
    return Processor("late", Source("prod"), steps=(UserFunction(reference),))


FLIGHTS = named("airline_functions.flights:enrich")


@pytest.mark.parametrize("changed", ["flights", "rates", "__init__"])
def test_P2_code_that_was_changed_after_its_import_does_not_start(package: Path, changed: str) -> None:
    code = ImportedCode()
    code.check(FLIGHTS)
    code.check(FLIGHTS)
    file = package / f"{changed}.py"
    before = file.stat()
    # Neither its size nor its time shows the change.
    file.write_text(file.read_text().replace("1", "2") or "#")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(
            FunctionChanged, match=rf"'airline_functions\.flights:enrich' of processor 'late'.*{os.getpid()}.*Restart"
        ):
            code.check(FLIGHTS)


def test_removed_code_does_not_start(package: Path) -> None:
    code = ImportedCode()
    code.check(FLIGHTS)
    (package / "flights.py").unlink()
    with pytest.raises(FunctionChanged):
        code.check(FLIGHTS)


def test_the_same_code_that_is_installed_again_starts(package: Path) -> None:
    code = ImportedCode()
    code.check(FLIGHTS)
    for file in list(package.glob("*.py")):
        text = file.read_text()
        file.unlink()
        file.write_text(text)
        os.utime(file)
    code.check(FLIGHTS)


def test_the_code_of_another_package_is_not_compared(package: Path) -> None:
    code = ImportedCode()
    code.check(FLIGHTS)
    (package / "flights.py").write_text(NEW)
    code.check(named("builtins:OSError"))
    code.check(Processor("copy", Source("prod")))


def test_an_archive_is_compared(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = package.parent / "functions.zip"

    def write(text: str) -> None:
        with zipfile.ZipFile(archive, "w") as out:
            out.writestr("airline_archive/__init__.py", text)

    write(OLD)
    monkeypatch.syspath_prepend(str(archive))
    code, processor = ImportedCode(), named("airline_archive:enrich")
    code.check(processor)
    code.check(processor)
    write(NEW)
    with pytest.raises(FunctionChanged, match=r"functions\.zip"):
        code.check(processor)


@pytest.mark.parametrize("file", [None, "/no/such/file.py", "<frozen>", 7])
def test_code_without_a_file_starts(monkeypatch: pytest.MonkeyPatch, file: Any) -> None:
    module = ModuleType("airline_memory")
    module.__file__, module.__dict__["enrich"] = file, len
    monkeypatch.setitem(sys.modules, "airline_memory", module)
    code = ImportedCode()
    for _ in range(2):
        code.check(named("airline_memory:enrich"))


def test_a_namespace_package_and_compiled_code_can_start(package: Path) -> None:
    (package / "__init__.py").unlink()
    code = ImportedCode()
    for _ in range(2):
        code.check(FLIGHTS)
        code.check(named("math:sqrt"))


def test_the_step_reports_a_function_that_cannot_be_imported(package: Path) -> None:
    code, later = ImportedCode(), named("airline_functions.later:enrich")
    code.check(later)
    (package / "later.py").write_text(OLD)
    code.check(later)


def test_P2_a_replica_is_not_started_with_changed_code(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Processor] = []
    monkeypatch.setattr(replica_run, "run_processor", lambda declared, *_, **__: starts.append(declared))
    source = {"connection": "prod", "subscribe": "flights"}
    document = {"name": "late", "source": source, "steps": [{"function": "airline_functions.flights:enrich"}]}
    arguments: Any = (
        None,
        Definition("late", json.dumps({**document, "sink": {"format": "noop"}})),
        Placement(Replica("late", 0), "w1", 1, 1),
        threading.Event(),
        None,
        None,
    )
    run = replica_run.declared_replica("board", "a", InstanceState)
    run(*arguments)
    (package / "flights.py").write_text(NEW)
    with pytest.raises(FunctionChanged):
        run(*arguments)
    assert len(starts) == 1
