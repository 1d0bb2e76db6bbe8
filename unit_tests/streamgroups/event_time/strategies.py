"""Examples for the properties of event time: settings, and the events of a source, poll by poll."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import hypothesis.strategies as st

from streamgroups.event_time.observations import Observation
from streamgroups.event_time.settings import TimeSettings
from streamgroups.event_time.strategy import Generation, Period, Records
from streamgroups.partitions import TopicPartition
from unit_tests.streamgroups.event_time.tables import P0, P1, P2

PARTITIONS = (P0, P1, P2)
EVERY = st.one_of(st.builds(Records, st.integers(1, 5)), st.builds(Period, st.integers(1, 30)))
GENERATIONS = st.builds(Generation, EVERY, st.integers(-2, 20))
SETTINGS = st.builds(TimeSettings, GENERATIONS, partition_idle_timeout_ms=st.one_of(st.none(), st.integers(1, 40)))
#: Every record asserts its own time, and no partition is ever idle.
PLAIN = TimeSettings(Generation())


@dataclass(frozen=True)
class Happening:
    """The events of one partition between two polls: records of these times are read, and this number is available."""

    times_ms: tuple[int, ...]
    available: int


@dataclass(frozen=True)
class Poll:
    """A poll of some of the partitions."""

    now_ms: int
    observations: Mapping[TopicPartition, Observation]


_TIMES = st.lists(st.integers(0, 100), max_size=4).map(tuple)
HAPPENINGS = st.builds(Happening, _TIMES, st.sampled_from([0, 0, 0, 2]))
STEPS = st.lists(st.tuples(st.integers(0, 30), st.dictionaries(st.sampled_from(PARTITIONS), HAPPENINGS)), max_size=15)
Steps = Sequence[tuple[int, Mapping[TopicPartition, Happening]]]


def polls(steps: Steps) -> Iterator[Poll]:
    """What is seen when this happens."""
    now_ms, position = 0, dict.fromkeys(PARTITIONS, 0)
    for passed_ms, happenings in steps:
        now_ms += passed_ms
        observations = {}
        for tp, happening in happenings.items():
            position[tp] += len(happening.times_ms)
            observations[tp] = Observation(
                position[tp],
                position[tp] + happening.available,
                len(happening.times_ms),
                max(happening.times_ms, default=None),
            )
        yield Poll(now_ms, observations)
