"""Checks a schema registry for ``streamgroups connections test``: its login and its subjects."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from streamgroups.doctor.check_results import CheckResult, ok, problem


def judge_subjects(url: str, existing: Collection[str], expected: Sequence[str]) -> list[CheckResult]:
    """Returns the check results of a registry.

    Args:
        url: its URL.
        existing: the subjects that this user may read.
        expected: subjects that must exist.

    >>> [it.state.value for it in judge_subjects("http://localhost:8081", ["a-value"], ["a-value", "b-value"])]
    ['ok', 'ok', 'problem']
    """
    found = [ok("login", f"The registry at {url} accepts it.", f"{len(existing)} subjects")]
    for name in expected:
        if name in existing:
            found.append(ok("subject", f"Subject '{name}' exists."))
        else:
            found.append(
                problem(
                    "subject",
                    f"Subject '{name}' does not exist, or this user may not read it.",
                    "Register it, or correct its name, which is usually '<topic>-value'.",
                )
            )
    return found
