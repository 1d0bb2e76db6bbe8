"""The jobs of CI together run what ``make test`` runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
JOBS: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]


def _targets(job: str) -> set[str]:
    commands = [step["run"] for step in JOBS[job]["steps"] if "run" in step]
    return {target for line in commands if line.startswith("make ") for target in line.split()[1:] if target[0] != "-"}


def test_the_jobs_run_all_targets_of_make_test() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"^test:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    expected = {it for line in recipe.split("\n") for it in line.split()[1:] if not it.startswith("-")}
    assert expected >= {"unit", "lint", "integration"}
    assert _targets("checks") | _targets("integration") == expected


def test_checks_need_no_broker() -> None:
    assert _targets("checks") == {"lint", "unit", "docs"}


def test_a_skipped_test_fails_as_in_the_script() -> None:
    (required,) = re.findall(r"^export STREAMGROUPS_REQUIRE=(\S+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert {job["env"]["STREAMGROUPS_REQUIRE"] for job in JOBS.values()} == {required}
