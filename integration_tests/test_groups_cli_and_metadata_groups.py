"""O1: on a real broker the metadata groups of a group are hidden, and are deleted together with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import streamgroups as sg
from integration_tests.test_groups_cli_rejects_invalid_input import cli
from streamgroups.coordination.reset_protocol import members_group_of, resets_group_of
from streamgroups_testkit.producing import produce


def listed(bootstrap: str, *arguments: str) -> set[str]:
    result = cli(bootstrap, "groups", "list", "-o", "json", *arguments)
    assert result.returncode == 0, result.stderr
    return {g["group"] for g in json.loads(result.stdout)["groups"]}


def test_O1_a_group_of_cursors_is_one_group(
    bootstrap: str, new_topic: Callable[..., str], group: str, open_cursors: Callable[..., sg.cursors.GroupCursors]
) -> None:
    stream = new_topic(2)
    produce(bootstrap, stream, 20, partitions=2)
    cursors = open_cursors()
    cursor = cursors.create_group_cursor(stream, group, "worker-1", sg.cursors.TRIM_HORIZON)
    _, cursor = cursors.get_messages(cursor, 10)
    cursors.update_group(stream, group, sg.cursors.TRIM_HORIZON)
    _, cursor = cursors.get_messages(cursor, 10)
    cursor = cursors.consumer_commit(cursor)
    cursors.leave_group(cursor)
    entries = {members_group_of(group), resets_group_of(group)}

    assert group in listed(bootstrap)
    assert not entries & listed(bootstrap)
    assert {group, *entries} <= listed(bootstrap, "--internal")
    assert ".streamgroups" not in cli(bootstrap, "groups", "export", "--all-groups").stdout
    assert cli(bootstrap, "groups", "export", members_group_of(group)).stdout.startswith(f"{stream},0,")

    result = cli(bootstrap, "groups", "delete", group, "--execute")
    assert result.returncode == 0, result.stderr
    assert not {group, *entries} & listed(bootstrap, "--internal")
    # A recreated group of this name applies no reset request of the deleted group.
    cursor = cursors.create_group_cursor(stream, group, "worker-1", sg.cursors.LATEST)
    assert cursors.get_messages(cursor)[0] == []
