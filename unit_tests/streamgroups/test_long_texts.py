"""O1: an error or a log line about many partitions stays readable."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.checkpoints.restart import OnRestart, resume_finished
from streamgroups.checkpoints.restart_after_expiry import lost_in_part, lost_offsets, output_unknown, positions_unknown
from streamgroups.errors import StreamGroupsError
from streamgroups.fakes import FakeLedger
from streamgroups.groups.applied_reset import AppliedReset
from streamgroups.groups.membership import InFlight, Membership, Origin, Owned
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.batch_commit import commit_batch, take_over_partitions
from streamgroups.ledgers.compare_and_swap import ComparedRange, Fenced
from streamgroups.ledgers.fences import epoch_partition, fenced_by_ledger, new_epochs
from streamgroups.ledgers.recovery import restored_states, take_over
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.query.data_loss import StoredPosition, data_loss, deleted, find_loss
from streamgroups.state.origins import New

MANY, MAX_CHARACTERS = 10_000, 3_000
Partitions = list[TopicPartition]


def ranges(tps: Partitions) -> list[OffsetRange]:
    return [OffsetRange(tp, 1_000_000, 2_000_000) for tp in tps]


def loss(tps: Partitions) -> StreamGroupsError:
    then, now = TopicIdentity("c", "then"), TopicIdentity("c", "now")
    found = (find_loss(tp, StoredPosition(20, then), now, Bounds(10, 30)) for tp in tps)
    return data_loss([it for it in found if it is not None], "billing")


def differs(tps: Partitions, owned: Owned) -> None:
    take_over(dict.fromkeys(tps, owned), dict.fromkeys(tps, 20), OnRestart.FAIL, group_id="billing")


def wrong_states(tps: Partitions) -> None:
    owned = Owned(10, reset=AppliedReset(1, "a"), kept_reset=AppliedReset(0, ""), state=New())
    restored_states(dict.fromkeys(tps, owned), dict.fromkeys(tps, 20), {})


def restart(tps: Partitions, owned: Owned, policy: OnRestart) -> None:
    resume_finished(BatchOffset(3, tuple(ranges(tps))), dict.fromkeys(tps, owned), policy)


def is_written(tps: Partitions) -> None:
    ledger: FakeLedger[str] = FakeLedger("billing")
    commit_batch(ledger, {"billing": ranges(tps)}, "a batch")


ERRORS: dict[str, Callable[[Partitions], object]] = {
    "the topics were recreated": loss,
    "the topics were deleted": lambda tps: deleted(dict.fromkeys(tps, 20), "billing"),
    "checkpoint and group differ": lambda tps: restart(tps, Owned(5, Origin.FOREIGN), OnRestart.FAIL),
    "the sink has other positions": lambda tps: restart(tps, Owned(5, Origin.WRITTEN), OnRestart.CHECKPOINT),
    "the group was restored": lambda tps: restart(
        tps, Owned(5, reset=AppliedReset(1, "a"), is_restored=True), OnRestart.CHECKPOINT
    ),
    "ledger and group differ": lambda tps: differs(tps, Owned(5, Origin.FOREIGN)),
    "the ledger was set back": lambda tps: differs(tps, Owned(5, reset=AppliedReset(1, "a"))),
    "a restored state is wrong": wrong_states,
    "the positions are not in the ledger": is_written,
    "the positions of the ledger are elsewhere": lambda tps: Fenced(
        tuple(ComparedRange(r, 5) for r in ranges(tps))
    ).error("billing"),
    "the partitions have another owner": lambda tps: new_epochs(
        {tp: Owned(5, epoch=1) for tp in tps},
        {epoch_partition(tp): 6 for tp in tps},
        lambda _: False,
        group_id="billing",
    ),
    "the ledger has another owner": lambda tps: fenced_by_ledger("billing", tps),
    "the output is unknown": lambda tps: output_unknown(ranges(tps), "billing"),
    "the positions are unknown": lambda tps: positions_unknown(tps, "billing"),
    "the offsets are lost": lambda tps: lost_offsets(dict.fromkeys(tps, 20), tps, "billing"),
    "some offsets are lost": lambda tps: lost_in_part(dict.fromkeys(tps, 20), tps, "billing"),
}


def text_of(build: Callable[[Partitions], object], tps: Partitions) -> str:
    try:
        built = build(tps)
    except StreamGroupsError as e:
        built = e
    assert isinstance(built, StreamGroupsError | str), built
    return str(built)


@pytest.mark.parametrize("topic", ["flights", "f" * 240])
@pytest.mark.parametrize("are_topics", [False, True])
@pytest.mark.parametrize("build", ERRORS.values(), ids=ERRORS.keys())
def test_O1_an_error_about_10000_partitions_is_short(
    build: Callable[[Partitions], object], topic: str, are_topics: bool
) -> None:
    """The partitions are those of one topic, or of 10,000."""
    tps = [TopicPartition(f"{topic}{n}", 0) if are_topics else TopicPartition(topic, n) for n in range(MANY)]
    text = text_of(build, tps)
    assert str(tps[0]) in text
    # Ten names of up to 249 characters occur at most three times.
    assert len(text) < MAX_CHARACTERS + 30 * len(topic)


@pytest.mark.parametrize("build", ERRORS.values(), ids=ERRORS.keys())
def test_O1_an_error_about_three_partitions_contains_all(build: Callable[[Partitions], object]) -> None:
    tps = [TopicPartition("flights", n) for n in range(3)]
    text = text_of(build, tps)
    assert all(str(tp) in text for tp in tps)
    assert not re.search(r"and \d+ more", text)


def test_S5_a_ledger_that_is_set_back_needs_one_command_for_many_partitions() -> None:
    tps = [TopicPartition("flights", n) for n in range(11)]
    text = text_of(ERRORS["the ledger was set back"], tps)
    assert "groups reset" not in text
    assert "11 partitions to positions.csv, and run: streamgroups groups import positions.csv --group billing" in text


def test_S5_differences_of_many_partitions_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    tps = [TopicPartition("flights", n) for n in range(MANY)]
    ledger: FakeLedger[str] = FakeLedger("billing")
    with ledger.transaction() as transaction:
        transaction.advance(dict.fromkeys(tps, 20))
    owned = dict.fromkeys(tps, Owned(5, Origin.FOREIGN, epoch=1))
    with caplog.at_level(logging.WARNING):
        take_over_partitions(ledger, owned, OnRestart.CHECKPOINT, group_id="billing", is_owner=lambda _: True)
    (line,) = caplog.messages
    assert "flights-0: ledger 20, group 5" in line
    assert len(line) < MAX_CHARACTERS


def test_G11_a_batch_of_many_foreign_partitions_is_rejected_with_a_short_error() -> None:
    tps = [TopicPartition("flights", n) for n in range(MANY)]
    with pytest.raises(ValueError, match="must not read") as rejected:
        Membership().plan(InFlight(1, tuple(ranges(tps))))
    assert len(str(rejected.value)) < MAX_CHARACTERS
