"""W10, W13: streams that follow each other's time, and what a join of them may release."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import InvalidOption
from streamgroups.event_time.imported_watermark import check_imports, way_of
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.source_time import SourceTime, add_partitions, advance_to, observe
from streamgroups.event_time.strategy import Generation
from streamgroups.event_time.watermark import NOT_YET, At, Watermark, earliest, latest
from unit_tests.streamgroups.event_time.strategies import PARTITIONS, PLAIN, STEPS, Steps, polls
from unit_tests.streamgroups.event_time.tables import clock, ms, rows

OWN = PLAIN


def following(stream: str, *, own: bool = False) -> TimeSettings:
    return TimeSettings(Generation() if own else None, stream)


def times(states: dict[str, SourceTime]) -> dict[str, Watermark]:
    return {name: state.watermark for name, state in states.items()}


def follow_imports(states: Mapping[str, SourceTime], streams: Mapping[str, TimeSettings]) -> dict[str, SourceTime]:
    """The streams after an observation of each, as the punctuation source advances them."""
    return {
        stream: advance_to(state, latest(*(states[name].watermark for name in way_of(stream, streams))))
        for stream, state in states.items()
    }


W10 = """
trades     prices alone   a join without import   prices follow   a join
12:00      none yet       none yet                12:00           12:00
12:05      11:00          11:00                   12:05           12:05
12:09      11:00          11:00                   12:09           12:09
12:09      12:30          12:09                   12:30           12:09
"""


def test_W10_a_join_is_as_quick_as_its_fastest_input() -> None:
    streams = {"trades": OWN, "prices": following("trades", own=True)}
    for trades, prices, without_import, followed, joined in rows(W10):
        own: Watermark = NOT_YET if prices == "none yet" else At(ms(prices))
        states = {"trades": SourceTime(At(ms(trades))), "prices": SourceTime(own)}
        assert clock(earliest(*times(states).values())) == without_import
        states = follow_imports(states, streams)
        assert clock(states["prices"].watermark) == followed
        assert clock(earliest(*times(states).values())) == joined


@pytest.mark.parametrize(
    ("streams", "named"),
    [
        ({"a": following("a", own=True)}, "'importFrom' of stream 'a' names the same stream"),
        (
            {"a": following("b"), "b": following("c"), "c": following("a")},
            "Stream 'a' has no watermark: it imports event time along a <- b <- c, and no",
        ),
    ],
)
def test_W10_imports_that_bring_no_time_are_rejected(streams: dict[str, TimeSettings], named: str) -> None:
    with pytest.raises(InvalidOption) as rejected:
        check_imports("a", streams)
    assert named in str(rejected.value)


@pytest.mark.parametrize(
    "streams",
    [{"a": following("b"), "c": OWN}, {"a": following("b"), "b": following("c")}, {"a": following("b", own=True)}],
)
def test_W10_a_group_of_another_application_is_possible(streams: dict[str, TimeSettings]) -> None:
    check_imports("a", streams)


def test_W10_a_stream_of_another_query_does_not_matter() -> None:
    """It may be of a query that has ended, and of rules that were edited since."""
    check_imports("c", {"a": following("b"), "c": OWN})


def test_W10_time_comes_along_the_way() -> None:
    streams = {"prices": following("rates"), "rates": following("trades", own=True), "trades": OWN, "orders": OWN}
    for stream in streams:
        check_imports(stream, streams)
    states = {
        "prices": SourceTime(),
        "rates": SourceTime(At(5)),
        "trades": SourceTime(At(9)),
        "orders": SourceTime(At(50)),
    }
    assert times(follow_imports(states, streams)) == {
        "prices": At(9),
        "rates": At(9),
        "trades": At(9),
        "orders": At(50),
    }
    states["rates"] = SourceTime(At(30))
    assert times(follow_imports(states, streams)) == {**times(states), "prices": At(30)}, "the latest on the way"


def test_W10_streams_that_import_each_other_share_the_time() -> None:
    streams = {"a": following("b", own=True), "b": following("a")}
    for stream in streams:
        check_imports(stream, streams)
    assert times(follow_imports({"a": SourceTime(At(5)), "b": SourceTime()}, streams)) == {"a": At(5), "b": At(5)}


@given(STEPS, st.lists(st.integers(0, 100), min_size=15, max_size=15), st.booleans())
def test_W10_an_import_drives_a_stream_with_its_own_time_or_without(
    steps: Steps, imports: list[int], own: bool
) -> None:
    streams = {"prices": following("trades", own=own), "trades": OWN}
    prices = alone = add_partitions(SourceTime(), dict.fromkeys(PARTITIONS))
    for number, seen in enumerate(polls(steps)):
        prices, alone = (
            observe(s, seen.observations, t, seen.now_ms) for s, t in ((prices, streams["prices"]), (alone, OWN))
        )
        prices = follow_imports({"prices": prices, "trades": SourceTime(At(imports[number]))}, streams)["prices"]
        imported = At(max(imports[: number + 1]))
        assert prices.watermark == (latest(imported, alone.watermark) if own else imported)
        assert prices.partitions.keys() == alone.partitions.keys()
