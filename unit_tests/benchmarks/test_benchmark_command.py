"""A family that fails gives a line with the reason, and the others are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from benchmarks import command
from benchmarks.bench import Bench
from benchmarks.figures import Row, S, compare, median_of

GOOD = compare("good", S, {"us": median_of([1.0]), "them": median_of([2.0])}, own="us")
NO_BENCH = cast(Bench, None)


def _good(_: Bench) -> list[Row]:
    return GOOD


def _half(_: Bench) -> Iterator[Row]:
    yield from GOOD
    raise OSError("no space left")


def test_a_failure_is_reported_and_the_other_families_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FAMILIES", {"half": _half, "good": _good})
    rows = command.measure(NO_BENCH, ["half", "good"])
    assert [row.what for row in rows] == ["good", "half", "good"]
    assert [row.failures for row in rows] == [(), ("streamgroups: OSError: no space left",), ()]


def test_every_family_can_be_selected_by_name() -> None:
    assert command._parser().parse_args(["--only", *command.FAMILIES]).only == list(command.FAMILIES)
    with pytest.raises(SystemExit):
        command._parser().parse_args(["--only", "nothing"])
