"""S9, W11: which sources of a DataFrame have options that apply to its records."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from streamgroups.errors import InvalidOption
from streamgroups.event_time.violations import OnViolation
from streamgroups_spark.source.read_options import (
    has_event_time,
    read_options,
    reject_idle_timeout,
    source_delay_ms,
    source_policy,
)

BASE = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}


@dataclass
class Stream:
    """A stream of a plan."""

    options: dict[str, str]
    name: str = "streamgroups"

    def nodeName(self) -> str:
        return "StreamingRelationV2"

    def isStreaming(self) -> bool:
        return True

    def sourceName(self) -> str:
        return self.name

    def extraOptions(self) -> dict[str, str]:
        return self.options


@dataclass
class Bounded:
    """A read of bounded data in a plan."""

    given: dict[str, str]

    def nodeName(self) -> str:
        return "DataSourceV2Relation"

    def isStreaming(self) -> bool:
        return False

    def table(self) -> Any:
        return SimpleNamespace(name=lambda: "streamgroups")

    def options(self) -> Any:
        return SimpleNamespace(asCaseSensitiveMap=lambda: self.given)


def reading(*leaves: Stream | Bounded) -> Any:
    found = SimpleNamespace(size=lambda: len(leaves), apply=lambda i: leaves[i])
    plan = SimpleNamespace(collectLeaves=lambda: found)
    execution = SimpleNamespace(analyzed=lambda: plan)
    is_stream = any(isinstance(it, Stream) for it in leaves)
    return SimpleNamespace(isStreaming=is_stream, _jdf=SimpleNamespace(queryExecution=lambda: execution))


def test_W11_bounded_data_joined_with_a_stream_have_options_of_their_own() -> None:
    names = Bounded(BASE | {"endingOffsets": "latest", "onViolation": "drop"})
    joined = reading(Stream(BASE | {"onViolation": "adjust"}), names)
    assert [it.on_violation for it in read_options(joined)] == [OnViolation.ADJUST]
    assert source_policy(joined) is OnViolation.ADJUST
    assert source_policy(reading(names)) is OnViolation.DROP


def test_W11_streams_with_different_policies_are_rejected() -> None:
    both = reading(*(Stream(BASE | {"onViolation": policy}) for policy in ("keep", "drop")))
    with pytest.raises(InvalidOption, match="different values of 'onViolation': drop, keep"):
        source_policy(both)


def test_W11_the_delay_of_the_source_is_that_of_all_streams() -> None:
    assert source_delay_ms(reading(Stream(BASE | {"watermarkDelay": "10m"}))) == 600_000
    assert source_delay_ms(reading(Stream(BASE | {"watermarkDelay": "none"}))) is None
    assert source_delay_ms(reading(Bounded(BASE | {"watermarkDelay": "10m"}))) is None
    with pytest.raises(InvalidOption, match="different values of 'watermarkDelay'"):
        source_delay_ms(reading(Stream(BASE | {"watermarkDelay": "10m"}), Stream(BASE)))


def test_W11_an_idle_timeout_without_effect_is_rejected() -> None:
    stream = Stream(BASE | {"partitionIdleTimeout": "30s"})
    reject_idle_timeout(reading(Stream(BASE)), "sg.join", remedy="Leave it out.")
    reject_idle_timeout(reading(stream, Stream({}, "streamgroups-time")), "sg.join", remedy="Leave it out.")
    with pytest.raises(InvalidOption, match=r"'partitionIdleTimeout' of group 'board' has no effect on sg\.join"):
        reject_idle_timeout(reading(stream), "sg.join", remedy="Leave it out.")


@pytest.mark.parametrize("option", [{"emitEvery": "garbage"}, {"emitEvery": "0 records"}, {"watermarkDelay": "10"}])
def test_W11_options_of_event_time_are_checked_when_a_stream_is_read(option: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        read_options(reading(Stream(BASE | option)))


def test_W11_with_event_time_has_applied_the_policy() -> None:
    timed = reading(Stream(BASE | {"onViolation": "drop"}), Stream({}, "streamgroups-time"))
    assert has_event_time(timed)
    assert len(read_options(timed)) == 1
    assert source_policy(timed) is OnViolation.KEEP
    assert not has_event_time(reading(Stream(BASE)))
