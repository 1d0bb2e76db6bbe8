"""A command that an error prints, pasted into a shell, changes the named group, and runs no other program."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from streamgroups.checkpoints import restart_after_expiry as expiry
from streamgroups.cleanup_policy import check_compacted
from streamgroups.coordination.reset_requests import _too_many
from streamgroups.coordination.unreadable_entries import unreadable
from streamgroups.errors import StreamGroupsError
from streamgroups.groups.added_partitions import require_none
from streamgroups.groups.description import GroupDescription
from streamgroups.groups.program import CURSORS, _mismatch
from streamgroups.identity import TopicIdentity
from streamgroups.ledgers.recovery import LedgerDifference, _reject_set_back
from streamgroups.partitions import Bounds, OffsetRange, TopicPartition
from streamgroups.query.data_loss import StoredPosition, data_loss, find_loss
from streamgroups.shell_quoting import command
from streamgroups.state.changed_definition import remedy as changed_definition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState
from streamgroups_kafka.cursors.position_checks import _remedy as of_cursors

P0 = TopicPartition("flights", 0)
NAMES = ("a b", "a; touch x", "$(id)", "a'b", "-x")


def _lost(group: str) -> str:
    loss = find_loss(P0, StoredPosition(20, TopicIdentity("c", "t1")), TopicIdentity("c", "t2"), Bounds(0, 30))
    assert loss is not None
    return data_loss([loss], group).remedy


def _raised(call: Callable[[], None]) -> str:
    with pytest.raises(StreamGroupsError) as error:
        call()
    return error.value.remedy


def _definition(group: str) -> str:
    state = PartitionState(OffsetRange(P0, 5, 9), 0, TopicIdentity("c", "t"), {"600000": ()})
    return changed_definition(
        Manifest(StateFileName(1732334879123, "1f3a9c2b7d10", 1, 4), group, "paid", "x", (state,))
    )


REMEDIES: dict[str, Callable[[str], str]] = {
    "data loss": _lost,
    "output unknown": lambda g: expiry.output_unknown([OffsetRange(P0, 10, 20)], g).remedy,
    "positions unknown": lambda g: expiry.positions_unknown([P0], g).remedy,
    "no-data batch unknown": lambda g: expiry.no_data_unknown(3, g).remedy,
    "lost in part": lambda g: expiry.lost_in_part({}, [P0], g).partition("commit the positions with ")[2],
    "added partitions": lambda g: _raised(lambda: require_none([P0], g)),
    "ledger set back": lambda g: _raised(lambda: _reject_set_back([LedgerDifference(P0, 5, 9)], g)),
    "other program": lambda g: _mismatch("none", {P0: "windows:minutes"}, GroupDescription(g, "Empty")).remedy,
    "program of cursors": lambda g: _mismatch(CURSORS, {P0: "windows:minutes"}, GroupDescription(g, "Empty")).remedy,
    "operators of other names": lambda g: (
        _mismatch("windows:hours", {P0: "windows:minutes"}, GroupDescription(g, "Empty")).remedy
    ),
    "changed definition": _definition,
    "reset requests": lambda g: _too_many(g, ["a", "b"], ["a"]).remedy,
    "unreadable entries": lambda g: unreadable(g, [P0])[1],
    "cursors": lambda g: of_cursors(g, [P0], are_committed=True),
}


@pytest.mark.parametrize("group", NAMES)
@pytest.mark.parametrize("remedy", REMEDIES.values(), ids=REMEDIES)
def test_O1_a_printed_command_has_the_name_of_the_group_as_one_word(remedy: Callable[[str], str], group: str) -> None:
    text = remedy(group)
    commands = text.split("streamgroups ")[1:]
    assert commands
    for it in commands:
        if it.startswith(("gaps", "savepoint restore")):
            continue
        assert shlex.quote(group) in it
        end = it.index(shlex.quote(group)) + len(shlex.quote(group))
        words = shlex.split(it[:end])
        assert words[-1] == group
        # A value of --group can begin with "-". An argument cannot, unless it follows "--".
        assert not group.startswith("-") or words[-2] in ("--", "--group")


def test_a_topic_is_one_word_of_a_command() -> None:
    assert "--topic 'a b' --add" in _raised(lambda: check_compacted("a b", "delete", "x"))


def test_no_option_follows_the_end_of_the_options() -> None:
    words = shlex.split(command("groups undo", ["ok", "-x"], "--execute"))
    assert words == ["streamgroups", "groups", "undo", "--execute", "--", "ok", "-x"]
