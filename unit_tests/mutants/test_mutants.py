"""The list of mutants applies to the code as it is, and its runner counts rightly. None is tried here: ``make mutants``."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from unit_tests.mutants import runner
from unit_tests.mutants.lists import MUTANTS
from unit_tests.mutants.mutant import Mutant, SnippetNotFound, check
from unit_tests.mutants.related import stages
from unit_tests.mutants.results import Result, ResultFile, fingerprint, score
from unit_tests.mutants.workshop import Tried, WorkshopError

ROOT = Path(__file__).parent.parent.parent
FAULT = Mutant("A1", "example", "streamgroups/faulty.py", "a < b", "a <= b", "the bound")
ALL = ("unit_tests",)


def test_every_mutant_applies_to_the_code() -> None:
    assert len(MUTANTS) >= 150
    assert check(MUTANTS, ROOT) == []


def test_every_mutant_changes_something_and_names_what_it_breaks() -> None:
    assert [m.id for m in MUTANTS if m.old == m.new or not m.breaks] == []


@pytest.mark.parametrize("file", sorted({m.file for m in MUTANTS}))
def test_there_are_tests_of_the_neighbours(file: str) -> None:
    *near, all_of_them = stages(file, ROOT)
    assert [path for stage in near for path in stage if "test_doctests" not in path]
    assert all_of_them == ALL


@pytest.mark.parametrize("text", ["", "a < b or a < b"])
def test_a_snippet_that_is_not_there_once_is_an_error_that_names_the_mutant(text: str, tmp_path: Path) -> None:
    (tmp_path / "streamgroups").mkdir()
    (tmp_path / FAULT.file).write_text(text)
    with pytest.raises(SnippetNotFound, match=r"Mutant A1: .* streamgroups/faulty\.py"):
        FAULT.applied_to(text)
    (wrong,) = check((FAULT,), tmp_path)
    assert "A1" in wrong


def test_an_id_is_given_once_and_the_file_must_be_there(tmp_path: Path) -> None:
    twice, missing, missing_too = check((FAULT, FAULT), tmp_path)
    assert "twice" in twice
    assert "faulty.py" in missing
    assert "faulty.py" in missing_too


def test_results_are_of_the_code_they_were_made_with(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "new" / "results.jsonl", "one")
    assert file.read() == {}
    killed = Result("A1", True, "test_a", 1.5)
    file.add(killed)
    ResultFile(tmp_path / "new" / "results.jsonl", "other").add(Result("A1", False, "", 2.0))
    assert file.read() == {"A1": killed}


def test_a_change_of_the_code_or_of_a_test_is_another_code(tmp_path: Path) -> None:
    for folder in ("streamgroups", "connectors", "unit_tests"):
        (tmp_path / folder).mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "streamgroups/a.py", "unit_tests/test_a.py"):
        (tmp_path / name).write_text("1")
    before = fingerprint(tmp_path)
    assert fingerprint(tmp_path) == before
    (tmp_path / "unit_tests/test_a.py").write_text("2")
    assert fingerprint(tmp_path) != before


def test_equivalents_and_what_was_not_tried_do_not_count() -> None:
    survivor = Mutant("A2", "example", FAULT.file, "c", "d", "x")
    equivalent = Mutant("A3", "example", FAULT.file, "c", "d", "x", equivalent="it makes no difference")
    untried = Mutant("A4", "example", FAULT.file, "c", "d", "x")
    results = {r.id: r for r in (Result("A1", True, "t", 1), Result("A2", False, "", 1), Result("A3", False, "", 1))}
    assert score([FAULT, survivor, equivalent, untried], results) == 50.0


class Copy:
    """A workshop in which some tests fail with a mutant, and some without one."""

    def __init__(self, *, kill: set[tuple[str, ...]] = frozenset(), broken: bool = False, rejection: str = "") -> None:  # type: ignore[assignment]
        self.kill, self.broken, self.rejection = kill, broken, rejection
        self.runs: list[tuple[str, ...]] = []
        self.is_mutated = False

    def mutated(self, mutant: Mutant) -> Copy:
        return self

    def __enter__(self) -> str:
        self.is_mutated = True
        return self.rejection

    def __exit__(self, *_: object) -> None:
        self.is_mutated = False

    def check_passing(self, tests: tuple[str, ...]) -> None:
        assert not self.is_mutated
        assert tests == ("test_a",)
        if self.broken:
            raise WorkshopError("broken")

    def run(self, tests: tuple[str, ...]) -> Tried:
        assert self.is_mutated
        self.runs.append(tests)
        return Tried(False, "test_a", ("test_a",)) if tests in self.kill else Tried(True, "")


def test_a_survivor_of_one_stage_meets_the_next() -> None:
    own, near, everything = stages(FAULT.file, ROOT)
    assert own == ("unit_tests/test_doctests.py::test_examples[streamgroups.faulty]",)
    assert everything == ALL
    copies = [Copy(kill={own}), Copy(kill={near}), Copy(kill={everything}), Copy()]
    outcomes = [runner.try_one(copy, FAULT) for copy in copies]  # type: ignore[arg-type]
    assert [(o.killed, o.by) for o in outcomes] == [(True, "test_a")] * 3 + [(False, "")]
    assert [copy.runs for copy in copies] == [[own], [own, near], [own, near, ALL], [own, near, ALL]]


def test_what_the_compiler_rejects_is_killed_and_needs_no_tests() -> None:
    copy = Copy(rejection="no such name")
    assert runner.try_one(copy, FAULT).killed  # type: ignore[arg-type]
    assert copy.runs == []


def test_a_test_that_fails_without_a_mutant_kills_none() -> None:
    with pytest.raises(WorkshopError, match="broken"):
        runner.try_one(Copy(kill={ALL}, broken=True), FAULT)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", [["A99"], ["--area", "nowhere"]])
def test_unknown_names_are_rejected(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(arguments) == 2
    assert arguments[-1] in capsys.readouterr().err


@pytest.mark.parametrize(("killed", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_depends_on_the_score(
    killed: bool, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.jsonl"
    ResultFile(path, fingerprint(ROOT)).add(Result("A1", killed, "test_a", 1.0))
    assert runner.main(["A1", "--results", str(path)]) == code
    assert "100.0 %" in capsys.readouterr().out if killed else "Survivors" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["mutant", "results"])
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(f"unit_tests.mutants.{name}"))
    assert not failed
