"""A group that waits for the batch of a former owner, as tests of its description need it."""

from __future__ import annotations

from dataclasses import dataclass

from streamgroups.fakes import FakeClock, FakeCluster, FakeGroup, FakeMember
from streamgroups.groups.membership import Origin, Owned
from streamgroups.partitions import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Handover:
    """The group ``airline``, in which alice reads a batch of her last partition, and bob has joined.

    Args:
        group: the group.
        alice: the former owner of the last partition, which has no owner in the description of the group.
        bob: its next owner.
    """

    group: FakeGroup
    alice: FakeMember
    bob: FakeMember

    def end_batch(self) -> None:
        """Alice finishes her batch, and bob becomes the owner."""
        self.alice.finish(1)
        self.group.settle()


def handover(count: int) -> Handover:
    """Begins a handover.

    Args:
        count: the number of partitions of the topic ``flights``.
    """
    cluster = FakeCluster(FakeClock(0))
    cluster.create_topic("flights", count)
    partitions = tuple(TopicPartition("flights", p) for p in range(count))
    group = FakeGroup(cluster, "airline")
    alice, bob = (
        FakeMember(
            group,
            name,
            topics=lambda: ["flights"],
            first_positions=lambda missing: {tp: Owned.new(0, Origin.EARLIEST) for tp in missing},
        )
        for name in ("alice", "bob")
    )
    alice.join(0)
    alice.plan(1, [OffsetRange(partitions[-1], 0, cluster.produce(partitions[-1], 5).end_offset)])
    bob.join(0)
    assert group.owners()[partitions[-1]] == "alice"
    assert group.describe().owners.keys() == set(partitions[:-1])
    return Handover(group, alice, bob)
