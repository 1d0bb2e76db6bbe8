"""X7: which records an effect receives, whatever batches, owners and zombies did before."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamgroups.errors import InvalidOption
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input.idempotency import idempotency_key
from streamgroups.stable_input.pin_file import decode, encode
from streamgroups.stable_input.pin_retention import Retention, deletable
from streamgroups.stable_input.pins import Cover, Pin, PinFile, RecordSegment, cover
from streamgroups.state.file_names import StateFileName
from unit_tests.examples import examples

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST, RECREATED = TopicIdentity("c1", "t1"), TopicIdentity("c1", "t2")
NOW_MS = 1_732_334_879_123
MINUTE_MS = 60_000
KEEP = Retention(10 * MINUTE_MS, young_ms=60 * MINUTE_MS)


def name(number: int, *, minutes_ago: int = 0) -> StateFileName:
    return StateFileName(NOW_MS - minutes_ago * MINUTE_MS, "1f3a9c2b7d10", number, 0)


def ages(*files: StateFileName) -> dict[StateFileName, int]:
    return {file: NOW_MS - file.planned_ms for file in files}


def pin_file(file: StateFileName, *pins: Pin, generation: int = 1) -> PinFile:
    return PinFile(file, "billing", "effect", generation, "struct<value:string>", pins)


def pinned(first: int, end: int, *, generation: int = 1, number: int = 0, identity: TopicIdentity = UNKNOWN) -> PinFile:
    pin = Pin(OffsetRange(P0, first, end), identity, (RecordSegment(name(number), 0, 1),))
    return pin_file(name(number), pin, generation=generation)


def shown(found: Cover) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """The pinned parts with the numbers of their files, and the new ranges."""
    parts = [(part.range.next_offset, part.range.end_offset, part.origin.file.batch) for part in found.pinned]
    return parts, [(r.next_offset, r.end_offset) for r in found.new]


# ---- which pins cover a batch ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "parts", "new"),
    [
        ((100, 200), [(100, 200, 1)], []),
        ((100, 150), [(100, 150, 1)], []),
        ((150, 200), [(150, 200, 1)], []),
        ((120, 180), [(120, 180, 1)], []),
        ((100, 300), [(100, 200, 1)], [(200, 300)]),
        ((50, 300), [(100, 200, 1)], [(50, 100), (200, 300)]),
        ((200, 300), [], [(200, 300)]),
        ((0, 100), [], [(0, 100)]),
        ((150, 150), [], []),
    ],
    ids=["same", "smaller", "rest", "within", "larger", "around", "after", "before", "empty"],
)
def test_X7_a_batch_uses_the_pinned_offsets_and_computes_the_others(
    batch: tuple[int, int], parts: list[tuple[int, int, int]], new: list[tuple[int, int]]
) -> None:
    assert shown(cover([OffsetRange(P0, *batch)], [pinned(100, 200, number=1)], {})) == (parts, new)


def test_X7_of_two_pins_that_of_the_later_owner_is_used() -> None:
    zombie, owner = pinned(100, 200, generation=4, number=9), pinned(100, 150, generation=5, number=1)
    found = cover([OffsetRange(P0, 100, 200)], [zombie, owner], {})
    assert shown(found) == ([(100, 150, 1), (150, 200, 9)], [])


def test_X7_S11_pins_of_a_recreated_topic_or_another_cluster_are_not_used() -> None:
    for identity in (RECREATED, TopicIdentity("c2", "t1")):
        found = cover([OffsetRange(P0, 100, 200)], [pinned(100, 200, identity=identity)], {P0: FIRST})
        assert shown(found) == ([], [(100, 200)])
    same = cover([OffsetRange(P0, 100, 200)], [pinned(100, 200, identity=FIRST)], {P0: FIRST})
    assert shown(same) == ([(100, 200, 0)], [])


RANGES = st.builds(
    lambda tp, first, length: OffsetRange(tp, first, first + length),
    st.sampled_from([P0, P1]),
    st.integers(0, 40),
    st.integers(0, 20),
)
FILES = st.lists(
    st.builds(
        lambda number, generation, ranges: pin_file(name(number), *map(Pin, ranges), generation=generation),
        st.integers(0, 100),
        st.integers(0, 3),
        st.lists(RANGES, max_size=3),
    ),
    max_size=5,
)


@given(st.tuples(st.builds(OffsetRange, st.just(P0), st.just(5), st.integers(5, 50)), RANGES), FILES)
def test_X7_each_offset_has_one_source(batch: tuple[OffsetRange, OffsetRange], files: list[PinFile]) -> None:
    ranges = [batch[0], OffsetRange(P1, batch[1].next_offset, batch[1].end_offset)]
    found = cover(ranges, files, {})
    for it in ranges:
        for offset in range(it.next_offset, it.end_offset):
            parts = [part for part in found.pinned if _contains(part.range, it.topic_partition, offset)]
            new = [r for r in found.new if _contains(r, it.topic_partition, offset)]
            possible = [f for f in files for p in f.pins if _contains(p.range, it.topic_partition, offset)]
            assert len(parts) + len(new) == 1
            assert bool(parts) == bool(possible)
            if parts:
                assert _contains(parts[0].pin.range, it.topic_partition, offset)
                best = max((f.generation, f.file) for f in possible)
                assert (parts[0].origin.generation, parts[0].origin.file) == best
    covered = sum(len(part.range) for part in found.pinned) + sum(map(len, found.new))
    assert covered == sum(map(len, ranges))


def _contains(it: OffsetRange, tp: TopicPartition, offset: int) -> bool:
    return it.topic_partition == tp and it.next_offset <= offset < it.end_offset


# ---- owners, kills and zombies ---------------------------------------------------------------------------------------


class Group:
    """A partition whose owner changes at any moment, and the effects that have run."""

    def __init__(self, chance: random.Random, *, confirms: bool = True) -> None:
        self.chance, self.confirms = chance, confirms
        self.owner, self.generation, self.committed = 0, 1, 0
        self.files: list[PinFile] = []
        self.numbers = itertools.count()
        #: The contents that effects have received, by offset.
        self.effects: dict[int, set[StateFileName]] = defaultdict(set)

    def batch(self, member: int) -> Iterator[None]:
        """A batch of a member. It can be killed, or its partition be revoked, at each ``yield``."""
        generation, first = self.generation, self.committed
        batch = OffsetRange(P0, first, first + self.chance.randint(1, 5))
        yield
        covered = cover([batch], self.files, {})
        yield
        # The file of a segment identifies its content.
        written = name(next(self.numbers))
        pins = covered.pins({P0: (RecordSegment(written, 0, 1),)}, {})
        yield
        self.files.append(pin_file(written, *pins, generation=generation))
        yield
        if self.confirms and (self.owner, self.generation) != (member, generation):
            return
        for pin in pins:
            yield
            for offset in range(pin.range.next_offset, pin.range.end_offset):
                self.effects[offset].add(pin.segments[0].file)
        yield
        if (self.owner, self.generation) == (member, generation):
            self.committed = batch.end_offset

    def run(self, steps: int) -> None:
        running: dict[int, Iterator[None]] = {}
        zombies: list[Iterator[None]] = []
        for _ in range(steps):
            action = self.chance.random()
            if action < 0.15:
                # The group removes the owner. Its batch continues as that of a zombie, or is killed.
                if self.chance.random() < 0.7 and self.owner in running:
                    zombies.append(running[self.owner])
                running.pop(self.owner, None)
                self.owner, self.generation = self.chance.randint(0, 2), self.generation + 1
            elif action < 0.4 and zombies:
                next(self.chance.choice(zombies), None)
            else:
                batch = running.setdefault(self.owner, self.batch(self.owner))
                if next(batch, "finished") == "finished":
                    del running[self.owner]


@given(st.integers(0, 10**9))
def test_X7_all_effects_of_an_offset_receive_the_same_content(seed: int) -> None:
    group = Group(random.Random(seed))
    group.run(150)
    assert {offset: seen for offset, seen in group.effects.items() if len(seen) > 1} == {}


def test_without_the_confirmation_of_the_broker_the_model_finds_other_contents() -> None:
    def differs(seed: int) -> bool:
        group = Group(random.Random(seed), confirms=False)
        group.run(150)
        return any(len(seen) > 1 for seen in group.effects.values())

    assert any(map(differs, range(examples(200))))


# ---- files -----------------------------------------------------------------------------------------------------------


def test_a_pin_file_is_read_as_it_was_written() -> None:
    segments = (RecordSegment(name(4), 1, 7), RecordSegment(name(5), 0, 2))
    file = pin_file(name(3), Pin(OffsetRange(P0, 1, 9), FIRST, segments), Pin(OffsetRange(P1, 5, 6), FIRST))
    assert decode(encode(file), file.file) == file


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version":1', '"version":2'),
        ('"from":1', '"from":99'),
        ("[0,1,7]", "[9,1,7]"),
        ("[0,1,7]", "[0,1]"),
        ('"generation":1', '"generation":-1'),
        ('"pins":[', '"pins":7,"x":['),
        ("{", ""),
    ],
)
def test_a_damaged_pin_file_is_no_empty_pin(old: str, new: str) -> None:
    file = pin_file(name(3), Pin(OffsetRange(P0, 1, 9), FIRST, (RecordSegment(name(4), 1, 7),)))
    with pytest.raises(ValueError, match=r"version|damaged|Expecting|Extra|list|between|integer|least|object"):
        decode(encode(file).replace(old, new, 1), file.file)


def test_pins_behind_the_committed_offset_are_deleted_after_the_retention() -> None:
    def kept(minutes_ago: int, committed: dict[TopicPartition, int], identity: TopicIdentity = FIRST) -> bool:
        file = name(1, minutes_ago=minutes_ago)
        segments = (RecordSegment(file, 0, 1),)
        pins = pin_file(file, Pin(OffsetRange(P0, 0, 10), FIRST, segments), Pin(OffsetRange(P1, 0, 5), FIRST))
        gone = deletable([pins], [file], committed, {P0: identity, P1: identity}, KEEP, ages(file))
        assert gone.pins == gone.records
        return not gone.pins

    assert not kept(11, {P0: 10, P1: 5})
    assert kept(9, {P0: 10, P1: 5})
    assert kept(10_000, {P0: 10, P1: 4})
    assert kept(10_000, {P0: 10})
    # A recreated topic begins at 0 again, so its committed offset proves nothing.
    assert not kept(11, {P0: 1, P1: 1}, RECREATED)
    assert kept(10_000, {P0: 10, P1: 5}, TopicIdentity("c2", "t1"))


def test_pins_of_another_cluster_are_kept_for_partitions_that_the_batch_does_not_read() -> None:
    """A mirrored topic has the same name, and its group too. The committed offsets are those of the batch's cluster."""
    for identity, is_kept in ((TopicIdentity("c2", "t9"), True), (FIRST, False)):
        file = pin_file(name(1, minutes_ago=11), Pin(OffsetRange(P1, 0, 5), identity))
        gone = deletable([file], [], {P0: 10, P1: 5}, {P0: FIRST}, KEEP, ages(file.file))
        assert gone.pins == (frozenset() if is_kept else {file.file})


def test_records_without_a_pin_are_kept_while_their_batch_can_be_in_flight() -> None:
    young, old = name(1, minutes_ago=59), name(2, minutes_ago=61)
    assert deletable([], [young, old], {}, {}, KEEP, ages(young, old)).records == {old}


def test_records_that_a_kept_pin_names_are_kept() -> None:
    old = name(2, minutes_ago=61)
    file = pin_file(name(3), Pin(OffsetRange(P0, 0, 10), FIRST, (RecordSegment(old, 0, 1),)))
    assert deletable([file], [old], {P0: 10}, {}, KEEP, ages(file.file, old)).records == frozenset()


# ---- keys ------------------------------------------------------------------------------------------------------------

_KEYS = st.tuples(
    st.text(max_size=5), st.sampled_from(["a", "b", "a.1"]), st.integers(0, 20), st.integers(0, 20), st.integers(0, 3)
)


@given(_KEYS, _KEYS, st.sampled_from([None, "t1", "t2"]))
def test_X7_different_records_have_different_keys(
    one: tuple[str, str, int, int, int], other: tuple[str, str, int, int, int], topic_id: str | None
) -> None:
    keys = {idempotency_key(*one, topic_id=topic_id), idempotency_key(*other, topic_id=topic_id)}
    assert len(keys) == len({one, other})
    assert idempotency_key(*one, topic_id="t3") not in keys


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_a_key_of_a_negative_number_is_rejected(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidOption, match="0 or larger"):
        idempotency_key("g", "t", *numbers)
