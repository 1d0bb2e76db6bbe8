"""Statistics and the way round of ratios: a figure that is quoted must be the right one, whichever way better is."""

from __future__ import annotations

import doctest
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.figures import (
    MS,
    RECORDS_PER_S,
    Figure,
    Missing,
    S,
    Unit,
    compare,
    median_of,
    percentile,
    percentile_of,
    ratio,
)

NUMBERS = st.floats(min_value=0.001, max_value=1e9)
SAMPLES = st.lists(NUMBERS, min_size=1, max_size=50)


@pytest.mark.parametrize(
    "name", ["figures", "rounds", "tables", "memory", "timed_topics", "streams_peer", "moves", "paced_producer"]
)
def test_examples_in_docstrings(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"benchmarks.{name}"))
    assert tried
    assert not failed


@given(NUMBERS, NUMBERS, st.sampled_from([RECORDS_PER_S, MS, S]))
def test_a_ratio_above_one_means_that_we_are_better(own: float, other: float, unit: Unit) -> None:
    better = own > other if unit.more_is_better else own < other
    assert (ratio(own, other, unit) > 1) == better or ratio(own, other, unit) == pytest.approx(1)


@given(st.lists(NUMBERS, min_size=1, max_size=9))
def test_a_median_lies_within_its_spread(rounds: list[float]) -> None:
    figure = median_of(rounds)
    assert figure.low == min(rounds)
    assert figure.high == max(rounds)
    assert figure.low <= figure.value <= figure.high
    assert figure.rounds == len(rounds)


@given(SAMPLES, st.integers(1, 98))
def test_percentiles_rise(samples: list[float], percent: int) -> None:
    here, above = percentile(samples, percent), percentile(samples, percent + 1)
    assert here <= above or here == pytest.approx(above)
    assert min(samples) <= here or here == pytest.approx(min(samples))


def test_a_percentile_is_of_all_rounds_together() -> None:
    calm, wild = [10.0] * 99, [10.0] * 98 + [500.0]
    figure = percentile_of([calm, wild], 50)
    assert figure == Figure(10.0, 10.0, 10.0, 2)
    assert percentile_of([calm, [500.0] * 99], 99) == Figure(500.0, 10.0, 500.0, 2)


@pytest.mark.parametrize(("unit", "fastest"), [(RECORDS_PER_S, "b"), (MS, "a")])
def test_the_ratio_is_to_the_fastest_setting_of_a_peer(unit: Unit, fastest: str) -> None:
    found = {"us": median_of([20.0]), "a": median_of([10.0]), "b": median_of([40.0]), "other": median_of([20.0])}
    rows = compare("read", unit, found, own="us", alternatives=("a", "b"))
    assert rows[0].peer == fastest
    assert rows[0].ratio == 0.5
    slower = next(row for row in rows if row.peer in {"a", "b"} - {fastest})
    assert slower.ratio is None
    assert next(row for row in rows if row.peer == "other").ratio == 1.0


def test_a_setting_that_failed_leaves_the_ratio_to_the_other() -> None:
    found = {"us": median_of([20.0]), "a": Missing("a: it broke"), "b": median_of([40.0])}
    rows = compare("read", RECORDS_PER_S, found, own="us", alternatives=("a", "b"))
    assert [(row.peer, row.ratio) for row in rows] == [("b", 0.5), ("a", None)]
    assert [row.failures for row in rows] == [(), ("a: it broke",)]


def test_without_our_figure_there_is_no_ratio() -> None:
    rows = compare("read", S, {"us": Missing("us: it broke"), "a": median_of([1.0])}, own="us", alternatives=("a",))
    assert [(row.ratio, row.failures) for row in rows] == [(None, ("us: it broke",))]


def test_what_cannot_be_had_is_no_failure() -> None:
    rows = compare("read", S, {"us": median_of([1.0]), "a": Missing("not installed", is_failure=False)}, own="us")
    assert [(row.ratio, row.failures) for row in rows] == [(None, ())]
