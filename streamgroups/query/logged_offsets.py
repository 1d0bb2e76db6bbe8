"""The offsets of a query in Spark's log, with their content.

Used by ``streamgroups.query.micro_batches``. Spark returns each offset that a query has planned: for the tasks of its batch,
and as the start of the next one. So the last two are kept with their content, and only those of an earlier run are decoded.
An offset must belong to the group and to the program of the query. Other properties are compared elsewhere: the positions by
:mod:`streamgroups.checkpoints.restart`, cluster and topics by :mod:`streamgroups.query.data_loss`. ``docs/source.rst`` has the
complete table. Source: Spark's ``DataSourceStreamReader``; SEMANTICS S8, S14, S15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamgroups.checkpoints.offset import BatchOffset, decode, encode
from streamgroups.errors import CheckpointMismatch, ProgramMismatch
from streamgroups.groups.program import OnOtherProgram
from streamgroups.shell_quoting import command


class LoggedOffsets:
    """The offsets of one query.

    Args:
        group_id: the group of the query.
        run_id: the id of the run. See :class:`streamgroups.query.micro_batches.MicroBatches`.
        form: the form of the program of the query. Empty if it is unknown.
        policy: what happens to an offset of another program.
        checkpoint: the location of the checkpoint, for errors.

    >>> offsets = LoggedOffsets("board", "1f3a", "", OnOtherProgram.FAIL)
    >>> logged = offsets.encode(BatchOffset(3))
    >>> logged["run"], offsets.decode(dict(logged)).number
    ('1f3a', 3)
    """

    def __init__(
        self, group_id: str, run_id: str, form: str, policy: OnOtherProgram, checkpoint: str = "CHECKPOINT"
    ) -> None:
        self._group_id, self._run_id, self._form = group_id, run_id, form
        self._policy, self._checkpoint = policy, checkpoint
        #: The last two, as Spark logs them, with their content.
        self.last: tuple[tuple[Mapping[str, Any], BatchOffset], ...] = ()

    def encode(self, offset: BatchOffset) -> dict[str, Any]:
        """Returns an offset for Spark's log."""
        offset = replace(offset, group_id=self._group_id, form=self._form)
        logged = {**encode(offset), **({"run": self._run_id} if self._run_id else {})}
        self._keep(logged, offset)
        return logged

    def decode(self, logged: Mapping[str, Any]) -> BatchOffset:
        """Returns the content of an offset that Spark has logged.

        Raises:
            OffsetFormat: if another source, or another version of this library, has written it.
            CheckpointMismatch: if it belongs to another group.
            ProgramMismatch: if it belongs to another program, and the policy is to fail.

        >>> offsets = LoggedOffsets("rg2", "", "none", OnOtherProgram.FAIL, "/data/board")
        >>> offsets.decode(encode(BatchOffset(3, group_id="rg1")))
        Traceback (most recent call last):
        streamgroups.errors.CheckpointMismatch: The checkpoint /data/board belongs to group 'rg1', but the query has \
group.id=rg2. Set a new checkpointLocation: then group 'rg2' begins at its committed offsets, or at the starting position. To \
continue at the positions of group 'rg1': streamgroups groups copy rg1 rg2 --execute.
        """
        for known, offset in self.last:
            if known == logged:
                return offset
        offset = decode(logged, group_id=self._group_id, checkpoint=self._checkpoint)
        self._check_belongs(offset)
        self._keep(logged, offset)
        return offset

    def _check_belongs(self, offset: BatchOffset) -> None:
        """Properties that the checkpoint does not contain are not compared."""
        if offset.group_id is not None and offset.group_id != self._group_id:
            raise CheckpointMismatch(
                f"The checkpoint {self._checkpoint} belongs to group '{offset.group_id}', but the query has "
                f"group.id={self._group_id}.",
                remedy=f"Set a new checkpointLocation: then group '{self._group_id}' begins at its committed offsets, or at the "
                f"starting position. To continue at the positions of group '{offset.group_id}': "
                f"{command('groups copy', [offset.group_id, self._group_id], '--execute')}.",
                group=self._group_id,
            )
        if self._policy is OnOtherProgram.FAIL and offset.form and self._form and offset.form != self._form:
            raise ProgramMismatch(
                f"The checkpoint {self._checkpoint} belongs to another program of group '{self._group_id}': it was written by "
                f"'{offset.form}', this program is '{self._form}'.",
                remedy="Set another checkpointLocation and another group.id. If this program replaces the other one: start it "
                "once with onOtherProgram=continue. It continues at the positions of the other one.",
                group=self._group_id,
            )

    def _keep(self, logged: Mapping[str, Any], offset: BatchOffset) -> None:
        self.last = (*self.last[-1:], (logged, offset))
