"""O1, G8: the target offsets of a reset, and files that undo it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgroups.errors import BrokerUnreachable, GroupRejected, InvalidOption, NotAuthorized, UnknownTopic
from streamgroups.groups.lag import PartitionError
from streamgroups.groups.offset_files import FiledOffset, parse, to_csv, to_json
from streamgroups.groups.reset_plan import (
    Facts,
    Scenario,
    ShiftBy,
    ToCurrent,
    ToListed,
    out_of_range,
    parse_scope,
    plan,
    require_bounds,
)
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.positions import AtOffset, AtTime, Latest, TrimHorizon

OFFSETS = st.integers(0, 1_000)
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["flights", "airports"]), st.integers(0, 3))
TP = TopicPartition("flights", 0)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    beginning = draw(OFFSETS)
    return Bounds(beginning, beginning + draw(OFFSETS))


@st.composite
def facts(draw: st.DrawFn) -> dict[TopicPartition, Facts]:
    found = {}
    for tp in draw(st.lists(PARTITIONS, min_size=1, unique=True)):
        b = draw(bounds())
        at_time = draw(st.none() | st.integers(b.beginning_offset, b.end_offset))
        found[tp] = Facts(draw(st.none() | st.integers(0, 3_000)), b, at_time)
    return found


def scenarios(partitions: list[TopicPartition]) -> st.SearchStrategy[Scenario]:
    listed = st.fixed_dictionaries({tp: st.integers(0, 3_000) for tp in partitions})
    return st.one_of(
        st.sampled_from([TrimHorizon(), Latest(), ToCurrent(), AtTime(5)]),
        st.builds(AtOffset, st.integers(-10, 3_000)),
        st.builds(ShiftBy, st.integers(-3_000, 3_000)),
        st.builds(ToListed, listed),
    )


@given(facts(), st.data())
def test_O1_a_plan_never_leaves_a_partition(known: dict[TopicPartition, Facts], data: st.DataObject) -> None:
    scenario = data.draw(scenarios(list(known)))
    try:
        moves = plan(scenario, known, group_id="g")
    except GroupRejected:
        assert isinstance(scenario, ShiftBy)
        assert any(fact.committed_offset is None for fact in known.values())
        return
    assert [m.topic_partition for m in moves] == sorted(known)
    for move in moves:
        fact = known[move.topic_partition]
        inside = fact.bounds.beginning_offset <= move.to_offset <= fact.bounds.end_offset
        # The current offset is kept as it is, wherever it is.
        assert inside or (isinstance(scenario, ToCurrent) and move.to_offset == fact.committed_offset)
        assert move.from_offset == fact.committed_offset
        if move.requested_offset is not None:
            assert move in out_of_range(moves)
            assert not fact.bounds.beginning_offset <= move.requested_offset <= fact.bounds.end_offset


@given(facts(), st.data())
def test_planning_again_what_was_done_changes_nothing(known: dict[TopicPartition, Facts], data: st.DataObject) -> None:
    scenario = data.draw(scenarios(list(known)).filter(lambda s: not isinstance(s, ShiftBy)))
    moves = plan(scenario, known, group_id="g")
    after = {m.topic_partition: Facts(m.to_offset, m.bounds, known[m.topic_partition].offset_at_time) for m in moves}
    assert [m.change for m in plan(scenario, after, group_id="g")] == [0] * len(moves)


@given(facts())
def test_an_undo_restores_what_was_inside(known: dict[TopicPartition, Facts]) -> None:
    before = {tp: FiledOffset(f.committed_offset) for tp, f in known.items()}
    text = to_json({"g": before}, {}, made_at="now", why="a test")
    filed = parse(text, source="undo", group_id=None)["g"]
    assert filed == before
    listed = {tp: o.next_offset for tp, o in filed.items() if o.next_offset is not None}
    moved = {m.topic_partition: m.to_offset for m in plan(Latest(), known, group_id="g")}
    back = plan(ToListed(listed), {tp: Facts(moved[tp], known[tp].bounds) for tp in listed}, group_id="g")
    for move in back:
        b = move.bounds
        assert move.to_offset == min(max(listed[move.topic_partition], b.beginning_offset), b.end_offset)


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (TrimHorizon(), 10),
        (Latest(), 20),
        (AtOffset(15), 15),
        (AtOffset(5), 10),
        (AtOffset(25), 20),
        (AtTime(1), 17),
        (ShiftBy(3), 15),
        (ShiftBy(-9), 10),
        (ShiftBy(9), 20),
        (ToCurrent(), 12),
        (ToListed({TP: 18}), 18),
        (ToListed({TP: 1}), 10),
    ],
)
def test_O1_every_scenario(scenario: Scenario, expected: int) -> None:
    (move,) = plan(scenario, {TP: Facts(12, Bounds(10, 20), 17)}, group_id="g")
    assert move.to_offset == expected


def test_O1_without_a_committed_offset() -> None:
    unknown = {TP: Facts(None, Bounds(10, 20))}
    assert [m.to_offset for m in plan(ToCurrent(), unknown, group_id="g")] == [20]
    assert [m.to_offset for m in plan(AtTime(1), unknown, group_id="g")] == [20]
    assert [m.change for m in plan(TrimHorizon(), unknown, group_id="g")] == [None]
    with pytest.raises(GroupRejected, match="no committed offset for flights-0; nothing was changed"):
        plan(ShiftBy(1), unknown, group_id="g")


def test_partitions_that_are_not_there() -> None:
    other = TopicPartition("flights", 9)
    assert require_bounds({TP: Bounds(0, 1)}) == {TP: Bounds(0, 1)}
    with pytest.raises(UnknownTopic, match="flights-9"):
        require_bounds({TP: PartitionError.NO_LEADER, other: PartitionError.NO_PARTITION})
    with pytest.raises(BrokerUnreachable, match="flights-0"):
        require_bounds({TP: PartitionError.NO_LEADER})
    with pytest.raises(NotAuthorized, match=r"'flights'; nothing was changed\. Grant Describe on Topic 'flights'"):
        require_bounds({TP: PartitionError.NOT_AUTHORIZED, other: PartitionError.NO_LEADER})


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":0",
        "flights:",
        "flights:0,,1",
        "flights:-1",
        "flights:0:1",
        "flights:٣",
        "flights:2147483648",
        "flights:" + "9" * 5_000,
    ],
    ids=lambda text: text[:20],
)
def test_a_malformed_scope(text: str) -> None:
    with pytest.raises(InvalidOption, match="is invalid"):
        parse_scope([text])


def test_a_whole_topic_swallows_its_parts() -> None:
    assert parse_scope(["flights:0", "flights", "flights:1"]) == {"flights": None}


GROUP_IDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
FILED = st.dictionaries(
    GROUP_IDS,
    st.dictionaries(
        PARTITIONS, st.builds(FiledOffset, st.none() | OFFSETS, st.text(st.characters(codec="utf-8"))), min_size=1
    ),
    min_size=1,
    max_size=3,
)


@given(FILED)
def test_json_files_keep_everything(filed: dict[str, dict[TopicPartition, FiledOffset]]) -> None:
    assert parse(to_json(filed, {}, made_at="", why=""), source="f", group_id=None) == filed


@given(FILED)
def test_csv_files_keep_offsets(filed: dict[str, dict[TopicPartition, FiledOffset]]) -> None:
    (first, *_) = filed
    read = parse(to_csv(filed), source="f", group_id=first)
    kept = {
        g: {tp: FiledOffset(o.next_offset) for tp, o in of_group.items() if o.next_offset is not None}
        for g, of_group in filed.items()
    }
    assert {g: dict(o) for g, o in read.items() if o} == {g: o for g, o in kept.items() if o}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flights,0", "line 1: a line must be"),
        ("flights,0,1\nflights,x,1", "line 2: 'x' is not a number"),
        ("flights,0,-1", "'-1' is not a number"),
        ("flights,0,1\nflights,0,2", "line 2: flights-0 of group 'g' is listed twice"),
        ("flights,99999999999,1", "are not a group, a topic and a partition"),
        (f"flights,0,{2**63}", "is not an offset"),
        ("{", "it is not valid JSON"),
        ("{}", "it is not an offsets file"),
        ('{"kind":"streamgroups-offsets","schema_version":2,"groups":[]}', "or it has a newer version"),
        ('{"kind":"streamgroups-offsets","schema_version":1,"groups":{}}', "'groups' is not a list"),
        (
            '{"kind":"streamgroups-offsets","schema_version":1,"groups":[{"group":"g","partitions":[{"topic":"t"}]}]}',
            "is not the offset of a partition",
        ),
    ],
)
def test_files_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(InvalidOption, match=r"^f\.csv") as rejected:
        parse(text, source="f.csv", group_id="g")
    assert message in str(rejected.value)


def test_a_csv_file_without_a_group_needs_one() -> None:
    with pytest.raises(InvalidOption, match="the group is missing"):
        parse("flights,0,1", source="f.csv", group_id=None)
