"""The offsets of a query in Spark's log, with their content.

Used by ``streamgroups.query.micro_batches``. Spark returns each offset that a query has planned: for the tasks of its batch,
and as the start of the next one. So the last two are kept with their content, and only those of an earlier run are decoded.
Source: Spark's ``DataSourceStreamReader``; SEMANTICS S8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamgroups.checkpoints.checkpoint_owner import check_belongs
from streamgroups.checkpoints.offset import BatchOffset, decode, encode
from streamgroups.groups.program import OnOtherProgram


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
        """
        for known, offset in self.last:
            if known == logged:
                return offset
        offset = decode(logged, group_id=self._group_id, checkpoint=self._checkpoint)
        check_belongs(offset, self._group_id, self._form, self._policy, checkpoint=self._checkpoint)
        self._keep(logged, offset)
        return offset

    def _keep(self, logged: Mapping[str, Any], offset: BatchOffset) -> None:
        self.last = (*self.last[-1:], (logged, offset))
