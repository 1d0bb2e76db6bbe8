"""The page that shows a query's event time: it is well-formed and complete."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from streamgroups.partitions import TopicPartition
from streamgroups_admin.reports.event_time import Moment, time_page
from unit_tests.streamgroups.event_time.tables import P0, P1

TIMES = st.none() | st.integers(0, 4_000_000_000_000)


def drawing(moments: list[Moment]) -> ElementTree.Element:
    found = re.search(r"<svg viewBox.*</svg>", time_page(moments, title="<Flights>"), re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found.group())


def titles(moments: list[Moment]) -> list[str]:
    return [title.text or "" for title in drawing(moments).iter("title")]


def test_partitions_the_watermark_and_what_it_did() -> None:
    moments = [
        Moment(1_000, None, {P0: 600_000, P1: None}),
        Moment(2_000, 300_000, {P0: 900_000, P1: 300_000}, late=4),
        Moment(3_000, 600_000, {P0: 900_000, P1: 600_000}, frozenset({P1}), closed=2),
    ]
    assert titles(moments) == [
        "watermark",
        str(P0),
        str(P1),
        f"{P1}, idle",
        "2 closed by the watermark of 1970-01-01 00:10:00",
        "4 late records, 00:00:02.000",
    ]
    assert "4 late records, 2 closed windows" in time_page(moments, title="<Flights>")


def test_a_watermark_above_its_partitions_would_be_seen() -> None:
    (low,) = (path for path in drawing([Moment(0, 5), Moment(9, 7)]).iter("path") if path.get("class") == "line low")
    heights = [float(v) for v in re.findall(r"(?:M[\d.]+ |V)([\d.]+)", low.attrib["d"])]
    assert heights == [352.0, 12.0], "later is higher up"


def test_the_vertical_axis_has_round_times() -> None:
    labels = [text.text for text in drawing([Moment(0, 3_599_000), Moment(9, 5_401_000)]).iter("text")]
    assert labels[:3] == ["1970-01-01 01:00:00", "1970-01-01 01:05:00", "1970-01-01 01:10:00"]
    one_time = drawing([Moment(0, 5)]).find("text")
    assert one_time is not None
    assert one_time.text == "1970-01-01 00:00:00"


@given(
    st.lists(
        st.builds(
            Moment,
            st.integers(0, 10**12),
            TIMES,
            st.dictionaries(st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 9)), TIMES, max_size=4),
            late=st.integers(0, 10**9),
            closed=st.integers(0, 10**9),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_anything_can_be_drawn(moments: list[Moment]) -> None:
    page = time_page(moments, title="<Flights>")
    assert "&lt;Flights&gt;" in page
    assert page.count("</svg>") >= 1
