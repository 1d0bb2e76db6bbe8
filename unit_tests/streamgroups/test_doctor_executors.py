"""The results of ``streamgroups doctor --executors``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamgroups.doctor.check_results import CheckResult, State
from streamgroups.doctor.executor_checks import Executor, judge_executors

DRIVER: dict[str, str | None] = {"streamgroups": "1.0", "pyarrow": "18.0"}
FINE = Executor("node-1", 7, "/opt/python", "3.11.2", DRIVER, reader="native")


def only(executors: list[Executor], expected: int | None = None) -> CheckResult:
    (result,) = judge_executors(executors, len(executors) if expected is None else expected, DRIVER)
    assert result.about == "executors"
    return result


def test_equal_executors_share_a_result() -> None:
    result = only([FINE, replace(FINE, process=8), replace(FINE, host="node-2")])
    assert (result.state, result.remedy, result.in_use) == (State.OK, "", "3.11.2")
    assert result.what == (
        "3 executors, on node-1, node-2: /opt/python, Python 3.11.2, pyarrow 18.0, streamgroups 1.0, native reader."
    )


def test_two_kinds_of_sound_executors_have_two_results() -> None:
    found = judge_executors([FINE, replace(FINE, host="node-2", interpreter="/usr/bin/python3")], 2, DRIVER)
    assert [it.state for it in found] == [State.OK, State.OK]
    assert found[1].what.startswith("1 of 2 executors, on node-2: /usr/bin/python3")


def test_executors_without_the_library() -> None:
    bare = [Executor(f"node-{n}", 7, "/usr/bin/python3", "3.11.2", {}, "No module named 'pyarrow'") for n in range(7)]
    result = only([FINE, *bare])
    assert result.state is State.PROBLEM
    assert result.what == (
        "7 of 8 executors, on node-0, node-1, node-2, node-3, node-4 and 2 more: /usr/bin/python3 (Python 3.11.2) cannot import "
        "streamgroups: No module named 'pyarrow'. Every task fails there."
    )
    assert "/usr/bin/python3 -m pip install WHEEL" in result.remedy


@pytest.mark.parametrize(
    ("versions", "state", "what"),
    [
        ({"pyarrow": "17.0"}, State.WARNING, "1 executor, on node-1: pyarrow 17.0; driver 18.0."),
        ({"streamgroups": "0.9"}, State.PROBLEM, "1 executor, on node-1: streamgroups 0.9; driver 1.0. Tasks fail."),
        ({"pyarrow": None}, State.PROBLEM, "1 executor, on node-1: pyarrow is missing; driver 18.0. Tasks fail."),
    ],
)
def test_other_versions(versions: dict[str, str | None], state: State, what: str) -> None:
    result = only([replace(FINE, versions={**DRIVER, **versions})])
    assert (result.state, result.what) == (state, what)


def test_the_plain_reader_is_a_warning() -> None:
    result = only([replace(FINE, reader="plain", why_plain="The extension is missing.", remedy="Build it.")])
    assert (result.state, result.remedy, result.in_use) == (State.WARNING, "Build it.", "plain")
    assert result.what == (
        "1 executor, on node-1: the plain reader, which is several times slower. The extension is missing."
    )


def test_brokers_that_executors_cannot_reach() -> None:
    result = only([FINE, replace(FINE, host="node-2", unreachable={"kafka-1:9092": "unknown host"})])
    assert result.state is State.PROBLEM
    assert result.what.startswith("1 of 2 executors, on node-2: brokers cannot be reached")
    assert result.what.endswith("kafka-1:9092: unknown host.")


def test_executors_that_did_not_answer() -> None:
    assert only([FINE], 3).what == "1 of 3 executors answered in time, so the others are not checked."
    assert only([], 0).state is State.PROBLEM
