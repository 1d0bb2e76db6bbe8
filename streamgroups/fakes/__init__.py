"""In-memory implementations of the ports, for tests: a cluster, a group with rebalances, a clock and a history.

The unit tests of users and of this library use them. They have no thread, no network and no running clock: every event
is an action of the test, in the order of the test. Where a real group works in the background, a test calls
:meth:`FakeGroup.settle`.

>>> from functools import partial
>>> from streamgroups.groups.membership import Origin, Owned
>>> from streamgroups.partitions import TopicPartition
>>> cluster = FakeCluster(FakeClock())
>>> cluster.create_topic("flights", 4)
>>> group = FakeGroup(cluster, "airline")
>>> def earliest(missing):
...     return {tp: Owned(n, Origin.EARLIEST) for tp, n in cluster.beginning_offsets(missing).items()}
>>> new_member = partial(FakeMember, group, topics=lambda: ["flights"], first_positions=earliest)
>>> alice, bob = new_member("alice"), new_member("bob")
>>> alice.join(1_000)
>>> bob.join(1_000)
>>> sorted(str(tp) for tp in bob.membership.owned)
['flights-2', 'flights-3']
>>> group.kill("alice")
>>> len(bob.membership.owned)
4
"""

from __future__ import annotations

from streamgroups.fakes.admin import FakeAdmin
from streamgroups.fakes.basics import FakeClock, FakeExecutor, FakeHistory
from streamgroups.fakes.cluster import FakeCluster, FakeTransaction
from streamgroups.fakes.group import CommitAnswer, FakeGroup, FakeGroupMetadata
from streamgroups.fakes.ledger import FakeLedger, Moment
from streamgroups.fakes.member import FakeMember, FakeMemberSnapshot
from streamgroups.fakes.records import FakeRecords

__all__ = [
    "CommitAnswer",
    "FakeAdmin",
    "FakeClock",
    "FakeCluster",
    "FakeExecutor",
    "FakeGroup",
    "FakeGroupMetadata",
    "FakeHistory",
    "FakeLedger",
    "FakeMember",
    "FakeMemberSnapshot",
    "FakeRecords",
    "FakeTransaction",
    "Moment",
]
