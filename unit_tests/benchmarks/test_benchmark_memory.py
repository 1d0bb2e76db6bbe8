"""Growth is distinguished from noise and from warm-up, and a process that has ended proves nothing."""

from __future__ import annotations

import random

import pytest

from benchmarks.memory import MIB, Sample, growths, objections

ROLES = ("worker",)


def _samples(mib_at: dict[int, float], pid: int = 1, role: str = "worker") -> list[Sample]:
    return [Sample(float(at_s), pid, role, int(mib * MIB)) for at_s, mib in mib_at.items()]


def test_warming_up_is_no_growth() -> None:
    samples = _samples({s: 50 + min(s, 200) for s in range(0, 601, 2)})
    assert objections(growths(samples, 200, 600), ROLES, 0.25) == []


@pytest.mark.parametrize("leak_mib_per_min", [0.5, 5.0])
def test_a_leak_is_seen_through_noise(leak_mib_per_min: float) -> None:
    noise = random.Random(4)
    samples = _samples({s: 100 + leak_mib_per_min * s / 60 + noise.uniform(-1, 1) for s in range(0, 601, 2)})
    (growth,) = growths(samples, 200, 600)
    assert growth.mib_per_min == pytest.approx(leak_mib_per_min, abs=0.2)
    assert len(objections([growth], ROLES, 0.25)) == 1


def test_one_step_of_an_allocator_passes() -> None:
    samples = _samples({s: 100 + (1 if s > 400 else 0) for s in range(0, 601, 2)})
    assert objections(growths(samples, 200, 600), ROLES, 0.25) == []


def test_a_process_that_was_replaced_is_not_judged_and_is_missed() -> None:
    samples = [
        *_samples(dict.fromkeys(range(0, 300, 2), 100.0)),
        *_samples(dict.fromkeys(range(300, 601, 2), 100.0), pid=2),
    ]
    found = growths(samples, 200, 600)
    assert [g.mib_per_min for g in found] == [None, None]
    assert objections(found, ROLES, 0.25) == ["no worker lived through the whole time"]


def test_roles_that_are_not_required_may_grow() -> None:
    samples = [
        *_samples(dict.fromkeys(range(0, 601, 2), 100.0)),
        *_samples({s: float(s) for s in range(0, 601, 2)}, 9, "JVM"),
    ]
    assert objections(growths(samples, 200, 600), ROLES, 0.25) == []
