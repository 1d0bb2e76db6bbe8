"""Decides whether a checkpoint belongs to a query: to its group, and to its program.

Called by ``streamgroups.query.micro_batches`` when a query is restarted, before anything changes. Other properties of a
checkpoint are compared elsewhere: its version by :mod:`streamgroups.checkpoints.offset`, its positions by
:mod:`streamgroups.checkpoints.restart`, cluster and topics by :mod:`streamgroups.query.data_loss`. ``docs/source.rst`` has the
complete table. Source: SEMANTICS S14, S15.
"""

from __future__ import annotations

import shlex

from streamgroups.checkpoints.offset import BatchOffset
from streamgroups.errors import CheckpointMismatch, ProgramMismatch
from streamgroups.groups.program import OnOtherProgram


def check_belongs(
    offset: BatchOffset,
    group_id: str,
    form: str,
    policy: OnOtherProgram,
    *,
    checkpoint: str = "CHECKPOINT",
) -> None:
    """Rejects a checkpoint of another group or another program. Properties that the checkpoint does not contain are not compared.

    Args:
        offset: an offset of the checkpoint.
        group_id: the group of the query.
        form: the form of the program of the query. Empty if it is unknown.
        policy: the option ``onOtherProgram``.
        checkpoint: the location of the checkpoint, for errors.

    Raises:
        CheckpointMismatch: if it belongs to another group.
        ProgramMismatch: if it belongs to another program, and the policy is to fail.

    >>> check_belongs(BatchOffset(3, group_id="rg1"), "rg2", "none", OnOtherProgram.FAIL, checkpoint="/data/board")
    Traceback (most recent call last):
    streamgroups.errors.CheckpointMismatch: The checkpoint /data/board belongs to group 'rg1', but the query has group.id=rg2. Set a \
new checkpointLocation: then group 'rg2' begins at its committed offsets, or at the starting position. To continue at the positions \
of group 'rg1': streamgroups groups copy rg1 rg2 --execute.
    >>> check_belongs(BatchOffset(3, group_id="rg1"), "rg1", "none", OnOtherProgram.FAIL)
    """
    if offset.group_id is not None and offset.group_id != group_id:
        raise CheckpointMismatch(
            f"The checkpoint {checkpoint} belongs to group '{offset.group_id}', but the query has group.id={group_id}.",
            remedy=f"Set a new checkpointLocation: then group '{group_id}' begins at its committed offsets, or at the starting "
            f"position. To continue at the positions of group '{offset.group_id}': streamgroups groups copy "
            f"{shlex.quote(offset.group_id)} {shlex.quote(group_id)} --execute.",
            group=group_id,
        )
    if policy is OnOtherProgram.FAIL and offset.form and form and offset.form != form:
        raise ProgramMismatch(
            f"The checkpoint {checkpoint} belongs to another program of group '{group_id}': it was written by '{offset.form}', this "
            f"program is '{form}'.",
            remedy="Set another checkpointLocation and another group.id. If this program replaces the other one: start it once with "
            "onOtherProgram=continue. It continues at the positions of the other one.",
            group=group_id,
        )
