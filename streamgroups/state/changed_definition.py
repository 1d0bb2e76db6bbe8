"""Describes how a changed definition of an operator continues: the remedy of ``StateMismatch``.

Used by ``streamgroups_operators.store``, whose definition of an operator differs from that of its state. Source: SEMANTICS C3, S10.
"""

from __future__ import annotations

from streamgroups.printable import listed
from streamgroups.shell_quoting import command
from streamgroups.state.manifest import Manifest
from streamgroups.times import utc

#: The beginning of the definition of a function with state.
FUNCTION_FORM = "a function with the state ("


def remedy(manifest: Manifest) -> str:
    """How a query with another definition continues at the positions of a state.

    Args:
        manifest: the manifest of the state.

    >>> from streamgroups.state.file_names import StateFileName
    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> remedy(Manifest(file, "board", "paid", "inner join of orders and payments", ()))
    'Revert the change, or give the operator a new name and set onMissingState=empty.'
    """
    return f"Revert the change, or give the operator a new name and set onMissingState=empty{_converted(manifest)}{_again(manifest)}."


def _converted(manifest: Manifest) -> str:
    if not manifest.form.startswith(FUNCTION_FORM):
        return ""
    return ". A new version of the function converts the state with: sg.stateful(version=2, migrate={1: function})"


def _again(manifest: Manifest) -> str:
    """How the records of open windows are read again. The parts of windows have their start as name."""
    starts = [int(part) for state in manifest.states for part in state.parts if part.lstrip("-").isdecimal()]
    if not starts:
        return ""
    # The next record of a partition can open a window at its watermark.
    watermarks = [it.time.watermark_ms for it in manifest.states if it.time and it.time.watermark_ms is not None]
    start = utc(min(starts + watermarks))
    partitions = listed(sorted(it.topic_partition for it in manifest.states))
    return (
        f". The windows of {partitions} are open from {start} on. To count their records again, reset the group to the earliest "
        f"such time of all partitions with: "
        f"{command('groups reset', [manifest.group_id], f'--all-topics --to-datetime {start} --ignore-state')}. "
        "docs/savepoint-recipes.rst describes it"
    )
