"""F5: what a query does after Kafka has forgotten the committed offsets of its group, or an administrator has deleted it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from unittest.mock import patch

import pytest

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.errors import BrokerUnreachable, DataLoss, PositionsDiffer
from streamgroups.fakes import FakeLedger
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.commit_metadata import ToolMark
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.subscription import Partitions
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.query import expired_offsets
from streamgroups.state.origins import UNNAMED, New
from unit_tests.streamgroups.query.spark_model import Run, Settings, World, tp

EXCLUSIVE = MembershipMode.EXCLUSIVE


def new_world(*counts: int) -> World:
    world = World(len(counts))
    world.produce(*counts)
    return world


def killed(run: Run, *, written: bool) -> None:
    """The driver is killed in a batch, before or after its sink has committed it."""
    run.plan()
    if written:
        run.member.commit_as_a_sink()
    run.world.group.kill(run.name)


@pytest.mark.parametrize("policy", OnRestart)
@pytest.mark.parametrize("n_finished", [0, 1])
@pytest.mark.parametrize("mode", MembershipMode)
def test_F5_a_batch_that_may_be_written_is_rejected(policy: OnRestart, n_finished: int, mode: MembershipMode) -> None:
    world = new_world(3, 2)
    alice = Run(world, "alice", Settings(on_restart=policy, mode=mode), commits_offsets=True).start()
    for _ in range(n_finished):
        alice.batch()
        world.produce(3, 2)
    killed(alice, written=True)
    world.cluster.forget("airline")
    # A supervisor restarts it again and again: the first restart must not make the offsets appear known.
    again = alice
    for _ in range(3):
        again = again.again()
        with pytest.raises(PositionsDiffer, match="only these offsets show whether its output is written"):
            again.start()
        again.source.stop()
        world.group.settle()
        assert world.committed() == {}


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("n_finished", [0, 1])
def test_F5_the_remedy_continues_after_the_output(is_written: bool, n_finished: int, tmp_path: Path) -> None:
    world = new_world(3, 2)
    alice = Run(world, "alice", Settings(mode=EXCLUSIVE), commits_offsets=True).start()
    for _ in range(n_finished):
        alice.batch()
        world.produce(3, 2)
    killed(alice, written=is_written)
    world.cluster.forget("airline")
    rejected = alice.again()
    with pytest.raises(PositionsDiffer) as raised:
        rejected.start()
    rejected.source.stop()
    commands = re.findall(r"printf .*? > positions\.csv", raised.value.remedy or "")
    subprocess.run(commands[0 if is_written else 1], shell=True, check=True, cwd=tmp_path)
    # As `streamgroups groups import` does.
    for line in (tmp_path / "positions.csv").read_text().splitlines():
        topic, partition, offset = line.split(",")
        mark = ToolMark(AppliedReset(1, "5f2c")).encode()
        world.cluster.commit("airline", {TopicPartition(topic, int(partition)): int(offset)}, mark)
    again = alice.again().start()
    end = 3 * (n_finished + 1), 2 * (n_finished + 1)
    first = 3 * n_finished, 2 * n_finished
    expected = () if is_written else (OffsetRange(tp(0), first[0], end[0]), OffsetRange(tp(1), first[1], end[1]))
    assert again.running == expected
    again.finish()
    world.produce(1)
    assert again.batch() == [f"flights-0[{end[0]},{end[0] + 1})"]


def test_F5_a_query_that_is_killed_before_its_first_commit_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    world = new_world(3, 2)
    alice = Run(world, "alice", commits_offsets=True).start()
    killed(alice, written=False)
    assert world.committed() == {0: 0, 1: 0}, "the offsets are committed before the batch is logged"
    again = alice.again().start()
    assert [str(r) for r in again.running or ()] == ["flights-0[0,3)", "flights-1[0,2)"]
    assert "no committed offsets" not in caplog.text


def test_F5_a_batch_begins_after_the_first_offsets_are_committed() -> None:
    world = new_world(3)
    alice = Run(world, "alice", commits_offsets=True)
    world.group.rebalancing = True
    alice.start()
    with patch.object(expired_offsets, "_TIMEOUT_S", 0), pytest.raises(BrokerUnreachable, match="first offsets"):
        alice.plan()
    assert alice.checkpoint.offsets == []
    world.group.rebalancing = False
    world.group.settle()
    assert alice.batch() == ["flights-0[0,3)"]


def test_F5_a_partition_that_was_added_is_committed_before_its_first_batch() -> None:
    world = new_world(3)
    alice = Run(world, "alice", commits_offsets=True).start()
    alice.batch()
    world.cluster.add_partitions("flights", 2)
    world.group.settle()
    world.produce(0, 4)
    alice.plan()
    assert world.committed() == {0: 3, 1: 0}


@pytest.mark.parametrize("commits_offsets", [True, False])
def test_F5_after_a_finished_batch_the_query_continues_with_one_warning(
    commits_offsets: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = new_world(3, 2)
    alice = Run(world, "alice", Settings(mode=EXCLUSIVE), commits_offsets=commits_offsets).start()
    alice.batch()
    alice.batch()
    alice.source.stop()
    world.cluster.forget("airline")
    world.cluster.add_partitions("flights", 3)
    world.produce(1, 0, 4)
    again = alice.again().start()
    assert again.batch() == ["flights-0[3,4)", "flights-2[0,4)"]
    assert again.batch() is None
    reported = [it.getMessage() for it in caplog.records if "no committed offsets" in it.getMessage()]
    assert reported == [
        "Group 'airline' has no committed offsets: they have expired, or were deleted. The query continues at "
        "flights-0: 3, flights-1: 2. It reads from the earliest offset: flights-2."
    ]
    assert world.committed() == {0: 4, 1: 2, 2: 4} if not commits_offsets else world.committed().keys() == {0, 1, 2}


def test_F5_an_unfinished_batch_of_another_sink_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    world = new_world(3, 2)
    alice = Run(world, "alice").start()
    alice.batch()
    world.produce(1)
    killed(alice, written=False)
    world.cluster.forget("airline")
    again = alice.again().start()
    assert [str(r) for r in again.running or ()] == ["flights-0[3,4)"]
    assert "they have expired, or were deleted" in caplog.text


def two_members(world: World, *, commits_offsets: bool) -> tuple[Run, Run]:
    """Alice reads flights-0, and bob flights-1. Both have records for their next batches."""
    alice, bob = (Run(world, name, commits_offsets=commits_offsets) for name in ("alice", "bob"))
    alice.start()
    alice.batch()
    bob.start()
    while not bob.has_joined:
        bob.batch()
    world.group.settle()
    world.produce(3, 2)
    return alice, bob


def test_F5_partitions_of_other_members_are_not_written_again() -> None:
    """A shared query has no positions of the partitions that others had."""
    world = new_world(3, 2)
    alice, bob = two_members(world, commits_offsets=True)
    alice.batch()
    bob.batch()
    alice.batch()
    bob.batch()
    for run in (alice, bob):
        run.source.stop()
    world.group.settle()
    world.cluster.forget("airline")
    again = bob.again().start()
    with pytest.raises(PositionsDiffer, match="the output of earlier members would be written again"):
        again.batch()


def test_F5_a_ledger_shows_the_positions_that_kafka_has_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    world = new_world(3)
    ledger: FakeLedger[str] = FakeLedger("airline")
    alice = Run(world, "alice", ledger=ledger).start()
    with ledger.transaction() as transaction:
        transaction.advance({tp(0): 3})
    killed(alice, written=False)
    world.cluster.forget("airline")
    again = Run(world, "alice", checkpoint=alice.checkpoint, ledger=ledger).start()
    assert again.running == ()
    (reported,) = [it.getMessage() for it in caplog.records if "no committed offsets" in it.getMessage()]
    assert reported.endswith("The query continues at flights-0: 3.")


@pytest.mark.parametrize("earliest", [0, 8])
def test_F5_a_partition_of_the_checkpoint_has_no_empty_state(earliest: int) -> None:
    world = new_world(8)
    alice = Run(world, "alice", Settings(mode=EXCLUSIVE)).start()
    alice.batch()
    alice.batch()
    alice.source.stop()
    world.cluster.forget("airline")
    world.cluster.delete_records(tp(0), earliest)
    world.cluster.add_partitions("flights", 2)
    again = alice.again().start()
    again.batch()
    owned = again.member.membership.owned
    assert (owned[tp(0)].next_offset, owned[tp(0)].state) == (8, UNNAMED)
    assert owned[tp(1)].state == New(), "this partition is new"


def test_F5_a_topic_that_was_recreated_is_data_loss_and_not_an_unknown_output() -> None:
    world = new_world(3)
    alice = Run(world, "alice", Settings(mode=EXCLUSIVE), commits_offsets=True).start()
    alice.batch()
    world.produce(3)
    killed(alice, written=True)
    world.cluster.create_topic("flights")
    world.produce(2)
    world.cluster.forget("airline")
    with pytest.raises(DataLoss, match="recreated"):
        alice.again().start()


def test_F5_a_committed_empty_state_stays_empty() -> None:
    world = new_world(8, 0)
    alice = Run(world, "alice", Settings(mode=EXCLUSIVE)).start()
    alice.batch()
    alice.batch()
    alice.source.stop()
    again = alice.again().start()
    again.batch()
    assert again.member.membership.owned[tp(1)].state == New()


def of_two_members(world: World, *, commits_offsets: bool) -> dict[str, Run]:
    """Alice reads flights-0, and bob flights-1. Both have finished their batches and are stopped."""
    alice, bob = two_members(world, commits_offsets=commits_offsets)
    for run in (alice, bob, alice, bob):
        run.batch()
    for run in (alice, bob):
        run.source.stop()
    world.group.settle()
    return {"alice": alice, "bob": bob}


def warnings_about_offsets(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [it.getMessage() for it in caplog.records if "no committed offset" in it.getMessage()]


@pytest.mark.parametrize("commits_offsets", [True, False])
def test_F5_a_partition_of_another_member_is_not_read_again_without_a_warning(
    commits_offsets: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = new_world(3, 2)
    runs = of_two_members(world, commits_offsets=commits_offsets)
    assert world.committed() == {0: 6, 1: 4}
    world.cluster.forget_partitions("airline", [tp(0)])
    again = runs["bob"].again().start()
    assert again.batch() == ["flights-0[0,6)"]
    (reported,) = warnings_about_offsets(caplog)
    assert reported == (
        "Group 'airline' has no committed offset of flights-0, but of other partitions: it has expired, was deleted, or was never "
        "committed. The query reads from the earliest offset: flights-0. If other members have read these partitions, their output is "
        "written again. To continue at another offset: stop the query, and commit the positions with streamgroups groups reset "
        "airline --topic TOPIC:PARTITION --to-offset OFFSET --execute."
    )


@pytest.mark.parametrize("deleted", [0, 1])
@pytest.mark.parametrize("commits_offsets", [True, False])
def test_F5_a_partition_of_the_checkpoint_continues_there_with_one_warning(
    deleted: int, commits_offsets: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = new_world(3, 2)
    runs = of_two_members(world, commits_offsets=commits_offsets)
    world.cluster.forget_partitions("airline", [tp(deleted)])
    world.produce(1, 1)
    again = runs[("alice", "bob")[deleted]].again().start()
    assert again.batch() == ["flights-0[6,7)", "flights-1[4,5)"]
    (reported,) = warnings_about_offsets(caplog)
    assert reported == (
        f"Group 'airline' has no committed offset of flights-{deleted}, but of other partitions: it has expired, was deleted, or was "
        f"never committed. The query continues at flights-{deleted}: {(6, 4)[deleted]}."
    )


@pytest.mark.parametrize("mode", MembershipMode)
def test_F5_a_batch_is_unknown_if_one_of_its_offsets_was_deleted(mode: MembershipMode) -> None:
    world = new_world(3, 2)
    alice = Run(world, "alice", Settings(mode=mode), commits_offsets=True).start()
    killed(alice, written=True)
    world.cluster.forget_partitions("airline", [tp(1)])
    with pytest.raises(PositionsDiffer, match=r"flights-1\[0,2\)"):
        alice.again().start()


def test_F5_the_highest_partition_of_a_topic_counts_as_added(caplog: pytest.LogCaptureFixture) -> None:
    """A limit: its number does not show whether the group has read it."""
    world = new_world(3, 2)
    runs = of_two_members(world, commits_offsets=True)
    world.cluster.forget_partitions("airline", [tp(1)])
    assert runs["alice"].again().start().batch() == ["flights-1[0,4)"]
    assert warnings_about_offsets(caplog) == []


@pytest.mark.parametrize("commits_offsets", [True, False])
def test_F5_an_added_partition_that_no_batch_has_read_is_no_error(commits_offsets: bool) -> None:
    """It has no offset, and a higher one has: so the numbers do not prove that an offset was deleted."""
    world = new_world(3, 2)
    runs = of_two_members(world, commits_offsets=commits_offsets)
    alice = runs["alice"].again().start()
    alice.batch()
    world.cluster.add_partitions("flights", 4)
    world.produce(0, 0, 0, 5)
    world.group.settle()
    alice.batch()
    alice.batch()
    alice.source.stop()
    world.group.settle()
    assert world.committed().keys() == {0, 1, 3}
    world.produce(0, 0, 2)
    assert runs["bob"].again().start().batch() == ["flights-2[0,2)"]


@pytest.mark.parametrize("earliest", [0, 2])
def test_F5_a_partition_of_another_member_has_no_empty_state(earliest: int) -> None:
    world = new_world(3, 2)
    runs = of_two_members(world, commits_offsets=False)
    world.cluster.forget_partitions("airline", [tp(0)])
    world.cluster.delete_records(tp(0), earliest)
    world.cluster.add_partitions("flights", 3)
    again = runs["bob"].again().start()
    again.batch()
    owned = again.member.membership.owned
    assert owned[tp(0)].state == UNNAMED, "onMissingState decides"
    assert owned[tp(2)].state == New(), "this partition is new"


def test_F5_the_state_of_an_assigned_partition_is_empty(caplog: pytest.LogCaptureFixture) -> None:
    """The user chooses these partitions, so an earlier run may have left out a lower one."""
    world = new_world(3, 2)
    one = Run(world, "alice", Settings(subscription=Partitions((tp(1),)))).start()
    one.batch()
    one.batch()
    one.source.stop()
    both = Settings(subscription=Partitions((tp(0), tp(1))))
    again = Run(world, "alice", both, one.checkpoint).start()
    assert again.batch() == ["flights-0[0,3)"]
    assert again.member.membership.owned[tp(0)].state == New()
    assert warnings_about_offsets(caplog) == []
