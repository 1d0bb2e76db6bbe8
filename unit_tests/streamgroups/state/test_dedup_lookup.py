"""X5: ids that a reset keeps are those of a state whose commit the files prove."""

from __future__ import annotations

import pytest

from streamgroups.identity import TopicIdentity
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups.state.origins import UNNAMED
from streamgroups.state.state_lookup import Position, newest_committed

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TOPIC, RECREATED = TopicIdentity("c1", "t1"), TopicIdentity("c1", "t2")


def file(number: int) -> StateFileName:
    return StateFileName(1732334000000 + number, "1f3a9c2b7d10", number, number)


def state(
    number: int, first: int, end: int, after: int | None, tp: TopicPartition = P0, identity: TopicIdentity = TOPIC
) -> Manifest:
    """The state after a batch. It has continued with the state of another file."""
    name = None if after is None else file(after)
    return Manifest(
        file(number), "billing", "dedup", "", (PartitionState(OffsetRange(tp, first, end), 0, identity, after=name),)
    )


FIRST, SECOND = state(1, 0, 5, None), state(2, 5, 9, 1)


@pytest.mark.parametrize(
    ("manifests", "expected"),
    [
        ([], None),
        ([FIRST], None),
        ([FIRST, SECOND], 1),
        # A killed attempt of the second batch proves as much.
        ([FIRST, state(2, 5, 9, 1), state(3, 5, 7, 1)], 1),
        # A batch without records.
        ([FIRST, SECOND, state(3, 9, 9, 2)], 3),
        # The other attempt of the first batch was not the committed one.
        ([FIRST, state(2, 0, 5, None), state(3, 5, 9, 1)], 1),
        # After a reset to offset 3, a batch has continued with the state of offset 5. This does not prove the reset's batch.
        ([FIRST, SECOND, state(3, 3, 7, 1)], 1),
        ([FIRST, SECOND, state(3, 3, 7, 1), state(4, 7, 9, 3)], 3),
        # Another partition, and a topic that was recreated.
        ([FIRST, state(2, 5, 9, 1, P1)], None),
        ([FIRST, state(2, 5, 9, 1, identity=RECREATED)], None),
    ],
)
def test_X5_the_newest_committed_state_of_a_partition_is_found(manifests: list[Manifest], expected: int | None) -> None:
    for order in (manifests, manifests[::-1]):
        found = newest_committed(Position(P0, 2, UNNAMED, TOPIC), order)
        assert (None if found is None else found.file) == (None if expected is None else file(expected))
