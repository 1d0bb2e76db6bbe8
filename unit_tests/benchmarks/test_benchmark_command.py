"""A family that fails gives a line with the reason, and the others are measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast
from unittest.mock import MagicMock

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
    *_, rows = command.measure(NO_BENCH, ["half", "good"])
    assert [row.what for row in rows] == ["good", "half", "good"]
    assert [row.failures for row in rows] == [(), ("streamgroups: OSError: no space left",), ()]


def test_every_family_can_be_selected_by_name() -> None:
    assert command._parser().parse_args(["--only", *command.FAMILIES]).only == list(command.FAMILIES)
    with pytest.raises(SystemExit):
        command._parser().parse_args(["--only", "nothing"])


@pytest.mark.parametrize(("own_s", "exit_code"), [(1.0, 0), (3.0, 1)])
def test_a_line_below_its_bound_is_printed_and_is_an_error_of_check(
    own_s: float, exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = compare("good", S, {"us": median_of([own_s]), "them": median_of([2.0])}, own="us")
    monkeypatch.setattr(command, "EmbeddedKafka", MagicMock())
    monkeypatch.setattr(command, "session", MagicMock())
    monkeypatch.setattr(command, "machine", lambda *_: {})
    monkeypatch.setattr(command, "FAMILIES", {"good": lambda _: rows})
    assert command.main(["--only", "good"]) == 0
    assert command.main(["--only", "good", "--check"]) == exit_code
    assert ("good, against them: 0.67, below 1.0" in capsys.readouterr().out) == bool(exit_code)
